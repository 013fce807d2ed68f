"""The sink for TFRecord files, which is also the public writer."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from typing import Any, Never

import numpy as np

from recmap.errors import ColumnError, OptionError, OutputExistsError
from recmap.files.output_file import (
    Compression,
    OutputFile,
    Spooler,
    choose_compression,
    refuse_existing,
)
from recmap.files.paths import MOST_SHARDS, PathLike, as_path, shard_names
from recmap.model.arguments import as_mapping, as_whole, check_choice, check_flag, unknown_option
from recmap.model.batch import pick
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.field import FieldLike
from recmap.model.schema import Batch, Schema
from recmap.model.sink import Sink
from recmap.tfrecord.encoder import Encoder, little_endian
from recmap.tfrecord.index import Index
from recmap.tfrecord.sidecar import Sidecar, is_written, remove_sidecar, save_sidecar

__all__ = ["TFRecordWriter", "create_tfrecord"]

# Bytes encoded at a time.
_BLOCK = 8 << 20


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
        self._paths = shard_paths(as_path(path), shards)
        compression = choose_compression(self._paths[0], compression)
        if align and compression:
            raise OptionError("align has no use in a compressed file, which cannot be mapped")
        self._old = _older(self._paths)
        _check_older(self._old, self._paths, overwrite)
        self._encoding, self._align, self._describe = encoding, align, describe
        self._encoder = None if schema is None else self._encoder_of(Schema(schema))
        self._write_index, self._durable, self._compression = index, durable, compression
        self._rows = rows
        self._written = 0
        self._indexes = [Index() for _ in self._paths]
        self._finished = False
        self._process = os.getpid()
        self._files: list[OutputFile] = []
        self._spooler = Spooler()
        self._open = True
        try:
            for p in self._paths:
                self._files.append(OutputFile(p, compression, self._spooler))
        except BaseException:
            self.abort()
            raise

    def _encoder_of(self, schema: Schema) -> Encoder:
        return Encoder(little_endian(schema), self._encoding, self._align, describe=self._describe)

    @property
    def schema(self) -> Schema | None:
        """The schema, once it is known."""
        return self._encoder.schema if self._encoder else None

    def records_written(self) -> tuple[str, int] | None:
        if self._compression is not None:
            return None
        return self._files[0].temporary, self._files[0].written

    def write(self, batch: Mapping[str, Any]) -> None:
        """Write the rows of a batch: columns of equal length by name."""
        if not self._open:
            raise OptionError("the writer is closed")
        given = as_columns(batch)
        if self._encoder is None:
            self._encoder = self._encoder_of(infer_schema(given))
        columns, rows = fit(given, self._encoder.schema)
        if self._rows is not None and self._written + rows > self._rows:
            raise ColumnError(f"more than the {self._rows:,} rows that were announced")
        size = sum(column.nbytes for column in columns.values())
        step = max(1, _BLOCK * rows // max(size, 1))
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
            self._save_indexes()
        except BaseException:
            self.abort()
            raise
        self._open = False
        for file in self._files:
            file.commit(self._durable)
        for old in set(self._old) - set(self._paths):
            if is_written(old):  # it has not been replaced in the meantime
                os.unlink(old)
                remove_sidecar(old)

    def _save_indexes(self) -> None:
        for file, written in zip(self._files, self._indexes, strict=True):
            index = written
            if not self._write_index or self._encoder is None:
                remove_sidecar(file.path)
                continue
            # If the first record is longer for another reason, its fields have other offsets.
            mapped = index.count == 1 or index.lead == len(self._encoder.lead)
            if self._compression is not None:
                start = np.zeros(min(index.count, 1), np.uint64)
                index = Index.of_anchors(index.count, None, start, start, index.end)
            save_sidecar(
                file.temporary,
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

    close = commit

    def __del__(self) -> None:
        # A forked process has a copy of the writer, but does not own its files.
        if getattr(self, "_open", False) and self._process == os.getpid():
            self._open = False
            self._spooler.abandon(self._files)


def _check_older(older: list[str], paths: list[str], overwrite: bool) -> None:
    """Refuse to replace files without ``overwrite``, or to delete files recmap did not write."""
    for old in older:
        refuse_existing(old, overwrite)
        if old not in paths and not is_written(old):
            raise OutputExistsError(
                f"{old} belongs to another number of shards and would be read together with the "
                "new ones, and recmap cannot tell that it wrote it; remove it, or write elsewhere"
            )


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
    return TFRecordWriter(
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


def shard_paths(path: str, shards: int) -> list[str]:
    """Return the names of the files: the path itself, or ``name-00003-of-00016.tfrecord``."""
    if path.endswith(os.sep) or os.path.isdir(path):
        path = os.path.join(path, "data.tfrecord")
    if shards == 1:
        return [path]
    stem, extension = _split(path)
    return shard_names(stem, extension, shards)


def _split(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path)
    match = re.fullmatch(r"(.+?)((\.\w+)(\.gz|\.zlib)?)?", name)
    stem, extension = (match[1], match[2]) if match else (name, None)
    return os.path.join(folder, stem), extension or ".tfrecord"


def _older(paths: list[str]) -> list[str]:
    """Return existing files with the same names, or from a different number of shards."""
    if len(paths) == 1:
        return [path for path in paths if os.path.exists(path)]
    stem, extension = re.split(r"-\d{5}-of-\d{5}", paths[0])[0], _split(paths[0])[1]
    pattern = f"{glob.escape(stem)}-*-of-*{glob.escape(extension)}"
    shard = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(extension)}")
    return sorted(path for path in glob.glob(pattern) if shard.fullmatch(path))
