"""Which rows go into which file."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

from recmap.errors import OptionError
from recmap.files.paths import MOST_SHARDS, is_store, shard_names
from recmap.formats.registry import FORMATS, format_of
from recmap.model.byte_size import parse_size

__all__ = ["Shard", "is_folder", "output_format", "plan_shards", "stem_of"]


@dataclass(frozen=True)
class Shard:
    """Rows ``start`` to ``stop`` go into this file; ``stop`` is None if nobody knows."""

    number: int
    path: str
    start: int
    stop: int | None


def is_folder(dst: str) -> bool:
    """Whether files go into a folder of that name; a Zarr store is one file, so to say."""
    if dst.endswith(os.sep):
        return True
    return os.path.isdir(dst) and format_of(dst) != "zarr" and not is_store(dst)


def output_format(dst: str, asked: str | None) -> str:
    """The format to write: as asked, else by the end of the name; a folder of TFRecord."""
    found = asked or format_of(dst)
    if found is None and is_folder(dst):
        found = "tfrecord"
    if found is None:
        known = ", ".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
        raise OptionError(
            f"{dst}: what format? End the name with one of {known}, end it with / for a folder of "
            "TFRecord files, or give to="
        )
    if found not in FORMATS:
        raise OptionError(f"to={found!r} is not one of {', '.join(FORMATS)}")
    return found


def plan_shards(
    dst: str,
    format: str,
    rows: int | None,
    row_bytes: int,
    shards: int | None,
    rows_per_shard: int | None,
    shard_size: int | str | None,
) -> list[Shard]:
    """The files and their rows."""
    if sum(option is not None for option in (shards, rows_per_shard, shard_size)) > 1:
        raise OptionError("give one of shards, rows_per_shard and shard_size")
    if shard_size is not None:
        rows_per_shard = max(1, parse_size(shard_size) // row_bytes)
    if rows_per_shard is not None:
        shards = None if rows is None else max(1, math.ceil(rows / rows_per_shard))
    if rows is None:
        if rows_per_shard is not None or (shards or 1) > 1:
            raise OptionError(
                "the number of rows is not known in advance, so that they cannot be dealt out; "
                "save them as one file first"
            )
        return [Shard(0, _paths(dst, format, 1)[0], 0, None)]
    count = 1 if shards is None else shards
    if count > MOST_SHARDS:
        raise OptionError(f"{count:,} files are too many: {MOST_SHARDS:,} at most")
    paths = _paths(dst, format, count)
    if rows_per_shard is not None:
        edges = [min(i * rows_per_shard, rows) for i in range(count + 1)]
    else:
        edges = [rows * i // count for i in range(count + 1)]
    return [Shard(i, path, edges[i], edges[i + 1]) for i, path in enumerate(paths)]


def stem_of(path: str) -> str:
    """What the names of all files of one output begin with, however many there are.

    >>> stem_of("out/data-00003-of-00016.tfrecord.gz"), stem_of("x.npy")
    ('data', 'x')
    """
    name = os.path.basename(path)
    ends = [s for f in FORMATS.values() for s in f.suffixes if name.lower().endswith(s)]
    name = name[: len(name) - len(max(ends, key=len, default=""))]
    return re.sub(r"-\d{5,}-of-\d{5,}\Z", "", name)


def _paths(dst: str, format: str, count: int) -> list[str]:
    suffix = FORMATS[format].suffixes[0]
    if is_folder(dst):
        dst = os.path.join(dst, f"data{suffix}")
    if count == 1:
        return [dst]
    ends = [s for f in FORMATS.values() for s in f.suffixes if dst.lower().endswith(s)]
    suffix = dst[-len(max(ends, key=len)) :] if ends else ""
    stem = dst.removesuffix(suffix) if suffix else dst
    return shard_names(stem, suffix, count)
