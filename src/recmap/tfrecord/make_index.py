"""Making the index files of data that has none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from recmap.errors import FieldMismatchError, OptionError, StaleIndexWarning
from recmap.files.mapped import guarded
from recmap.files.paths import PathsLike, expand
from recmap.model.arguments import check_flag
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.schema import Schema
from recmap.tfrecord.decoder import Codec, kinds_of
from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainShard
from recmap.tfrecord.progress import Tally
from recmap.tfrecord.record_window import Window
from recmap.tfrecord.schema_inference import Summary
from recmap.tfrecord.sidecar import (
    Sidecar,
    is_written,
    load_sidecar,
    save_sidecar,
    stored_schema,
    write_text_index,
)
from recmap.tfrecord.stored_schema import Manifests, Types, described_by, stored_types
from recmap.tfrecord.survey import Shard, sample, survey
from recmap.tfrecord.unknown_features import UnknownFeatures

__all__ = ["index"]


def index(path: PathsLike, *, text: bool = False, progress: ProgressOption = None) -> list[str]:
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
    check_flag("text", text)
    check_progress(progress)
    files = expand(path)
    with Tally(files, progress) as tally:
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
    written = is_written(path)
    return save_sidecar(path, Sidecar(found, codec.schema, encoding, True, mapped, None, written))


@guarded
def _survey(shard: Shard, tally: Tally) -> tuple[Codec, dict[str, str]]:
    """Checks every record, and finds the schema that holds for all."""
    summary = sample([shard], False)
    stored = _stored(shard, summary)
    unknown = UnknownFeatures("")
    if stored is not None:
        schema, encoding, written = stored
        described = described_by(written, schema, False)
        try:
            with closing(tally.of(shard, skip=False)) as windows:
                kinds = kinds_of(encoding)
                codec = Codec(schema, None, kinds, unknown, described)
                codec, _ = survey(shard, codec, summary, False, windows, schema)
                return codec, {**summary.encoding(), **encoding}
        except FieldMismatchError:
            if written:
                raise  # the file would contradict an index with another schema
            summary = sample([shard], False)  # other data than the index was made from
    codec = Codec(summary.schema(), summary.places(), summary.kinds(), unknown)
    codec, _ = survey(shard, codec, summary, False, tally.of(shard, skip=False))
    return codec, summary.encoding()


def _stored(shard: Shard, summary: Summary) -> tuple[Schema, dict[str, str], Types | None] | None:
    """The schema that a file was written with, or that of an older index if it can be that of
    the data; how fields are stored, if that is known; and the types it was written with.
    """
    indexed = stored_schema(shard.path)
    types = stored_types(shard, None, Manifests(), skip=False)
    if types is not None:
        same = indexed is not None and set(indexed[0]) == set(types.schema)
        return types.schema, indexed[1] if indexed and same else {}, types
    if indexed is None:
        return None
    inferred = set(summary.schema())
    if summary.rows == 0 or set(indexed[0]) == inferred:
        return (*indexed, None)
    # A ragged field fits records that lack it: fields that were not seen just now are
    # believed only if the index is of this very data.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleIndexWarning)
        current = inferred < set(indexed[0]) and load_sidecar(shard.path) is not None
    return (*indexed, None) if current else None


@guarded
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
