"""The public writer of TFRecord files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Never, Self

import numpy as np

from recmap.errors import ColumnError, OptionError
from recmap.files.local_path import located
from recmap.files.output import Compression, Output, Spooler
from recmap.files.paths import MOST_SHARDS, PathLike, as_location
from recmap.files.storage import Storage
from recmap.formats.tfrecord_shards import OlderFiles, shard_paths
from recmap.formats.tfrecord_sink import RecordOptions, TFRecordSink, encoded_at_once
from recmap.model.arguments import as_whole, check_flag, unknown_option
from recmap.model.batch import pick
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.field import FieldLike
from recmap.model.schema import Batch, Schema


class TFRecordWriter:
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
        shards = as_whole("shards", shards, 1, MOST_SHARDS)
        self._rows = None if rows is None else as_whole("rows", rows)
        for name, flag in {"durable": durable, "overwrite": overwrite}.items():
            check_flag(name, flag)
        location = as_location(path, storage=Storage(storage))
        location.refuse_unwritable()
        paths = shard_paths(location, shards)
        options = RecordOptions.of(paths[0], compression, align, encoding, index, describe)
        self._older = OlderFiles(location, paths)
        self._older.check(overwrite=overwrite)
        encoder = None if schema is None else options.encoder(Schema(schema))
        self._encoder, self._options, self._guesses = encoder, options, schema is None
        self._written = 0
        self._process = os.getpid()
        self._spooler = Spooler()
        self._sinks: list[TFRecordSink] = []
        self._outputs: list[Output] = []
        self._open = True
        try:
            for each in paths:
                # Sending several while they are written would take a part of memory for each.
                output = located(each).create(seekable=shards > 1, durable=durable)
                self._outputs.append(output)
                self._sinks.append(TFRecordSink(output, encoder, options, self._spooler))
        except BaseException:
            self.abort()
            raise

    @property
    def schema(self) -> Schema | None:
        """The schema, once it is known."""
        return self._encoder.schema if self._encoder else None

    def write(self, batch: Mapping[str, Any]) -> None:
        """Write the rows of a batch: columns of equal length by name."""
        if not self._open:
            raise OptionError("the writer is closed")
        given = as_columns(batch)
        if self._encoder is None:
            self._encoder = self._options.encoder(infer_schema(given))
            for sink in self._sinks:
                sink.encoder = self._encoder
        columns, rows = fit(given, self._encoder.schema, guessed=self._guesses)
        if self._rows is not None and self._written + rows > self._rows:
            raise ColumnError(f"more than the {self._rows:,} rows that were announced")
        for block, count in encoded_at_once(columns, rows):
            self._deal(block, count)

    def _deal(self, block: Batch, rows: int) -> None:
        shards, first = len(self._sinks), self._written
        if shards == 1:
            self._sinks[0].append(block, rows, first)
        elif self._rows is None:
            for shard, sink in enumerate(self._sinks):
                mine = slice((shard - first) % shards, rows, shards)
                count = len(range(*mine.indices(rows)))
                # Every n-th row of an array is a view; rows of a Ragged are gathered.
                sink.append(pick(block, mine), count, first)
        else:
            edges = np.arange(1, shards + 1) * self._rows // shards
            start = 0
            while start < rows:
                shard = int(np.searchsorted(edges, first + start, side="right"))
                stop = min(rows, int(edges[shard]) - first)
                part = pick(block, slice(start, stop))
                self._sinks[shard].append(part, stop - start, first + start)
                start = stop
        self._written += rows

    def commit(self) -> None:
        """Finish the files and give them their names."""
        if not self._open:
            return
        try:
            if self._rows is not None and self._written != self._rows:
                raise ColumnError(f"{self._rows:,} rows were announced, {self._written:,} written")
            for sink in self._sinks:
                sink.stream.flush()
            for output in self._outputs:
                output.finish()
        except BaseException:
            self.abort()
            raise
        try:
            self._older.begin()
            self._outputs[0].commit_all(self._outputs)
            self._open = False
            for sink in self._sinks:
                sink.mark_checked()
        except BaseException:
            self._undo()
            raise
        self._older.finish()

    def _undo(self) -> None:
        """Remove the new files, except an object that was not sent: it may be another writer's."""
        unsent = not self._outputs[0].path and not self._outputs[0].appeared
        self.abort()
        if not unsent:
            self._older.undo()

    def abort(self) -> None:
        """Remove everything written so far."""
        if self._open:
            self._open = False
            self._spooler.stop()
            for output in self._outputs:
                output.abort()

    close = commit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __del__(self) -> None:
        # A forked process has a copy of the writer, but does not own its files.
        if getattr(self, "_open", False) and self._process == os.getpid():
            self._open = False
            self._spooler.abandon(self._outputs)
