"""Orders, compared with plain lists, and the rows of a source in an order."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

import recmap as rm
from recmap.dataset.split import split
from recmap.errors import OptionTypeError
from recmap.formats.memory import memory_source
from recmap.model.order import ENDLESS, Chained, Order, Picked, Span
from recmap.model.ordered_rows import OrderedRows, sliced
from recmap.model.permutation import Permutation
from recmap.model.schema import Schema
from recmap.model.source import Source, row_name
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.repeat import Repeat, repeated
from recmap.pipeline.transforms.shuffle import Shuffle, WindowShuffle, shuffled

ROWS = 200


@pytest.fixture
def source() -> Source:
    return memory_source({"x": np.arange(ROWS)}, Schema({"x": "int64"}))


def numbers(source: Source) -> list[int]:
    column = source.read(0, len(source))["x"]
    assert isinstance(column, np.ndarray)
    return [int(value) for value in column]


ORDERS: dict[str, Callable[[], Order]] = {
    "span": lambda: Span(range(20, 120)),
    "strided": lambda: Span(range(5, 190, 7)),
    "backwards": lambda: Span(range(180, 3, -4)),
    "picked": lambda: Picked(np.array([7, 3, 199, 7, 0])),
    "permutation": lambda: Permutation(ROWS, 3),
    "chained": lambda: Chained(Permutation(ROWS, 3), Span(range(10, 60))),
    "shuffle": lambda: Shuffle(ROWS, Seed(5)),
    "window": lambda: WindowShuffle(ROWS, Seed(5), 30, True, keep_blocks=False),
    "repeat": lambda: Repeat(ROWS, 3),
    "nothing": lambda: Span(range(4, 4)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_every_way_to_read_gives_the_rows_of_the_order(source: Source, name: str) -> None:
    order, rng = ORDERS[name](), np.random.default_rng(0)
    assert order.count is not None
    for epoch in (0, 3):
        rows = OrderedRows(source, order).at_epoch(epoch)
        expected = order.numbers(np.arange(order.count), epoch).tolist()
        assert numbers(rows) == expected
        assert len(rows) == len(expected)
        some = rng.integers(0, max(1, order.count), 20 if order.count else 0)
        assert rows.gather(some)["x"].tolist() == [expected[i] for i in some]
        start, stop = order.count // 3, order.count // 2
        assert rows.read(start, stop)["x"].tolist() == expected[start:stop]
        assert rows.read(start, 10**6, 24)["x"].tolist() == expected[start : start + 3]
        assert [row_name(rows, int(i)) for i in some[:3]] == [
            f"row {expected[i]}" for i in some[:3]
        ]
        again = pickle.loads(pickle.dumps(rows))
        assert numbers(again) == expected
        assert numbers(again.at_epoch(epoch)) == expected


def test_shuffles_are_permutations_and_new_in_every_epoch(source: Source) -> None:
    for window in (None, 16):
        rows = shuffled(source, Seed(1), window, True)
        first, second = numbers(rows), numbers(rows.at_epoch(1))
        assert sorted(first) == sorted(second) == list(range(ROWS))
        assert first != second
        kept = shuffled(source, Seed(1), window, False)
        assert numbers(kept) == numbers(kept.at_epoch(1)) == first


def test_each_repetition_is_an_epoch_of_what_is_repeated(source: Source) -> None:
    mixed = shuffled(source, Seed(1), None, True)
    twice = repeated(mixed, 2)
    for epoch in (0, 1):
        expected = numbers(mixed.at_epoch(2 * epoch)) + numbers(mixed.at_epoch(2 * epoch + 1))
        assert numbers(twice.at_epoch(epoch)) == expected
        # Orders of orders go on from there.
        part = OrderedRows(twice, Span(range(150, 350, 3))).at_epoch(epoch)
        assert numbers(part) == expected[150:350:3]


def test_rows_without_end_have_no_number(source: Source) -> None:
    rows = OrderedRows(repeated(source, None), Span(range(5, ENDLESS)))
    assert rows.facts.endless
    assert rows.read(ROWS - 10, ROWS)["x"].tolist() == [195, 196, 197, 198, 199, 0, 1, 2, 3, 4]
    with pytest.raises(OptionTypeError, match="endless"):
        len(rows)


def test_slices_and_parts_of_rows_that_are_decoded_together_are_read_in_one_span() -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save("x.tfrecord.gz", format="tfrecord")
    stored = rm.open("x.tfrecord.gz")._source
    assert stored.facts.chunk_rows() > 1
    assert numbers(sliced(stored, slice(10, 190, 3))) == list(range(10, 190, 3))
    strided = sliced(stored, slice(10, 190, 3))
    assert strided.read(2, 5, 1 << 20)["x"].tolist() == [16, 19, 22]
    parts = split(stored, {"a": 0.6, "b": 0.4}, 1, None, None, None)
    found = {name: numbers(OrderedRows(stored, order)) for name, order in parts.items()}
    assert sorted(found["a"] + found["b"]) == list(range(ROWS))
    for name, order in parts.items():
        assert found[name] == sorted(found[name])
        limited = OrderedRows(stored, order).read(3, 50, 1 << 20)["x"].tolist()
        assert limited == found[name][3 : 3 + len(limited)]
        assert limited
