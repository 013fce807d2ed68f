"""Batches put together from parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.ragged import Column, Ragged, concatenate
from recmap.model.schema import Batch

__all__ = ["interleave", "join", "pick"]

Positions: TypeAlias = npt.NDArray[np.int64]


def join(batches: Sequence[Batch]) -> Batch:
    """Rows end to end."""
    if len(batches) == 1:
        return batches[0]
    return {name: concatenate([batch[name] for batch in batches]) for name in batches[0]}


def pick(batch: Batch, rows: Positions | slice) -> Batch:
    """Some rows of a batch."""
    return {name: column[rows] for name, column in batch.items()}


def interleave(parts: Sequence[Batch], places: Sequence[Positions]) -> Batch:
    """Rows of several parts, those of part ``i`` at ``places[i]`` of the batch."""
    if len(parts) == 1 and bool((np.diff(places[0]) > 0).all()):
        return parts[0]
    return {name: _column([part[name] for part in parts], places) for name in parts[0]}


def _column(columns: list[Column], places: Sequence[Positions]) -> Column:
    if any(isinstance(column, Ragged) for column in columns):
        back = np.empty(sum(map(len, places)), np.int64)
        back[np.concatenate(places)] = np.arange(len(back))
        return concatenate(columns)[back]
    out: Column = np.empty((sum(map(len, places)), *columns[0].shape[1:]), columns[0].dtype)  # type: ignore[union-attr]  # none is ragged
    for column, place in zip(columns, places, strict=True):
        out[place] = column  # type: ignore[index]  # nor is this
    return out
