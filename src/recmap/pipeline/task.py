"""The work on one block of rows: read them, do the steps. Done by whoever is free."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError
from recmap.files.mapped import guarded
from recmap.model.ragged import Column
from recmap.model.schema import Batch
from recmap.pipeline.row_source import Positions, Rows
from recmap.pipeline.transforms.base import Rowset, Step, run_steps
from recmap.pipeline.transforms.pad import padded_by
from recmap.pipeline.workers.pool import Request

__all__ = ["FinishTask", "Result", "RowsTask", "filler", "opened", "pieces_of"]

# Columns that travel with a result and are taken off it before anybody sees it.
_KEPT, _MET, _SECONDS = "\0kept", "\0met", "\0seconds"


class _Several(dict[str, Column]):
    """A result that is several batches; only a thread of the same process gives such."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        super().__init__()
        self.batches = deque(batches)


def filler(positions: Positions, real: npt.NDArray[np.bool_]) -> Positions:
    """Positions of which those that are not real are marked: they are below zero."""
    return positions if real.all() else np.where(real, positions, ~positions)


def _unmarked(positions: Positions, filled: bool) -> tuple[Positions, npt.NDArray[np.bool_] | None]:
    """What filler() was given; only with a column that tells is there any."""
    if not filled:
        return positions, None
    real = positions >= 0
    return np.where(real, positions, ~positions), real


@dataclass(frozen=True)
class Result:
    """What came of a block: which of its rows were kept, None if all; seconds by stage;
    and which rows each cut met that has steps behind it.
    """

    batch: Batch
    kept: Positions | None
    seconds: npt.NDArray[np.float64]
    met: list[Positions]


@dataclass(frozen=True)
class RowsTask:
    """Reads a block and does the steps; and those of batches, of ``size`` rows each.

    _Several batches that turn out to take more than ``most`` bytes may be refused by a
    MemoryLimitError: then they are to be read one by one.
    """

    rows: Rows
    steps: tuple[Step, ...]
    finish: tuple[Step, ...]
    size: int
    mask: str | None
    drops: bool
    most: int = sys.maxsize
    #: How many steps come before each take or skip that others follow.
    cuts: tuple[int, ...] = ()

    @guarded
    def __call__(self, request: Request) -> Batch:
        positions, real = _unmarked(request.positions, self.mask is not None)
        met: list[Positions] = []
        pieces, seconds = self._made(request.batch, positions, request.epoch, met)
        several = len(pieces) > 1
        result = _Several(piece.batch for piece in pieces) if several else dict(pieces[0].batch)
        if self.mask is not None and real is not None:
            if any(len(column) != len(real) for column in result.values()):
                raise MapError(
                    f"a function of batches changed the number of rows from {len(real):,}, so that "
                    f'the column {self.mask!r} of even="pad" cannot be told'
                )
            result[self.mask] = real
        if self.drops:
            result[_KEPT] = np.searchsorted(positions, pieces[0].positions)
        for number, there in enumerate(met):
            result[f"{_MET}{number}"] = np.searchsorted(positions, there)
        result[_SECONDS] = np.array(seconds)
        return result

    def _made(
        self, batch: Batch | None, positions: Positions, epoch: int, met: list[Positions]
    ) -> tuple[list[Rowset], list[float]]:
        """The batches of a block, or the one that it is, and the seconds of each stage.
        ``met`` takes the positions of the rows that each cut meets.
        """
        begun = time.perf_counter()
        finish, size = self.finish, self.size
        starts = range(0, len(positions), size) if finish else range(1)
        padded = [] if batch is not None or self.steps else self._padded(positions, epoch)
        if padded:
            rows = [
                Rowset(batch, positions[start : start + size], epoch, self.rows)
                for start, batch in zip(starts, padded, strict=True)
            ]
            # Nobody knows what of it was padding.
            finish, seconds = finish[1:], [time.perf_counter() - begun, 0.0]
        else:
            if batch is None:
                batch = self.rows.gather(positions, epoch)
            read = time.perf_counter() - begun
            block, seconds = Rowset(batch, positions, epoch, self.rows), [read]
            for begin, end in pairwise([0, *self.cuts, len(self.steps)]):
                if begin:
                    met.append(block.positions)
                block, spent = run_steps(block, self.steps[begin:end])
                seconds += spent
            rows = [block.part(start, start + size) for start in starts if len(starts) > 1]
            rows = rows or [block]
        done = [run_steps(piece, finish) for piece in rows]
        spent = [sum(times) for times in zip(*(times for _, times in done), strict=True)]
        return [piece for piece, _ in done], seconds + spent

    def _padded(self, positions: Positions, epoch: int) -> list[Batch]:
        """The batches of a block, if they can be padded while they are read."""
        step = padded_by(self.finish, self.rows)
        return [] if step is None else step.read(self.rows, positions, epoch, self.size, self.most)


@dataclass(frozen=True)
class FinishTask:
    """Does the steps of batches to rows that were grouped before."""

    rows: Rows
    finish: tuple[Step, ...]

    @guarded
    def __call__(self, request: Request) -> Batch:
        assert request.batch is not None
        rows = Rowset(request.batch, request.positions, request.epoch, self.rows)
        rows, seconds = run_steps(rows, self.finish)
        return {**rows.batch, _SECONDS: np.array(seconds)}


def opened(batch: Batch) -> Result:
    """A result, its columns and what travelled with them apart."""
    kept, seconds = batch.pop(_KEPT, None), batch.pop(_SECONDS)
    assert isinstance(seconds, np.ndarray)
    met: list[Positions] = []
    while isinstance(there := batch.pop(f"{_MET}{len(met)}", None), np.ndarray):
        met.append(there)
    return Result(batch, kept if isinstance(kept, np.ndarray) else None, seconds, met)


def pieces_of(batch: Batch) -> deque[Batch]:
    """Batches that came as one; none if it is to be cut by rows."""
    return batch.batches if isinstance(batch, _Several) else deque()
