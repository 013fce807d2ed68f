"""The public writer of TFRecord files, and what an earlier writer left at its place."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Never, Self

import numpy as np

from recmap.errors import ColumnError, OptionError, OutputExistsError
from recmap.formats.tfrecord_sink import RecordOptions, TFRecordSink, encoded_at_once
from recmap.local.local_path import located, refuse_existing
from recmap.local.output import Compression, Output, Spooler
from recmap.local.temporary import alike, short_name
from recmap.local.whole_output import FOLDER_MANIFEST
from recmap.model.arguments import as_whole, check_flag
from recmap.model.batch import pick
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.field import FieldLike
from recmap.model.habits import helpful, no_option
from recmap.model.schema import Batch, Schema
from recmap.store.paths import MOST_SHARDS, PathLike, as_location, shard_names
from recmap.store.storage import Storage
from recmap.tfrecord.sidecar import is_written, remove_sidecar, sidecar_path

# A larger manifest is not read.
_MOST_READ = 256 << 20
# The state of a file that may be half there, in manifests of conversions, too.
_BEGUN = [0, ""]


@helpful
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
            known = TFRecordWriter.__init__.__kwdefaults__ or {}
            raise no_option("rm.TFRecordWriter", name, known)
        shards = as_whole("shards", shards, 1, MOST_SHARDS)
        self._rows = None if rows is None else as_whole("rows", rows)
        for name, flag in {"durable": durable, "overwrite": overwrite}.items():
            check_flag(name, flag)
        location = as_location(path, storage=Storage(storage))
        location.refuse_unwritable()
        paths = _shard_paths(location, shards)
        options = RecordOptions.of(paths[0], compression, align, encoding, index, describe)
        self._older = _OlderFiles(location, paths)
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


def _shard_paths(path: str, shards: int) -> list[str]:
    """Return the names of the files: the path itself, or ``name-00003-of-00016.tfrecord``."""
    path = _file(path)
    if shards == 1:
        return [path]
    stem, extension = _split(os.path.basename(path))
    return [located(path).sibling(name) for name in shard_names(stem, extension, shards)]


def _file(path: str) -> str:
    folder = path.endswith(os.sep) or located(path).is_folder()
    return located(path).child("data.tfrecord") if folder else path


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.+?)((\.\w+)(\.gz|\.zlib)?)?", name)
    stem, extension = (match[1], match[2]) if match else (name, None)
    return stem, extension or ".tfrecord"


class _OlderFiles:
    """The files that have the names of the new ones, or are shards of a set of another size.

    Several files get their names one after the other. Meanwhile, a manifest beside them says that
    they are unfinished. It has the name of a conversion's, which may continue what a killed writer
    left.
    """

    def __init__(self, location: str, paths: Sequence[str]) -> None:
        """Look for files, and remove what killed writers of them left."""
        self._paths = paths
        hidden = f".{short_name(os.path.basename(location))}.manifest.json"
        in_folder = _file(location) != location
        self._manifest = located(paths[0]).sibling(FOLDER_MANIFEST if in_folder else hidden)
        self._remove_leftovers()
        # What the manifest says, which may be of other files in the folder.
        self._replaced: str | None = None
        self._of_others = False
        self._begun: set[str] = set()
        if len(paths) == 1:
            self.paths = [path for path in paths if located(path).exists()]
            return
        names = located(paths[0]).folder.children()
        self.paths = [located(paths[0]).sibling(name) for name in _shards_of(paths[0], names)]
        if os.path.basename(self._manifest) in names:
            try:
                self._read_manifest()
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise OutputExistsError(
                    f"{self._manifest} is not a manifest that recmap wrote, and would be replaced; "
                    "move it away, or write elsewhere"
                ) from None

    def _read_manifest(self) -> None:
        self._replaced = located(self._manifest).text(_MOST_READ)
        known = json.loads(self._replaced)
        self._of_others = not _shards_of(self._paths[0], [each["file"] for each in known["files"]])
        if known["complete"] is False:
            replaced = [each for each in known["replaces"] if each.get("state") == _BEGUN]
            self._begun = {each["file"] for each in replaced}

    def check(self, *, overwrite: bool) -> None:
        """Refuse to replace files without ``overwrite``, or to delete what recmap did not write."""
        for old in self.paths:
            if not self._is_begun(old):
                refuse_existing(old, overwrite)
            self._refuse_foreign(old)

    def _is_begun(self, path: str) -> bool:
        """Return whether a killed writer was about to give a file its name."""
        return os.path.basename(path) in self._begun

    def _refuse_foreign(self, old: str) -> None:
        if old not in self._paths and not self._is_begun(old) and not is_written(old):
            raise OutputExistsError(
                f"{old} belongs to a set with another number of shards and would be read together "
                "with the new ones, but recmap cannot tell whether it wrote it; remove it, or "
                "write elsewhere"
            )

    def begin(self) -> None:
        """Say that the files are unfinished, from before the first of them gets its name."""
        if len(self._paths) == 1:
            return
        names = [os.path.basename(path) for path in self._paths]
        old = [os.path.basename(path) for path in self.paths]
        begun = [name for name in old if name in self._begun]
        replaces: list[dict[str, Any]] = [{"file": name} for name in old]
        replaces += [{"file": name, "state": _BEGUN} for name in dict.fromkeys([*names, *begun])]
        files = [{"file": name} for name in names]
        content = {"recmap": 1, "files": files, "replaces": replaces, "complete": False}
        located(self._manifest).write_whole(json.dumps(content, indent=1).encode())

    def undo(self) -> None:
        """Remove new files after a failure, unless they replaced older ones.

        Then these may be of both kinds, and stay unfinished.
        """
        new = [path for path in self._paths if path not in self.paths]
        with suppress(OSError):  # the first error tells more
            for path in new:
                if not os.path.isdir(path):  # which no writer makes
                    located(path).remove()
                remove_sidecar(path)
            if len(new) > 1 and len(new) == len(self._paths):
                self._leave_manifest(self._replaced)

    def finish(self) -> None:
        """Remove the files that were not replaced, and what says that they are unfinished."""
        for old in sorted(set(self.paths) - set(self._paths)):
            if located(old).exists():
                self._refuse_foreign(old)  # it may have been replaced in the meantime
                located(old).remove()
                remove_sidecar(old)
        if len(self._paths) > 1:
            _remove_lone_indexes(self._paths[0])
            self._leave_manifest(self._replaced if self._of_others else None)

    def _leave_manifest(self, content: str | None) -> None:
        if content is None:
            located(self._manifest).remove()
        else:
            located(self._manifest).write_whole(content.encode())

    def _remove_leftovers(self) -> None:
        """Remove temporary files of killed writers of these files, or of their other shards."""
        path = located(self._paths[0])
        mine = alike(short_name(path.name)), os.path.basename(self._manifest)
        path.remove_leftovers(lambda name: alike(name) in mine)


def _shards_of(path: str, names: Iterable[str]) -> list[str]:
    """Return the names of shards with the same stem as that at ``path``, whatever their number."""
    first = os.path.basename(path)
    stem, extension = re.split(r"-\d{5,}-of-\d{5,}", first)[0], _split(first)[1]
    shard = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(extension)}")
    return sorted(filter(shard.fullmatch, names))


def _remove_lone_indexes(path: str) -> None:
    """Remove indexes of shards that a killed writer has not named, or has removed."""
    names = located(path).folder.children()
    kept = {os.path.basename(sidecar_path(name)) for name in names}
    for shard in _shards_of(path, [name[1:].removesuffix(".recmap") for name in names]):
        index = os.path.basename(sidecar_path(shard))
        if index in names and index not in kept:
            remove_sidecar(located(path).sibling(shard))
