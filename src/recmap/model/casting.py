"""Lossless casts: make arrays without losing values, digits or masks.

``coerce`` builds on this to turn user input into the columns of a batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError

# Above this, float64 cannot hold every integer.
_EXACT = 2.0**53
# Types of single numbers, which need no checks for masks or rounding.
_ONE_NUMBER = (np.generic, int, float)


def first_lost(
    array: npt.NDArray[Any], dtype: np.dtype[Any], *, rounds: bool = False
) -> tuple[int, Any] | None:
    """Return the row and value of the first value that a cast would change, or None.

    With ``rounds``, floats may lose digits but must not become infinite.
    """
    if array.dtype == dtype or not array.size or _always_fits(array.dtype, dtype):
        return None
    with np.errstate(all="ignore"):
        lost = np.asarray(_lost(array, dtype, rounds))
    if not lost.any():
        return None
    at = int(np.argmax(lost.reshape(-1)))
    row = at // max(1, array.size // len(array)) if array.ndim else 0
    return row, array.reshape(-1)[at]


def _always_fits(old: np.dtype[Any], new: np.dtype[Any]) -> bool:
    if np.void in (old.type, new.type):  # NumPy considers every number safe as bytes
        return False
    # NumPy considers int64 to float64 safe, but large integers lose digits.
    if old.kind in "iu" and new.kind in "fc":
        return old.itemsize * 2 <= (new.itemsize if new.kind == "f" else new.itemsize // 2)
    numbers = old.kind in "mM" and new.kind not in old.kind
    return not numbers and new.kind not in "SUOmM" and np.can_cast(old, new, "safe")


def _lost(array: npt.NDArray[Any], dtype: np.dtype[Any], rounds: bool) -> Any:
    old, new = array.dtype, dtype
    if np.void in (old.type, new.type):  # bytes of a fixed size, which 0 may fill
        return array != 0 if rounds and old.kind in "biuf" else np.ones(array.shape, bool)
    if old.kind in "mM" or new.kind in "mM":
        if old.kind in "iu":  # a number of days, or of another unit
            return (array > np.iinfo(np.int64).max) | (array <= np.iinfo(np.int64).min)
        if old.kind != new.kind:
            return np.ones(array.shape, bool)
        return (array.astype(new).astype(old) != array) & ~np.isnat(array)
    if old.kind in "SUO" or new.kind in "SUO" or (old.names or new.names):
        return np.ones(array.shape, bool)
    if old.kind == "V":  # bfloat16 and similar types
        return _lost(array.astype(np.float64), dtype, rounds)
    if old.kind == "c":
        real_dtype = _real(new)
        real = _lost(array.real, real_dtype, rounds)
        return real | (
            _lost(array.imag, real_dtype, rounds) if new.kind == "c" else array.imag != 0
        )
    if new.kind == "b":
        return (array != 0) & (array != 1)
    if new.kind in "iu":
        return _lost_to_integers(array, np.iinfo(new))
    if old.kind in "biu":
        return _lost_integers(array, _real(new))
    cast = array.astype(_real(new))
    if rounds:
        return ~np.isfinite(cast.astype(np.float64)) & np.isfinite(array)
    return (cast.astype(old) != array) & ~np.isnan(array)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real part of a complex dtype, and any other dtype unchanged."""
    return np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype


def _lost_to_integers(array: npt.NDArray[Any], limits: np.iinfo[Any]) -> Any:
    if array.dtype.kind in "biu":
        return (array < limits.min) | (array > limits.max)
    wide = array.astype(np.promote_types(array.dtype, np.float64))
    inside = (wide >= float(limits.min)) & (wide < float(limits.max + 1))
    return ~inside | (wide != np.trunc(wide))


