"""NumPy's reductions over an array that is read block by block.

Each reduction turns every block into a partial result, merges these, and computes the final
result. Intermediate floating-point sums have double precision or better, so the results are
at least as exact as NumPy's; the last digits may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from recmap.errors import OptionError, OptionTypeError, RecmapError

Array: TypeAlias = npt.NDArray[Any]
Axes: TypeAlias = tuple[int, ...]

# Values copied at a time.
_STEP = 1 << 18

#: The ndarray methods that work block by block.
REDUCTIONS = (
    "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin",
)  # fmt: skip


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
    axes = _axes(name, axis, len(shape))
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


def _axes(name: str, axis: Any, ndim: int) -> Axes:
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


def _folded(
    ufunc: np.ufunc,
) -> Callable[[Iterable[Array], Axes, np.dtype[Any], dict[str, Any]], Array]:
    def fold(
        blocks: Iterable[Array], axes: Axes, result: np.dtype[Any], options: dict[str, Any]
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

    return fold


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
        rows = max(1, _STEP * len(block) // max(1, block.size))
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
    "sum": _folded(np.add),
    "prod": _folded(np.multiply),
    "max": _folded(np.maximum),
    "min": _folded(np.minimum),
    "any": _folded(np.logical_or),
    "all": _folded(np.logical_and),
    "mean": _mean,
    "var": _variance,
    "std": _deviation,
}
