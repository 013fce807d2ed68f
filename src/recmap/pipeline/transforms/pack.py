"""Batches of packed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from recmap.errors import OptionError
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.batch import END, Block, Group, Grouper
from recmap.pipeline.transforms.packing import PackedRow, Packer

__all__ = ["Packs"]

# Sequences that are read at a time.
_BLOCK = 256


@dataclass(frozen=True)
class Packs:
    """Short sequences joined into rows of one length, ``size`` of which are a batch."""

    length: int
    columns: tuple[str, ...] | None
    fill: Any
    long: Literal["cut", "error", "split"]
    size: int | None = None
    drop_last: bool = False
    block = _BLOCK
    plain = False

    @property
    def full_size(self) -> int | None:
        return self.size

    def packer(self) -> Packer:
        """An empty one."""
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
        pieces = [piece for kind in ("open", "full") for row in held[kind] for piece in row]
        if not all(type(number) is int for piece in pieces for number in piece):
            raise ValueError("pieces are a row number, and where they begin and end")
        return sorted({number for number, _, _ in pieces})

    def describe(self) -> list[Any]:
        options = [self.length, self.columns, self.fill, self.long, self.size, self.drop_last]
        return ["pack", *options]


class _Packing:
    """Rows that are being packed, and those that wait for their batch to be full."""

    def __init__(self, packer: Packer, size: int, drop_last: bool) -> None:
        self._packer, self._size, self._drop_last = packer, size, drop_last
        self._waiting: list[PackedRow] = []

    def add(self, block: Block) -> Iterator[Group]:
        if len(block.numbers):
            self._waiting += self._packer.add(block.numbers, block.batch)
            yield from self._full(int(block.numbers[-1]) + 1)

    def _full(self, at: int) -> Iterator[Group]:
        while len(self._waiting) >= self._size:
            yield self._group(at)

    def _group(self, at: int) -> Group:
        rows, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
        held = {"open": self._packer.held(), "full": [_pieces(row) for row in self._waiting]}
        numbers = np.array([row.pieces[0].position for row in rows], np.int64)
        return Group(self._packer.batch(rows), numbers, at, held)

    def flush(self) -> Iterator[Group]:
        self._waiting += self._packer.flush()
        yield from self._full(END)
        if self._waiting and not self._drop_last:
            yield self._group(END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        for kind in ("open", "full"):
            numbers = [piece[0] for row in held[kind] for piece in row]
            if not numbers:
                continue
            batch = fetch(numbers)
            if kind == "open":
                self._packer.restore(held[kind], batch)
            else:
                self._waiting = self._packer.rows(held[kind], batch)


def _pieces(row: PackedRow) -> list[list[int]]:
    return [list(piece) for piece in row.pieces]
