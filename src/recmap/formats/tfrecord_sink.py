"""The sink for TFRecord files, which is also the public writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Never

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, OptionError
from recmap.files.local_path import located
from recmap.files.output_file import (
    Compression,
    OutputFile,
    Spooler,
    choose_compression,
)
from recmap.files.paths import MOST_SHARDS, PathLike, as_location
from recmap.files.staging import make_staging_folder, send_files
from recmap.files.storage import Storage
from recmap.files.temporary import remove
from recmap.formats.tfrecord_shards import OlderFiles, shard_paths
from recmap.model.arguments import as_mapping, as_whole, check_choice, check_flag, unknown_option
from recmap.model.batch import pick
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.field import FieldLike
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.model.sink import Sink, SinkKind
from recmap.tfrecord.encoder import Encoder, little_endian
from recmap.tfrecord.index import Index
from recmap.tfrecord.sidecar import (
    Sidecar,
    mark_checked,
    remove_sidecar,
    save_sidecar,
    settled_change,
    sidecar_path,
)

# Bytes encoded at a time.
_BLOCK = 8 << 20
# Bytes of a record besides its values, and of each of its features besides its name.
_RECORD, _FEATURE = 24, 16
# The bytes that an integer may take, whatever its type: negative ones take all of them.
_LONGEST = 10


class TFRecordWriter(Sink):
    """Writes batches of columns to TFRecord files.

    ``path`` is a ``str``, ``bytes`` or a ``pathlib.Path``, and may begin with ``~``.

    The files appear under their names when the ``with`` block ends. If it raises an
    exception, no files appear. ``schema`` defaults to that of the first batch. With
    ``shards``, rows are distributed one by one. If you pass the total number of ``rows``, each
    shard gets consecutive rows instead. ``align=64`` pads records so that rows of equal size
    can be mapped as an aligned array. ``encoding`` overrides how a field is stored
    (``{"x": "raw"}``). Files are compressed if you pass ``compression``, or if their names end
    with ``.gz`` or ``.zlib``.

    ``path`` may be a URL in a store, with the options in ``storage``. One file is sent while it
    is written; several are made on disk first, in the folder for temporary files. Parts of large
    files that a killed process sent stay in the bucket until a lifecycle rule deletes them.

    Several files get their names one after the other. Meanwhile, and if the process is killed,
    opening their folder raises ``UnfinishedOutputError``; the same call writes them again.

    The first record of each file describes columns with types that records do not show, such
    as images; other readers skip the description. With ``describe=False`` there is none, and
    the files are byte-identical to TensorFlow's. Big-endian columns are written little-endian.

    >>> import numpy as np, recmap as rm
    >>> with rm.TFRecordWriter("train.tfrecord") as w:
    ...     w.write({"image": np.zeros((4, 8, 8), "uint8"), "label": np.arange(4)})
    >>> rm.open("train.tfrecord").schema
    Schema(image: uint8[8,8], label: int64)
    """

    # A conversion does that itself, once for all of its files.
    _removes_left_over = True

    def __init__(
        self,
        path: PathLike,
        schema: Mapping[str, FieldLike] | None = None,
        *,
        shards: int = 1,
        rows: int | None = None,
        compression: Compression = None,
        align: int | None = None,
        encoding: Mapping[str, str] | None = None,
        index: bool = True,
        durable: bool = True,
        overwrite: bool = False,
        describe: bool = True,
        storage: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            known = TFRecordWriter.__init__.__kwdefaults__
            raise unknown_option(name, known, "rm.TFRecordWriter: ")
        check_choice("compression", compression, ("gzip", "zlib", None))
        shards = as_whole("shards", shards, 1, MOST_SHARDS)
        rows = None if rows is None else as_whole("rows", rows)
        align = None if align is None else as_whole("align", align)
        if encoding is not None:
            encoding = as_mapping("encoding", encoding, '{"x": "raw"}')
        flags = {"index": index, "durable": durable, "overwrite": overwrite, "describe": describe}
        for name, flag in flags.items():
            check_flag(name, flag)
        location = as_location(path, storage=Storage(storage))
        location.refuse_unwritable()
        self._paths = shard_paths(location, shards)
        compression = choose_compression(self._paths[0], compression)
        if align and compression:
            raise OptionError("align has no use in a compressed file, which cannot be mapped")
        self._older = OlderFiles(location, self._paths, clean=self._removes_left_over)
        self._older.check(overwrite=overwrite)
        self._encoding, self._align, self._describe = encoding, align, describe
        self._encoder = None if schema is None else self._encoder_of(Schema(schema))
        self._guesses = schema is None
        self._write_index, self._durable, self._compression = index, durable, compression
        self._rows = rows
        self._written = 0
        self._indexes = [Index() for _ in self._paths]
        self._finished = False
        self._process = os.getpid()
        self._files: list[OutputFile] = []
        self._staging: str | None = None
        self._spooler = Spooler()
        self._open = True
        try:
            for p in self._written_paths():
                self._files.append(OutputFile(p, compression, self._spooler))
        except BaseException:
            self.abort()
            raise

    def _written_paths(self) -> list[str]:
        """Return where the files are written: in local space, if they are sent later."""
        if len(self._paths) == 1 or not located(self._paths[0]).remote:
            return self._paths
        # Sending them while they are written would take a part of memory for each of them.
        self._staging = make_staging_folder()
        return [os.path.join(self._staging, os.path.basename(path)) for path in self._paths]

    def _encoder_of(self, schema: Schema) -> Encoder:
        return Encoder(little_endian(schema), self._encoding, self._align, describe=self._describe)

    @property
    def schema(self) -> Schema | None:
        """The schema, once it is known."""
        return self._encoder.schema if self._encoder else None

    def records_written(self) -> tuple[str, int] | None:
        if self._compression is not None or not self._files[0].temporary:
            return None
        return self._files[0].temporary, self._files[0].written

    def watch_records(self, watcher: Callable[[npt.NDArray[np.uint8]], None]) -> bool:
        if self._compression is not None or self._files[0].temporary:
            return False
        self._files[0].watcher = watcher
        return True

    def write(self, batch: Mapping[str, Any]) -> None:
        """Write the rows of a batch: columns of equal length by name."""
        if not self._open:
            raise OptionError("the writer is closed")
        given = as_columns(batch)
        if self._encoder is None:
            self._encoder = self._encoder_of(infer_schema(given))
        columns, rows = fit(given, self._encoder.schema, guessed=self._guesses)
        if self._rows is not None and self._written + rows > self._rows:
            raise ColumnError(f"more than the {self._rows:,} rows that were announced")
        step = max(1, _BLOCK * rows // max(_encoded_size(columns, rows), 1))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            self._deal(pick(columns, slice(start, stop)), stop - start)

    def _deal(self, block: Batch, rows: int) -> None:
        shards, first = len(self._files), self._written
        if shards == 1:
            self._encode(0, block, rows, first)
        elif self._rows is None:
            for shard in range(shards):
                mine = slice((shard - first) % shards, rows, shards)
                count = len(range(*mine.indices(rows)))
                # Every n-th row of an array is a view; rows of a Ragged are gathered.
                self._encode(shard, pick(block, mine), count, first)
        else:
            edges = np.arange(1, shards + 1) * self._rows // shards
            start = 0
            while start < rows:
                shard = int(np.searchsorted(edges, first + start, side="right"))
                stop = min(rows, int(edges[shard]) - first)
                part = pick(block, slice(start, stop))
                self._encode(shard, part, stop - start, first + start)
                start = stop
        self._written += rows

    def _encode(self, shard: int, block: Batch, rows: int, first: int) -> None:
        assert self._encoder is not None
        if rows == 0:
            return
        index = self._indexes[shard]
        records, offsets = self._encoder.encode(block, rows, first, begins=index.count == 0)
        index.add_written(offsets)
        self._files[shard].write(records)

    def finish(self) -> str:
        """Write the remaining rows, and return the temporary name of the first file."""
        if self._finished or not self._open:
            return self._files[0].temporary
        try:
            if self._rows is not None and self._written != self._rows:
                raise ColumnError(f"{self._rows:,} rows were announced, {self._written:,} written")
            for file in self._files:
                file.flush()
            self._spooler.close()
            for file in self._files:
                file.finish(self._durable)
        except BaseException:
            self.abort()
            raise
        self._finished = True
        return self._files[0].temporary

    def commit(self) -> None:
        """Finish the files and give them their names."""
        if not self._open:
            return
        self.finish()
        try:
            self._older.begin()
            self._put_in_place()
        except BaseException:
            self._undo()
            raise
        self._older.finish()

    def _undo(self) -> None:
        """Remove the new files, except an object that was not sent: it may be another writer's."""
        unsent = self._open and not self._files[0].temporary
        self.abort()
        if not unsent:
            self._older.undo()

    def _put_in_place(self) -> None:
        if not self._files[0].temporary:
            # The index must not be older than the object.
            self._files[0].commit(self._durable)
            self._open = False
            self._save_indexes()
            return
        self._save_indexes()
        for file in self._files:
            file.commit(self._durable)
        self._open = False
        self._mark_checked()
        if self._staging is not None:
            self._send_staged(self._staging)

    def _mark_checked(self) -> None:
        """Let columns of these files be mapped without a check, as long as they do not change."""
        if self._write_index and self._encoder is not None and self._encoder.fixed_fields():
            for file in self._files:
                mark_checked(file.path, settled_change(file.path))

    def _send_staged(self, folder: str) -> None:
        try:
            data = {os.path.join(folder, os.path.basename(path)): path for path in self._paths}
            indexes = {sidecar_path(local): sidecar_path(path) for local, path in data.items()}
            for some in (data, indexes):
                made = [(local, path) for local, path in some.items() if os.path.exists(local)]
                send_files({located(path): local for local, path in made})
        finally:
            remove(folder)

    def _save_indexes(self) -> None:
        for file, written in zip(self._files, self._indexes, strict=True):
            index = written
            if not self._write_index or self._encoder is None:
                remove_sidecar(file.path)
                continue
            where = file.temporary or located(file.path).anew()
            # If the first record is longer for another reason, its fields have other offsets.
            mapped = index.count == 1 or index.lead == len(self._encoder.lead)
            if self._compression is not None:
                start = np.zeros(min(index.count, 1), np.uint64)
                index = Index.of_anchors(index.count, None, start, start, index.end)
            save_sidecar(
                where,
                Sidecar(
                    index,
                    self._encoder.schema,
                    {name: str(e) for name, e in self._encoder.encoding.items()},
                    verified=True,
                    mapped=self._encoder.fixed_fields() if mapped else (),
                    written=True,
                ),
                beside=file.path,
            )

    def abort(self) -> None:
        """Remove everything written so far."""
        if not self._open:
            return
        self._open = False
        self._spooler.stop()
        for file in self._files:
            file.abort()
        if self._staging is not None:
            remove(self._staging)

    close = commit

    def __del__(self) -> None:
        # A forked process has a copy of the writer, but does not own its files.
        if getattr(self, "_open", False) and self._process == os.getpid():
            self._open = False
            self._spooler.abandon(self._files)
            if self._staging is not None:
                remove(self._staging)


