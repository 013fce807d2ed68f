"""``pack``: batches of rows that are joined from short sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from recmap.errors import OptionError
from recmap.model.arguments import as_names, as_whole, check_choice
from recmap.model.batch import Positions
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.batch import END, Group, Grouper, Grouping, check_one_size
from recmap.pipeline.transforms.packer import ADDED, Added, Packer

Fit: TypeAlias = Literal["online", "best"]

# Sequences that are dealt to a rank at a time.
_BLOCK = 256
# Rows are counted in 64 bits.
_MOST = 2**62
# Places in a row are counted in 32 bits.
_MOST_LENGTH = 2**31 - 1
# A state may have to list the sequences of a window.
_MOST_WINDOW = 2**16


@dataclass(frozen=True)
class Packs(Grouping):
    """Short sequences joined into rows of one length; ``size`` such rows make a batch."""

    length: int
    columns: tuple[str, ...] | None
    fill: Any
    long: Literal["cut", "error", "split"]
    window: int | None = None
    add: tuple[Added, ...] = ADDED
    size: int | None = None
    drop_last: bool = False
    block = _BLOCK
    reads_several = True

    @classmethod
    def checked(
        cls, length: Any, columns: Any, fill: Any, long: Any, fit: Any, window: Any, add: Any
    ) -> Packs:
        """Check the user's arguments and return the grouping."""
        names = None if columns is None else tuple(as_names("columns", columns))
        check_choice("fit", fit, get_args(Fit))
        added = tuple(check_choice("add", each, get_args(Added)) for each in as_names("add", add))
        window = as_whole("window", window, 1, _MOST_WINDOW)
        sorted_ones = window if fit == "best" else None
        packs = cls(
            as_whole("length", length, 1, _MOST_LENGTH), names, fill, long, sorted_ones, added
        )
        packs.packer()  # checks the other arguments
        return packs

    @property
    def is_open(self) -> bool:
        return self.size is None

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
        return Packer(self.length, columns, self.fill, self.long, window=self.window, add=self.add)

    def schema(self, schema: Schema) -> Schema:
        return self.packer().schema(schema)

    def sampled(self, batch: Batch) -> Batch:
        packer = self.packer()
        count = len(next(iter(batch.values()), ()))
        packer.add(np.arange(count), batch)
        packer.end()
        return packer.take(packer.waiting).batch

    def start(self) -> Grouper:
        if self.size is None or self.size < 1:
            raise OptionError("pack(...) is followed by batch(n), with one packed row or more")
        return _Packing(self.packer(), self.size, self.drop_last)

    def held_numbers(self, held: Any) -> list[int]:
        if callable(held):
            held = held()
        if not held:
            return []
        segments = [segment for kind in ("open", "full") for row in held[kind] for segment in row]
        if not all(type(number) is int for segment in segments for number in segment):
            raise ValueError("segments are a row number, and where they begin and end")
        return sorted({number for number, _, _ in segments})


class _Packing(Grouper):
    """Packs rows, and keeps them until their batch is full."""

    def __init__(self, packer: Packer, size: int, drop_last: bool) -> None:
        self._packer, self._size, self._drop_last = packer, size, drop_last

    def add(self, batch: Batch, numbers: Positions) -> Iterator[Group]:
        if len(numbers):
            self._packer.add(numbers, batch)
            while self._packer.waiting >= self._size:
                yield self._packer.take(self._size)

    def flush(self) -> Iterator[Group]:
        self._packer.end()
        while self._packer.waiting >= (1 if not self._drop_last else self._size):
            yield replace(self._packer.take(self._size), at=END)

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:
        self._packer.restore(held, fetch)
