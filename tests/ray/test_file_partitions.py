"""Which Ray task reads which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from recmap.ray.file_partitions import InputFiles, Reader, partition


@dataclass(frozen=True)
class Unread:
    """Files that are never opened."""

    number: int
    rows: int | None
    unit: int = 1
    files: list[str] = field(default_factory=list)

    def narrow(self, start: int, stop: int) -> InputFiles:
        return self

    def open(self, columns: Sequence[str]) -> Reader:
        raise NotImplementedError


SIZES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 40))
def test_every_row_is_in_one_partition_in_order_and_no_unit_is_divided(
    sizes: list[tuple[int, int]], count: int
) -> None:
    partitions = partition([Unread(i, rows, unit) for i, (rows, unit) in enumerate(sizes)], count)
    assert 1 <= len(partitions) <= count
    rows = []
    for span in [span for spans in partitions for span in spans]:
        files = span.input
        assert isinstance(files, Unread)
        assert span.stop is not None
        assert span.start % files.unit == 0
        assert span.stop % files.unit == 0 or span.stop == files.rows
        rows += [(files.number, row) for row in range(span.start, span.stop)]
    assert rows == [(i, row) for i, (total, _) in enumerate(sizes) for row in range(total)]


def test_rows_that_can_be_read_separately_are_divided_evenly() -> None:
    partitions = partition([Unread(0, 70), Unread(1, 0), Unread(2, 30)], 4)
    assert [sum(span.rows or 0 for span in spans) for spans in partitions] == [25] * 4


def test_files_that_are_not_counted_are_not_divided() -> None:
    partitions = partition([Unread(0, None), Unread(1, 10), Unread(2, None)], 2)
    assert [[(span.start, span.stop) for span in spans] for spans in partitions] == [
        [(0, None), (0, 10)],
        [(0, None)],
    ]
