"""Stage the files that tasks write, then publish all of them at once.

Each task writes a file with a unique name into a hidden folder. When all tasks are done, the
files get their final names. A file left by an attempt that was retried is never published.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import PreviousOutput, refuse_foreign_output, remove_output
from recmap.conversion.manifest import (
    Manifest,
    existing_files,
    file_names,
    load_manifest,
    manifest_path,
)
from recmap.conversion.plan import Shard, Sharding, is_output_folder, plan_shards, stem_of
from recmap.errors import ColumnError, Message, Option, OutputExistsError
from recmap.files.array_sidecar import description_path
from recmap.files.atomic_write import sync
from recmap.files.paths import size_on_disk
from recmap.files.temporary import remove, temporary_path
from recmap.formats.registry import FORMATS
from recmap.model.schema import Schema
from recmap.tfrecord.sidecar import sidecar_path

__all__ = ["StagedOutput", "StagedShard"]

_KEPT = ".before-"


@dataclass(frozen=True)
class StagedShard:
    """A file written by a task, with its rows and schema."""

    task: int
    path: str
    rows: int
    schema: Schema


@dataclass(frozen=True)
class StagedOutput:
    """Where to write the rows, and in which format."""

    dst: str
    format: str
    overwrite: bool
    durable: bool

    @contextmanager
    def staged(self) -> Iterator[str]:
        """Yield a hidden folder for the files of the tasks. It is removed on exit."""
        with self._manifest([], Schema({}), {}).running():
            _restore_old_files(self._manifest_path)
            self.refuse_existing()
            stage = self._hidden_path("write")
            os.mkdir(stage)
            try:
                yield stage
            finally:
                # Rename it first, so that a task that is still running cannot add to it.
                gone = self._hidden_path("gone")
                os.rename(stage, gone)
                remove(gone)

    def _hidden_path(self, purpose: str) -> str:
        return temporary_path(self._manifest_path, f".{purpose}-{uuid4().hex[:12]}")

    def refuse_existing(self) -> None:
        """Raise if a file exists that must not be overwritten."""
        existing = self._existing()
        if existing and not self.overwrite:
            raise OutputExistsError(
                Message(
                    f"{existing[0]} exists already",
                    hint=("use ", Option("overwrite", True), " to replace it"),
                )
            )
        # Check before any work, although it is not known yet which of them will be replaced.
        self._previous.refuse_foreign([path for path in existing if path != self._single_path])

    def publish(self, staged: Sequence[StagedShard], stage: str) -> list[str]:
        """Give all files their final names, in task order, or none of them. Return the names."""
        ordered = sorted(staged, key=lambda file: file.task)
        self._check_same_schema(ordered)
        # Another conversion may have written here in the meantime.
        self.refuse_existing()
        shards = self._plan(ordered)
        names = {shard.path for shard in shards}
        self._previous.refuse_foreign([path for path in self._existing() if path not in names])
        for name in names:
            refuse_foreign_output(name, self.format)
        swap = _Swap(self._manifest_path, self._existing())
        manifest = self._manifest(shards, ordered[0].schema, swap.note)
        try:
            swap.begin()
            manifest.begin(resume=False, overwrite=self.overwrite)
            for file, shard in zip(ordered, shards, strict=True):
                swap.put(file.path, shard.path)
            swap.keep_others([shard.path for shard in shards])
            if self.durable:
                sync(os.path.dirname(shards[0].path))
            sizes = [size_on_disk(shard.path) for shard in shards]
            swap.commit(stage)
            results: dict[str, Any] = {"rows": shards[-1].stop, "bytes": sizes, "options": {}}
            manifest.finish(results, manifest.worth_keeping)
        except BaseException:
            swap.undo()
            raise
        return [shard.path for shard in shards]

    def _plan(self, staged: Sequence[StagedShard]) -> list[Shard]:
        """Return a shard for each file, with the rows that its task wrote."""
        count = len(staged)
        shards = plan_shards(self.dst, self.format, count, 1, Sharding(files=count))
        ends = accumulate(file.rows for file in staged)
        return [
            replace(shard, start=end - file.rows, stop=end)
            for shard, file, end in zip(shards, staged, ends, strict=True)
        ]

    def _check_same_schema(self, staged: Sequence[StagedShard]) -> None:
        first = staged[0]
        for file in staged[1:]:
            if list(file.schema.items()) != list(first.schema.items()):
                raise ColumnError(Message(f"{self.dst}: ", _difference(file, first)))

    def _manifest(
        self, shards: Sequence[Shard], schema: Schema, options: Mapping[str, Any]
    ) -> Manifest:
        return Manifest(self._manifest_path, shards, schema, self.format, [], options)

    @property
    def _previous(self) -> PreviousOutput:
        return self._manifest([], Schema({}), {}).previous_output()

    @property
    def _single_path(self) -> str:
        """The output path if there is only one file."""
        return plan_shards(self.dst, self.format, 1, 1, Sharding())[0].path

    @property
    def _manifest_path(self) -> str:
        return manifest_path(self.dst)

    def _existing(self) -> list[str]:
        """Return the existing output files: those with a matching name, for any number of shards,
        and those that the manifest lists.
        """
        folder, name = os.path.split(self._single_path)
        suffixes = [s for format in FORMATS.values() for s in format.suffixes]
        suffix = max((s for s in suffixes if name.lower().endswith(s)), key=len, default="")
        ends: Sequence[str] = [name[len(name) - len(suffix) :]]
        if is_output_folder(self.dst):
            ends = FORMATS[self.format].suffixes
        stem = re.escape(name[: len(name) - len(suffix)])
        wanted = re.compile(rf"{stem}(-\d{{5,}}-of-\d{{5,}})?({'|'.join(map(re.escape, ends))})")
        found = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        paths = [os.path.join(folder, entry) for entry in sorted(found) if wanted.fullmatch(entry)]
        known = load_manifest(self._manifest_path)
        named = existing_files(self._manifest_path, known.get("files"), known.get("replaces"))
        alike = [path for path in named if stem_of(path) == stem_of(self._single_path)]
        return paths + [path for path in alike if path not in paths]


def _difference(file: StagedShard, first: StagedShard) -> str:
    for name in {**file.schema, **first.schema}:
        here, there = file.schema.get(name, "missing"), first.schema.get(name, "missing")
        if here != there:
            return Message(
                f"column {name!r} is {here} in task {file.task:,}, but {there} in task "
                f"{first.task:,}; give ",
                Option("fields", {name: ...}),
                " to say what all of them write",
            )
    return f"the columns of task {file.task:,} are in another order than those of {first.task:,}"


class _Swap:
    """Replaces the old files next to a manifest with new ones, all of them or none.

    The old files are kept in a hidden folder until all new files have their final names. From
    before the first rename until after the last one, an incomplete manifest names that folder,
    so if the process is killed in between, the next call can restore the files. The folder is
    not named like a temporary file, because those are cleaned up.
    """

    def __init__(self, manifest: str, old: Sequence[str]) -> None:
        self._manifest, self._old = manifest, list(old)
        folder, name = os.path.split(manifest)
        self._kept = os.path.join(folder, f".{name}{_KEPT}{uuid4().hex[:12]}")
        self._gone: str | None = None

    @property
    def note(self) -> dict[str, Any]:
        """What the manifest stores under "options" until the swap is complete."""
        names = [os.path.basename(path) for path in self._old]
        return {"kept": os.path.basename(self._kept), "old": names}

    def begin(self) -> None:
        """Save the old manifest before it is overwritten."""
        os.mkdir(self._kept)
        if os.path.exists(self._manifest):
            shutil.copy2(self._manifest, self._kept)
            sync(os.path.join(self._kept, os.path.basename(self._manifest)))

    def put(self, new: str, path: str) -> None:
        """Give a new file its final name, and keep the old file of that name.

        The old file is moved only now: while it has the name, no other process writes there.
        """
        if path in self._old:
            self._keep(path)
        for companion in (description_path, sidecar_path):
            if os.path.exists(companion(new)):
                os.rename(companion(new), companion(path))
        os.rename(new, path)

    def keep_others(self, taken: Sequence[str]) -> None:
        """Keep the old files that no new file replaces."""
        for path in self._old:
            if path not in taken:
                self._keep(path)

    def commit(self, stage: str) -> None:
        """Move the old files into the stage, to be removed with it."""
        gone = os.path.join(stage, os.path.basename(self._kept))
        os.rename(self._kept, gone)
        self._gone = gone

    def undo(self) -> None:
        """Restore the old files."""
        if self._gone is not None:
            os.rename(self._gone, self._kept)
        _restore_old_files(self._manifest)

    def _keep(self, path: str) -> None:
        # Move the file last: after that, a sidecar of that name belongs to another file.
        for old in (description_path(path), sidecar_path(path), path):
            if os.path.exists(old):
                os.rename(old, os.path.join(self._kept, os.path.basename(old)))


def _restore_old_files(manifest: str) -> None:
    """Restore the old files of an incomplete swap.

    If it is interrupted at any point, call it again.
    """
    folder, own = os.path.split(manifest)
    content = load_manifest(manifest)
    note = content.get("options")
    if isinstance(note, dict) and not content.get("complete"):
        for kept in _kept_folders(manifest):
            if os.path.basename(kept) == note.get("kept"):
                new, old = file_names(content.get("files")), file_names(note.get("old"))
                _exchange(folder, kept, own, new, old)
                if not os.path.exists(os.path.join(kept, own)):
                    remove(manifest)  # there was no old manifest
                else:
                    os.replace(os.path.join(kept, own), manifest)
    for kept in _kept_folders(manifest):
        # Either no file was moved yet, or all of them are back.
        if set(os.listdir(kept)) <= {own}:
            remove(kept)


def _exchange(folder: str, kept: str, own: str, new: list[str], old: list[str]) -> None:
    """Remove the new files and restore the old ones, except for the manifest.

    An old file that is not in the kept folder was either not moved yet or is already back.
    """
    for name in new:
        if name not in old:
            remove_output(os.path.join(folder, name))
    for name in old:
        if os.path.exists(os.path.join(kept, name)):
            remove_output(os.path.join(folder, name))
            os.rename(os.path.join(kept, name), os.path.join(folder, name))
    for name in os.listdir(kept):
        if name != own:
            os.replace(os.path.join(kept, name), os.path.join(folder, name))


def _kept_folders(manifest: str) -> list[str]:
    folder, name = os.path.split(manifest)
    entries = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    paths = [
        os.path.join(folder, entry) for entry in entries if entry.startswith(f".{name}{_KEPT}")
    ]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
