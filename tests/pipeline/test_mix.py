"""rm.mix, compared with a model that computes one row after the other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.model.batch import RowArray
from recmap.model.facts import SourceFacts
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.pipeline.transforms.mix import MixedRows, Until
from recmap.pipeline.transforms.mix import mixed as mixed_rows


class Numbers(Source):
    """Computed rows: the number of their branch, and their own number in it."""

    schema = Schema({"chain": "int64", "row": "int64"})

    def __init__(self, chain: int, count: int | None) -> None:
        self.chain, self.count = chain, count

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(endless=self.count is None)

    def __len__(self) -> int:
        assert self.count is not None
        return self.count

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        del limit
        return self.gather(np.arange(start, stop))

    def gather(self, rows: RowArray) -> Batch:
        assert self.count is None or rows.max(initial=-1) < self.count
        return {"chain": np.full_like(rows, self.chain), "row": rows}


def mixed(
    counts: Sequence[int | None],
    weights: Sequence[float] | None = None,
    until: Until = "all",
    seed: int = 0,
) -> MixedRows:
    return mixed_rows([Numbers(i, count) for i, count in enumerate(counts)], weights, until, seed)


def chains(mix: MixedRows, start: int = 0, stop: int | None = None, epoch: int = 0) -> Any:
    stop = len(mix) if stop is None else stop
    return mix.at_epoch(epoch).gather(np.arange(start, stop))["chain"]


def splitmix(number: int, key: int) -> int:
    value = ((number + 1) * 0x9E3779B97F4A7C15 + key) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def model(shares: Sequence[int], seed: Sequence[int]) -> Iterator[int]:
    """Yield the branch of every position of one phase, without end."""
    chosen = [i for i, share in enumerate(shares) if share]
    drawn = iter(
        np.random.SeedSequence(list(seed)).generate_state(max(len(chosen), 1), np.uint64).tolist()
    )

    def stream(some: list[int]) -> Iterator[int]:
        if len(some) == 1:
            return itertools.repeat(some[0])
        left, right = some[: len(some) // 2], some[len(some) // 2 :]
        odds = Fraction(sum(shares[i] for i in left), sum(shares[i] for i in some))
        phase = next(drawn) * odds.denominator >> 64
        return merge(stream(left), stream(right), odds, phase)

    def merge(a: Iterator[int], b: Iterator[int], odds: Fraction, phase: int) -> Iterator[int]:
        while True:
            phase += odds.numerator
            if phase >= odds.denominator:
                phase -= odds.denominator
                yield next(a)
            else:
                yield next(b)

    even = stream(chosen)
    key, total = next(drawn), sum(shares)
    for start in itertools.count(0, 8):
        slots = range(start, min(start + 8, total))
        owners = list(itertools.islice(even, len(slots)))
        order = sorted(range(len(slots)), key=lambda i: splitmix(slots[i], key))
        yield from (owners[i] for i in order)
        if len(slots) < 8:
            return


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(any),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_a_mix_matches_the_model(counts: list[int], seed: int, epoch: int) -> None:
    mix = mixed(counts, seed=seed)
    found: Any = mix.at_epoch(epoch).gather(np.arange(sum(counts)))
    expected = list(model(counts, [seed, epoch, 0]))
    assert found["chain"].tolist() == expected
    seen: Counter[int] = Counter()
    for chain, row in zip(found["chain"].tolist(), found["row"].tolist(), strict=True):
        assert row == seen[chain]  # each branch in its own order
        seen[chain] += 1
    assert [seen[i] for i in range(len(counts))] == counts
    some = np.random.default_rng(seed).integers(0, sum(counts), 50)
    again: Any = mix.at_epoch(epoch).gather(some)  # in any order, and more than once
    assert np.array_equal(again["row"], found["row"][some])
    assert np.array_equal(again["chain"], found["chain"][some])


@pytest.mark.parametrize(
    ("small", "large"), [(50, 100_000), (1, 100_000), (3, 10_001), (999, 1_000), (500, 500)]
)
@pytest.mark.parametrize("swap", [False, True])
def test_the_rows_of_a_small_source_are_spread_evenly_over_the_epoch(
    small: int, large: int, swap: bool
) -> None:
    counts = [large, small] if swap else [small, large]
    total = small + large
    for epoch in range(3):
        places = np.flatnonzero(chains(mixed(counts), epoch=epoch) == int(swap))
        assert len(places) == small
        # Row i of n begins the i-th of n equal spans, up to a common phase and a block.
        offsets = places - np.arange(small) * total / small
        assert np.ptp(offsets) <= 16
        assert offsets.min() >= -8
        assert offsets.max() <= total / small + 8


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=100),
    st.integers(0, 5),
)
def test_every_span_holds_the_share_of_every_source(counts: list[int], epoch: int) -> None:
    found = chains(mixed(counts, seed=1), epoch=epoch)
    total = sum(counts)
    for i, count in enumerate(counts):
        seen = np.concatenate([[0], np.cumsum(found == i)])
        apart = seen - np.arange(total + 1) * count / total
        assert np.ptp(apart) <= 10  # between any two positions


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1e-6, 0.001, 0.3, 0.9, 1 - 1e-6])
def test_any_weight_is_honoured(weight: float) -> None:
    mix = mixed([None, None], [weight, 1 - weight])
    assert mix.facts.endless
    stretch = 200_000 if 0.0001 < weight < 0.9999 else 2_000_000  # rare rows are seen too
    found = chains(mix, 10**9, 10**9 + stretch) == 0
    assert abs(found.sum() - weight * stretch) <= 6


def test_a_tiny_weight_is_not_rounded_up() -> None:
    mix = mixed([None, None], [1e-12, 1.0])
    total = 0
    for start in range(0, 10**13, 10**12):
        total += int((chains(mix, start, start + 100_000) == 0).sum())
    assert total <= 10
    place = mix.gather(np.array([10**13]))
    assert abs(int(place["row"][0]) - (10 if place["chain"][0] == 0 else 10**13)) <= 20


@pytest.mark.parametrize("counts", [[500, 500], [50, 100_000], [7, 7, 7, 7], [1, 2, 300]])
def test_the_pattern_differs_by_epoch_but_not_by_machine(
    counts: list[int],
) -> None:
    patterns = [chains(mixed(counts, seed=s), epoch=e) for s in range(3) for e in range(4)]
    for one, other in itertools.combinations(patterns, 2):
        assert not np.array_equal(one, other)
    assert np.array_equal(chains(mixed(counts, seed=2), epoch=3), patterns[-1])


def test_the_pattern_does_not_depend_on_the_release() -> None:
    assert "".join(map(str, chains(mixed([8, 8, 8], seed=1)))) == "001021120201122122100201"


def test_a_repeated_mix_differs_from_one_repetition_to_the_next() -> None:
    a, b = (rm.from_arrays({"x": np.full(100, i)}) for i in range(2))
    both = np.concatenate([batch["x"] for batch in rm.mix(a, b).repeat(2).batch(50)])
    assert both.sum() == 200
    assert not np.array_equal(both[:200], both[200:])


def reference_counts(
    counts: Sequence[int], weights: Sequence[Fraction]
) -> tuple[int, Sequence[Fraction]]:
    """Count positions until the first branch runs out, and the rows of each by then."""
    total = sum(weights)
    length = min(c * total // w for c, w in zip(counts, weights, strict=True) if w and c)
    return int(length), [
        length * w / total if c else Fraction() for c, w in zip(counts, weights, strict=True)
    ]


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 50)), min_size=1, max_size=6).filter(
        lambda pairs: any(weight for _, weight in pairs)
    ),
    st.integers(0, 2),
)
def test_a_mix_until_first_ends_when_one_source_runs_out(
    pairs: list[tuple[int, int]], epoch: int
) -> None:
    counts, weights = [c for c, _ in pairs], [w for _, w in pairs]
    mix = mixed(counts, weights, "first")
    length, asked = reference_counts(counts, list(map(Fraction, weights)))
    assert len(mix) == length
    seen = Counter(chains(mix, epoch=epoch).tolist())
    assert any(seen[i] == count for i, count in enumerate(counts))
    for i, count in enumerate(counts):
        assert seen[i] <= count
        assert abs(seen[i] - asked[i]) < 1


@given(
    st.lists(st.tuples(st.integers(0, 200), st.floats(0.001, 5)), min_size=1, max_size=6),
    st.integers(0, 2),
)
def test_a_mix_until_all_yields_every_row_once(pairs: list[tuple[int, float]], epoch: int) -> None:
    counts = [count for count, _ in pairs]
    mix = mixed(counts, [weight for _, weight in pairs], "all")
    assert len(mix) == sum(counts)
    found = mix.at_epoch(epoch).gather(np.arange(sum(counts)))
    rows = sorted(zip(found["chain"].tolist(), found["row"].tolist(), strict=True))
    assert rows == [(i, row) for i, count in enumerate(counts) for row in range(count)]


@pytest.mark.parametrize("counts", [[10**10, 10**10 - 1], [10**10, 3], [10**15, 10**15, 10**15]])
def test_ten_billion_rows_are_computed_not_counted(counts: list[int]) -> None:
    mix = mixed(counts)
    assert len(mix) == sum(counts)
    for place in (0, len(mix) // 3, len(mix) - 1000):
        found = mix.at_epoch(5).gather(np.arange(place, place + 1000))
        for i, count in enumerate(counts):
            mine = found["row"][found["chain"] == i]
            assert np.array_equal(mine, np.arange(len(mine)) + (mine[0] if len(mine) else 0))
            if len(mine):
                assert abs(int(mine[0]) - place * count // sum(counts)) <= 20
    end = mix.at_epoch(5).gather(np.arange(len(mix) - 1000, len(mix)))
    assert int(end["row"][end["chain"] == 0][-1]) == counts[0] - 1


def test_an_endless_source_can_be_mixed_with_one_that_ends() -> None:
    first = mixed([None, 10], [0.9, 0.1], "first")
    assert len(first) == 100
    assert Counter(chains(first).tolist()) == {0: 90, 1: 10}
    all_ = mixed([None, 10], [0.9, 0.1], "all")
    assert all_.facts.endless
    assert Counter(chains(all_, 0, 1000).tolist()) == {0: 990, 1: 10}


def test_a_mix_may_have_a_single_source_or_row() -> None:
    assert chains(mixed([5])).tolist() == [0] * 5
    assert chains(mixed([1])).tolist() == [0]
    assert sorted(chains(mixed([1, 1])).tolist()) == [0, 1]
    assert len(mixed([0, 0])) == 0
    assert chains(mixed([0, 3])).tolist() == [1, 1, 1]


def test_a_mix_resumes_where_it_stopped() -> None:
    def pipeline() -> rm.Stream:
        parts = [rm.from_arrays({"x": np.arange(n) + 1000 * n}) for n in (7, 90, 300)]
        return rm.mix(*(part.shuffle(seed=i) for i, part in enumerate(parts)), seed=3).batch(16)

    whole = [batch["x"].tolist() for batch in pipeline()]
    stopped = pipeline()
    feed = iter(stopped)
    for _ in range(9):
        next(feed)
    later = pipeline()
    later.restore(stopped.state())
    assert [batch["x"].tolist() for batch in later] == whole[9:]
