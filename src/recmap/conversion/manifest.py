"""What a conversion is to make, and how far it came: ``_manifest.json``.

It is written before the first file and again after the last. Meanwhile lists beside
it say which files are finished, with their size and time, so that the same conversion
goes on with the others, and no other file is taken for one of them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from recmap.conversion.cleanup import clear_temporary, refuse_foreign_output, remove_output
from recmap.conversion.finished_shards import Notes, state_of
from recmap.conversion.manifest_file import (
    existing_files,
    load_manifest,
    refuse_foreign_manifest,
)
from recmap.conversion.plan import Shard, stem_of
from recmap.conversion.previous_output import Before
from recmap.conversion.run_lock import Mark
from recmap.errors import OptionError, OutputExistsError
from recmap.files.atomic_write import write_whole
from recmap.files.temporary import remove, temporary_path
from recmap.model.schema import Schema

__all__ = ["Manifest"]

_RUNNING: set[str] = set()
_RUNNING_LOCK = threading.Lock()


class Manifest:
    """The plan of one conversion, on disk beside its output."""

    def __init__(
        self,
        path: str,
        shards: Sequence[Shard],
        schema: Schema,
        format: str,
        source: Sequence[str],
        options: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.shards = list(shards)
        self._source = {os.path.realpath(file) for file in source}
        #: Which files are finished.
        self.notes = Notes(path)
        folder = os.path.dirname(path)
        plan = {
            "recmap": 1,
            "format": format,
            "schema": {name: str(field) for name, field in schema.items()},
            "files": [
                {"file": os.path.relpath(s.path, folder or "."), "start": s.start, "stop": s.stop}
                for s in shards
            ],
            "source": [_fingerprint(file) for file in source],
            "options": dict(options),
        }
        # As it will be read again.
        self._plan = json.loads(json.dumps(plan, default=repr))
        self._before = Before(path, {}, ())
        #: There while this conversion runs.
        self.mark = Mark(temporary_path(path, mark=".running"))
        self._begun = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keeps others, here and in other processes, from writing to the same place. The
        mark is there meanwhile.
        """
        key = os.path.realpath(self.path)
        with _RUNNING_LOCK:
            if key in _RUNNING:
                raise OutputExistsError(f"{self.path}: another thread is writing there")
            clear_temporary([self.path, *(shard.path for shard in self.shards)])
            _RUNNING.add(key)
        try:
            self.mark.hold()
            yield
        finally:
            self.mark.release()
            with _RUNNING_LOCK:
                _RUNNING.discard(key)

    @property
    def begun(self) -> bool:
        """Whether what lies at the path is this plan, and not that of others."""
        return self._begun and not self.mark.lost

    def begin(self, resume: bool, overwrite: bool) -> list[Shard]:
        """The files that are still to be written. What is there already stays until it
        is replaced.
        """
        refuse_foreign_manifest(self.path)
        known = load_manifest(self.path)
        same = {key: known.get(key) for key in self._plan} == self._plan
        finished = self._finished(known) if same and resume else set()
        if same and resume and not (known.get("complete") and overwrite):
            left = [shard for i, shard in enumerate(self.shards) if i not in finished]
            if overwrite or not any(_exists(shard) for shard in left):
                for shard in left:
                    refuse_foreign_output(shard.path, self._plan["format"])
                self._before = Before(self.path, {"replaces": known.get("replaces")}, ())
                self._begun = True
                return left
        planned = [shard.path for shard in self.shards]
        existing = [path for path in planned if os.path.exists(path)]
        named = existing_files(self.path, known.get("files"), known.get("replaces"))
        own = {stem_of(path) for path in planned}
        # A manifest may come from anywhere, and name what it likes.
        older = [p for p in dict.fromkeys(named) if p not in planned and stem_of(p) in own]
        for path in planned + older:
            if os.path.realpath(path) in self._source:
                raise OptionError(f"{path} would be written over while it is read")
        existing += older
        if existing and not overwrite:
            # A single file that is finished leaves no manifest to compare with.
            other = ", and was not made by this same conversion of the same files" if known else ""
            raise OutputExistsError(
                f"{existing[0]} exists already{other} (use overwrite=True to replace it)"
            )
        for path in planned:
            refuse_foreign_output(path, self._plan["format"])
        self._before = self.written_before()
        self._before.refuse_others(older)
        self.notes.forget()
        self._begun = True
        self._save(complete=False)
        return list(self.shards)

    def written_before(self) -> Before:
        """What recmap wrote to this place before."""
        known = load_manifest(self.path)
        return Before(self.path, known, self._states(known))

    def finish(self, results: Mapping[str, Any], keep: bool) -> None:
        """Notes that all is done, and removes what was there before and is not any more."""
        planned = {shard.path for shard in self.shards}
        own = {stem_of(path) for path in planned}
        for path in self._before.paths:
            if path not in planned and stem_of(path) in own and self._before.has(path):
                remove_output(path)
        if keep:
            states = [state_of(shard.path) for shard in self.shards]
            self._save(complete=True, states=states, **results)
        else:
            self.discard()
        self.notes.forget()

    def discard(self) -> None:
        """Removes the plan of a conversion that left nothing."""
        remove(self.path)
        self.notes.forget()

    @property
    def worth_keeping(self) -> bool:
        """One file needs no list of files."""
        return len(self.shards) > 1 or os.path.basename(self.path) == "_manifest.json"

    @property
    def done(self) -> int:
        """How many files are finished."""
        return len(self._finished(load_manifest(self.path)))

    def _finished(self, known: Mapping[str, Any]) -> set[int]:
        return {
            number
            for number, *state in self._states(known)
            if number < len(self.shards)
            and _exists(self.shards[number])
            and state == state_of(self.shards[number].path)
        }

    def _states(self, known: Mapping[str, Any]) -> list[list[int]]:
        """The number, size and time of each file that was finished."""
        states = known.get("states")
        entries = self.notes.all()
        if known.get("complete") and isinstance(states, list):
            entries = [[i, *state] for i, state in enumerate(states) if isinstance(state, list)]
        return [
            entry
            for entry in entries
            if isinstance(entry, list)
            and len(entry) == 3
            and all(isinstance(number, int) for number in entry)
            and entry[0] >= 0
        ]

    def _save(self, complete: bool, **results: Any) -> None:
        replaces = {} if complete else {"replaces": self._before.entries}
        content = {**self._plan, **replaces, "complete": complete, **results}
        write_whole(self.path, json.dumps(content, indent=1))


def _exists(shard: Shard) -> bool:
    return os.path.exists(shard.path)


def _fingerprint(path: str) -> list[Any]:
    # What changes deep in a folder does not change the folder.
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    states = [state_of(file) for file in inside or [path]]
    return [os.path.abspath(path), sum(size for size, _ in states), max(time for _, time in states)]
