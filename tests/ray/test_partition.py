"""Which task of Ray's reads which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from recmap.model.source import Partition, RowReader
from recmap.ray.partition import deal


@dataclass(frozen=True)
class Some:
    """A piece of which nothing is read."""

    number: int
    rows: int | None
    unit: int = 1
    files: list[str] = field(default_factory=list)

    def part(self, start: int, stop: int) -> Partition:
        return self

    def open(self, columns: Sequence[str]) -> RowReader:
        raise NotImplementedError


PIECES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), min_size=1, max_size=8)


@given(PIECES, st.integers(1, 40))
def test_every_row_is_dealt_once_in_order_and_no_unit_is_cut(
    sizes: list[tuple[int, int]], tasks: int
) -> None:
    pieces = [Some(i, rows, unit) for i, (rows, unit) in enumerate(sizes)]
    dealt = deal(pieces, tasks)
    assert 1 <= len(dealt) <= tasks
    rows = []
    for stretch in [stretch for stretches in dealt for stretch in stretches]:
        piece = stretch.piece
        assert isinstance(piece, Some)
        assert stretch.stop is not None
        assert stretch.start % piece.unit == 0
        assert stretch.stop % piece.unit == 0 or stretch.stop == piece.rows
        rows += [(piece.number, row) for row in range(stretch.start, stretch.stop)]
    assert rows == [(i, row) for i, (count, _) in enumerate(sizes) for row in range(count)]


def test_rows_that_stand_alone_are_dealt_evenly() -> None:
    dealt = deal([Some(0, 70), Some(1, 0), Some(2, 30)], 4)
    assert [sum(stretch.rows or 0 for stretch in stretches) for stretches in dealt] == [25] * 4


def test_files_nobody_has_counted_are_dealt_whole() -> None:
    dealt = deal([Some(0, None), Some(1, 10), Some(2, None)], 2)
    assert [[(s.start, s.stop) for s in stretches] for stretches in dealt] == [
        [(0, None), (0, 10)],
        [(0, None)],
    ]