def _encoded_size(columns: Batch, rows: int) -> int:
    """Return how many bytes rows may take as records: far more than in memory, if they are few."""
    overhead = _RECORD + sum(_FEATURE + len(name.encode()) for name in columns)
    return rows * overhead + sum(map(_encoded_values, columns.values()))


def _encoded_values(column: Column) -> int:
    size = column.nbytes
    while isinstance(column, Ragged):
        column = column.flat
    return size * _LONGEST // column.itemsize if column.dtype.kind == "i" else 2 * size


class _ConvertedFile(TFRecordWriter):
    """One output file of a conversion."""

    _removes_left_over = False


def create_tfrecord(
    path: str,
    schema: Schema,
    *,
    durable: bool = True,
    compression: Compression = None,
    align: int | None = None,
    encoding: Mapping[str, str] | None = None,
    index: bool = True,
    describe: bool = True,
) -> TFRecordWriter:
    """Create one output file of a conversion, replacing any existing file."""
    return _ConvertedFile(
        path,
        schema,
        compression=compression,
        align=align,
        encoding=encoding,
        index=index,
        durable=durable,
        overwrite=True,
        describe=describe,
    )


def _streams(path: str, schema: Schema, options: Mapping[str, Any]) -> bool:
    """Return whether records are sent as they are written: compressed ones are checked before."""
    del schema
    return choose_compression(path, options.get("compression")) is None


SINK = SinkKind(create_tfrecord, streams=_streams, untyped=True, stored=little_endian)
