"""Batches that lie end to end in memory, joined again without a copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["joined"]


def joined(batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Batches that follow each other in the same arrays as one. It comes as soon as those
    arrays have no more: no batch waits for one that is still to be read.
    """
    held: _Stretch | None = None
    for batch in batches:
        found = _find(batch)
        if held is not None and found is not None and held.goes_on(found):
            held = replace(held, stop=found.stop)
        else:
            if held is not None:
                yield held.rows()
            held = found
        if found is None:
            yield batch
        elif found.ends:
            assert held is not None
            yield held.rows()
            held = None
    if held is not None:
        yield held.rows()


@dataclass(frozen=True)
class _Stretch:
    """Rows ``start`` to ``stop`` of arrays; with each goes the shape of a row."""

    arrays: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]]
    start: int
    stop: int

    @property
    def ends(self) -> bool:
        return all(a.size == self.stop * math.prod(row) for a, row in self.arrays.values())

    def goes_on(self, other: _Stretch) -> bool:
        same = all(
            name in self.arrays and self.arrays[name][0] is array
            for name, (array, _) in other.arrays.items()
        )
        return same and other.start == self.stop

    def rows(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self._part(array, row) for name, (array, row) in self.arrays.items()}

    def _part(self, array: npt.NDArray[Any], row: tuple[int, ...]) -> npt.NDArray[Any]:
        items = math.prod(row)
        flat = array.reshape(-1)[self.start * items : self.stop * items]
        return flat.reshape(self.stop - self.start, *row)


def _find(batch: dict[str, Any]) -> _Stretch | None:
    """Where a batch lies, if all its columns are the same rows of larger arrays."""
    arrays = {}
    places = set()
    for name, column in batch.items():
        whole = column.base if isinstance(column, np.ndarray) else None
        if not isinstance(whole, np.ndarray) or not _is_part(column, whole):
            return None
        start, rest = divmod(column.ctypes.data - whole.ctypes.data, column.strides[0])
        if rest:
            return None
        arrays[name] = whole, column.shape[1:]
        places.add((start, start + len(column)))
    if len(places) != 1:
        return None
    return _Stretch(arrays, *places.pop())


def _is_part(column: npt.NDArray[Any], whole: npt.NDArray[Any]) -> bool:
    plain = column.flags.c_contiguous and whole.flags.c_contiguous
    return plain and column.dtype == whole.dtype and column.size > 0
