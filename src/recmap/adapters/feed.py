"""What an adapter is given: a pipeline, as far as adapters know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.model.schema import Batch, Schema

__all__ = ["Elsewhere", "Feed", "NumberedRows"]


class NumberedRows(Protocol):
    """Rows that can be had by number."""

    @property
    def count(self) -> int | None: ...

    def gather(self, positions: npt.NDArray[np.int64], epoch: int) -> Batch:
        """The rows with these numbers, in arrays of their own."""
        ...


class Elsewhere(Protocol):
    """Where batches are read that the pipeline of this process does not see."""

    def begun(self) -> int:
        """How many iterations have begun there."""
        ...

    def epoch(self) -> int | None:
        """The epoch the last of them began with, if its batches come in turn; else None."""
        ...

    def instead(self) -> str:
        """Where the state of these batches is had, for people."""
        ...


class Feed(Protocol):
    """Batches, or rows, one epoch after the other."""

    epoch: int

    @property
    def schema(self) -> Schema: ...

    @property
    def batched(self) -> bool:
        """Whether batches come out of it, not rows."""
        ...

    @property
    def numbered(self) -> bool:
        """Whether there are rows by number."""
        ...

    @property
    def turns(self) -> int:
        """Epochs of one iteration."""
        ...

    @property
    def first_epoch(self) -> int:
        """The epoch with which the iteration that comes next begins, or has begun."""
        ...

    @property
    def in_turn(self) -> bool:
        """Whether batches are made well only one after the other."""
        ...

    @property
    def end_to_end(self) -> bool:
        """Whether several batches of one size may lie end to end in memory."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of a batch; the last may have fewer."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether the next iteration goes on in the middle of one."""
        ...

    @property
    def placed(self) -> int:
        """How often it was told where to begin: by ``restore()``, or an ``epoch``."""
        ...

    def sample(self) -> Batch:
        """What becomes of the first rows."""
        ...

    def __len__(self) -> int:
        """Batches, or rows, of an iteration. TypeError if nobody knows."""
        ...

    def left(self) -> int:
        """Batches, or rows, of the next iteration, which may go on in the middle of one."""
        ...

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def rows(self) -> NumberedRows:
        """The rows by number. OptionError where they have none."""
        ...

    def batch_at(self, number: int, epoch: int) -> Batch:
        """One batch by number. OptionError where they have none."""
        ...

    def part(self, index: int, count: int) -> Feed:
        """Every ``count``-th batch, for processes that take turns."""
        ...

    def read_by(self, elsewhere: Elsewhere) -> None:
        """Others read it from now on, whom it does not see."""
        ...

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """After the last batch that was given out, or after so many of this iteration."""
        ...

    def restore(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Feed: ...
