"""Stage what tasks write, on storage that all nodes share or in a store, and publish it.

Each task writes a file with a unique name into a hidden folder. When all tasks are done, the
files get their final names. A file left by an attempt that was retried is never published.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import BEGUN, PreviousOutput, remove_output, state_of, states_of
from recmap.conversion.manifest import (
    Manifest,
    existing_files,
    file_names,
    load_manifest,
    manifest_path,
    previous_output,
)
from recmap.conversion.plan import Shard, Sharding, is_output_folder, plan_shards, stem_of
from recmap.errors import (
    ColumnError,
    Message,
    Option,
    OptionError,
    OutputError,
    OutputExistsError,
    StoreError,
)
from recmap.formats.array_sidecar import description_path, remove_description
from recmap.formats.registry import FORMATS
from recmap.local.atomic_write import sync
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.run_lock import RunLock
from recmap.local.temporary import remove, temporary_path
from recmap.machine.threads import Threads
from recmap.model.schema import Schema
from recmap.tfrecord.sidecar import remove_sidecar, sidecar_path
from recmap.warn import warn

_KEPT = ".before-"
# Objects to copy at a time.
_REQUESTS = 16


def staged_output(dst: str, format: str, *, overwrite: bool, durable: bool) -> StagedOutput:
    """Return what tasks write to, for an output on disk or in a store."""
    if not located(dst).remote:
        return LocalOutput(dst, format, overwrite, durable)
    lock = located(manifest_path(dst)).lock()
    return StoreOutput(dst, format, overwrite, durable, lock)


@dataclass(frozen=True)
class StagedShard:
    """A file written by a task, with its rows and schema."""

    task: int
    path: str
    rows: int
    schema: Schema


@dataclass(frozen=True)
class StagedOutput(ABC):
    """Where to write the rows, and in which format."""

    dst: str
    format: str
    overwrite: bool
    durable: bool

    @abstractmethod
    def staged(self) -> AbstractContextManager[str]:
        """Yield a hidden folder for the files of the tasks. It is removed on exit."""

    @abstractmethod
    def check_stage(self, stage: str) -> None:
        """Raise if a task must not write into the hidden folder. Runs in the task."""

    @abstractmethod
    def _replace(self, staged: Sequence[StagedShard], shards: Sequence[Shard], stage: str) -> None:
        """Make the files of tasks the shards, in the same order, and finish the manifest."""

    def publish(self, staged: Sequence[StagedShard], stage: str) -> list[str]:
        """Give all files their final names, in task order. Return the names."""
        ordered = sorted(staged, key=lambda file: file.task)
        shards = self._final_shards(ordered)
        self._replace(ordered, shards, stage)
        return [shard.path for shard in shards]

    def _complete(self, manifest: Manifest) -> None:
        """Mark the output complete, and remove old files that it did not replace."""
        sizes = [located(shard.path).size_below() for shard in manifest.shards]
        results: dict[str, Any] = {"rows": manifest.shards[-1].stop, "bytes": sizes, "options": {}}
        manifest.finish(results)

    def refuse_existing(self) -> None:
        """Raise if a file exists that must not be overwritten."""
        kind = FORMATS[self.format].sink_kind()
        if kind.complete is not None:
            raise OptionError(
                f"{self.dst}: Ray Data cannot write {self.format} datasets, where some files "
                "describe all the others; write Parquet, and convert that"
            )
        if kind.beside:
            raise OptionError(
                f"{self.dst}: Ray Data cannot write {self.format} files, which come in pairs; "
                "write another format, and convert that"
            )
        existing = self._existing()
        if existing and not self.overwrite:
            raise OutputExistsError(
                Message(
                    f"{existing[0]} already exists",
                    hint=("use ", Option("overwrite", True), " to replace it"),
                )
            )
        # Check before any work, although it is not known yet which of them will be replaced.
        self._previous.refuse_foreign([path for path in existing if path != self._single_path])

    def _final_shards(self, ordered: Sequence[StagedShard]) -> list[Shard]:
        """Plan the final files; raise if they would replace what they must not."""
        first = ordered[0]
        for file in ordered[1:]:
            if list(file.schema.items()) != list(first.schema.items()):
                raise ColumnError(Message(f"{self.dst}: ", _difference(file, first)))
        # Another conversion may have written here in the meantime.
        self.refuse_existing()
        count = len(ordered)
        planned = plan_shards(self.dst, self.format, count, 1, Sharding(files=count))
        ends = accumulate(file.rows for file in ordered)
        shards = [
            replace(shard, start=end - file.rows, stop=end)
            for shard, file, end in zip(planned, ordered, ends, strict=True)
        ]
        names = {shard.path for shard in shards}
        self._previous.refuse_foreign([path for path in self._existing() if path not in names])
        for name in names:
            self._previous.refuse_foreign_output(name, self.format)
        return shards

    def _manifest(
        self, shards: Sequence[Shard], schema: Schema, options: Mapping[str, Any]
    ) -> Manifest:
        return Manifest(self._manifest_path, shards, schema, self.format, [], options)

    @property
    def _previous(self) -> PreviousOutput:
        return previous_output(self._manifest_path, load_manifest(self._manifest_path))

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
        name = os.path.basename(self._single_path)
        suffixes = [s for format in FORMATS.values() for s in format.suffixes]
        suffix = max((s for s in suffixes if name.lower().endswith(s)), key=len, default="")
        ends: Sequence[str] = [name[len(name) - len(suffix) :]]
        if is_output_folder(self.dst):
            ends = FORMATS[self.format].suffixes
        stem = re.escape(name[: len(name) - len(suffix)])
        wanted = re.compile(rf"{stem}(-\d{{5,}}-of-\d{{5,}})?({'|'.join(map(re.escape, ends))})")
        single = located(self._single_path)
        found = sorted(single.folder.children())
        paths: list[str] = [single.sibling(entry) for entry in found if wanted.fullmatch(entry)]
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


class LocalOutput(StagedOutput):
    """Files in a folder. Either all of them get their final names, or none."""

    @contextmanager
    def staged(self) -> Iterator[str]:
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

    def check_stage(self, stage: str) -> None:
        if not os.path.isdir(stage):
            raise OutputError(
                f"{stage} does not exist on {socket.gethostname()}: write to storage that "
                "all nodes of the cluster share"
            )

    def _replace(self, staged: Sequence[StagedShard], shards: Sequence[Shard], stage: str) -> None:
        swap = _Swap(self._manifest_path, self._existing())
        manifest = self._manifest(shards, staged[0].schema, swap.note)
        try:
            swap.begin()
            manifest.begin(resume=False, overwrite=self.overwrite)
            for file, shard in zip(staged, shards, strict=True):
                swap.put(file.path, shard.path)
            swap.keep_others([shard.path for shard in shards])
            if self.durable:
                sync(os.path.dirname(shards[0].path))
            swap.commit(stage)
            self._complete(manifest)
        except BaseException:
            swap.undo()
            raise


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
        if "kept" in note and not os.path.exists(os.path.join(folder, str(note["kept"]))):
            _complete(manifest, content)
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


def _complete(manifest: str, content: Mapping[str, Any]) -> None:
    """Mark a swap as complete that was killed after all new files had their names."""
    files = existing_files(manifest, content.get("files"))
    sizes = [located(file).size_below() for file in files]
    results = {"states": states_of(files), "bytes": sizes, "options": {}}
    text = json.dumps({**content, **results, "complete": True}, indent=1)
    located(manifest).write_whole(text.encode())


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


@dataclass(frozen=True)
class StoreOutput(StagedOutput):
    """Objects in a store. Tasks see from the ``lock`` whether they are still wanted.

    A store cannot rename. Objects with final names would be read before all of them are there, and
    those of an attempt that was retried for ever. So they are written with hidden names, and the
    store copies them, which takes no time of this machine.
    """

    lock: RunLock

    @contextmanager
    def staged(self) -> Iterator[str]:
        manifest = self._manifest([], Schema({}), {})
        manifest.lock = self.lock
        with manifest.running():
            for old in self._old_stages():
                _remove_folder(old)
            self.refuse_existing()
            stage = self._hidden.sibling(f"{self._hidden.name}{uuid4().hex[:12]}")
            try:
                yield stage
            finally:
                _remove_folder(stage)

    @property
    def _hidden(self) -> Location:
        """The beginning of the path of the hidden folder."""
        manifest = located(self._manifest_path)
        return manifest.sibling(f".{manifest.name}.stage-")

    def _old_stages(self) -> list[Location]:
        """Return the hidden folders that killed processes left."""
        name = self._hidden.name
        names = self._hidden.folder.folders()
        wanted = re.compile(rf"{re.escape(name)}[0-9a-f]{{12}}")
        return [self._hidden.sibling(each) for each in names if wanted.fullmatch(each)]

    def check_stage(self, stage: str) -> None:
        if not self.lock.exists:
            raise OutputError(
                f"{stage}: this write was stopped, or this node does not see the same store as "
                "the driver; give the options of the store, with its endpoint, as storage={...}"
            )

    def _replace(self, staged: Sequence[StagedShard], shards: Sequence[Shard], stage: str) -> None:
        """Let the store copy the objects to their final keys.

        If that fails, the new objects are deleted. Those that have replaced old ones stay.
        """
        del stage
        names = {shard.path for shard in shards}
        old = self._existing()
        manifest = self._manifest(shards, staged[0].schema, {})
        try:
            manifest.begin(resume=False, overwrite=self.overwrite)
            self._copy_all(staged, shards, manifest)
            if self.lock.lost:
                raise self.lock.taken_over(self.dst)
            for path in old:
                if path not in names:
                    remove_output(path)
            self._complete(manifest)
        except BaseException as e:
            if manifest.begun and not self.lock.lost:
                self._undo(manifest, old)
            if manifest.begun and old and isinstance(e, StoreError):
                raise OutputError(
                    f"{self.dst}: the store failed while old objects were replaced, so some may be "
                    f"old and some new; write again with overwrite=True ({e})"
                ) from e
            raise

    def _undo(self, manifest: Manifest, old: Sequence[str]) -> None:
        for shard in manifest.shards:
            if shard.path not in old:
                remove_output(shard.path)
        if not old:
            manifest.discard()

    def _copy_all(
        self, staged: Sequence[StagedShard], shards: Sequence[Shard], manifest: Manifest
    ) -> None:
        def copy(file: StagedShard, shard: Shard) -> None:
            manifest.finished.add(shard.number, BEGUN)
            _copy_output(located(file.path).anew(), located(shard.path), self.format)
            manifest.finished.add(shard.number, state_of(shard.path))

        with Threads(_REQUESTS, "recmap-copy") as pool:
            futures = [pool.submit(copy, *each) for each in zip(staged, shards, strict=True)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise


def _copy_output(src: Location, dst: Location, format: str) -> None:
    """Copy an object, and then what describes it, which must not be older."""
    if not FORMATS[format].folder:
        remove_description(dst)
        remove_sidecar(dst)
    src.copy(dst)
    for companion in () if FORMATS[format].folder else (description_path, sidecar_path):
        old = located(companion(src))
        if old.exists():
            old.copy(located(companion(dst)))


def _remove_folder(folder: Location) -> None:
    """Delete the objects in a folder, and abort uploads to there."""
    try:
        folder.abort_uploads([folder])
        folder.remove_tree()
    except StoreError as e:
        warn(
            f"hidden objects of an unfinished write may remain: {e}. The next write to the same "
            "place deletes them",
        )
