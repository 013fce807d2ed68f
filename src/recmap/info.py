"""What is known of a dataset, for people."""

from __future__ import annotations

import os
from dataclasses import dataclass

from recmap.formats.tfrecord import TFRecordSource
from recmap.tfrecord.compressed import CompressedShard
from recmap.types import Schema

__all__ = ["Info", "describe"]


@dataclass(frozen=True)
class Info:
    """Facts about the files of a dataset; ``print`` it."""

    files: list[str]
    size: int
    rows: int
    record_size: int | None
    compression: list[str]
    schema: Schema
    origin: str
    mapped: list[str]
    hints: dict[str, str]

    def __str__(self) -> str:
        one = self.files[0]
        lines = [
            one if len(self.files) == 1 else f"{len(self.files):,} files from {one}",
            f"  format   TFRecord{''.join(f', {name}' for name in self.compression)}",
            f"  size     {self.size:,} bytes",
            f"  rows     {self.rows:,}"
            + (f", all records of {self.record_size:,} bytes" if self.record_size else ""),
            f"  schema   {self.origin}",
        ]
        width = max(map(len, self.schema), default=0)
        for name, field in self.schema.items():
            notes = ["mapped in place"] if name in self.mapped else []
            notes += [self.hints[name]] if name in self.hints else []
            note = f"  ({'; '.join(notes)})" if notes else ""
            lines.append(f"    {name:{width}}  {field}{note}")
        return "\n".join(lines)


def describe(source: TFRecordSource) -> Info:
    """Counts the rows and collects the rest."""
    shards = source.shards()
    strides = {None if isinstance(s, CompressedShard) else s.index.stride for s in shards}
    rows = len(source)
    hints = {}
    for name, feature in source.summary.features.items():
        hint = feature.hint()
        if hint and name in source.schema and source.schema[name].is_bytes:
            hints[name] = f'{hint}; fields={{"{name}": ...}} gives it a type'
    return Info(
        files=list(source.files),
        size=sum(os.path.getsize(file) for file in source.files),
        rows=rows,
        record_size=strides.pop() if len(strides) == 1 else None,
        compression=sorted({s.compression for s in shards if isinstance(s, CompressedShard)}),
        schema=source.schema,
        origin=source.origin,
        mapped=[name for name in source.schema if source.column(name) is not None],
        hints=hints,
    )
