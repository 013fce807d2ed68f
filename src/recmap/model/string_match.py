"""Compare the strings of a column with one string, all rows at once.

Strings are compared byte by byte. For text, which is UTF-8, that is the order of Python, too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.ragged import BYTE, Column, Ragged

Bits: TypeAlias = npt.NDArray[np.bool_]
_Places: TypeAlias = npt.NDArray[np.int64]

# Up to this many strings, comparing with each of them is faster than looking up every row.
_FEW = 16


def as_strings(column: Column) -> Ragged:
    """Return a column of strings; byte strings of a fixed size become ordinary ones."""
    if isinstance(column, Ragged):
        return column
    size = column.dtype.itemsize
    joined = np.ascontiguousarray(column).reshape(-1).view(np.uint8).view(BYTE)
    return Ragged(joined, np.arange(len(column) + 1, dtype=np.int64) * size)


def equal_to(column: Ragged, wanted: bytes) -> Bits:
    """Tell which strings are equal to ``wanted``."""
    return _continuing(column, wanted, column.lengths == len(wanted))


def beginning_with(column: Ragged, wanted: bytes) -> Bits:
    """Tell which strings begin with ``wanted``."""
    return _continuing(column, wanted, column.lengths >= len(wanted))


def _continuing(column: Ragged, wanted: bytes, candidates: Bits) -> Bits:
    """Tell which of the candidates begin with ``wanted``."""
    rows = np.flatnonzero(candidates)
    starts = column.offsets[rows]
    same = _narrowed(_numbers(column), starts, wanted)
    found = np.zeros(len(column), np.bool_)
    found[rows[same]] = True
    return found


def _narrowed(values: npt.NDArray[np.uint8], places: _Places, wanted: bytes) -> _Places:
    """Return which of these places in ``values`` have the bytes that are wanted."""
    left = np.arange(len(places))
    for i, byte in enumerate(wanted):
        if not len(left):
            break
        left = left[values[places[left] + i] == byte]
    return left


def containing(column: Ragged, wanted: bytes) -> Bits:
    """Tell which strings contain ``wanted``."""
    found = np.zeros(len(column), np.bool_)
    if not wanted:
        return ~found
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    values = _numbers(column)
    places = first + np.flatnonzero(values[first : max(first, last - len(wanted) + 1)] == wanted[0])
    places = places[_narrowed(values, places + 1, wanted[1:])]
    rows = np.searchsorted(column.offsets, places, side="right") - 1
    # A place near the end of a string may go on in the next one.
    found[rows[places + len(wanted) <= column.offsets[rows + 1]]] = True
    return found


def order_of(column: Ragged, wanted: bytes) -> npt.NDArray[np.int8]:
    """Return -1, 0 or 1 for strings that come before ``wanted``, are equal, or come after."""
    values, starts, lengths = _numbers(column), column.offsets[:-1], column.lengths
    order = np.sign(lengths - len(wanted)).astype(np.int8)  # of strings that are alike otherwise
    left = np.arange(len(column))
    for i, byte in enumerate(wanted):
        left = left[lengths[left] > i]
        if not len(left):
            break
        found = values[starts[left] + i]
        unlike = found != byte
        order[left[unlike]] = np.where(found[unlike] < byte, -1, 1)
        left = left[~unlike]
    return order


def among(column: Ragged, wanted: frozenset[bytes]) -> Bits:
    """Tell which strings are among those that are wanted."""
    if len(wanted) <= _FEW:
        found = np.zeros(len(column), np.bool_)
        for string in wanted:
            found |= equal_to(column, string)
        return found
    data = np.asarray(column.flat).tobytes()
    ends = (column.offsets - column.offsets[0]).tolist()
    rows = (data[a:b] in wanted for a, b in pairwise(ends))
    return np.fromiter(rows, np.bool_, len(column))


def _numbers(column: Ragged) -> npt.NDArray[np.uint8]:
    values: Any = column.values
    return np.asarray(values).view(np.uint8)
