"""What is sent to a task that reads: which files, and how they are opened, never rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recmap.formats.open_spec import Opening
from recmap.formats.registry import select
from recmap.model.source import Partition, RowReader, Source

__all__ = ["pieces_of"]


def pieces_of(source: Source, reopen: Callable[[], Source], skip: bool) -> list[Partition]:
    """A source as pieces: its files, where they can be opened alone."""
    partitions = source.partitions(skip=skip)
    if partitions is not None:
        return partitions
    sources = source.sequence() if isinstance(reopen, Opening) else [source]
    return [_FilePiece.of(each, reopen) for each in sources]


@dataclass(frozen=True)
class _FilePiece:
    """Files whose headers tell where their rows are."""

    reopen: Callable[[], Source]
    files: list[str]
    rows: int | None
    unit: int

    @classmethod
    def of(cls, source: Source, reopen: Callable[[], Source]) -> Partition:
        files = [os.path.abspath(file) for file in source.files]
        return cls(reopen, files, len(source), source.chunk_rows)

    def part(self, start: int, stop: int) -> Partition:
        return self

    def open(self, columns: Sequence[str]) -> RowReader:
        if isinstance(self.reopen, Opening):
            return self.reopen.only(self.files, columns)()
        return select(self.reopen(), columns, self.files[0])
