"""Which Ray task reads which rows."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from recmap.formats.tfrecord_partitions import Partition, Read
from recmap.ray.file_partitions import assign_rows
from recmap.tfrecord.index import Index


def unread(number: int, rows: int | None, unit: int = 1) -> Partition:
    """Return a partition that is never opened."""
    return Partition([str(number)], rows, unit, _open)


def _open(columns: Sequence[str], index: Index | None) -> Read:
    raise NotImplementedError


SIZES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 40))
def test_every_row_is_read_once_in_order_and_no_unit_is_divided(
    sizes: list[tuple[int, int]], tasks: int
) -> None:
    partitions = [unread(i, rows, unit) for i, (rows, unit) in enumerate(sizes)]
    assigned = assign_rows(partitions, tasks)
    assert 1 <= len(assigned) <= tasks
    rows = []
    for span in [span for spans in assigned for span in spans]:
        read = span.partition
        assert span.stop is not None
        assert span.start % read.unit == 0
        assert span.stop % read.unit == 0 or span.stop == read.rows
        rows += [(int(read.files[0]), row) for row in range(span.start, span.stop)]
    assert rows == [(i, row) for i, (total, _) in enumerate(sizes) for row in range(total)]


def test_rows_that_can_be_read_separately_are_divided_evenly() -> None:
    assigned = assign_rows([unread(0, 70), unread(1, 0), unread(2, 30)], 4)
    assert [sum(span.rows or 0 for span in spans) for spans in assigned] == [25] * 4


def test_files_with_an_unknown_number_of_rows_are_not_divided() -> None:
    assigned = assign_rows([unread(0, None), unread(1, 10), unread(2, None)], 2)
    assert [[(span.start, span.stop) for span in spans] for spans in assigned] == [
        [(0, None), (0, 10)],
        [(0, None)],
    ]
