"""Tests of the values of a column: comparisons with a value, made exact for the column's type.

``value_test`` takes what a user compares a column with, refuses values that no row could equal,
such as text for numbers, and returns a ``ValueTest``. Numbers compare by their value, whatever
their types: no uint8 equals 300, and all are less. Only floats round, to the type of the column,
so that float32 values equal 0.1 where they were made from it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, OptionTypeError
from recmap.model import string_match
from recmap.model.arguments import is_iterable
from recmap.model.field import Field
from recmap.model.ragged import Column

Bits: TypeAlias = npt.NDArray[np.bool_]
Relation: TypeAlias = Literal[
    "==", "<", "<=", ">", ">=", "starts_with", "contains", "is_in", "is_nan"
]
# A comparison that holds for just the values wanted: its sign, and a number or date of the column's
# type. True if it holds for all values, False for none.
_Exact: TypeAlias = tuple[str, Any] | bool

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# A date without a time zone. NumPy also takes words such as "now".
_DATE = re.compile(r"[+-]?\d{4,}(-\d\d){0,2}([T ]\d\d(:\d\d){0,2}(\.\d+)?)?")
# No column holds whole numbers of more bits.
_MOST_BITS = 1 << 12
# The plain value of a subclass, such as a member of an enumeration, which has a repr of its own.
_PLAIN_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
    memoryview: bytes,
}
# Numbers that are compared one by one. More are looked up.
_FEW = 8


class ValueRange(NamedTuple):
    """What is known of a column in some consecutive rows, up to row ``stop``.

    All values that are not null or NaN lie from ``least`` to ``greatest``, which need not occur;
    strings are given as bytes. They are None if nothing is known. ``nulls`` is False if no row
    is null.
    """

    stop: int
    least: Any = None
    greatest: Any = None
    nulls: bool = True


class ValueTest(NamedTuple):
    """Tells which values of a column pass.

    ``passing`` tells it for each of some values; for nulls it may give anything. ``possible`` takes
    the least and greatest value of a range, and whether values are wanted that pass or that fail;
    it returns False if none is in the range.
    """

    passing: Callable[[Column], Bits]
    possible: Callable[[Any, Any, bool], bool]


def _constant(answer: bool) -> ValueTest:
    """Return the test that all values pass, or none."""
    return ValueTest(
        lambda values: np.full(len(values), answer),
        lambda least, greatest, wanted: answer == wanted,  # noqa: ARG005
    )


def _number_test(relation: str, value: Any) -> ValueTest:
    """Return the comparison of numbers or dates with one of the same type."""

    def passing(values: Column) -> Bits:
        return np.asarray(RELATIONS[relation](_plain(values), value), np.bool_)

    def possible(least: Any, greatest: Any, wanted: bool) -> bool:
        if isinstance(value, complex | np.complexfloating):  # these have no order
            return True
        if wanted:
            return _may_hold(relation, value, least, greatest)
        # NaN is in no range, and fails every comparison.
        nan = relation == "==" or isinstance(value, float | np.floating)
        return nan or _may_hold(_OPPOSITE[relation], value, least, greatest)

    return ValueTest(passing, possible)


def _may_hold(relation: str, value: Any, least: Any, greatest: Any) -> bool:
    if relation == "==":
        return bool(least <= value <= greatest)
    return bool(RELATIONS[relation](least if relation[0] == "<" else greatest, value))


def _numbers_test(wanted_ones: npt.NDArray[Any]) -> ValueTest:
    """Return the test of whether numbers or dates are in a sorted array of the same type."""

    def passing(values: Column) -> Bits:
        plain = _plain(values)
        if len(wanted_ones) > _FEW:
            return np.isin(plain, wanted_ones)
        found = np.zeros(len(plain), np.bool_)
        for value in wanted_ones:
            found |= plain == value
        return found

    def possible(least: Any, greatest: Any, wanted: bool) -> bool:
        numbers = wanted_ones.tolist() if wanted_ones.dtype.kind in "iu" else wanted_ones
        return not wanted or any(least <= number <= greatest for number in numbers)

    return ValueTest(passing, possible)


def _string_test(relation: str, value: bytes) -> ValueTest:
    """Return the comparison of strings with one."""

    def passing(values: Column) -> Bits:
        strings = string_match.as_strings(values)
        if relation == "==":
            return string_match.equal_to(strings, value)
        if relation == "starts_with":
            return string_match.beginning_with(strings, value)
        if relation == "contains":
            return string_match.containing(strings, value)
        order = string_match.order_of(strings, value)
        return np.asarray(RELATIONS[relation](order, 0), np.bool_)

    def possible(least: Any, greatest: Any, wanted: bool) -> bool:
        if relation == "contains":
            return True
        if relation == "starts_with":
            size = len(value)
            return not wanted or least[:size] <= value <= greatest[:size]
        if wanted:
            return _may_hold(relation, value, least, greatest)
        return relation == "==" or _may_hold(_OPPOSITE[relation], value, least, greatest)

    return ValueTest(passing, possible)


def _strings_test(wanted_ones: frozenset[bytes]) -> ValueTest:
    """Return the test of whether strings are among others."""
    return ValueTest(
        lambda values: string_match.among(string_match.as_strings(values), wanted_ones),
        lambda least, greatest, wanted: (
            not wanted or any(least <= value <= greatest for value in wanted_ones)
        ),
    )


def _plain(values: Column) -> npt.NDArray[Any]:
    """Return numbers of a type that NumPy compares with those of Python."""
    numbers = np.asarray(values)
    if numbers.dtype.kind == "b":
        return numbers.view(np.uint8)
    if numbers.dtype.kind == "V":  # of another package, such as bfloat16
        return numbers.astype(np.int64 if _is_whole(numbers.dtype) else np.float64)
    return numbers


def _is_whole(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or (dtype.kind == "V" and dtype.name.startswith(("int", "uint")))


def _is_string(field: Field) -> bool:
    return field.is_bytes or field.dtype.type is np.void


def value_test(name: str, field: Field, relation: Relation, value: Any = None) -> ValueTest:
    """Return the test of the values of a column. ``field`` is its own, without its shape."""
    if relation == "is_nan":
        return _nan_test(name, field)
    if relation in ("starts_with", "contains"):
        if not _is_string(field):
            raise OptionError(f"column {name!r} is {field}: {relation} takes a column of strings")
        return _string_test(relation, _string(name, field, value, whole=False))
    if relation == "is_in":
        return _membership_test(name, field, value)
    if _is_string(field):
        return _string_test(relation, _string(name, field, value, whole=relation == "=="))
    return _test_of(_exact(name, field, relation, value))


def _nan_test(name: str, field: Field) -> ValueTest:
    if _is_string(field) or field.dtype.kind in "mM":
        raise OptionError(f"column {name!r} is {field}: is_nan takes a column of numbers")
    if _is_whole(field.dtype):
        return _constant(answer=False)

    def passing(values: Column) -> Bits:
        plain = _plain(values)
        return np.asarray(plain != plain, np.bool_)  # noqa: PLR0124  # only NaN differs from itself

    return ValueTest(passing, lambda least, greatest, wanted: True)  # noqa: ARG005


def _membership_test(name: str, field: Field, values: Sequence[Any]) -> ValueTest:
    if _is_string(field):
        return _strings_test(frozenset(_string(name, field, each, whole=True) for each in values))
    exact = [_exact(name, field, "==", each) for each in values]
    equal = [each[1] for each in exact if not isinstance(each, bool)]
    if not equal:
        return _constant(answer=False)
    # Of the column's own type: NumPy would find one for all values that rounds some of them.
    return _numbers_test(np.unique(np.array(equal, _plain(np.empty(0, field.dtype)).dtype)))


def _test_of(exact: _Exact) -> ValueTest:
    return _constant(exact) if isinstance(exact, bool) else _number_test(*exact)


def _exact(name: str, field: Field, relation: str, value: Any) -> _Exact:
    """Return a comparison with a number or a date that is exact for the column's type."""
    kind = field.dtype.kind
    if kind in "mM":
        return _exact_date(name, field.dtype, relation, value)
    number = _number(name, field, value)
    if kind == "c" or isinstance(number, complex):
        if relation != "==" or kind != "c":
            raise OptionError(f"column {name!r} is {field}: it cannot be ordered against {value!r}")
        return "==", field.dtype.type(number)
    if _is_whole(field.dtype):
        return _exact_whole(field.dtype, relation, number)
    return _exact_float(field.dtype, relation, number)


