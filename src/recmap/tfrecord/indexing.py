"""Making the index files of data that has none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recmap.errors import FieldMismatchError, OptionError
from recmap.files.paths import PathsLike, expand
from recmap.tfrecord.example import Codec
from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain import PlainShard
from recmap.tfrecord.sidecar import Sidecar, save_sidecar, stored_schema, write_text_index
from recmap.tfrecord.survey import Shard, sample, survey

__all__ = ["index"]


def index(path: PathsLike, *, text: bool = False) -> list[str]:
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
    return [_index_text(file) if text else _index(file) for file in expand(path)]


def _index(path: str) -> str:
    shard = open_shard(path, verify=True)
    codec, encoding = _survey(shard)
    mapped: tuple[str, ...] = ()
    if isinstance(shard, PlainShard):
        found = shard.index
        _, holds = shard.slots(codec)
        mapped = tuple(n for n, held in zip(codec.schema, holds, strict=True) if held)
    else:
        start = np.zeros(min(shard.count(), 1), np.uint64)
        found = Index.of_marks(shard.count(), None, start, start, 0)
    return save_sidecar(path, Sidecar(found, codec.schema, encoding, True, mapped))


def _survey(shard: Shard) -> tuple[Codec, dict[str, str]]:
    """Checks every record, and finds the schema that holds for all."""
    stored = stored_schema(shard.path)
    summary = sample([shard], False)
    inferred = summary.schema()
    # A ragged field fits records that lack it, so the names are compared as well.
    if stored is not None and (summary.rows == 0 or set(stored[0]) == set(inferred)):
        try:
            return survey(shard, Codec(stored[0]), None, False)[0], stored[1]
        except FieldMismatchError:
            pass  # other data than the index was made from
    return survey(shard, Codec(inferred, summary.places()), summary, False)[0], {}


def _index_text(path: str) -> str:
    shard = open_shard(path, verify=True)
    if not isinstance(shard, PlainShard):
        raise OptionError(f"{path}: a compressed file cannot be indexed by offsets")
    target = f"{path}.idx"
    write_text_index(target, _lines(shard))
    return target


def _lines(shard: PlainShard) -> Iterator[tuple[int, int]]:
    for window in shard.windows(False):
        starts = window.offsets.tolist()
        ends = [*starts[1:], window.scan.end] if starts else []
        yield from ((start, end - start) for start, end in zip(starts, ends, strict=True))
