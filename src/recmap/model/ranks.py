"""Ranks of byte strings: their order, without a Python object for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.ragged import Ragged

# The bytes to compare at first, and later at most. Few strings are equal for long.
_WIDTH, _MOST_WIDTH = 8, 1 << 12
# Bytes that are compared at a time.
_AT_ONCE = 1 << 20


def byte_ranks(strings: Ragged) -> npt.NDArray[np.int64]:
    """Return how many of the strings are less than each; equal ones have equal ranks.

    Bytes are compared, which is also the order of text by code points.

    >>> byte_ranks(Ragged.from_bytes([b"b", b"a", b"ab", b"a"])).tolist()
    [3, 0, 2, 0]
    """
    flat, offsets = strings.flat, strings.offsets - strings.offsets[0]
    assert isinstance(flat, np.ndarray)
    values, lengths = np.ascontiguousarray(flat).view(np.uint8), np.diff(offsets)
    ranks = np.zeros(len(strings), np.int64)
    # The rows that are equal to others in all bytes before ``depth``, and have more.
    tied, depth, width = np.arange(len(strings)), 0, _WIDTH
    while len(tied) > 1:
        rest = lengths[tied] - depth
        words = _words(values, offsets[tied] + depth, rest, width)
        # A string that ends within the word is less than one that goes on with zeros.
        ends = np.minimum(rest, width + 1)
        order = np.lexsort((ends, words, ranks[tied]))
        tied, words, ends = tied[order], words[order], ends[order]
        before = ranks[tied]
        new = np.ones(len(tied), bool)
        new[1:] = (before[1:] != before[:-1]) | (words[1:] != words[:-1]) | (ends[1:] != ends[:-1])
        starts, group = np.flatnonzero(new), np.cumsum(new) - 1
        first = np.searchsorted(before, before, side="left")  # of those that were equal
        ranks[tied] = before + starts[group] - first
        sizes = np.diff(np.append(starts, len(tied)))
        tied = np.sort(tied[(ends > width) & (sizes[group] > 1)])
        depth += width
        width = max(_WIDTH, min(width * 2, _MOST_WIDTH, 16 * _AT_ONCE // max(1, len(tied))))
    return ranks


def _words(
    values: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    rest: npt.NDArray[np.int64],
    width: int,
) -> npt.NDArray[Any]:
    """Return ``width`` bytes from each start, with zeros after the end of a string."""
    words = np.zeros((len(starts), width), np.uint8)
    within = np.arange(width)
    for begin in range(0, len(starts) if len(values) else 0, max(1, _AT_ONCE // width)):
        some = slice(begin, begin + max(1, _AT_ONCE // width))
        found = values.take(starts[some, None] + within, mode="clip")
        words[some] = np.where(within < rest[some, None], found, 0)
    whole = words.reshape(-1)
    # Integers are sorted faster.
    return whole.view(">u8").astype(np.uint64) if width == _WIDTH else whole.view(f"S{width}")
