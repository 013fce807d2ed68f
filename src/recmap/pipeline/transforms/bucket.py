"""``bucket``: batches of rows of similar length."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError, OptionError, OptionTypeError
from recmap.model.arguments import as_list, as_whole
from recmap.model.batch import Positions, interleave, pick
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.batch import END, Group, Grouper, Grouping

By: TypeAlias = str | Callable[[dict[str, Any]], int]
_Rows: TypeAlias = tuple[Batch, Positions]
# Rows and batches are counted in 64 bits.
_MOST = 2**62


@dataclass(frozen=True)
class Buckets(Grouping):
    """Batches of rows of similar length: a bucket for each range of lengths.

    ``sizes`` are their batch sizes, which ``batch`` gives.
    """

    by: By
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    drop_last: bool = False

    @classmethod
    def checked(cls, by: Any, boundaries: Any) -> Buckets:
        """Check the user's arguments and return the buckets, without sizes."""
        if not isinstance(by, str) and not callable(by):
            raise OptionTypeError(f"bucket(by={by!r}): give the name of a column, or a function")
        given = as_list("boundaries", boundaries, "[32, 64]")
        edges = tuple(as_whole("boundaries", edge, most=_MOST) for edge in given)
        if not edges or list(edges) != sorted(set(edges)):
            raise OptionError(f"boundaries={list(edges)}: give increasing lengths")
        return cls(by, edges)

    def batched(self, size: Any, drop_last: bool) -> Grouping:
        """Return the buckets, with one batch size for all of them or one for each."""
        if self.sizes:
            return super().batched(size, drop_last)
        edges = len(self.boundaries)
        several = isinstance(size, Sequence | np.ndarray)
        sizes = list(size) if several else [size] * (edges + 1)
        checked = tuple(as_whole("size", each, 1, _MOST) for each in sizes)
        if len(checked) != edges + 1:
            raise OptionError(
                f"{edges} boundaries make {edges + 1} buckets, but there are {len(checked)} batch "
                "sizes"
            )
        return replace(self, sizes=checked, drop_last=drop_last)

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

    def start(self) -> Grouper:
        return _Bucketer(self)

    def held_numbers(self, held: Any) -> list[int]:
        if held and len(held) != len(self.sizes):
            raise ValueError("there are other buckets")
        return [number for bucket in held for number in bucket]

    def bucket_of(self, batch: Batch) -> npt.NDArray[np.int64]:
        """Return the bucket of each row."""
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
                    f"bucket: {name_of(self.by)} must return a whole number, but: "
                    f"{type(e).__name__}: {e}",
                    cause_type=type(e).__name__,
                ) from e
        return np.searchsorted(self.boundaries, lengths, side="right")


class _Bucketer(Grouper):
    """Collects the rows of each bucket."""

    def __init__(self, plan: Buckets) -> None:
        self._plan = plan
        self._waiting: list[list[tuple[_Rows, int]]] = [[] for _ in plan.sizes]

    def add(self, batch: Batch, numbers: Positions) -> Iterator[Group]:
        if not len(numbers):
            return
        rows = batch, numbers
        for row, bucket in enumerate(self._plan.bucket_of(batch).tolist()):
            waiting = self._waiting[bucket]
            waiting.append((rows, row))
            if len(waiting) == self._plan.sizes[bucket]:
                self._waiting[bucket] = []
                yield self._group(waiting, int(numbers[row]) + 1)
        self._copy_waiting(rows)

    def _copy_waiting(self, given: _Rows) -> None:
        """Copy the waiting rows, so that the block they came in can be freed."""
        rows = [row for each in self._waiting for origin, row in each if origin is given]
        which = np.array(rows, np.int64)
        copy = pick(given[0], which), given[1][which]
        at = iter(range(len(rows)))
        for each in self._waiting:
            each[:] = [
                (copy, next(at)) if origin is given else (origin, row) for origin, row in each
            ]

    def _group(self, rows: list[tuple[_Rows, int]], at: int) -> Group:
        numbers = np.array([block[row] for (_, block), row in rows], np.int64)
        held = [[int(block[row]) for (_, block), row in each] for each in self._waiting]
        return Group(_picked(rows), numbers, at, held)

    def flush(self) -> Iterator[Group]:
        for bucket, waiting in enumerate(self._waiting):
            if waiting and not self._plan.drop_last:
                self._waiting[bucket] = []
                yield self._group(waiting, END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        for bucket, numbers in enumerate(held):
            if numbers:
                block = fetch(numbers), np.asarray(numbers, np.int64)
                self._waiting[bucket] = [(block, row) for row in range(len(numbers))]


def name_of(fn: Callable[..., Any]) -> str:
    """Return what messages call a function."""
    return str(getattr(fn, "__qualname__", type(fn).__name__))


def _picked(rows: list[tuple[_Rows, int]]) -> Batch:
    """Return rows of several blocks as one batch."""
    blocks = {id(block): block for block, _ in rows}
    parts, places = [], []
    for key, block in blocks.items():
        mine = np.array([i for i, (b, _) in enumerate(rows) if id(b) == key], np.int64)
        parts.append(pick(block[0], np.array([rows[i][1] for i in mine], np.int64)))
        places.append(mine)
    return interleave(parts, places)
