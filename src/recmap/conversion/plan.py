"""Plan a conversion: which files are read, and which rows go into which shard."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import FileChangedError, Message, ObjectChangedError, Option, OptionError
from recmap.formats.array_sidecar import described_name
from recmap.formats.registry import FORMATS, format_of, written_formats
from recmap.local.local_path import is_store, located
from recmap.model.arguments import as_whole, parse_size
from recmap.store.paths import MOST_SHARDS, shard_names

# The files of all shards together that are looked at again before a shard is published.
_MOST_CHECKS = 100_000


@dataclass(frozen=True)
class Shard:
    """An output file for rows ``start`` to ``stop``, or for all rows if ``stop`` is None."""

    number: int
    path: str
    start: int
    stop: int | None


@dataclass(frozen=True)
class Sharding:
    """How rows are divided: by the number of files, or by the rows or bytes of each file.

    At most one of them is set. If none is, there is one file.
    """

    files: int | None = None
    rows: int | None = None
    size: int | None = None

    def rows_per_file(self, row_bytes: int) -> int | None:
        """Return the number of rows in each file but the last; None to divide them evenly."""
        if self.size is not None:
            return max(1, self.size // row_bytes)
        return self.rows


def parse_shards(name: str, shards: int | str) -> Sharding:
    """Parse ``shards=``: the number of files, or the size or rows of each.

    >>> parse_shards("shards", 16).files, parse_shards("shards", "10_000 rows").rows
    (16, 10000)
    >>> parse_shards("shards", "256MB").size
    256000000
    """
    if not isinstance(shards, str):
        return Sharding(files=as_whole(name, shards, 1, MOST_SHARDS))
    whole = r"\d{1,3}(?:,\d{3}){1,9}|\d[\d_]{0,30}"
    match = re.fullmatch(rf"\s*({whole})\s*(rows?)?\s*", shards)
    if match is not None and match[2]:
        return Sharding(rows=as_whole(name, _digits(match[1]), 1))
    if match is not None:
        return Sharding(files=as_whole(name, _digits(match[1]), 1, MOST_SHARDS))
    try:
        # A number without a unit is one of files, which is whole.
        size = parse_size(shards) if shards.strip()[-1:].isalpha() else 0
    except OptionError:
        size = 0
    if size < 1:
        raise OptionError(
            f"{name}={shards!r}: give a whole number of files, the size of each with its unit, "
            "'256MB', or the rows of each, '10_000 rows'"
        )
    return Sharding(size=size)


def _digits(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def is_output_folder(dst: str) -> bool:
    """Return whether the output is a folder of files. A Zarr store counts as a file.

    In a store, a folder is a URL that ends with / or a bucket.
    """
    if dst.endswith("/"):
        return True
    found = format_of(dst)
    stored = found is not None and FORMATS[found].folder
    return located(dst).is_folder() and not stored and not is_store(dst)


def output_format(dst: str, asked: str | None) -> str:
    """Return the format to write: the one requested, otherwise that of the suffix.

    A folder gets TFRecord files.
    """
    found = asked or format_of(dst)
    if found is None and is_output_folder(dst):
        found = "tfrecord"
    if found is None:
        known = ", ".join(s for name in written_formats() for s in FORMATS[name].suffixes)
        raise OptionError(
            Message(
                f"{dst}: what format? End the name with one of {known}, end it with / for a folder "
                "of TFRecord files, or give ",
                Option("format"),
            )
        )
    if not FORMATS[found].writes:
        raise OptionError(
            Message(
                f"{dst}: recmap reads {found} files, but does not write them; give ",
                Option("format"),
                f", one of {', '.join(written_formats())}",
            )
        )
    return found


def plan_shards(
    dst: str,
    format: str,
    rows: int | None,
    row_bytes: int,
    sharding: Sharding,
    compression: str | None = None,
    starts: npt.NDArray[np.int64] | None = None,
) -> list[Shard]:
    """Divide ``rows`` rows of about ``row_bytes`` bytes each among shards.

    ``compression`` is what their names tell. A shard begins with one of the rows in ``starts``,
    which end with the number of rows; by default, with any row.
    """
    per_file = sharding.rows_per_file(row_bytes)
    if rows is None:
        if per_file is not None or (sharding.files or 1) > 1:
            raise OptionError(
                "the number of rows is not known in advance, so they cannot be divided among "
                "files; save them as one file first"
            )
        return [Shard(0, _paths(dst, format, 1, compression)[0], 0, None)]
    count = sharding.files or 1
    if per_file is not None:
        count = max(1, math.ceil(rows / per_file))
    if count > MOST_SHARDS:
        raise OptionError(f"too many files: {count:,}; at most {MOST_SHARDS:,} can be written")
    if per_file is not None:
        edges = [min(i * per_file, rows) for i in range(count + 1)]
    else:
        edges = [rows * i // count for i in range(count + 1)]
    if starts is not None:
        edges = _nearest(edges, starts)
        count = len(edges) - 1
    paths = _paths(dst, format, count, compression)
    return [Shard(i, path, edges[i], edges[i + 1]) for i, path in enumerate(paths)]


def _nearest(edges: Sequence[int], starts: npt.NDArray[np.int64]) -> list[int]:
    """Return the starts that are nearest to the edges, each once.

    >>> _nearest([0, 5, 10], np.array([0, 4, 10])), _nearest([0, 3, 6, 9], np.array([0, 9]))
    ([0, 4, 10], [0, 9])
    """
    middles = (starts[1:] + starts[:-1]) / 2
    found: list[int] = np.unique(starts[np.searchsorted(middles, edges)]).tolist()
    return found


def stem_of(path: str) -> str:
    """Return the common start of the names of all shards of an output.

    >>> stem_of("out/data-00003-of-00016.tfrecord.gz"), stem_of("x.npy")
    ('data', 'x')
    >>> stem_of("data-00003-of-00016.bin.recmap.json"), stem_of("data_append00001.npy")
    ('data', 'data')
    >>> stem_of("data/chunk-000/file-003.parquet")
    'file'
    """
    name = described_name(os.path.basename(path))
    name = name.removesuffix(_known_suffix(name))
    # The shards of LeRobot are called file-000 and so on.
    name = re.sub(r"\Afile-\d{3}\Z", "file", name)
    return re.sub(r"(_append\d{5,})?(-\d{5,}-of-\d{5,})?\Z", "", name)


def _paths(dst: str, format: str, count: int, compression: str | None) -> list[str]:
    if is_output_folder(dst):
        suffix = FORMATS[format].suffixes[0]
        dst = located(dst).child(f"data{suffix}{_ending(suffix, format, compression)}")
    names = FORMATS[format].sink_kind().names
    if names is not None:
        return [located(dst).sibling(each) for each in names(os.path.basename(dst), count)]
    if count == 1:
        return [dst]
    name = os.path.basename(dst)
    suffix = _known_suffix(name)
    named = shard_names(
        name.removesuffix(suffix), f"{suffix}{_ending(suffix, format, compression)}", count
    )
    return [located(dst).sibling(each) for each in named]


def _ending(suffix: str, format: str, compression: str | None) -> str:
    """Return what the names of compressed files end with: ``.tfrecord.gz``."""
    ending = {"gzip": ".gz", "zlib": ".zlib"}.get(compression or "", "")
    return ending if f"{suffix.lower()}{ending}" in FORMATS[format].suffixes else ""


def uncompressed_name(name: str) -> str:
    """Return the name that a file would have if it were not compressed.

    >>> uncompressed_name("data.tfrecord.gz"), uncompressed_name("data.tfrecord")
    ('data.tfrecord', 'data.tfrecord')
    """
    return name.removesuffix(".gz").removesuffix(".zlib")


def _known_suffix(path: str) -> str:
    """Return the longest known suffix of a path, in the case the path uses."""
    lower = path.lower()
    return path[len(path) - len(next(filter(lower.endswith, _suffixes()), "")) :]


@functools.cache
def _suffixes() -> list[str]:
    """Return the suffixes of all formats, long ones first."""
    return sorted({s for f in FORMATS.values() for s in f.suffixes}, key=len, reverse=True)


@dataclass(frozen=True)
class Inputs:
    """Input files, and the path, size and time of each, or the version of an object.

    ``each_shard`` says whether to check all of them before every shard, besides at the end.
    """

    files: tuple[str, ...]
    states: tuple[list[Any], ...]
    each_shard: bool

    @classmethod
    def of(cls, files: Sequence[str], shards: int) -> Inputs:
        """Look at the files as they are now; raise if they are not what was opened."""
        for file in files:
            located(file).check_unchanged()
        few = len(files) * shards <= _MOST_CHECKS and not any(
            located(file).is_folder() for file in files
        )
        return cls(tuple(files), tuple(map(_state, files)), shards == 1 or few)

    def check_before_shard(self) -> None:
        """Raise if the rows of a shard, which is about to appear, may be those of two versions."""
        if self.each_shard:
            self.check()

    def check(self) -> None:
        """Raise if a file has changed since the conversion began."""
        for file, before in zip(self.files, self.states, strict=True):
            try:
                # Reading a pinned file raises if it has changed, or looking at it is enough.
                now = before if located(file).pinned else _state(file)
                located(file).check_unchanged()
            except (FileChangedError, FileNotFoundError):
                now = []
            if now != before:
                raise _changed(file)


def _changed(file: str) -> FileChangedError | ObjectChangedError:
    text = (
        f"{file}: changed while it was converted, so the output would mix rows of two "
        "versions; convert it again"
    )
    if located(file).remote:
        return ObjectChangedError(text, url=str(file))
    return FileChangedError(text, file=str(file))


def _state(path: str) -> list[Any]:
    file = located(path).absolute()
    found = file.stat_below()
    return [str(file), found.size, found.version]
