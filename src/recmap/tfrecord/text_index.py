"""The text index that DALI and the ``tfrecord`` package use: offset and size of each record."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recmap.errors import IndexFileError
from recmap.files.temporary import temporary_path
from recmap.native import _core

__all__ = ["read_text_index", "write_text_index"]

# Number of record lengths to compare at a time.
_CHECKED_AT_ONCE = 1 << 16


def write_text_index(path: str, offsets: Iterator[tuple[int, int]]) -> None:
    """Write a line with the offset and size of each record, framing included."""
    temporary = temporary_path(path)
    with open(temporary, "w", encoding="ascii") as file:
        file.writelines(f"{offset} {size}\n" for offset, size in offsets)
    os.replace(temporary, path)


def read_text_index(path: str, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Read the offsets of the records of a file with these bytes.

    Raise an IndexFileError if a record is not where the index says, or has another size.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as e:
        raise IndexFileError(f"{path}: cannot be read: {e.strerror}", file=path) from None
    try:
        table = np.array(text.split(), dtype=np.uint64).reshape(-1, 2)
    except (ValueError, OverflowError) as e:
        raise IndexFileError(
            f"{path}: not an index of 'offset size' lines: {e}", file=path
        ) from None
    offsets, sizes = table[:, 0], table[:, 1]
    size = np.uint64(len(data))
    begins = np.append(offsets, size)
    ends = np.append(np.uint64(0), offsets + sizes)
    # Sums of huge sizes wrap around, so check each number too.
    inside = bool((offsets < size).all() and (sizes >= _core.FRAME_SIZE).all())
    if not np.array_equal(begins, ends) or not inside:
        raise _no_index_of(path, f"its {len(table):,} records do not fill {size:,} bytes")
    for start in range(0, len(table), _CHECKED_AT_ONCE):
        some = slice(start, start + _CHECKED_AT_ONCE)
        places = offsets[some, None] + np.arange(8, dtype=np.uint64)
        lengths = data[places].view("<u8")[:, 0]
        wrong = np.flatnonzero(lengths != sizes[some] - np.uint64(_core.FRAME_SIZE))
        if len(wrong):
            row = start + int(wrong[0])
            raise _no_index_of(
                path,
                f"record {row:,}, at byte {int(offsets[row]):,}, is not {int(sizes[row]):,} bytes "
                "long",
            )
    return offsets


def _no_index_of(path: str, why: str) -> IndexFileError:
    return IndexFileError(
        f"{path}: does not describe the file: {why} (is it older than the data, or from another "
        "file? Make a new one with rm.index(path, text=True), or leave out index=)",
        file=path,
    )
