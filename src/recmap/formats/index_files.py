"""Write the index files of TFRecord, tar and text files: ``rm.index``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from recmap.errors import FieldMismatchError, OptionError, StaleIndexWarning
from recmap.formats.registry import FORMATS, format_of
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.machine.mapped import guarded
from recmap.model.arguments import check_flag
from recmap.model.habits import helpful
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.schema import Schema
from recmap.store.files_ahead import files_in_turn
from recmap.store.paths import PathsLike, expand, for_each, for_each_file
from recmap.tfrecord.decoder import ExampleDecoder, UnknownFeatures, kinds_of
from recmap.tfrecord.framing import ScanProgress, open_record_file
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile, Window
from recmap.tfrecord.sidecar import (
    Sidecar,
    indexed_schema,
    is_written,
    load_sidecar,
    mark_checked,
    save_sidecar,
    settled_change,
    write_text_index,
)
from recmap.tfrecord.stored_schema import Manifests, Types, described_by, stored_types
from recmap.tfrecord.survey import Summary, sample, survey

# Objects indexed at a time, and their bytes.
_AT_ONCE, _BYTES_AT_ONCE = 16, 64 << 20


@helpful
def index(
    path: PathsLike,
    *,
    text: bool = False,
    storage: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
) -> list[str]:
    """Write an index next to each TFRecord, tar or text file, and return the names of the indexes.

    Every TFRecord record is checked, and the index has a schema that fits all of them. The index
    of a tar file says where its members are, that of a CSV or JSON Lines file where rows begin.
    With ``text``, write ``file.idx`` instead, the list of offsets and sizes that DALI and the
    ``tfrecord`` package read. The records may then contain anything. ``storage`` has the options
    for URLs, as in ``rm.open``; the index of an object is another object.

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
    files = expand(path, storage)
    for file in files:
        located(file).refuse_unwritable()
    others = [file for file in files if not _indexer(file)]
    if text and len(others) < len(files):
        raise OptionError("text=True writes the index of TFRecord files, which DALI reads")
    made = for_each_file(_index_one, [file for file in files if _indexer(file)])
    return made + (_index_records(others, text=text, progress=progress) if others else [])


def _indexer(path: str) -> str:
    """Return the function that writes the index of a file that is not records."""
    format = format_of(path)
    return "" if format is None else FORMATS[format].indexes


def _index_one(path: Location) -> str:
    format = format_of(path)
    assert format is not None
    saved: str = FORMATS[format].load(_indexer(path))(path, path)
    return saved


def _index_records(
    files: Sequence[Location], *, text: bool = False, progress: ProgressOption = None
) -> list[str]:
    """Write an index next to each TFRecord file, and return the names of the indexes."""
    for file in files:
        if located(file).is_folder():
            raise OptionError(
                f"{file} is opened as a whole: rm.index takes TFRecord files, such as "
                f"{located(file).child('*.tfrecord*')!r}"
            )
    names: dict[Location, set[str]] = {}
    for file in files:
        names.setdefault(file.sibling(""), set()).update((file.name, f"{file.name}.idx"))
    for folder, wanted in names.items():
        folder.remove_leftovers(wanted.__contains__)
    make = _index_text if text else _index
    largest = max((file.stat().size for file in files), default=1)
    at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(largest, 1)))
    with files_in_turn(files) as reading, ScanProgress(files, progress) as scan:

        def index_one(number: int) -> str:
            with reading(number):
                return make(files[number], scan)

        return for_each(index_one, range(len(files)), files, at_once)


def _index(path: str, scan: ScanProgress) -> str:
    changed = settled_change(path)
    file = open_record_file(path, verify=True)
    decoder, encoding, note = _survey(file, scan)
    mapped: tuple[str, ...] = ()
    if isinstance(file, PlainFile):
        found = file.index
        _, holds = file.slots(decoder)
        mapped = tuple(n for n, held in zip(decoder.schema, holds, strict=True) if held)
    else:
        start = np.zeros(min(file.count(), 1), np.uint64)
        found = Index.of_anchors(file.count(), None, start, start, 0)
    located(path).check_unchanged()
    written = is_written(path)
    sidecar = Sidecar(found, decoder.schema, encoding, True, mapped, None, written, table_note=note)
    saved = save_sidecar(path, sidecar)
    mark_checked(path, changed)
    return saved


@guarded
def _survey(
    file: RecordFile, scan: ScanProgress
) -> tuple[ExampleDecoder, dict[str, str], Mapping[str, Any]]:
    """Check every record, and find a schema that fits all of them.

    Return it with the encoding of its fields, and the note of what they were in a DataFrame.
    """
    summary = sample([file], False)
    stored = _stored(file, summary)
    unknown = UnknownFeatures("")
    if stored is not None:
        schema, encoding, written = stored
        described = described_by(written, schema, False)
        try:
            with closing(scan.of(file, skip=False)) as windows:
                kinds = kinds_of(encoding)
                decoder = ExampleDecoder(schema, None, kinds, unknown, described)
                decoder, _ = survey(file, decoder, summary, False, windows, schema)
                note = {} if written is None else written.table_note
                return decoder, {**summary.encoding(), **encoding}, note
        except FieldMismatchError:
            if written:
                raise  # the file would contradict an index with another schema
            summary = sample([file], False)  # the data has changed since the index was made
    decoder = ExampleDecoder(summary.schema(), summary.places(), summary.kinds(), unknown)
    decoder, _ = survey(file, decoder, summary, False, scan.of(file, skip=False))
    return decoder, summary.encoding(), {}


def _stored(
    file: RecordFile, summary: Summary
) -> tuple[Schema, dict[str, str], Types | None] | None:
    """Return the stored schema, the encoding of its fields as far as known, and the types.

    The schema is the one the file was written with, or else that of an older index if it may
    still be right.
    """
    indexed = indexed_schema(file.path)
    types = stored_types(file, None, Manifests(), skip=False)
    if types is not None:
        schema = types.whole_schema
        same = indexed is not None and set(indexed[0]) == set(schema)
        return schema, indexed[1] if indexed and same else {}, types
    if indexed is None:
        return None
    inferred = set(summary.schema())
    if summary.rows == 0 or set(indexed[0]) == inferred:
        return (*indexed, None)
    # A ragged field also fits records that lack it. So fields missing from the sample are kept
    # only if the index matches the data.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleIndexWarning)
        current = inferred < set(indexed[0]) and load_sidecar(file.path) is not None
    return (*indexed, None) if current else None


@guarded
def _index_text(path: str, scan: ScanProgress) -> str:
    file = open_record_file(path, verify=True)
    if not isinstance(file, PlainFile):
        raise OptionError(f"{path}: a compressed file cannot be indexed by offsets")
    target = located(path).sibling(f"{os.path.basename(path)}.idx")
    write_text_index(target, _lines(scan.of(file, skip=False), path))
    return target.public()


def _lines(windows: Iterator[Window], path: str) -> Iterator[tuple[int, int]]:
    for window in windows:
        starts = window.offsets.tolist()
        ends = [*starts[1:], window.scan.end] if starts else []
        yield from ((start, end - start) for start, end in zip(starts, ends, strict=True))
    located(path).check_unchanged()
