"""Read one column of a source, once, to compute an order of rows from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.dataset.rows import read_blocks
from recmap.errors import DataError, Message, OptionError
from recmap.model.nulls import NULL_SUFFIX, values_and_validity, with_masks
from recmap.model.progress import Counter, ProgressOption
from recmap.model.ragged import Column
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import measure
from recmap.model.source import Source, at_epoch, row_name

_T = TypeVar("_T")


def from_rows(
    source: Source,
    compute: Callable[[Source], _T],
    reopen: Callable[[], Source] | None = None,
) -> Remembered[int, _T]:
    """Return what ``compute`` makes of the rows of each epoch, once it is needed.

    If the rows are the same in every epoch, so is what is made of them. Pickling computes it
    before, so that other processes get it as it is. ``reopen`` opens the rows in a process that
    was forked.
    """
    made = partial(_computed, compute, source, reopen, os.getpid())
    return Remembered(made, 0, only=not source.facts.varies)


def _computed(
    compute: Callable[[Source], _T],
    source: Source,
    reopen: Callable[[], Source] | None,
    process: int,
    epoch: int,
) -> _T:
    forked = process != os.getpid() and reopen is not None
    return compute(at_epoch(reopen() if forked and reopen else source, epoch))


class ColumnBlock(NamedTuple):
    """Some rows of a column: the number of the first, the values, and which are null, if any."""

    start: int
    values: Column
    missing: npt.NDArray[np.bool_] | None


def scan_column(source: Source, name: str, progress: ProgressOption) -> Iterator[ColumnBlock]:
    """Yield all rows of a column, in blocks of a few megabytes. No other column is read."""
    column = source.select(with_masks([name], source.schema))
    start = 0
    with Counter(len(column), progress) as counter:
        for batch in read_blocks(column, 1):
            mask: Any = batch.get(name + NULL_SUFFIX)
            values, valid = values_and_validity(batch[name], mask)
            rows, size = measure(batch)
            yield ColumnBlock(start, values, None if valid is None else ~valid)
            counter.add(rows, size)
            start += rows
        counter.finish()


def refuse_nulls(verb: str, source: Source, name: str, block: ColumnBlock) -> None:
    """Raise an error that names the first row without a value."""
    if block.missing is not None:
        row = block.start + int(np.argmax(block.missing))
        text = f"{verb}: {row_name(source, row)} has no value in column {name!r}"
        raise DataError(
            Message(text, hint=(f"leave out such rows first, ds.drop_null({name!r})",)),
            field=name,
            record=row,
        )


def check_reread(verb: str, source: Source) -> None:
    """Refuse rows that cannot be read twice, or have no end."""
    if source.facts.once:
        raise OptionError(f"{verb}: rows that come only once cannot be read twice; save them first")
    if source.facts.endless:
        raise OptionError(f"{verb}: the rows are endless; put {verb} before repeat")


def check_same_rows(verb: str, source: Source) -> None:
    """Refuse rows that cannot be read twice, have no end, or differ from epoch to epoch."""
    check_reread(verb, source)
    if source.facts.varies:
        raise OptionError(
            f"{verb}: these rows differ from epoch to epoch, and so would those made of them; put "
            f"{verb} before shuffle, sample and functions that draw random numbers"
        )
