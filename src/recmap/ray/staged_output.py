"""What tasks write, before it is the output; ``staging.py`` has the kinds on disk and in a store.

Each task writes a file with a unique name into a hidden folder. When all tasks are done, the
files get their final names. A file left by an attempt that was retried is never published.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from recmap.conversion.cleanup import PreviousOutput
from recmap.conversion.manifest import (
    Manifest,
    existing_files,
    load_manifest,
    manifest_path,
    previous_output,
)
from recmap.conversion.plan import Shard, Sharding, is_output_folder, plan_shards, stem_of
from recmap.errors import ColumnError, Message, Option, OptionError, OutputExistsError
from recmap.formats.registry import FORMATS
from recmap.local.local_path import located
from recmap.model.schema import Schema


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
        if FORMATS[self.format].sink_kind().beside:
            raise OptionError(
                f"{self.dst}: Ray Data writes no {self.format} files, which come in pairs; write "
                "another format, and convert that"
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
