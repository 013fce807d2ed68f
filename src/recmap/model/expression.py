"""Expressions: conditions on the columns of a row, such as ``rm.col("label") == 3``.

``col`` names a column, comparing it makes an ``Expression``, and ``&``, ``|`` and ``~`` combine
them. An expression knows no dataset: ``bind`` looks its columns up in a schema, refuses what cannot
be compared, and returns the ``Predicate`` that tests batches. Its repr is Python again; states and
manifests record it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, Never, NoReturn

import numpy as np

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import is_iterable
from recmap.model.field import Field
from recmap.model.habits import helpful
from recmap.model.nulls import NULL_SUFFIX
from recmap.model.plain_value import plain_value, value_text
from recmap.model.predicate import ColumnPredicate, NullPredicate, Predicate, Together
from recmap.model.schema import Schema
from recmap.model.value_test import (
    Relation,
    ValueTest,
    membership_test,
    nan_test,
    string_test,
    value_test,
)

# The repr of a longer list of values shows some of them, and a digest of all.
_MOST_SHOWN = 50
_SHOWN = 3


class Expression(ABC):
    """A condition on the columns of a row. Combine several with ``&``, ``|`` and ``~``."""

    __slots__ = ()
    # Leave comparisons with the numbers of NumPy to this class.
    __array_ufunc__ = None

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The names of its columns."""

    @abstractmethod
    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        """Return the predicate of rows for which this is true, or false if that is ``wanted``."""

    def __and__(self, other: Expression) -> Expression:
        return _combined(self, other, every=True)

    def __or__(self, other: Expression) -> Expression:
        return _combined(self, other, every=False)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Expression:
        return Negated(self)

    def __bool__(self) -> NoReturn:
        raise OptionError(
            f"{self!r} is true for some rows and false for others, so Python's and, or, not and "
            "chained comparisons do not work: use (a) & (b), (a) | (b), ~(a), or between(low, high)"
        )

    def _in_parentheses(self) -> str:
        return repr(self)


def as_expression(value: Any) -> Expression:
    """Return an expression; refuse anything else."""
    if not isinstance(value, Expression):
        raise OptionTypeError(
            'a condition is a comparison of a column, such as rm.col("label") == 3, not '
            f"{type(value).__name__}{'; filter takes a function' if callable(value) else ''}"
        )
    return value


@dataclass(frozen=True, repr=False)
class Combined(Expression):
    """Several expressions, of which every one must be true, or any."""

    parts: tuple[Expression, ...]
    every: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.names for part in self.parts))

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        parts = [part.bind(schema, wanted) for part in self.parts]
        # "Not both" is "one or the other is not".
        return Together(parts, self.every == wanted)

    def __repr__(self) -> str:
        sign = " & " if self.every else " | "
        return sign.join(part._in_parentheses() for part in self.parts)  # noqa: SLF001

    def _in_parentheses(self) -> str:
        return f"({self!r})"


def _combined(a: Expression, b: Any, *, every: bool) -> Expression:
    parts: list[Expression] = []
    for each in (a, as_expression(b)):
        # Long chains stay flat: nested ones would be too deep for Python.
        flat = isinstance(each, Combined) and each.every == every
        parts += each.parts if isinstance(each, Combined) and flat else (each,)
    return Combined(tuple(parts), every)


@dataclass(frozen=True, repr=False)
class Negated(Expression):
    """The opposite of an expression."""

    part: Expression

    @property
    def names(self) -> frozenset[str]:
        return self.part.names

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        return self.part.bind(schema, not wanted)

    def __invert__(self) -> Expression:
        return self.part

    def __repr__(self) -> str:
        return f"~{self.part._in_parentheses()}"  # noqa: SLF001


class _OfColumn(Expression):
    """An expression of one column."""

    __slots__ = ()
    column: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset([self.column])

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        field = schema[self.column]  # raises an error that lists the columns
        if field.shape:
            row = "rows of different lengths" if field.ragged else "several values in each row"
            raise OptionError(
                f"column {self.column!r} is {field}: it has {row}, and where compares single ones; "
                f"use filter with a function: ds.filter(lambda row: ... row[{self.column!r}] ...)"
            )
        test, passes = self._test(field)
        return ColumnPredicate(self.column, _mask(schema, self.column), test, wanted == passes)

    @abstractmethod
    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        """Return a test of the values, and whether they must pass it."""


def _mask(schema: Schema, name: str) -> str | None:
    """Return the name of the mask of a column, if there is one."""
    mask = name + NULL_SUFFIX
    there = mask in schema and schema[mask].dtype == np.bool_ and not schema[mask].shape
    return mask if there else None


@dataclass(frozen=True, repr=False)
class Comparison(_OfColumn):
    """A column compared with a value."""

    column: str
    relation: Relation | Literal["!="]
    value: Any

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        if self.relation == "!=":
            return value_test(self.column, field, "==", self.value), False
        return value_test(self.column, field, self.relation, self.value), True

    def __repr__(self) -> str:
        return f"{NamedColumn(self.column)!r} {self.relation} {value_text(self.value)}"

    def _in_parentheses(self) -> str:
        return f"({self!r})"


@dataclass(frozen=True, repr=False)
class StringComparison(_OfColumn):
    """Whether the strings of a column start with another, or contain it."""

    column: str
    relation: Literal["starts_with", "contains"]
    value: Any

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        return string_test(self.column, field, self.relation, self.value), True

    def __repr__(self) -> str:
        return f"{NamedColumn(self.column)!r}.{self.relation}({value_text(self.value)})"


