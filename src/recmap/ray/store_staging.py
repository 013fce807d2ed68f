"""Stage the objects that tasks write, and copy them to their final keys within the store.

A store cannot rename. Objects with final names would be read before all of them are there, and
those of an attempt that was retried for ever. So they are written with hidden names, and the
store copies them, which takes no time of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import BEGUN, remove_output, state_of
from recmap.conversion.manifest import Manifest
from recmap.conversion.plan import Shard
from recmap.errors import OutputError, StoreError
from recmap.files.array_sidecar import description_path, remove_description
from recmap.files.local_path import located
from recmap.files.location import Location
from recmap.files.run_lock import RunLock
from recmap.files.threads import Threads
from recmap.formats.registry import FORMATS
from recmap.model.schema import Schema
from recmap.ray.staged_output import StagedOutput, StagedShard
from recmap.tfrecord.sidecar import remove_sidecar, sidecar_path
from recmap.warn import warn

# Objects to copy at a time.
_REQUESTS = 16


@dataclass(frozen=True)
class StoreOutput(StagedOutput):
    """Objects in a store. Tasks see from the ``lock`` whether they are still wanted."""

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

    def staged_path(self, stage: str, name: str) -> str:
        return located(stage).child(name)

    def publish(self, staged: Sequence[StagedShard], stage: str) -> list[str]:
        """Let the store copy the objects to their final keys, in task order. Return those.

        If that fails, the new objects are deleted. Those that have replaced old ones stay.
        """
        del stage
        ordered = sorted(staged, key=lambda file: file.task)
        shards = self._final_shards(ordered)
        names = {shard.path for shard in shards}
        old = self._existing()
        manifest = self._manifest(shards, ordered[0].schema, {})
        try:
            manifest.begin(resume=False, overwrite=self.overwrite)
            self._copy_all(ordered, shards, manifest)
            if self.lock.lost:
                raise self.lock.taken_over(self.dst)
            for path in old:
                if path not in names:
                    remove_output(path)
            sizes = [located(shard.path).size_below() for shard in shards]
            results: dict[str, Any] = {"rows": shards[-1].stop, "bytes": sizes, "options": {}}
            manifest.finish(results, manifest.worth_keeping)
        except BaseException as e:
            if manifest.begun and not self.lock.lost:
                self._undo(manifest, old)
            if manifest.begun and old and isinstance(e, StoreError):
                raise OutputError(
                    f"{self.dst}: the store failed while old objects were replaced, so some may be "
                    f"old and some new; write again with overwrite=True ({e})"
                ) from e
            raise
        return [shard.path for shard in shards]

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
