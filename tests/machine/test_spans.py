"""Spans of bytes as arrays, compared with sets of numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recmap.machine.spans import merge_spans, numbers_within, spans_of
from recmap.machine.sparse_memory import PAGE
from recmap.store.fetch import Fetch
from recmap.store.fetched_file import _meeting


def random_spans(
    rng: np.random.Generator, most: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    begins = rng.integers(0, 60, rng.integers(0, most))
    return begins, begins + rng.integers(1, 9, len(begins))


def test_merged_spans_and_their_numbers_are_the_same_set() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        begins, ends = random_spans(rng, 12)
        expected = sorted({n for b, e in zip(begins, ends, strict=True) for n in range(b, e)})
        merged = merge_spans(begins, ends)
        assert numbers_within(*merged).tolist() == expected
        again = spans_of(np.array(expected, np.int64))
        assert [each.tolist() for each in again] == [each.tolist() for each in merged]


def test_the_fetches_that_bring_some_pages_are_found() -> None:
    rng = np.random.default_rng(2)
    target = np.empty(0, np.uint8)
    for _ in range(500):
        runs = merge_spans(*random_spans(rng, 6))
        begins, ends = (each * PAGE // 2 for each in random_spans(rng, 9))
        fetches = [Fetch(int(b), int(e), target) for b, e in zip(begins, ends, strict=True)]
        expected = [
            fetch
            for fetch in fetches
            if any(
                fetch.begin < stop * PAGE and first * PAGE < fetch.end
                for first, stop in zip(*runs, strict=True)
            )
        ]
        assert _meeting(fetches, runs) == expected
