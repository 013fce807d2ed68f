"""What tasks have written, and how all of it gets its names at once.

Each task writes a file of its own, which nobody else knows of, into a hidden folder. When
all are there, they are renamed. A task that is tried again leaves a file that is never
asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import refuse_foreign_output
from recmap.conversion.manifest import Manifest
from recmap.conversion.manifest_file import existing_files, load_manifest, manifest_path
from recmap.conversion.plan import is_folder, plan_shards, stem_of
from recmap.conversion.previous_output import Before
from recmap.errors import ColumnError, OutputExistsError
from recmap.files.atomic_write import sync
from recmap.files.paths import size_on_disk
from recmap.files.temporary import remove, temporary_path
from recmap.formats.registry import FORMATS
from recmap.model.schema import Schema
from recmap.ray.swap import Replacement, put_back

__all__ = ["Output", "Part"]


@dataclass(frozen=True)
class Part:
    """A file that a task has written: the number of the task, and what it holds."""

    task: int
    path: str
    rows: int
    schema: Schema


@dataclass(frozen=True)
class Output:
    """Where rows are written to, and as what."""

    dst: str
    format: str
    overwrite: bool
    durable: bool

    @contextmanager
    def staged(self) -> Iterator[str]:
        """A hidden folder for parts, which is gone when this ends."""
        with self._manifest([], Schema({}), {}).running():
            put_back(self._manifest_path)
            self.refuse_existing()
            stage = self._hidden("write")
            os.mkdir(stage)
            try:
                yield stage
            finally:
                # Under another name, where a task that still runs puts nothing.
                gone = self._hidden("gone")
                os.rename(stage, gone)
                remove(gone)

    def _hidden(self, mark: str) -> str:
        return temporary_path(self._manifest_path, mark=f".{mark}-{uuid4().hex[:12]}")

    def refuse_existing(self) -> None:
        """Raises if there is something that may not be overwritten."""
        existing = self._existing()
        if existing and not self.overwrite:
            raise OutputExistsError(
                f"{existing[0]} exists already (use overwrite=True to replace it)"
            )
        # Before any work: which of them get new files of their names is not known yet.
        self._before.refuse_others([path for path in existing if path != self._stem])

    def publish(self, parts: Sequence[Part], stage: str) -> list[str]:
        """Gives the parts their names, in the order of their tasks; all of them, or none.
        The names.
        """
        ordered = sorted(parts, key=lambda part: part.task)
        self._check_alike(ordered)
        # Somebody else may have been here meanwhile.
        self.refuse_existing()
        count = len(ordered)
        ends = list(accumulate(part.rows for part in ordered))
        shards = [
            replace(shard, start=end - part.rows, stop=end)
            for shard, part, end in zip(
                plan_shards(self.dst, self.format, count, 1, count, None, None),
                ordered,
                ends,
                strict=True,
            )
        ]
        names = {shard.path for shard in shards}
        self._before.refuse_others([path for path in self._existing() if path not in names])
        for name in names:
            refuse_foreign_output(name, self.format)
        replacement = Replacement(self._manifest_path, self._existing())
        manifest = self._manifest(shards, ordered[0].schema, replacement.note)
        try:
            replacement.begin()
            manifest.begin(resume=False, overwrite=self.overwrite)
            for part, shard in zip(ordered, shards, strict=True):
                replacement.put(part.path, shard.path)
            replacement.keep_others([shard.path for shard in shards])
            if self.durable:
                sync(os.path.dirname(shards[0].path))
            sizes = [size_on_disk(shard.path) for shard in shards]
            replacement.commit(stage)
            results = {"rows": ends[-1], "bytes": sizes, "options": {}}
            manifest.finish(results, manifest.worth_keeping)
        except BaseException:
            replacement.undo()
            raise
        return [shard.path for shard in shards]

    def _check_alike(self, parts: Sequence[Part]) -> None:
        first = parts[0]
        for part in parts[1:]:
            if list(part.schema.items()) != list(first.schema.items()):
                raise ColumnError(f"{self.dst}: {_difference(part, first)}")

    def _manifest(self, shards: Sequence[Any], schema: Schema, note: Mapping[str, Any]) -> Manifest:
        return Manifest(self._manifest_path, shards, schema, self.format, [], note)

    @property
    def _before(self) -> Before:
        return self._manifest([], Schema({}), {}).written_before()

    @property
    def _stem(self) -> str:
        """The name of one file."""
        return plan_shards(self.dst, self.format, 1, 1, 1, None, None)[0].path

    @property
    def _manifest_path(self) -> str:
        return manifest_path(self.dst)

    def _existing(self) -> list[str]:
        """What is there already under these names, with any number of files, and what the
        manifest names.
        """
        folder, name = os.path.split(self._stem)
        suffixes = [s for format in FORMATS.values() for s in format.suffixes]
        mine = max((s for s in suffixes if name.lower().endswith(s)), key=len, default="")
        own = FORMATS[self.format].suffixes
        ends = own if is_folder(self.dst) else [name[len(name) - len(mine) :]]
        stem = re.escape(name[: len(name) - len(mine)])
        wanted = re.compile(rf"{stem}(-\d{{5,}}-of-\d{{5,}})?({'|'.join(map(re.escape, ends))})")
        found = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        paths = [os.path.join(folder, entry) for entry in sorted(found) if wanted.fullmatch(entry)]
        known = load_manifest(self._manifest_path)
        named = existing_files(self._manifest_path, known.get("files"), known.get("replaces"))
        alike = [path for path in named if stem_of(path) == stem_of(self._stem)]
        return paths + [path for path in alike if path not in paths]


def _difference(part: Part, first: Part) -> str:
    for name in {**part.schema, **first.schema}:
        here, there = part.schema.get(name, "missing"), first.schema.get(name, "missing")
        if here != there:
            return (
                f"column {name!r} is {here} in task {part.task:,}, but {there} in task "
                f'{first.task:,}; fields={{"{name}": ...}} says what all are to write'
            )
    return f"the columns of task {part.task:,} come in another order than those of {first.task:,}"
