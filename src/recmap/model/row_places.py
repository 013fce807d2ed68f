"""Where rows lie, so that those of several files are copied into one array at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.machine.cpus import thread_count
from recmap.machine.mapped import MappedFile, scattered_reads
from recmap.machine.memory import empty
from recmap.model.ragged import raw_bytes
from recmap.native import _core

# A row of at most this many bytes is read as soon as the system could load it ahead.
_SMALL_ROW = 4096


class RowPlaces(NamedTuple):
    """Where rows of a column begin: each lies in one piece, in a file or in memory."""

    content: npt.NDArray[np.uint8]
    begins: npt.NDArray[np.int64]
    dtype: np.dtype[Any]
    #: The shape of a row.
    shape: tuple[int, ...]
    file: MappedFile | None = None


def all_rows_of(array: npt.NDArray[Any]) -> RowPlaces:
    """Return where the rows of a contiguous array lie."""
    row = array.nbytes // max(1, len(array))
    begins = row * np.arange(len(array))
    return RowPlaces(raw_bytes(array), begins, array.dtype, array.shape[1:])


def copy_rows(
    found: Sequence[RowPlaces], positions: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[Any]:
    """Return one array with the rows of ``found[i]`` at ``positions[i]``. All have one dtype."""
    _, _, dtype, shape, _ = found[0]
    count = sum(map(len, positions))
    out = empty((count, *shape), dtype)
    if not out.size:
        return out
    row = out.nbytes // count
    owners, begins = np.empty(count, np.uint32), np.empty(count, np.int64)
    for number, (places, mine) in enumerate(zip(found, positions, strict=True)):
        owners[mine], begins[mine] = number, places.begins
    files = [places.file for places in found if places.file is not None]
    copy_boxes([places.content for places in found], files, owners, begins, [], row, out, row)
    return out


def copy_boxes(
    sources: Sequence[npt.NDArray[np.uint8]],
    files: Sequence[MappedFile],
    owners: npt.NDArray[np.uint32] | None,
    begins: npt.NDArray[np.int64],
    axes: Sequence[tuple[int, int, int]],
    run: int,
    out: npt.NDArray[Any],
    stride: int,
    at: int = 0,
) -> None:
    """Work like ``gather_boxes`` of the native core, and load what is not in memory ahead."""
    absent = False
    if files and (len(begins) > 1 or run > _SMALL_ROW):
        absent = _core.prefetch_boxes(sources, owners, begins, axes, run)
    to, threads = raw_bytes(out), thread_count() if len(begins) > 1 else 1
    with scattered_reads(files, run, absent=absent):
        _core.gather_boxes(sources, owners, begins, axes, run, to, stride, at, threads)
