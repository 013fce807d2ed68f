"""Spans of bytes, as two arrays: where each begins, and where it ends."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.int64]


def as_places(begins: int | npt.ArrayLike, ends: int | npt.ArrayLike) -> tuple[Places, Places]:
    """Return the spans that are not empty, as arrays."""
    first = np.atleast_1d(np.asarray(begins, np.int64))
    stop = np.atleast_1d(np.asarray(ends, np.int64))
    if (stop > first).all():
        return first, stop
    some = stop > first
    return first[some], stop[some]


def within_pages(begins: Places, ends: Places, page: int) -> tuple[Places, Places]:
    """Return the pages that spans touch, as spans of page numbers."""
    return begins // page, -(-ends // page)


def merge_spans(begins: Places, ends: Places, gap: int = 0) -> tuple[Places, Places]:
    """Sort spans, and merge those that overlap or are at most ``gap`` apart.

    >>> merge_spans(np.array([10, 0, 4]), np.array([12, 5, 7]), gap=2)
    (array([ 0, 10]), array([ 7, 12]))
    """
    if len(begins) < 2:
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    new = np.flatnonzero(begins[1:] > ends[:-1] + gap) + 1
    return begins[np.concatenate([[0], new])], ends[np.concatenate([new - 1, [len(ends) - 1]])]


def allowed_gap(begins: Places, ends: Places, gap: int, least: int) -> int:
    """Return up to which gap to merge spans, which are sorted and do not overlap.

    At most ``gap``, and so that all gaps together are not larger than the spans, or ``least``.

    >>> allowed_gap(np.array([0, 3, 10]), np.array([2, 4, 11]), gap=8, least=0)
    5
    """
    gaps = np.sort(begins[1:] - ends[:-1])
    fits = np.cumsum(gaps) <= max(least, int((ends - begins).sum()))
    count = int(np.count_nonzero(fits))
    if count == len(gaps):
        return gap
    # Equal gaps are merged all or none.
    return min(gap, int(gaps[count]) - 1)


def cut_spans(begins: Places, ends: Places, most: int) -> list[tuple[int, int]]:
    """Divide spans into parts of at most ``most`` bytes.

    >>> cut_spans(np.array([0, 10]), np.array([5, 11]), 3)
    [(0, 3), (3, 5), (10, 11)]
    """
    return [
        (at, min(at + most, end))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        for at in range(begin, end, most)
    ]


def numbers_within(begins: Places, ends: Places) -> Places:
    """Return all numbers in spans, one span after the other.

    >>> numbers_within(np.array([3, 8]), np.array([5, 9]))
    array([3, 4, 8])
    """
    counts = ends - begins
    before = np.cumsum(counts) - counts
    found: Places = np.arange(int(counts.sum())) + np.repeat(begins - before, counts)
    return found


def spans_of(numbers: Places) -> tuple[Places, Places]:
    """Return the spans that hold these numbers, which are sorted.

    >>> spans_of(np.array([3, 4, 8]))
    (array([3, 8]), array([5, 9]))
    """
    if not len(numbers):
        return numbers, numbers
    new = np.flatnonzero(np.diff(numbers) != 1) + 1
    last = np.concatenate([new, [len(numbers)]]) - 1
    return numbers[np.concatenate([[0], new])], numbers[last] + 1
