"""Index expressions, arithmetic and reductions on a column, compared with NumPy's on the
same values, however the column is stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.table import plain

__all__ = ["case"]

REDUCTIONS = ("sum", "mean", "max", "min", "any", "all", "std", "var")


def case(case: Case) -> None:
    rows = case.between(1, 30)
    kind = np.dtype(case.pick(arrays.NUMBERS))
    array = case.rng.integers(0, 100, arrays.shape(case, rows)).astype(kind)
    column = _stored(case, array)
    for _ in range(6):
        if case.chance(0.6):
            key = _key(case, array.shape)
            case.note(f"{array.dtype} {array.shape} [{key!r}]")
            run: Callable[[Any], Any] = partial(_indexed, key=key)
        else:
            name, options = case.pick(REDUCTIONS), _options(case, array.shape)
            case.note(f"{array.dtype} {array.shape} {name}({options})")
            run = partial(_reduced, name=name, options=options)
        _compare(run, array, column)
    if case.chance(0.3):
        case.note("arithmetic")
        first = array[0]
        _compare(lambda values: values + first, array, column)
        _compare(lambda values: values == first, array, column)


def _stored(case: Case, array: npt.NDArray[Any]) -> Any:
    """Store the column in one or several files of some format, and open it."""
    suffix = case.pick([".npy", ".npz", ".h5", ".zarr", ".tfrecord", ".tfrecord.gz", "memory"])
    parts = case.pick([1, 1, 2, 3])
    if suffix == "memory":
        return rm.from_arrays({"data": array})["data"]
    paths = []
    for i, part in enumerate(np.array_split(array, parts)):
        path = case.path(f"{i}{suffix}")
        rm.from_arrays({"data": part}).save(path)
        paths.append(path)
    case.note(f"{parts} of {suffix}")
    return rm.open(paths)["data"]


def _key(case: Case, shape: tuple[int, ...]) -> Any:
    axes = case.between(1, len(shape))
    parts = [_part(case, side) for side in shape[:axes]]
    if case.chance(0.15):
        parts.insert(case.between(0, len(parts)), case.pick([None, ..., True, np.False_]))
    if len(parts) == 1 and case.chance(0.7):
        return parts[0]
    return tuple(parts)


def _part(case: Case, side: int) -> Any:
    kind = case.pick(["number", "number", "slice", "slice", "list", "mask", "array", "outside"])
    if kind == "number":
        number = case.between(-side, max(side - 1, -side))
        return case.pick([number, np.int64(number), np.array(number)])
    if kind == "slice":
        start, stop = (case.pick([None, case.between(-side - 2, side + 2)]) for _ in range(2))
        return slice(start, stop, case.pick([None, 1, 2, -1, -3]))
    if kind == "list":
        return [case.between(-side, max(side - 1, -side)) for _ in range(2)]
    if kind == "mask":
        return case.rng.random(side) < 0.5
    if kind == "array":
        return case.rng.integers(0, max(side, 1), (2, 1))
    return case.pick([side + case.between(0, 3), 2**63, -(10**30), 1.5, "a", np.uint64(2**63)])


def _indexed(values: Any, key: Any) -> Any:
    return values[key]


def _options(case: Case, shape: tuple[int, ...]) -> dict[str, Any]:
    """Draw the options of a reduction, perhaps with an ``out`` array that does not fit."""
    options: dict[str, Any] = {"axis": case.pick([None, 0, -1, len(shape), ()])}
    if case.chance(0.3):
        options["keepdims"] = True
    if case.chance(0.2):
        options["out"] = np.zeros(case.pick([(), shape[1:], (3,)]), np.complex128)
    return options


def _reduced(values: Any, name: str, options: dict[str, Any]) -> Any:
    return getattr(values, name)(**options)


def _compare(run: Callable[[Any], Any], array: npt.NDArray[Any], column: Any) -> None:
    expected, its_error = _outcome(run, array)
    actual, our_error = _outcome(run, column)
    if its_error is not None or our_error is not None:
        if its_error is None or our_error is None:
            raise AssertionError(
                f"NumPy: {its_error or expected!r}; recmap: {our_error or actual!r}"
            )
        # An array that is mapped is NumPy's own.
        if not isinstance(our_error, rm.RecmapError) and not isinstance(column, np.ndarray):
            raise AssertionError(f"NumPy raises {its_error!r}, recmap {our_error!r}")
        return
    expected, actual = np.asarray(expected), np.asarray(actual)
    same = plain(expected) == plain(actual)
    if expected.dtype == np.float16 and np.isinf(expected).any():
        return  # NumPy itself overflows
    if not same and expected.dtype.kind in "fc" and expected.dtype == actual.dtype:
        # Sums of floats are rounded in a different order.
        close = 1e-2 if expected.dtype == np.float16 else 1e-4
        same = expected.shape == actual.shape and np.allclose(
            expected, actual, rtol=close, equal_nan=True
        )
    if not same:
        raise AssertionError(f"{actual!r}, but NumPy has {expected!r}")


def _outcome(run: Callable[[Any], Any], values: Any) -> tuple[Any, Exception | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return run(values), None
        except Exception as e:
            return None, e
