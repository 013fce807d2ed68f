"""The files below a folder as rows: their paths, their contents, and their folders as classes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FileChangedError
from recmap.local.location import Location, Stat
from recmap.machine.threads import Threads
from recmap.model.batch import RowArray
from recmap.model.facts import SourceFacts
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import OFFSET, RowSizes, fitting, largest
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.model.text import stored_strings

_PATH, _LABEL = "path", "label"
# What the column of contents is called, if all names end like this.
_KINDS = {
    "image": (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm"),
    "audio": (".wav", ".flac", ".mp3", ".ogg"),
    "text": (".txt",),
}
# Files read at a time, and the most that are read without other threads.
_AT_ONCE, _FEW = 32, 4
# Names of classes in a note.
_SHOWN = 5


class FilesSource(Source):
    """The files below a folder as they were when they were listed, sorted by path.

    Every read opens the files anew. One that has changed since is an error.
    """

    def __init__(
        self,
        folder: Location,
        found: Sequence[tuple[str, Stat]],
        text: Field,
        *,
        classes: bool = True,
    ) -> None:
        """``text`` is the field of text files. Folders are ``classes`` if all files are in some."""
        self._folder, self._found = folder, found
        self._sizes = np.array([stat.size for _, stat in found], np.int64)
        self._content = _content_name([name for name, _ in found])
        fields = {_PATH: Field("text"), self._content: Field("bytes")}
        if self._content == "text":
            fields["text"] = text
        folders = [name.partition("/")[0] if "/" in name else "" for name, _ in found]
        self._classes = sorted(set(folders)) if classes and all(folders) else []
        if self._classes:
            fields[_LABEL] = Field("int64")
            self._labels = np.searchsorted(self._classes, folders).astype(np.int64)
        self._schema = Schema(fields)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(
            "files",
            [self._folder],
            "from the names",
            owns_rows=True,
            remote=self._folder.remote,
            labels={_LABEL: self._classes} if _LABEL in self._schema else {},
            largest_row=partial(largest, lambda a, b: self._row_sizes()[a:b], len(self)),
        )

    def __len__(self) -> int:
        return len(self._found)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        rows = np.arange(min(start, stop), stop)
        if limit is not None and len(rows):
            rows = rows[: fitting(self._row_sizes()[rows], len(rows), limit)]
        return self.gather(rows)

    def gather(self, rows: RowArray) -> Batch:
        made: Batch = {}
        for name in self._schema:
            if name == _PATH:
                made[name] = Ragged.from_text([self._found[row][0] for row in rows.tolist()])
            elif name == _LABEL:
                made[name] = self._labels[rows]
            else:
                made[name] = self._contents(rows)
        return made

    def _contents(self, rows: RowArray) -> Ragged:
        numbers = rows.tolist()
        if len(numbers) <= _FEW:
            contents = list(map(self._read_one, numbers))
        else:
            with Threads(min(_AT_ONCE, len(numbers)), "recmap-files") as threads:
                contents = list(threads.map(self._read_one, numbers))
        column = Ragged.from_bytes(contents)
        field = self._schema[self._content]
        return stored_strings(self._folder, self._content, field, column, rows)

    def _read_one(self, row: int) -> bytes:
        name, stat = self._found[row]
        file = self._folder.child_found(name, stat)

        def fail(why: str) -> FileChangedError:
            return FileChangedError(
                f"{file}: row {row:,}: {why} after it was listed; open the folder again",
                file=str(file),
            )

        try:
            with file.open() as opened:
                content = opened.pread(stat.size, 0)
            if file.stat()[:2] != stat[:2] or len(content) != stat.size:
                raise fail("it was changed")
        except FileNotFoundError:
            raise fail("it was removed") from None
        except PermissionError as e:
            raise DataError(f"{file}: row {row:,}: {e.strerror}", file=str(file)) from e
        return content

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._row_sizes()[rows]

    def _row_sizes(self) -> npt.NDArray[np.int64]:
        reads = self._content in self._schema
        # A path has a few hundred bytes at most, and a label eight.
        return (self._sizes if reads else np.zeros_like(self._sizes)) + 4 * OFFSET + 4096

    def row_bytes(self) -> int:
        reads = self._content in self._schema
        return max(1, int(self._sizes.mean())) if reads else OFFSET

    def select(self, names: Sequence[str]) -> FilesSource:
        other = copy(self)
        other._schema = self._schema.select(names)  # noqa: SLF001  # a copy of this one
        return other

    def info(self) -> Info:
        facts = self.facts
        size = int(self._sizes.sum())
        told = f"{len(self._classes):,} classes: {', '.join(self._classes[:_SHOWN])}"
        more = ", ..." if len(self._classes) > _SHOWN else ""
        return Info(
            format=facts.format,
            files=facts.files,
            size=size,
            rows=len(self),
            schema=self._schema,
            origin=facts.origin,
            mapped=[],
            notes={_LABEL: told + more} if facts.labels else {},
        )


def _content_name(names: Sequence[str]) -> str:
    for kind, ends in _KINDS.items():
        if all(name.lower().endswith(ends) for name in names):
            return kind
    return "bytes"
