"""``drop_null``: the rows that have values in some columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from recmap.dataset.column_scan import from_rows
from recmap.dataset.rows import read_blocks
from recmap.machine.mapped import guarded
from recmap.model.fill_null import complete_rows
from recmap.model.order import Late, Order, Picked, Span, counted_order
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.row_sizes import measure
from recmap.model.source import Source


def rows_without_nulls(
    source: Source,
    names: Sequence[str],
    progress: ProgressOption,
    reopen: Callable[[], Source] | None,
) -> Order:
    """Return the rows in which none of these columns is null or holds a null.

    They are found when they are first needed.
    """
    check_progress(progress)
    if not names:
        return counted_order(source, _all_rows)
    compute = partial(_complete_rows, names=list(names), progress=progress)
    return Late(partial(from_rows(source, compute, reopen).at, 0))


def _all_rows(count: int) -> Span:
    return Span(range(count))


@guarded
def _complete_rows(source: Source, names: Sequence[str], progress: ProgressOption) -> Picked:
    found, start = [np.empty(0, np.int64)], 0
    with Counter(source.known_rows(), progress) as counter:
        for batch in read_blocks(source.select(list(names)), 1):
            found.append(start + np.flatnonzero(complete_rows(batch)))
            start += measure(batch)[0]
            counter.add(*measure(batch))
        counter.finish()
    return Picked(np.concatenate(found))
