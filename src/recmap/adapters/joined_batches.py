"""Join batches that are adjacent in memory, without copying."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt


def join_neighbours(batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield runs of batches that are adjacent slices of the same arrays as one block.

    A block is yielded as soon as its arrays end, so no batch waits for one that is still to be
    read. Other batches are yielded unchanged.
    """
    block: _ArraySpan | None = None
    for batch in batches:
        span = _find_span(batch)
        if block is not None and span is not None and block.continues_with(span):
            block = replace(block, stop=span.stop)
        else:
            if block is not None:
                yield block.rows()
            block = span
        if span is None:
            yield batch
        elif span.at_end:
            assert block is not None
            yield block.rows()
            block = None
    if block is not None:
        yield block.rows()


@dataclass(frozen=True)
class _ArraySpan:
    """Rows ``start`` to ``stop`` of arrays. Each array comes with the shape of one row."""

    arrays: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]]
    start: int
    stop: int

    @property
    def at_end(self) -> bool:
        """Whether the arrays end with this span."""
        return all(a.size == self.stop * math.prod(row) for a, row in self.arrays.values())

    def continues_with(self, other: _ArraySpan) -> bool:
        same_arrays = all(
            name in self.arrays and self.arrays[name][0] is array
            for name, (array, _) in other.arrays.items()
        )
        return same_arrays and other.start == self.stop

    def rows(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self._slice(array, row) for name, (array, row) in self.arrays.items()}

    def _slice(self, array: npt.NDArray[Any], row: tuple[int, ...]) -> npt.NDArray[Any]:
        items = math.prod(row)
        flat = array.reshape(-1)[self.start * items : self.stop * items]
        return flat.reshape(self.stop - self.start, *row)


def _find_span(batch: dict[str, Any]) -> _ArraySpan | None:
    """Find the span of a batch, if all its columns are the same rows of larger arrays."""
    arrays = {}
    spans = set()
    for name, column in batch.items():
        whole = column.base if isinstance(column, np.ndarray) else None
        if not isinstance(whole, np.ndarray) or not _is_slice(column, whole):
            return None
        start, rest = divmod(column.ctypes.data - whole.ctypes.data, column.strides[0])
        if rest:
            return None
        arrays[name] = whole, column.shape[1:]
        spans.add((start, start + len(column)))
    if len(spans) != 1:
        return None
    return _ArraySpan(arrays, *spans.pop())


def _is_slice(column: npt.NDArray[Any], whole: npt.NDArray[Any]) -> bool:
    contiguous = column.flags.c_contiguous and whole.flags.c_contiguous
    return contiguous and column.dtype == whole.dtype and column.size > 0
