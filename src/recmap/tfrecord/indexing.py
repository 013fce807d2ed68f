"""Making the index files of data that has none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from recmap.errors import FieldMismatchError, OptionError, StaleIndexWarning
from recmap.files.paths import PathsLike, expand
from recmap.tfrecord.example import Codec, kinds_of
from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.index import Index
from recmap.tfrecord.infer import Summary
from recmap.tfrecord.plain import PlainShard
from recmap.tfrecord.sidecar import (
    Sidecar,
    load_sidecar,
    save_sidecar,
    stored_schema,
    write_text_index,
)
from recmap.tfrecord.survey import Shard, sample, survey
from recmap.tfrecord.tally import SizeWatcher, Tally
from recmap.tfrecord.unknown import UnknownFeatures
from recmap.tfrecord.window import Window
from recmap.types import Schema

__all__ = ["index"]


def index(path: PathsLike, *, text: bool = False, progress: SizeWatcher | None = None) -> list[str]:
    """Writes an index beside each file, and returns their names.

    Every record is checked on the way, and the schema in the index holds for all
    of them. With ``text`` it is the list of offsets and sizes that DALI and the
    ``tfrecord`` package read, ``file.idx``, and records may hold anything.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("one.tfrecord", [b"", b"abc"], overwrite=True)
    2
    >>> rm.index("one.tfrecord", text=True)
    ['one.tfrecord.idx']
    >>> from pathlib import Path
    >>> Path("one.tfrecord.idx").read_text()
    '0 16\\n16 19\\n'
    """
    files = expand(path)
    tally = Tally(files, progress)
    return [_index_text(file, tally) if text else _index(file, tally) for file in files]


def _index(path: str, tally: Tally) -> str:
    shard = open_shard(path, verify=True)
    codec, encoding = _survey(shard, tally)
    mapped: tuple[str, ...] = ()
    if isinstance(shard, PlainShard):
        found = shard.index
        _, holds = shard.slots(codec)
        mapped = tuple(n for n, held in zip(codec.schema, holds, strict=True) if held)
    else:
        start = np.zeros(min(shard.count(), 1), np.uint64)
        found = Index.of_marks(shard.count(), None, start, start, 0)
    return save_sidecar(path, Sidecar(found, codec.schema, encoding, True, mapped))


def _survey(shard: Shard, tally: Tally) -> tuple[Codec, dict[str, str]]:
    """Checks every record, and finds the schema that holds for all."""
    summary = sample([shard], False)
    stored = _stored(shard.path, summary)
    unknown = UnknownFeatures("")
    if stored is not None:
        schema, encoding = stored
        try:
            with closing(tally.of(shard, skip=False)) as windows:
                codec = Codec(schema, kinds=kinds_of(encoding), unknown=unknown)
                codec, _ = survey(shard, codec, summary, False, windows, schema)
                return codec, {**summary.encoding(), **encoding}
        except FieldMismatchError:
            summary = sample([shard], False)  # other data than the index was made from
    codec = Codec(summary.schema(), summary.places(), summary.kinds(), unknown)
    codec, _ = survey(shard, codec, summary, False, tally.of(shard, skip=False))
    return codec, summary.encoding()


def _stored(path: str, summary: Summary) -> tuple[Schema, dict[str, str]] | None:
    """Schema and encoding of an older index, if they can be those of the data."""
    stored = stored_schema(path)
    if stored is None or summary.rows == 0:
        return stored
    inferred = set(summary.schema())
    if set(stored[0]) == inferred:
        return stored
    # A ragged field fits records that lack it: fields that were not seen just now are
    # believed only if the index is of this very data.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleIndexWarning)
        current = inferred < set(stored[0]) and load_sidecar(path) is not None
    return stored if current else None


def _index_text(path: str, tally: Tally) -> str:
    shard = open_shard(path, verify=True)
    if not isinstance(shard, PlainShard):
        raise OptionError(f"{path}: a compressed file cannot be indexed by offsets")
    target = f"{path}.idx"
    write_text_index(target, _lines(tally.of(shard, skip=False)))
    return target


def _lines(windows: Iterator[Window]) -> Iterator[tuple[int, int]]:
    for window in windows:
        starts = window.offsets.tolist()
        ends = [*starts[1:], window.scan.end] if starts else []
        yield from ((start, end - start) for start, end in zip(starts, ends, strict=True))