@dataclass(frozen=True, repr=False)
class Membership(_OfColumn):
    """Whether a value is one of several."""

    column: str
    values: tuple[Any, ...]

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        return membership_test(self.column, field, self.values), True

    def __repr__(self) -> str:
        shown = [value_text(value) for value in self.values]
        if len(shown) > _MOST_SHOWN:
            digest = hashlib.blake2b("\0".join(shown).encode(), digest_size=8).hexdigest()
            shown = [*shown[:_SHOWN], f"... {len(shown):,} values, {digest}"]
        return f"{NamedColumn(self.column)!r}.is_in([{', '.join(shown)}])"


@dataclass(frozen=True, repr=False)
class IsNull(Expression):
    """Whether a column has no value."""

    column: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset([self.column])

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        schema[self.column]  # raises an error that lists the columns
        return NullPredicate(self.column, _mask(schema, self.column), wanted)

    def __repr__(self) -> str:
        return f"{NamedColumn(self.column)!r}.is_null()"


@dataclass(frozen=True, repr=False)
class IsNan(_OfColumn):
    """Whether a number is NaN."""

    column: str

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        return nan_test(self.column, field), True

    def __repr__(self) -> str:
        return f"{NamedColumn(self.column)!r}.is_nan()"


class NamedColumn(_OfColumn):
    """A column, to compare with values. A column of True and False is a condition by itself."""

    __slots__ = ("column",)
    column: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise OptionTypeError(f"col({name!r}): the name of a column is text")
        object.__setattr__(self, "column", name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a column of an expression cannot be changed: {name}={value!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedColumn, (self.column,)

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        if field.dtype.kind != "b":
            raise OptionError(
                f"column {self.column!r} is {field}, not true or false: compare it with a value"
            )
        return value_test(self.column, field, "==", True), True

    # Comparing makes an expression, so a column is not equal to anything itself.
    def __eq__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.column, "==", self._value("==", value))

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.column, "!=", self._value("!=", value))

    def __lt__(self, value: Any) -> Expression:
        return Comparison(self.column, "<", self._value("<", value))

    def __le__(self, value: Any) -> Expression:
        return Comparison(self.column, "<=", self._value("<=", value))

    def __gt__(self, value: Any) -> Expression:
        return Comparison(self.column, ">", self._value(">", value))

    def __ge__(self, value: Any) -> Expression:
        return Comparison(self.column, ">=", self._value(">=", value))

    __hash__ = object.__hash__

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these."""
        if isinstance(values, str | bytes | Expression) or not is_iterable(values):
            raise OptionTypeError(f"{self!r}.is_in({values!r}): give a list, such as [1, 2, 3]")
        given = [self._value("is_in", value) for value in values]
        if isinstance(values, AbstractSet):  # its order differs from run to run
            given.sort(key=value_text)
        return Membership(self.column, tuple(given))

    def between(self, low: Any, high: Any) -> Expression:
        """Whether the value lies from ``low`` to ``high``, both included."""
        low, high = self._value("between", low), self._value("between", high)
        try:
            turned = bool(low > high)
        except TypeError:  # a column will not take both, and says so
            turned = False
        if turned:
            raise OptionError(
                f"{self!r}.between({value_text(low)}, {value_text(high)}): give the smaller value "
                "first"
            )
        return Combined((self >= low, self <= high), every=True)

    def is_null(self) -> Expression:
        """Whether there is no value."""
        return IsNull(self.column)

    def is_nan(self) -> Expression:
        """Whether the value is NaN, which equals nothing."""
        return IsNan(self.column)

    def starts_with(self, text: str | bytes) -> Expression:
        """Whether the string begins with this one."""
        return StringComparison(self.column, "starts_with", self._value("starts_with", text))

    def contains(self, text: str | bytes) -> Expression:
        """Whether the string contains this one."""
        return StringComparison(self.column, "contains", self._value("contains", text))

    def _value(self, how: str, value: Any) -> Any:
        if isinstance(value, Expression):
            raise OptionTypeError(
                f"{self!r} {how} {value!r}: compare a column with a value; for two columns, use "
                'filter with a function: ds.filter(lambda row: row["a"] == row["b"])'
            )
        return plain_value(f"{self!r} {how}", value)

    def _no_arithmetic(self, *_: Any) -> Never:
        raise OptionTypeError(
            f"{self!r}: an expression compares columns with values and does not calculate; use "
            "filter with a function: ds.filter(lambda row: ...)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _no_arithmetic
    __floordiv__ = __mod__ = __pow__ = __neg__ = __abs__ = __getitem__ = __len__ = _no_arithmetic

    def __repr__(self) -> str:
        return f"col({self.column!r})"


@helpful
def col(name: str) -> NamedColumn:
    """Name a column, to say which rows ``where`` keeps.

    Compare it with ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``is_in``, ``between``,
    ``starts_with``, ``contains``, ``is_null`` and ``is_nan``. Combine conditions with ``&``,
    ``|`` and ``~``, each in parentheses.

    >>> import recmap as rm
    >>> (rm.col("size") > 10) & rm.col("kind").is_in(["a", "b"])
    (col('size') > 10) & col('kind').is_in(['a', 'b'])
    """
    return NamedColumn(name)