def _lost_integers(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """Mark the integers that this float dtype cannot hold exactly."""
    cast = array.astype(dtype).astype(
        np.promote_types(np.float64, dtype) if dtype.kind == "f" else np.float64
    )
    if array.dtype.kind == "b":
        return cast != array
    limits = np.iinfo(array.dtype)
    inside = (cast >= float(limits.min)) & (cast < float(limits.max + 1))
    return ~inside | (np.where(inside, cast, 0).astype(array.dtype) != array)


def joint_dtype(arrays: Sequence[npt.NDArray[Any]]) -> np.dtype[Any]:
    """Return a dtype that holds all values of all arrays, or raise and name a value."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return next(iter(dtypes))
    kinds = {dtype.kind for dtype in dtypes}
    if not kinds.isdisjoint("SUOV") or (len(kinds) > 1 and not kinds.isdisjoint("mM")):
        raise ColumnError(f"values of different kinds: {_listed(dtypes)}")
    try:
        choices = [np.result_type(*dtypes)]
    except TypeError:
        raise ColumnError(f"values of different kinds: {_listed(dtypes)}") from None
    if all(dtype.kind in "biu" for dtype in dtypes) and choices[0].kind == "f":
        choices = [np.dtype(np.int64), np.dtype(np.uint64)]  # NumPy would choose floats
    lost = None
    for choice in choices:
        found = ((row, first_lost(array, choice)) for row, array in enumerate(arrays))
        lost = next(((row, value) for row, value in found if value is not None), None)
        if lost is None:
            return choice
    assert lost is not None
    raise ColumnError(
        f"row {lost[0]:,} has {lost[1][1]}, which {choices[-1]} cannot hold exactly; the rows are "
        f"{_listed(dtypes)}: cast them to one dtype"
    )


def _listed(dtypes: set[np.dtype[Any]]) -> str:
    return " and ".join(sorted(map(str, dtypes)))


def exact_array(value: Any) -> npt.NDArray[Any]:
    """Work like ``np.asarray``, but never drop a mask or round an integer among floats."""
    if type(value) is np.ndarray:
        # StringDType cannot be cast to other dtypes.
        return value.astype(object) if value.dtype.kind == "T" else value
    if isinstance(value, _ONE_NUMBER):
        return np.asarray(value)
    refuse_masked(value)
    try:
        array = np.asarray(value)
    except OverflowError as e:  # True and 2**63 in one list
        if isinstance(value, list | tuple) and _all_whole(value):
            return _whole_array(value)
        raise ColumnError(f"no dtype can hold all of these numbers: {e}") from None
    except (RuntimeError, TypeError) as e:  # e.g. a tensor on another device
        raise ColumnError(f"cannot make an array of {type(value).__name__}: {e}") from e
    if not isinstance(value, list | tuple):
        _refuse_missing(value, array)
        return array
    if not array.size:
        return array
    kind = array.dtype.kind
    if kind == "f" and _all_whole(value):
        return _whole_array(value)
    if kind in "fc":
        with np.errstate(invalid="ignore", over="ignore"):  # float16 has no such number
            large = bool((np.abs(array) >= _EXACT).any())
        if large:
            _refuse_rounded(value, array.dtype)
    elif kind in "mM":
        _refuse_other_dates(value, array.dtype)
    elif kind in "SU":
        _refuse_numbers(value)
    return array


def _refuse_missing(value: Any, array: npt.NDArray[Any]) -> None:
    """Refuse integers with missing values, which pandas, Polars and Arrow turn into floats."""
    if array.dtype.kind != "f":
        return
    own = str(getattr(value, "dtype", getattr(value, "type", "")))
    if own.lower().startswith(("int", "uint")):
        raise ColumnError(
            "some of the integers are missing: fill them first (.fillna(0) in pandas, "
            ".fill_null(0) in Arrow and Polars), and keep a mask as another column if you need "
            "it"
        )


def _all_whole(value: Any) -> bool:
    """Return whether all values are integers, even if NumPy makes floats of int64 and uint64."""
    if not isinstance(value, list | tuple):
        return np.asarray(value).dtype.kind in "biu"
    # The types alone rule out most lists of floats.
    if any(issubclass(kind, float | np.floating) for kind in set(map(type, value))):
        return False
    return all(map(_all_whole, value))


def _whole_array(value: Any) -> npt.NDArray[Any]:
    objects = np.array(value, dtype=object)
    numbers = [int(number) for number in objects.flat]
    dtype = np.dtype(np.int64 if max(numbers) < 1 << 63 else np.uint64)
    if min(numbers) < np.iinfo(dtype).min or max(numbers) > np.iinfo(dtype).max:
        raise ColumnError(
            "no dtype can hold all of these integers: some are negative, and some are 2**63 or more"
        )
    return np.array(numbers, dtype).reshape(objects.shape)


def _refuse_rounded(value: Any, dtype: np.dtype[Any]) -> None:
    """Refuse integers that a float cannot hold exactly."""
    if isinstance(value, list | tuple):
        for item in value:
            _refuse_rounded(item, dtype)
        return
    inner = np.asarray(value)
    lost = first_lost(inner, dtype) if inner.dtype.kind in "iu" else None
    whole = isinstance(value, int) and inner.dtype.kind == "O"
    if lost is not None or whole:
        raise ColumnError(
            f"{value if lost is None else lost[1]} is among floats, and {dtype} cannot hold it "
            "exactly; convert the integers to floats, or keep them in a separate column"
        )


def _refuse_other_dates(value: Any, dtype: np.dtype[Any]) -> None:
    """Refuse numbers and durations among dates, which NumPy would turn into dates."""
    for item in value:
        if isinstance(item, list | tuple):
            _refuse_other_dates(item, dtype)
        elif getattr(item, "dtype", None) != dtype:
            inner = np.asarray(item)
            if inner.dtype.kind != dtype.kind or first_lost(inner, dtype) is not None:
                raise ColumnError(f"{item!r} is among {dtype}, which cannot hold it")


def _refuse_numbers(value: Any) -> None:
    """Refuse numbers among strings, which NumPy would turn into strings."""
    for item in value:
        if isinstance(item, list | tuple):
            _refuse_numbers(item)
        elif not isinstance(item, str | bytes) and np.asarray(item).dtype.kind not in "SU":
            raise ColumnError(f"{type(item).__name__} among strings: {item!r}")


def refuse_masked(value: Any) -> None:
    """Refuse masked arrays, unless nothing is masked: the mask would be lost."""
    ma = sys.modules.get("numpy.ma")
    if ma is None or type(value) is np.ndarray:
        return
    if isinstance(value, ma.MaskedArray):
        mask = ma.getmaskarray(value)
        # The mask of a structured array is itself structured.
        if bool(mask.any() if mask.dtype == bool else mask.tobytes().strip(b"\0")):
            raise ColumnError(
                "a masked array: its mask would be lost; fill it first, with "
                "array.filled(value), and keep the mask as another column if you need it"
            )
    elif isinstance(value, list | tuple):
        kinds = set(map(type, value))
        if any(issubclass(kind, ma.MaskedArray | list | tuple) for kind in kinds):
            for item in value:
                refuse_masked(item)


def as_floats(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return numbers as float64, to look at: NumPy would warn of signaling NaN and of overflow."""
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(np.float64)
