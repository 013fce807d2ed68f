"""``pack``: batches of rows that are joined from short sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from recmap.errors import OptionError
from recmap.model.arguments import as_names, as_whole
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.batch import (
    END,
    Group,
    Grouper,
    Grouping,
    GroupInput,
    check_one_size,
)
from recmap.pipeline.transforms.packer import PackedRow, Packer

# Sequences to read at a time.
_BLOCK = 256
# Rows are counted in 64 bits.
_MOST = 2**62


@dataclass(frozen=True)
class Packs(Grouping):
    """Short sequences joined into rows of one length; ``size`` such rows make a batch."""

    length: int
    columns: tuple[str, ...] | None
    fill: Any
    long: Literal["cut", "error", "split"]
    size: int | None = None
    drop_last: bool = False
    block = _BLOCK

    @classmethod
    def checked(cls, length: Any, columns: Any, fill: Any, long: Any) -> Packs:
        """Check the user's arguments and return the grouping."""
        names = None if columns is None else tuple(as_names("columns", columns))
        packs = cls(as_whole("length", length, 1, _MOST), names, fill, long)
        packs.packer()  # checks the other arguments
        return packs

    @property
    def is_open(self) -> bool:
        return self.size is None

    @property
    def drops_last(self) -> bool:
        return self.drop_last

    def batched(self, size: Any, drop_last: bool) -> Grouping:
        if not self.is_open:
            return super().batched(size, drop_last)
        check_one_size(size)
        return replace(self, size=as_whole("size", size, 1, _MOST), drop_last=drop_last)

    @property
    def full_size(self) -> int | None:
        return self.size

    def packer(self) -> Packer:
        """Return an empty packer."""
        columns = None if self.columns is None else list(self.columns)
        return Packer(self.length, columns, self.fill, self.long)

    def schema(self, schema: Schema) -> Schema:
        return self.packer().schema(schema)

    def sampled(self, batch: Batch) -> Batch:
        packer = self.packer()
        count = len(next(iter(batch.values()), ()))
        return packer.batch(packer.add(np.arange(count), batch) + packer.flush())

    def start(self) -> Grouper:
        if self.size is None or self.size < 1:
            raise OptionError("pack(...) is followed by batch(n), with one packed row or more")
        return _Packing(self.packer(), self.size, self.drop_last)

    def held_numbers(self, held: Any) -> list[int]:
        if not held:
            return []
        segments = [segment for kind in ("open", "full") for row in held[kind] for segment in row]
        if not all(type(number) is int for segment in segments for number in segment):
            raise ValueError("segments are a row number, and where they begin and end")
        return sorted({number for number, _, _ in segments})


class _Packing:
    """Packs rows, and keeps them until their batch is full."""

    def __init__(self, packer: Packer, size: int, drop_last: bool) -> None:
        self._packer, self._size, self._drop_last = packer, size, drop_last
        self._waiting: list[PackedRow] = []

    def add(self, rows: GroupInput) -> Iterator[Group]:
        if len(rows.numbers):
            self._waiting += self._packer.add(rows.numbers, rows.batch)
            yield from self._full(int(rows.numbers[-1]) + 1)

    def _full(self, at: int) -> Iterator[Group]:
        while len(self._waiting) >= self._size:
            yield self._group(at)

    def _group(self, at: int) -> Group:
        rows, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
        full = [[list(segment) for segment in row.segments] for row in self._waiting]
        held = {"open": self._packer.held(), "full": full}
        numbers = np.array([row.segments[0].position for row in rows], np.int64)
        return Group(self._packer.batch(rows), numbers, at, held)

    def flush(self) -> Iterator[Group]:
        self._waiting += self._packer.flush()
        yield from self._full(END)
        if self._waiting and not self._drop_last:
            yield self._group(END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        for kind in ("open", "full"):
            numbers = [segment[0] for row in held[kind] for segment in row]
            if not numbers:
                continue
            batch = fetch(numbers)
            if kind == "open":
                self._packer.restore(held[kind], batch)
            else:
                self._waiting = self._packer.rows(held[kind], batch)
