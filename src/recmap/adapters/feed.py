"""What a pipeline hands to an adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.schema import Batch, Schema

__all__ = ["ExternalReader", "Feed", "NumberedRows", "State"]

#: What ``state()`` returns, or a list of the states of all ranks.
State: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Feed(Protocol):
    """Batches, or rows if there is no ``batch``, one epoch after another.

    Iterating it runs one epoch (or several, with ``repeat``) and moves on to the next.
    """

    # What comes out of it.

    @property
    def schema(self) -> Schema: ...

    def sample(self) -> Batch:
        """Return what becomes of the first rows: the columns as they will come."""
        ...

    @property
    def batched(self) -> bool:
        """Whether batches come out of it, not rows."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of a batch. The last one may have fewer."""
        ...

    @property
    def fixed_batch_size(self) -> int | None:
        """Rows of every batch, if all of them have equally many; else None."""
        ...

    @property
    def end_to_end(self) -> bool:
        """Whether several batches may lie end to end in the same arrays."""
        ...

    def __len__(self) -> int:
        """Return the batches, or rows, of an iteration. TypeError if that is not known."""
        ...

    # Reading in order.

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def part(self, index: int, count: int) -> Feed:
        """Return every ``count``-th batch, for processes that take turns."""
        ...

    # Reading by number.

    @property
    def numbered(self) -> bool:
        """Whether rows can be read by number."""
        ...

    def rows(self) -> NumberedRows:
        """Return the rows by number. OptionError if they have none."""
        ...

    def batch_at(self, number: int, epoch: int) -> Batch:
        """Make one batch here and now. OptionError if batches have no numbers."""
        ...

    @property
    def in_turn(self) -> bool:
        """Whether reading batches out of order is slow: it leaves the workers of the pipeline
        idle, or reads a compressed file from its start.
        """
        ...

    # Where it is.

    epoch: int
    """The epoch that the next iteration begins with, or goes on in. May be set."""

    @property
    def first_epoch(self) -> int:
        """The epoch that the next iteration, or the one it goes on with, began with."""
        ...

    @property
    def turns(self) -> int:
        """Epochs of one iteration."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether the next iteration begins in the middle of one."""
        ...

    def left(self) -> int:
        """Return the batches, or rows, of the next iteration."""
        ...

    @property
    def placed(self) -> int:
        """How often it was told where to begin, by ``restore()`` or by setting ``epoch``."""
        ...

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch, or after so many of this iteration."""
        ...

    def restore(self, state: State) -> Feed:
        """Make the next iteration begin at a state."""
        ...

    def read_by(self, reader: ExternalReader) -> None:
        """Note that someone else reads these batches, which ``state()`` has to know."""
        ...


class NumberedRows(Protocol):
    """Rows that can be read by number."""

    @property
    def count(self) -> int | None: ...

    def gather(self, positions: npt.NDArray[np.int64], epoch: int) -> Batch:
        """Read the rows at these positions, into arrays of their own."""
        ...


class ExternalReader(Protocol):
    """A reader that the pipeline of this process does not see, such as the workers of a
    PyTorch ``DataLoader``.
    """

    def begun(self) -> int:
        """Return how many iterations have begun there."""
        ...

    def epoch(self) -> int | None:
        """Return the epoch the last of them began with; None if its batches are not in order."""
        ...

    def instead(self) -> str:
        """Return what to do instead of asking the pipeline for its state, for people."""
        ...