def _string(name: str, field: Field, value: Any, *, whole: bool) -> bytes:
    if field.is_text:
        if not isinstance(value, str):
            raise _unlike(name, field, value, "text")
        return value.encode(errors="surrogatepass")
    if not isinstance(value, bytes):
        hint = f"; write {value.encode()!r}" if isinstance(value, str) and value.isascii() else ""
        cast = f", or read it as text: ds.cast({{{name!r}: 'text'}})" if hint else ""
        raise _unlike(name, field, value, "bytes", hint + (cast if field.is_bytes else ""))
    if whole and field.dtype.type is np.void and len(value) != field.dtype.itemsize:
        raise OptionError(
            f"column {name!r} has {field.dtype.itemsize:,} bytes in each row, and none can equal "
            f"{len(value):,}"
        )
    return value


def _unlike(name: str, field: Field, value: Any, kind: str, hint: str = "") -> OptionError:
    return OptionTypeError(
        f"column {name!r} is {field}: compare it with {kind}, not {value_text(value)}{hint}"
    )


def _number(name: str, field: Field, value: Any) -> Any:
    if not isinstance(value, bool | int | float | complex):
        raise _unlike(name, field, value, "a number")
    return value


def _exact_whole(dtype: np.dtype[Any], relation: str, value: float) -> _Exact:
    limits = np.iinfo(_plain(np.empty(0, dtype)).dtype)
    if not limits.min <= value <= limits.max:
        return _beyond(relation, later=value > 0)
    floor = math.floor(value)
    return (relation, floor) if floor == value else _above(relation, floor)


def _beyond(relation: str, *, later: bool) -> _Exact:
    """Compare with what comes after all values, or before all."""
    return relation != "==" and (relation[0] == "<") == later


