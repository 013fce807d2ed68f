"""What a column is compared with: plain values of Python, and dates of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import is_iterable

# No column holds whole numbers of more bits.
_MOST_BITS = 1 << 12
# The plain value of a subclass, such as a member of an enumeration, which has a repr of its own.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
    memoryview: bytes,
}


def plain_value(where: str, value: Any) -> Any:
    """Return what a column is compared with as a plain value; refuse null, NaN and arrays."""
    plain = _plain(value)
    if plain is None or (isinstance(plain, np.datetime64 | np.timedelta64) and np.isnat(plain)):
        raise OptionError(f"{where} {value!r}: nothing equals null; use is_null() to find it")
    if isinstance(plain, float | complex) and plain != plain:  # noqa: PLR0124  # NaN
        raise OptionError(f"{where} {value!r}: nothing equals NaN; use is_nan() to find it")
    if isinstance(plain, int) and plain.bit_length() > _MOST_BITS:
        raise OptionError(f"{where} a number of {plain.bit_length():,} bits: no column holds those")
    if isinstance(plain, str | bytes | int | float | complex | np.datetime64 | np.timedelta64):
        return plain
    hint = "; for several values, use is_in" if is_iterable(plain) else ""
    raise OptionTypeError(
        f"{where} {type(value).__name__}: compare it with a number, text, bytes or a date{hint}"
    )


def _plain(value: Any) -> Any:
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
    return next((plain(value) for kind, plain in _PLAIN.items() if isinstance(value, kind)), value)


def value_text(value: Any) -> str:
    """Return a plain value as Python, the same in every version of NumPy."""
    if isinstance(value, np.datetime64):
        return repr(str(value))
    if isinstance(value, np.timedelta64):
        unit, count = np.datetime_data(value.dtype)
        return f"np.timedelta64({int(value.astype(np.int64)) * count}, {unit!r})"
    return repr(value)
