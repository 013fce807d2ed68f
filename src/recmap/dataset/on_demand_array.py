"""NumPy indexing and reductions over an array that is read on demand.

A reduction turns every block of rows into a partial result, merges these, and computes the final
result. Intermediate floating-point sums have double precision or better, so the results are
at least as exact as NumPy's; the last digits may differ.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from recmap.errors import OptionError, OptionTypeError, RecmapError, RowNotFoundError
from recmap.model.row_key import index_array_of

# Bytes of whole rows read at a time if only a part of each is kept.
_BLOCK = 16 << 20
# An empty dtype takes no memory, so NumPy can try an index on a shape of any size.
_NOTHING = np.dtype([])
Array: TypeAlias = npt.NDArray[Any]
Axes: TypeAlias = tuple[int, ...]
# Values copied at a time.
_COPIED = 1 << 18


@dataclass(frozen=True)
class OnDemandArray:
    """An array that is read on demand, by a span of rows or by row numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], npt.NDArray[Any]]
    gather: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]

    @property
    def block(self) -> int:
        """The number of rows to read at a time."""
        size = self.dtype.itemsize * math.prod(self.shape[1:])
        return max(1, _BLOCK // max(1, size))


def index_array(array: OnDemandArray, key: Any) -> Any:
    """Return what ``ndarray.__getitem__`` would, reading only the rows it needs."""
    items = tuple(_item(item) for item in (key if isinstance(key, tuple) else (key,)))
    # Let NumPy check the index and compute the shape of the result.
    shape = _shape(array.shape, items)
    items, axis = _with_row_item(items, len(array.shape))
    rows = items[axis]
    if 0 in shape:
        return np.empty(shape, array.dtype)
    if isinstance(rows, int):
        number = np.array([rows % array.shape[0]], np.int64)
        return array.gather(number)[_replaced(items, axis, 0)]
    if isinstance(rows, slice):
        return _sliced(array, items, axis, shape)
    return _gathered(array, items, axis, shape)


def _item(item: Any) -> Any:
    """Return one element of an index as None, Ellipsis, a slice, a bool, an int or an array."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool | np.bool_):
        return bool(item)
    if not isinstance(item, np.ndarray):
        try:
            return _number(operator.index(item))
        except TypeError:
            pass
    try:
        array = index_array_of(item)
    except RecmapError:  # of the column that was given
        raise
    except ValueError as e:
        raise RowNotFoundError(f"cannot index with {type(item).__name__}: {e}") from None
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise RowNotFoundError(
            f"cannot index with {type(item).__name__}: use integers, slices, ..., None, "
            "or arrays of integers or booleans"
        )
    if array.ndim == 0:
        return array.item() if array.dtype == bool else _number(array.item())
    if array.dtype.kind == "u":
        _number(int(array.max(initial=0)))
    return array if array.dtype == bool else array.astype(np.int64, copy=False)


def _number(number: int) -> int:
    """Return an index, or raise if it is so large that NumPy would raise OverflowError."""
    if not -(1 << 63) <= number < 1 << 63:
        raise RowNotFoundError(f"index {number} is out of bounds")
    return number


def _shape(shape: tuple[int, ...], items: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        found = np.broadcast_to(np.empty((), _NOTHING), shape)[items]
    except IndexError as e:
        raise RowNotFoundError(f"{e} (the column has shape {shape})") from None
    except ValueError as e:
        raise OptionError(str(e)) from None
    except TypeError as e:
        raise OptionTypeError(str(e)) from None
    return np.shape(found)


def _with_row_item(items: tuple[Any, ...], ndim: int) -> tuple[tuple[Any, ...], int]:
    """Return the items, with one for the rows added if needed, and its position."""
    used = sum(_axes(item) for item in items)
    for place, item in enumerate(items):
        if item is Ellipsis and used < ndim:
            return (*items[:place], slice(None), *items[place:]), place
        if _axes(item):
            return items, place
    return (*items, slice(None)), len(items)


def _axes(item: Any) -> int:
    """Return how many axes an item consumes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def _sliced(
    array: OnDemandArray, items: tuple[Any, ...], axis: int, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    rows = range(*items[axis].indices(array.shape[0]))
    inside = _replaced(items, axis, slice(None))

    def read(part: range) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = _read_range(array, part)[inside]
        return found

    if len(rows) <= array.block or _keeps_most(array, len(rows), shape):
        return read(rows)
    first, second = (
        _shape((n, *array.shape[1:]), _replaced(items, axis, slice(None))) for n in (2, 3)
    )
    out = np.empty(shape, array.dtype)
    place = (slice(None),) * _differs(first, second)
    for start in range(0, len(rows), array.block):
        part = slice(start, start + array.block)
        out[(*place, part)] = read(rows[part])
    return out


def _keeps_most(array: OnDemandArray, rows: int, shape: tuple[int, ...]) -> bool:
    """Return whether the result is at least as large as the rows it is taken from."""
    return rows * math.prod(array.shape[1:]) <= math.prod(shape)


def _read_range(array: OnDemandArray, rows: range) -> npt.NDArray[Any]:
    if rows.step == 1:
        return array.read(rows.start, rows.stop)
    if rows.step > 0:
        return array.gather(np.arange(rows.start, rows.stop, rows.step, dtype=np.int64))
    # Files are read forwards.
    return _read_range(array, rows[::-1])[::-1]


def _gathered(
    array: OnDemandArray, items: tuple[Any, ...], axis: int, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Read rows by number or mask, possibly paired with indices of other axes."""
    items, axis = _without_masks(items, axis)
    if any(isinstance(item, bool) for item in items):  # x[True, [1, 2]] adds an axis
        rows, inverse = np.unique(items[axis] % array.shape[0], return_inverse=True)
        again = inverse.reshape(items[axis].shape)
        found: npt.NDArray[Any] = array.gather(rows)[_replaced(items, axis, again)]
        return found
    places = [i for i, item in enumerate(items) if isinstance(item, np.ndarray)]
    joint = np.broadcast_shapes(*(items[i].shape for i in places))
    flat = {i: np.broadcast_to(items[i], joint).reshape(-1) for i in places}
    count = math.prod(joint)

    def read(part: slice) -> npt.NDArray[Any]:
        cut = {i: values[part] for i, values in flat.items()}
        rows = cut[axis] % array.shape[0]
        if len(cut) == 1:
            block, cut[axis] = array.gather(rows), np.arange(len(rows))
        else:  # a row may be indexed several times, but is read once
            rows, cut[axis] = np.unique(rows, return_inverse=True)
            block = array.gather(rows)
        found: npt.NDArray[Any] = block[tuple(cut.get(i, item) for i, item in enumerate(items))]
        return found

    def probe(length: int) -> tuple[int, ...]:
        zeros = np.zeros(length, np.int64)
        return _shape(array.shape, tuple(zeros if i in flat else x for i, x in enumerate(items)))

    place = _differs(probe(2), probe(3))
    if count <= array.block or (len(flat) == 1 and _keeps_most(array, count, shape)):
        return read(slice(None)).reshape(shape)
    out = np.empty((*shape[:place], count, *shape[place + len(joint) :]), array.dtype)
    for start in range(0, count, array.block):
        part = slice(start, start + array.block)
        out[((slice(None),) * place) + (part,)] = read(part)
    return out.reshape(shape)


def _without_masks(items: tuple[Any, ...], axis: int) -> tuple[tuple[Any, ...], int]:
    """Replace masks with the indices of their true values, as NumPy does."""
    plain: list[Any] = []
    row = axis
    for place, item in enumerate(items):
        if place == axis:
            row = len(plain)
        masked = isinstance(item, np.ndarray) and item.dtype == bool
        plain.extend(item.nonzero() if masked else [item])
    return tuple(plain), row


def _replaced(items: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _differs(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the axis in which two shapes differ."""
    return next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)


def reduce_blocks(
    name: str,
    blocks: Iterable[Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axis: Any = None,
    /,
    *,
    keepdims: bool = False,
    out: Array | None = None,
    **options: Any,
) -> Any:
    """Return ``array.<name>(axis, ...)``, where ``blocks`` together are ``array``."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            made = _reduce(name, blocks, shape, dtype, axis, keepdims, options)
    except RecmapError:  # of the data, while it was read
        raise
    except TypeError as e:
        raise OptionTypeError(f"{name}: {e}") from None
    except (ValueError, ArithmeticError) as e:
        raise OptionError(f"{name}: {e}") from None
    return made if out is None else _into(out, made, name)


def _into(out: Any, made: Any, name: str) -> Array:
    if not isinstance(out, np.ndarray):
        raise OptionTypeError(f"{name}: out= is a NumPy array, not {type(out).__name__}")
    # np.copyto would repeat the result to fill a larger array.
    if out.shape != np.shape(made):
        raise OptionError(f"{name}: out= has shape {out.shape}, the result has {np.shape(made)}")
    try:
        np.copyto(out, made, casting="same_kind")
    except (TypeError, ValueError) as e:
        raise OptionTypeError(f"{name}: out= cannot take the result: {e}") from None
    return out


def _reduce(
    name: str,
    blocks: Iterable[Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axis: Any,
    keepdims: bool,
    options: dict[str, Any],
) -> Any:
    # Let NumPy find the dtype of the result, or raise if there is none.
    asked = {key: value for key, value in options.items() if key != "ddof"}
    result = getattr(np.zeros((1,) * len(shape), dtype), name)(axis=axis, **asked).dtype
    axes = _reduced_axes(name, axis, len(shape))
    if shape[0] == 0:
        return getattr(np.zeros(shape, dtype), name)(axis=axis, keepdims=keepdims, **options)
    if 0 not in axes:
        parts = [getattr(block, name)(axis=axis, keepdims=keepdims, **options) for block in blocks]
        return np.concatenate(parts)
    if name.startswith("arg"):
        made = _arg(name, blocks, shape, None if axis is None else axes)
    else:
        made = _PLANS[name](blocks, axes, result, options)
    if not keepdims:
        # With no axes left, NumPy returns a scalar.
        return made.reshape([n for i, n in enumerate(made.shape) if i not in axes])[()]
    return made


def _reduced_axes(name: str, axis: Any, ndim: int) -> Axes:
    if axis is None:
        return tuple(range(ndim))
    if name.startswith("arg"):
        return (int(normalize_axis_tuple(axis, ndim)[0]),)
    return tuple(int(i) for i in normalize_axis_tuple(axis, ndim))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to accumulate sums in."""
    if dtype.kind == "f" or (dtype.kind == "V" and np.can_cast(dtype, np.float64)):
        return np.promote_types(np.float64, dtype) if dtype.kind == "f" else np.dtype(np.float64)
    return np.promote_types(np.complex128, dtype) if dtype.kind == "c" else dtype


def _fold(
    ufunc: np.ufunc,
    blocks: Iterable[Array],
    axes: Axes,
    result: np.dtype[Any],
    options: dict[str, Any],
) -> Array:
    del options  # only a dtype, which is already in result
    sums = ufunc in (np.add, np.multiply)
    wide = _wide(result) if sums and result.kind not in "mM" else None
    made: Array | None = None
    for block in blocks:
        part = ufunc.reduce(block, axis=axes, keepdims=True, dtype=wide)
        made = part if made is None else ufunc(made, part)
    assert made is not None
    return made.astype(result, copy=False)


def _mean(
    blocks: Iterable[Array], axes: Axes, result: np.dtype[Any], options: dict[str, Any]
) -> Array:
    del options
    total, count = None, 0
    for block in blocks:
        wide = None if result.kind in "mM" else _wide(result)
        part = np.add.reduce(block, axis=axes, dtype=wide, keepdims=True)
        total = part if total is None else total + part
        count += block.size // max(1, part.size)
    assert total is not None
    made: Array = np.asarray(total / count)
    return made.astype(result, copy=False)


def _small_blocks(blocks: Iterable[Array]) -> Iterator[Array]:
    """Yield the rows in blocks small enough to copy cheaply."""
    for block in blocks:
        rows = max(1, _COPIED * len(block) // max(1, block.size))
        yield from (block[start : start + rows] for start in range(0, len(block), rows))


def _variance(
    blocks: Iterable[Array], axes: Axes, result: np.dtype[Any], options: dict[str, Any]
) -> Array:
    freedom = options.get("ddof", 0)
    count, mean, squares = 0, np.zeros(()), np.zeros(())
    for block in _small_blocks(blocks):
        wide = block.astype(_wide(np.result_type(block.dtype, np.float64)), copy=False)
        centre = wide.mean(axis=axes, keepdims=True)
        apart = wide - centre
        spread = np.add.reduce((apart * apart.conj()).real, axis=axes, keepdims=True)
        more = block.size // max(1, centre.size)
        if not count:
            count, mean, squares = more, centre, spread
            continue
        # Merge the means and sums of squares with Chan's formula.
        gap = centre - mean
        both = count + more
        squares = squares + spread + (gap * gap.conj()).real * (count * more / both)
        mean = mean + gap * (more / both)
        count = both
    return np.asarray(squares / max(count - freedom, 0)).astype(result, copy=False)


def _deviation(
    blocks: Iterable[Array], axes: Axes, result: np.dtype[Any], options: dict[str, Any]
) -> Array:
    wide = _variance(blocks, axes, _wide(result), options)
    return np.sqrt(wide).astype(result, copy=False)


def _arg(
    name: str, blocks: Iterable[Array], shape: tuple[int, ...], axes: Axes | None
) -> npt.NDArray[np.int64]:
    """Return the index of the greatest or least value, overall or along the rows."""
    better = np.greater if name == "argmax" else np.less
    best: Array | None = None
    where: npt.NDArray[np.int64] | None = None
    start = 0
    for block in blocks:
        flat = block.reshape(-1, 1) if axes is None else block
        at = getattr(flat, name)(axis=0, keepdims=True)
        value = np.take_along_axis(flat, at, axis=0)
        at = at + start
        start += len(flat)
        if best is None or where is None:
            best, where = value, at
            continue
        # As in NumPy, the first NaN wins.
        lost = value != value  # noqa: PLR0124
        wins = (better(value, best) | lost) & (best == best)  # noqa: PLR0124
        best, where = np.where(wins, value, best), np.where(wins, at, where)
    assert where is not None
    return where.reshape((1,) * len(shape)) if axes is None else where


_PLANS: dict[str, Callable[..., Array]] = {
    "sum": partial(_fold, np.add),
    "prod": partial(_fold, np.multiply),
    "max": partial(_fold, np.maximum),
    "min": partial(_fold, np.minimum),
    "any": partial(_fold, np.logical_or),
    "all": partial(_fold, np.logical_and),
    "mean": _mean,
    "var": _variance,
    "std": _deviation,
}
