"""Expressions: conditions on the columns of a row, such as ``rm.col("label") == 3``.

``col`` names a column, comparing it makes an ``Expression``, and ``&``, ``|`` and ``~`` combine
them. An expression knows no dataset: ``bind`` looks its columns up in a schema, refuses what cannot
be compared, and returns the ``Predicate`` that tests batches. Its repr is Python again; states and
manifests record it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never, NoReturn

import numpy as np

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import is_iterable
from recmap.model.field import Field
from recmap.model.habits import helpful, no_comparison
from recmap.model.nulls import NULL_SUFFIX, values_and_validity
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.value_test import (
    Bits,
    Relation,
    ValueRange,
    ValueTest,
    plain_value,
    value_test,
    value_text,
)

# The repr of a longer list of values shows some of them, and a digest of all.
_MOST_SHOWN = 50
_SHOWN = 3


class Predicate(NamedTuple):
    """An expression for the columns of one schema.

    ``rows`` tells which rows of a batch are wanted. ``possible`` returns False if no row is, where
    columns have values in some ranges.

    Comparisons with a null are neither true nor false, as in SQL: a null fails a test and its
    opposite. So negation is not a predicate of its own. Every test knows which of its answers is
    wanted.
    """

    rows: Callable[[Batch], Bits]
    possible: Callable[[Mapping[str, ValueRange]], bool]


class Expression(ABC):
    """A condition on the columns of a row. Combine several with ``&``, ``|`` and ``~``."""

    __slots__ = ()
    # Leave comparisons with the numbers of NumPy to this class.
    __array_ufunc__ = None

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The names of its columns."""

    @property
    def compared(self) -> frozenset[str]:
        """The names of the columns whose values it compares, and not only asks for nulls."""
        return self.names

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

    @property
    def compared(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.compared for part in self.parts))

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        parts = [part.bind(schema, wanted) for part in self.parts]
        every = self.every == wanted  # "not both" is "one or the other is not"

        def rows(batch: Batch) -> Bits:
            found = parts[0].rows(batch)
            for part in parts[1:]:
                if every:
                    if not found.any():
                        break
                    found &= part.rows(batch)
                else:
                    found |= part.rows(batch)
            return found

        return Predicate(
            rows, lambda ranges: (all if every else any)(part.possible(ranges) for part in parts)
        )

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

    @property
    def compared(self) -> frozenset[str]:
        return self.part.compared

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
                f"column {self.column!r} is {field}: it has {row}, but where takes single values; "
                f"use filter with a function: ds.filter(lambda row: ... row[{self.column!r}] ...)"
            )
        test, passes = self._test(field)
        name, wanted = self.column, wanted == passes
        values_of = _reader(schema, name)

        def rows(batch: Batch) -> Bits:
            values, valid = values_of(batch)
            found = test.passing(values)
            found = found if wanted else ~found
            return found if valid is None else found & valid

        def possible(ranges: Mapping[str, ValueRange]) -> bool:
            known = ranges.get(name)
            if known is None or known.least is None or known.greatest is None:
                return True
            return test.possible(known.least, known.greatest, wanted)

        return Predicate(rows, possible)

    @abstractmethod
    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        """Return a test of the values, and whether they must pass it."""


def _reader(schema: Schema, name: str) -> Callable[[Batch], tuple[Any, Bits | None]]:
    """Return what reads the values of a column, and which are valid; its mask may tell that."""
    mask = name + NULL_SUFFIX
    masked = mask in schema and schema[mask].dtype == np.bool_ and not schema[mask].shape

    def read(batch: Batch) -> tuple[Any, Bits | None]:
        is_null = np.asarray(batch[mask], np.bool_) if masked else None
        return values_and_validity(batch[name], is_null)

    return read


@dataclass(frozen=True, repr=False)
class Comparison(_OfColumn):
    """A column compared with a value, or with several if it is one of them."""

    column: str
    relation: Relation | Literal["!="]
    value: Any = None

    def _test(self, field: Field) -> tuple[ValueTest, bool]:
        if self.relation == "!=":
            return value_test(self.column, field, "==", self.value), False
        return value_test(self.column, field, self.relation, self.value), True

    @property
    def _is_call(self) -> bool:
        return self.relation.isidentifier()

    def __repr__(self) -> str:
        column = NamedColumn(self.column)
        if self.relation == "is_nan":
            return f"{column!r}.is_nan()"
        if self.relation == "is_in":
            shown = [value_text(value) for value in self.value]
            if len(shown) > _MOST_SHOWN:
                digest = hashlib.blake2b("\0".join(shown).encode(), digest_size=8).hexdigest()
                shown = [*shown[:_SHOWN], f"... {len(shown):,} values, {digest}"]
            return f"{column!r}.is_in([{', '.join(shown)}])"
        value = value_text(self.value)
        if self._is_call:
            return f"{column!r}.{self.relation}({value})"
        return f"{column!r} {self.relation} {value}"

    def _in_parentheses(self) -> str:
        return repr(self) if self._is_call else f"({self!r})"


@dataclass(frozen=True, repr=False)
class IsNull(Expression):
    """Whether a column has no value."""

    column: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset([self.column])

    @property
    def compared(self) -> frozenset[str]:
        return frozenset()

    def bind(self, schema: Schema, wanted: bool = True) -> Predicate:
        name = self.column
        schema[name]  # raises an error that lists the columns
        values_of = _reader(schema, name)

        def rows(batch: Batch) -> Bits:
            _, valid = values_of(batch)
            if valid is None:
                return np.full(measure(batch)[0], not wanted)
            return ~valid if wanted else valid

        def possible(ranges: Mapping[str, ValueRange]) -> bool:
            known = ranges.get(name)
            return not wanted or known is None or known.nulls

        return Predicate(rows, possible)

    def __repr__(self) -> str:
        return f"{NamedColumn(self.column)!r}.is_null()"


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

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name):  # noqa: ANN001, ANN204
            raise no_comparison(self, name)

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
        return Comparison(self.column, "is_in", tuple(given))

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
        return Comparison(self.column, "is_nan")

    def starts_with(self, text: str | bytes) -> Expression:
        """Whether the string begins with this one."""
        return Comparison(self.column, "starts_with", self._value("starts_with", text))

    def contains(self, text: str | bytes) -> Expression:
        """Whether the string contains this one."""
        return Comparison(self.column, "contains", self._value("contains", text))

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
