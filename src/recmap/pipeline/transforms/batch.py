"""Rows put into batches, as they come: plain, by length, or several packed into one.

Plain batches of rows of which none is left out need nothing of this: they are read as
they are. A grouper holds rows back until their batch is full; which ones, it tells
with every batch, so that a run can go on from there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError, OptionError
from recmap.model.batch import interleave, join, pick
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Positions

__all__ = ["END", "Batches", "Block", "Buckets", "Group", "Grouper", "Grouping", "Singles"]

END = -1


@dataclass(frozen=True)
class Block:
    """Rows that were read together. ``numbers`` are their places in what this rank
    reads, in order.
    """

    batch: Batch
    numbers: Positions


@dataclass(frozen=True)
class Group:
    """A batch, and the numbers of its rows. All rows before number ``at`` have been given
    out, but for those held; ``END`` is after all of them.
    """

    batch: dict[str, Any]
    numbers: Positions
    at: int
    held: Any = ()


class Grouper(Protocol):
    """Makes groups of one epoch."""

    def add(self, block: Block) -> Iterator[Group]:
        """Takes rows in; the groups they complete."""
        ...

    def flush(self) -> Iterator[Group]:
        """What is left at the end of the epoch."""
        ...

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        """Takes in what was held when a group was given out; ``fetch`` reads rows again."""
        ...


class Grouping(Protocol):
    """How rows are grouped."""

    @property
    def block(self) -> int:
        """Rows to be read at a time."""
        ...

    @property
    def plain(self) -> bool:
        """Whether a block is a group, if no row is left out of it."""
        ...

    @property
    def drop_last(self) -> bool:
        """Whether a group that is not full at the end is left out."""
        ...

    @property
    def full_size(self) -> int | None:
        """Rows of a full group; None if they differ in that."""
        ...

    def schema(self, schema: Schema) -> Schema: ...

    def sampled(self, batch: Batch) -> Batch:
        """What becomes of some rows, to see the types."""
        ...

    def start(self) -> Grouper: ...

    def held_numbers(self, held: Any) -> list[int]:
        """The rows that are held, by number; ValueError if none are held so."""
        ...

    def describe(self) -> list[Any]: ...


@dataclass(frozen=True)
class Singles:
    """No groups: rows come one by one, from blocks that are read together."""

    block: int
    plain = False
    drop_last = False
    full_size = 1

    def schema(self, schema: Schema) -> Schema:
        return schema

    def sampled(self, batch: Batch) -> Batch:
        return batch

    def start(self) -> Grouper:
        return _Single()

    def held_numbers(self, held: Any) -> list[int]:
        if held:
            raise ValueError("nothing is held back")
        return []

    def describe(self) -> list[Any]:
        return ["rows"]


class _Single:
    """Every row is a group: a dict of values."""

    def add(self, block: Block) -> Iterator[Group]:
        names, columns = list(block.batch), list(block.batch.values())
        for row, number in enumerate(block.numbers.tolist()):
            values = [column[row] for column in columns]
            row_number = block.numbers[row : row + 1]
            yield Group(dict(zip(names, values, strict=True)), row_number, number + 1)

    def flush(self) -> Iterator[Group]:
        return iter(())

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        del held, fetch  # nothing is held


@dataclass(frozen=True)
class Batches:
    """So many rows in their order."""

    size: int
    drop_last: bool = False
    plain = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise OptionError(f"batch({self.size}): a batch has one row or more")

    @property
    def block(self) -> int:
        return self.size

    @property
    def full_size(self) -> int:
        return self.size

    def schema(self, schema: Schema) -> Schema:
        return schema

    def sampled(self, batch: Batch) -> Batch:
        return batch

    def start(self) -> Grouper:
        return _Batcher(self.size, self.drop_last)

    def held_numbers(self, held: Any) -> list[int]:
        if held:
            raise ValueError("nothing is held back")
        return []

    def describe(self) -> list[Any]:
        return ["batch", self.size, self.drop_last]


class _Batcher:
    """Rows in order, of which some were left out: nothing is held but what comes next."""

    def __init__(self, size: int, drop_last: bool) -> None:
        self._size, self._drop_last = size, drop_last
        self._waiting: list[Block] = []
        self._rows = 0

    def add(self, block: Block) -> Iterator[Group]:
        begin = 0
        while self._rows + len(block.numbers) - begin >= self._size:
            end = begin + self._size - self._rows
            self._wait(block, begin, end)
            yield self._group()
            begin = end
        self._wait(block, begin, len(block.numbers))

    def _wait(self, block: Block, begin: int, end: int) -> None:
        if end > begin:
            rows = slice(begin, end)
            self._waiting.append(Block(pick(block.batch, rows), block.numbers[rows]))
            self._rows += end - begin

    def _group(self) -> Group:
        batch = join([block.batch for block in self._waiting])
        numbers = np.concatenate([block.numbers for block in self._waiting])
        self._waiting, self._rows = [], 0
        return Group(batch, numbers, int(numbers[-1]) + 1)

    def flush(self) -> Iterator[Group]:
        if self._rows and not self._drop_last:
            yield replace(self._group(), at=END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        del held, fetch  # the rows that wait come after those given out, and come again


@dataclass(frozen=True)
class Buckets:
    """Batches of rows of similar length: a bucket for each stretch of lengths."""

    by: str | Callable[[dict[str, Any]], int]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    drop_last: bool = False
    plain = False

    def __post_init__(self) -> None:
        if not self.boundaries or list(self.boundaries) != sorted(set(self.boundaries)):
            raise OptionError(f"boundaries={list(self.boundaries)}: lengths, one above the other")
        if len(self.sizes) != len(self.boundaries) + 1:
            raise OptionError(
                f"{len(self.boundaries)} boundaries make {len(self.boundaries) + 1} buckets, but "
                f"there are {len(self.sizes)} batch sizes"
            )
        if min(self.sizes) < 1:
            raise OptionError("a batch has one row or more")

    @property
    def block(self) -> int:
        return max(self.sizes)

    @property
    def full_size(self) -> int | None:
        return self.sizes[0] if len(set(self.sizes)) == 1 else None

    def schema(self, schema: Schema) -> Schema:
        if isinstance(self.by, str) and not schema[self.by].ragged:
            if schema[self.by].is_bytes or not schema[self.by].shape:
                return schema  # the length of a string, or the number itself
            raise OptionError(
                f"bucket(by={self.by!r}): {schema[self.by]} has one length in all rows"
            )
        return schema

    def sampled(self, batch: Batch) -> Batch:
        return batch

    def start(self) -> Grouper:
        return _Bucketer(self)

    def held_numbers(self, held: Any) -> list[int]:
        if held and len(held) != len(self.sizes):
            raise ValueError("there are other buckets")
        return [number for bucket in held for number in bucket]

    def describe(self) -> list[Any]:
        by = self.by if isinstance(self.by, str) else _name(self.by)
        return ["bucket", by, list(self.boundaries), list(self.sizes), self.drop_last]

    def bucket_of(self, batch: Batch) -> npt.NDArray[np.int64]:
        """The bucket of each row."""
        if isinstance(self.by, str):
            column = batch[self.by]
            lengths = column.lengths if isinstance(column, Ragged) else column
        else:
            count = len(next(iter(batch.values())))
            rows = ({name: c[i] for name, c in batch.items()} for i in range(count))
            try:
                lengths = np.array([operator.index(self.by(row)) for row in rows], np.int64)
            except Exception as e:
                raise MapError(
                    f"bucket: {_name(self.by)} of a row is to be a whole number, but: "
                    f"{type(e).__name__}: {e}",
                    cause_type=type(e).__name__,
                ) from e
        return np.searchsorted(self.boundaries, lengths, side="right")


class _Bucketer:
    def __init__(self, plan: Buckets) -> None:
        self._plan = plan
        self._waiting: list[list[tuple[Block, int]]] = [[] for _ in plan.sizes]

    def add(self, block: Block) -> Iterator[Group]:
        if not len(block.numbers):
            return
        for row, bucket in enumerate(self._plan.bucket_of(block.batch).tolist()):
            waiting = self._waiting[bucket]
            waiting.append((block, row))
            if len(waiting) == self._plan.sizes[bucket]:
                self._waiting[bucket] = []
                yield self._group(waiting, int(block.numbers[row]) + 1)
        self._let_go(block)

    def _let_go(self, block: Block) -> None:
        """Keeps the rows of a block that wait, not the block."""
        rows = [row for each in self._waiting for b, row in each if b is block]
        which = np.array(rows, np.int64)
        small = Block(pick(block.batch, which), block.numbers[which])
        at = iter(range(len(rows)))
        for each in self._waiting:
            each[:] = [(small, next(at)) if b is block else (b, row) for b, row in each]

    def _group(self, rows: list[tuple[Block, int]], at: int) -> Group:
        numbers = np.array([block.numbers[row] for block, row in rows], np.int64)
        return Group(_picked(rows), numbers, at, self._held())

    def _held(self) -> list[list[int]]:
        return [[int(block.numbers[row]) for block, row in each] for each in self._waiting]

    def flush(self) -> Iterator[Group]:
        for bucket, waiting in enumerate(self._waiting):
            if waiting and not self._plan.drop_last:
                self._waiting[bucket] = []
                yield self._group(waiting, END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        for bucket, numbers in enumerate(held):
            if numbers:
                block = Block(fetch(numbers), np.asarray(numbers, np.int64))
                self._waiting[bucket] = [(block, row) for row in range(len(numbers))]


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__name__))


def _picked(rows: list[tuple[Block, int]]) -> Batch:
    """Rows of several blocks as one batch."""
    blocks = {id(block): block for block, _ in rows}
    parts, places = [], []
    for key, block in blocks.items():
        mine = np.array([i for i, (b, _) in enumerate(rows) if id(b) == key], np.int64)
        parts.append(pick(block.batch, np.array([rows[i][1] for i in mine], np.int64)))
        places.append(mine)
    return interleave(parts, places)
