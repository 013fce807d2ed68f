"""``drop_null``: the rows that have values in some columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recmap.dataset.rows import read_blocks
from recmap.machine.mapped import guarded
from recmap.model.batch import RowArray
from recmap.model.fill_null import complete_rows
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.row_sizes import measure
from recmap.model.source import Source


@guarded
def rows_without_nulls(
    source: Source, names: Sequence[str], progress: ProgressOption = None
) -> RowArray:
    """Return the numbers of the rows in which none of these columns is null or holds a null."""
    check_progress(progress)
    if not names:
        return np.arange(len(source), dtype=np.int64)
    found, start = [np.empty(0, np.int64)], 0
    with Counter(source.known_rows(), progress) as counter:
        for batch in read_blocks(source.select(list(names)), 1):
            found.append(start + np.flatnonzero(complete_rows(batch)))
            start += measure(batch)[0]
            counter.add(*measure(batch))
        counter.finish()
    return np.concatenate(found)
