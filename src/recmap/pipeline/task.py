"""The work on one block of rows: read them, do the steps. Done by whoever is free."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError
from recmap.pipeline.rows import Positions, Rows
from recmap.pipeline.steps import Rowset, Step, run_steps
from recmap.pipeline.workers import Request
from recmap.types import Batch

__all__ = ["FinishTask", "Result", "RowsTask", "filler", "opened", "pieces_of"]

# Columns that travel with a result and are taken off it before anybody sees it.
_KEPT, _SECONDS = "\0kept", "\0seconds"
# Before the number of a batch and the name of its column, where a result is several.
_PIECE = "\0piece\0"


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
    """What came of a block: which of its rows were kept, None if all; seconds by stage."""

    batch: Batch
    kept: Positions | None
    seconds: npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowsTask:
    """Reads a block and does the steps; and those of batches, of ``size`` rows each."""

    rows: Rows
    steps: tuple[Step, ...]
    finish: tuple[Step, ...]
    size: int
    mask: str | None
    drops: bool

    def __call__(self, request: Request) -> Batch:
        positions, real = _unmarked(request.positions, self.mask is not None)
        begun = time.perf_counter()
        batch = request.batch
        if batch is None:
            batch = self.rows.take(positions, request.epoch)
        read = time.perf_counter() - begun
        rows, seconds = run_steps(Rowset(batch, positions, request.epoch, self.rows), self.steps)
        if self.finish and len(positions) > self.size:
            return self._pieces(rows, read, seconds)
        rows, more = run_steps(rows, self.finish)
        result = dict(rows.batch)
        if self.mask is not None and real is not None:
            if any(len(column) != len(real) for column in result.values()):
                raise MapError(
                    f"a function of batches changed the number of rows from {len(real):,}, so that "
                    f'the column {self.mask!r} of even="pad" cannot be told'
                )
            result[self.mask] = real
        if self.drops:
            result[_KEPT] = np.searchsorted(positions, rows.positions)
        result[_SECONDS] = np.array([read, *seconds, *more])
        return result

    def _pieces(self, rows: Rowset, read: float, seconds: list[float]) -> Batch:
        """Several batches that were read together."""
        result: Batch = {}
        spent = np.zeros(len(self.finish))
        for number, start in enumerate(range(0, len(rows.positions), self.size)):
            piece, more = run_steps(rows.part(start, start + self.size), self.finish)
            result |= {f"{_PIECE}{number}\0{name}": c for name, c in piece.batch.items()}
            spent += more
        result[_SECONDS] = np.array([read, *seconds, *spent])
        return result


@dataclass(frozen=True)
class FinishTask:
    """Does the steps of batches to rows that were grouped before."""

    rows: Rows
    finish: tuple[Step, ...]

    def __call__(self, request: Request) -> Batch:
        assert request.batch is not None
        rows = Rowset(request.batch, request.positions, request.epoch, self.rows)
        rows, seconds = run_steps(rows, self.finish)
        return {**rows.batch, _SECONDS: np.array(seconds)}


def opened(batch: Batch) -> Result:
    """A result, its columns and what travelled with them apart."""
    kept, seconds = batch.pop(_KEPT, None), batch.pop(_SECONDS)
    assert isinstance(seconds, np.ndarray)
    return Result(batch, kept if isinstance(kept, np.ndarray) else None, seconds)


def pieces_of(batch: Batch) -> deque[Batch]:
    """Batches that came as one, taken out of it; none if it is to be cut by rows."""
    pieces: deque[Batch] = deque()
    for key in [key for key in batch if key.startswith(_PIECE)]:
        number, name = key.removeprefix(_PIECE).split("\0", 1)
        if int(number) == len(pieces):
            pieces.append({})
        pieces[-1][name] = batch.pop(key)
    return pieces