def _above(relation: str, floor: Any) -> _Exact:
    """Compare with what lies between ``floor`` and the next value."""
    if relation == "==":
        return False
    return "<=" if relation[0] == "<" else ">", floor


def _exact_float(dtype: np.dtype[Any], relation: str, value: float) -> _Exact:
    with np.errstate(over="ignore"):
        try:
            rounded = dtype.type(value)
        except OverflowError:
            rounded = np.float64(math.inf if value > 0 else -math.inf)
    if dtype.kind == "V":  # compared as float64; some of these types have no infinity
        finite = math.isfinite(float(rounded))
        return _exact_float(np.dtype(np.float64), relation, float(rounded) if finite else value)
    if np.isinf(rounded) and value not in (math.inf, -math.inf):
        # It lies between the infinite value and all others.
        if relation == "==":
            return False
        less = relation[0] == "<"
        relation = ("<" if less else ">=") if value > 0 else ("<=" if less else ">")
    return relation, rounded


def _exact_date(name: str, dtype: np.dtype[Any], relation: str, value: Any) -> _Exact:
    given = _as_date(name, dtype, value)
    later = bool(given > np.array(0, given.dtype))
    try:
        cast = given.astype(dtype)
    except OverflowError:  # NumPy 2.5 and later; earlier versions return another date
        return _beyond(relation, later=later)
    back = cast.astype(given.dtype)
    if back == given:
        return relation, cast
    step = np.array(1, dtype.str.replace("M8", "m8"))
    floor = cast - step if back > given else cast
    if floor.astype(given.dtype) < given < (floor + step).astype(given.dtype):
        return _above(relation, floor)
    return _beyond(relation, later=later)


def _as_date(name: str, dtype: np.dtype[Any], value: Any) -> Any:
    """Return a date or a duration, in a unit of its own."""
    field = Field(dtype)
    if dtype.kind == "m":
        if not isinstance(value, np.timedelta64):
            raise _unlike(name, field, value, "a duration, such as np.timedelta64(5, 's')")
        made: Any = value
    else:
        if not isinstance(value, np.datetime64 | str):
            raise _unlike(name, field, value, "a date, such as '2024-01-31' or np.datetime64")
        made = _parsed_date(name, field, value)
    years = np.datetime_data(made.dtype)[0] in "YM", np.datetime_data(dtype)[0] in "YM"
    if dtype.kind == "m" and years[0] != years[1]:
        raise OptionError(
            f"column {name!r} is {field}, and not comparable with {value_text(value)}: months and "
            "years differ in length"
        )
    return made


def _parsed_date(name: str, field: Field, value: Any) -> Any:
    made = np.datetime64("NaT", "s")
    if not isinstance(value, str) or _DATE.fullmatch(value):
        with suppress(ValueError, OverflowError):
            made = np.datetime64(value)
    if np.isnat(made):
        raise OptionError(
            f"column {name!r} is {field}: cannot read the date {value!r}; write it like "
            "'2024-01-31' or '2024-01-31T23:59', without a time zone"
        )
    return made


def plain_value(where: str, value: Any) -> Any:
    """Return what a column is compared with as a plain value; refuse null, NaN and arrays."""
    plain = _plain_value(value)
    if plain is None or (isinstance(plain, np.datetime64 | np.timedelta64) and np.isnat(plain)):
        raise OptionError(f"{where} {value!r}: nothing equals null; use is_null() to find it")
    if isinstance(plain, float | complex) and plain != plain:  # noqa: PLR0124  # NaN
        raise OptionError(f"{where} {value!r}: nothing equals NaN; use is_nan() to find it")
    if isinstance(plain, int) and plain.bit_length() > _MOST_BITS:
        raise OptionError(f"{where} a number of {plain.bit_length():,} bits, which no column holds")
    if isinstance(plain, str | bytes | int | float | complex | np.datetime64 | np.timedelta64):
        return plain
    hint = "; for several values, use is_in" if is_iterable(plain) else ""
    raise OptionTypeError(
        f"{where} {type(value).__name__}: compare it with a number, text, bytes or a date{hint}"
    )


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if getattr(value, "tzinfo", None) is not None:
        raise OptionError(
            f"{value!r} has a time zone, and columns have none: give the time as it is in the "
            "column, usually UTC, without tzinfo"
        )
    for convert in ("to_datetime64", "to_timedelta64"):  # of pandas, exact to the nanosecond
        if isinstance(value, datetime | timedelta) and hasattr(value, convert):
            return getattr(value, convert)()
    if isinstance(value, date):
        return np.datetime64(value)
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if type(value) is bool:
        return value
    return next(
        (plain(value) for kind, plain in _PLAIN_VALUES.items() if isinstance(value, kind)), value
    )


def value_text(value: Any) -> str:
    """Return a plain value as Python, the same in every version of NumPy."""
    if isinstance(value, np.datetime64):
        return repr(str(value))
    if isinstance(value, np.timedelta64):
        unit, count = np.datetime_data(value.dtype)
        return f"np.timedelta64({int(value.astype(np.int64)) * count}, {unit!r})"
    return repr(value)
