"""Draws are pure functions of a key and a position, with the right chances."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from recmap.model.draws import AliasTable, Arrivals, Classes, below, hashed, key_of, logarithm

RNG = np.random.default_rng(5)


def chances(table: AliasTable) -> list[Fraction]:
    """Return the exact chance of each row, out of what the slots say."""
    found = [Fraction(0)] * len(table._slots)
    for row, slot in enumerate(table._slots.tolist()):
        kept = Fraction(slot >> 32, 1 << 32)
        found[row] += kept
        found[slot & 0xFFFFFFFF] += 1 - kept
    return [chance / len(found) for chance in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        [3.0],
        [0.1] * 10,
        [1.0, 0.0, 2.0],
        [0.0] * 9 + [1e-300],
        [1e308, 1e308, 1e308, 1.0],
        [0.3, 0.3, 0.4],
        RNG.random(500),
        RNG.random(500) ** 20,
        RNG.integers(0, 3, 500),
    ],
    ids=str,
)
def test_an_alias_table_has_the_chances_of_the_weights(weights: list[float]) -> None:
    given = np.array(weights, np.float64)
    exact = [Fraction(weight) for weight in given.tolist()]
    for row, chance in enumerate(chances(AliasTable(given))):
        wanted = exact[row] / sum(exact)
        assert abs(chance - wanted) < Fraction(1, 1 << 30) / len(exact) + Fraction(1, 10**13)
        assert chance == 0 or wanted > 0


def drawn_by_numpy(table: AliasTable, positions: np.ndarray, key: np.uint64) -> np.ndarray:
    """Draw one operation at a time, as the native core does for a number."""
    chances = (hashed(positions.view(np.uint64), key) >> np.uint64(11)).astype(np.float64)
    chances *= len(table._slots) * 2.0**-53
    slots = chances.astype(np.int64)
    found = table._slots[slots]
    lost = ((chances - slots) * 2.0**32).astype(np.uint64) >= found >> np.uint64(32)
    return np.where(lost, (found & np.uint64(0xFFFFFFFF)).astype(np.int64), slots)


def test_the_native_core_draws_what_numpy_draws() -> None:
    for count in (1, 2, 3, 1000, 65_537):
        table, key = AliasTable(RNG.random(count) ** 9), key_of([count])
        for size in (0, 1, 255, 256, 257, 20_000):
            positions = RNG.integers(0, 2**62, size)
            rows = table.at(positions, key)
            assert (rows == drawn_by_numpy(table, positions, key)).all()
            assert (table.at(positions[::2], key) == rows[::2]).all()
    table = AliasTable(np.array([1.0, 2.0, 3.0, 4.0]))
    drawn = table.at(np.arange(12), key_of([1, 2])).tolist()
    assert drawn == [2, 2, 2, 3, 3, 3, 1, 2, 3, 1, 1, 0]  # as before it was native


def test_draws_are_below_the_count_and_evenly_spread() -> None:
    counts = np.bincount(below(7, np.arange(70_000), key_of([1, 2])), minlength=7)
    assert len(counts) == 7
    assert (np.abs(counts - 10_000) < 400).all()
    for count in (1, 2, 3, (1 << 31) + 1, (1 << 52) - 1):
        drawn = below(count, np.arange(1000), key_of([count]))
        assert drawn.min() >= 0
        assert drawn.max() < count


def test_a_draw_depends_only_on_the_key_and_the_position() -> None:
    table, classes = AliasTable(RNG.random(50)), Classes(RNG.integers(0, 4, 50), 4)
    key, positions = key_of([3, 1]), RNG.permutation(1000)
    for draws in (table, classes):
        whole = draws.at(np.arange(1000), key)
        assert (draws.at(positions, key) == whole[positions]).all()
        assert (draws.at(np.arange(1000), key_of([3, 2])) != whole).any()


def test_classes_are_drawn_evenly_and_then_their_rows() -> None:
    codes = np.array([0] * 90 + [1] * 9 + [2])
    drawn = Classes(codes, 3).at(np.arange(30_000), key_of([4]))
    counts = np.bincount(drawn, minlength=100)
    assert (np.abs(np.bincount(codes[drawn]) - 10_000) < 400).all()
    assert counts[99] > 9_000
    assert (np.abs(counts[90:99] - 10_000 / 9) < 200).all()
    assert counts[:90].min() > 50


def test_different_rows_are_taken_equally_from_all_classes() -> None:
    codes = RNG.integers(0, 3, 100)
    for count in (0, 1, 3, 20, 60):
        rows = Classes(codes, 3).evenly(count, [count])
        sizes = np.bincount(codes[rows], minlength=3)
        assert len(set(rows.tolist())) == count
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.slow
def test_rows_drawn_once_have_the_chances_of_drawing_one_after_another() -> None:
    weights = np.array([1.0, 2.0, 0.0, 3.0, 4.0])
    arrivals, trials = Arrivals(weights), 20_000
    pairs = [tuple(arrivals.first(2, key_of([trial])).tolist()) for trial in range(trials)]
    for first in range(5):
        for second in range(5):
            left = 10 - weights[first]
            wanted = weights[first] / 10 * weights[second] / left if first != second else 0
            assert abs(pairs.count((first, second)) / trials - wanted) < 0.012


def test_rows_drawn_once_are_all_that_have_a_weight_however_small() -> None:
    weights = np.array([5e-324, 0, 1e308, 1e-300, 0, 1])
    assert sorted(Arrivals(weights).first(4, key_of([1])).tolist()) == [0, 2, 3, 5]
    assert Arrivals(weights).first(0, key_of([1])).tolist() == []
    many = Arrivals(RNG.random(20_000))
    assert (many.first(100, key_of([1])) == many.first(20_000, key_of([1]))[:100]).all()


def test_logarithms_are_as_exact_as_those_of_numpy() -> None:
    numbers = np.append(10 ** RNG.uniform(-307, 307, 10_000), [5e-324, 1, 1 - 2**-53, 0.5, 2**52])
    found, wanted = logarithm(numbers), np.log(numbers)
    assert (np.abs(found - wanted) <= 4e-16 * np.abs(wanted)).all()
