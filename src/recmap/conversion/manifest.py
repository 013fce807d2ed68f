"""The manifest of a conversion, ``_manifest.json``: its plan and its progress.

It is written before the first shard and again after the last one. In between, lists next to it
record the number, size and time of each finished shard. The same conversion resumes from these
lists, and no other file is mistaken for a finished shard. A manifest may come from anywhere, so
its contents are not trusted.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import (
    PreviousOutput,
    clear_temporary,
    file_state,
    refuse_foreign_output,
    remove_output,
)
from recmap.conversion.plan import Shard, is_folder, stem_of
from recmap.conversion.run_lock import RunLock
from recmap.errors import Message, Option, OptionError, OutputExistsError
from recmap.files.atomic_write import read_whole, write_whole
from recmap.files.temporary import remove, short_name, temporary_path
from recmap.model.schema import Schema

__all__ = [
    "FinishedShards",
    "Manifest",
    "existing_files",
    "file_names",
    "load_manifest",
    "manifest_path",
]

_MAX_SIZE = 256 << 20
_RUNNING: set[str] = set()
_RUNNING_LOCK = threading.Lock()


def manifest_path(dst: str) -> str:
    """Return the path of the manifest of an output.

    >>> manifest_path("out/"), manifest_path("out/x.npy")
    ('out/_manifest.json', 'out/.x.npy.manifest.json')
    """
    if is_folder(dst):
        return os.path.join(dst, "_manifest.json")
    folder, name = os.path.split(dst)
    return os.path.join(folder, f".{short_name(name)}.manifest.json")


def load_manifest(path: str) -> dict[str, Any]:
    """Return the contents of a manifest, or ``{}`` if it is missing or damaged."""
    try:
        content = json.loads(read_whole(path, _MAX_SIZE))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def file_names(entries: Any) -> list[str]:
    """Return the files named in a list of a manifest, if they are in the manifest's folder."""
    if not isinstance(entries, list):
        return []
    names = [entry.get("file") if isinstance(entry, dict) else entry for entry in entries]
    plain = [n for n in names if isinstance(n, str) and n not in ("", ".", "..")]
    return [n for n in plain if os.path.basename(n) == n and "\0" not in n]


def existing_files(path: str, *lists: Any) -> list[str]:
    """Return the existing files that are named in lists of the manifest at ``path``."""
    folder = os.path.dirname(path)
    paths = [os.path.join(folder, name) for entries in lists for name in file_names(entries)]
    return [path for path in paths if os.path.exists(path)]


class FinishedShards:
    """The number, size and time of each finished shard, in lists next to the manifest.

    Each process appends to its own list, because on storage shared by several machines, two
    processes cannot append to the same file.
    """

    def __init__(self, manifest: str) -> None:
        self._manifest = manifest
        self._folder, name = os.path.split(manifest)
        self._prefix = f".{name}.done"
        self._own = os.path.join(self._folder, f"{self._prefix}-{uuid4().hex[:12]}")
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FinishedShards, (self._manifest,)

    def add(self, number: int, temporary: str) -> None:
        """Record a shard before it is renamed; renaming preserves its size and time."""
        line = json.dumps([number, *file_state(temporary)])
        with self._lock, open(self._own, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def entries(self) -> list[list[int]]:
        """Return ``[number, size, time]`` of each finished shard; skip damaged lines."""
        lines: list[str] = []
        for path in self._lists():
            with suppress(ValueError):
                lines += read_whole(path, _MAX_SIZE).splitlines()
        return _valid_entries(map(_parse_line, lines))

    def clear(self) -> None:
        """Remove the lists of all processes."""
        for path in self._lists():
            remove(path)

    def _lists(self) -> list[str]:
        if not os.path.isdir(self._folder or "."):
            return []
        pattern = re.compile(rf"{re.escape(self._prefix)}-[0-9a-f]{{12}}")
        names = [name for name in os.listdir(self._folder or ".") if pattern.fullmatch(name)]
        return [os.path.join(self._folder, name) for name in names]


class Manifest:
    """The plan of one conversion, stored next to its output."""

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
        self.finished = FinishedShards(path)
        self.lock = RunLock(temporary_path(path, ".running"))
        self._source = {os.path.realpath(file) for file in source}
        self._folder = os.path.dirname(path)
        plan = {
            "recmap": 1,
            "format": format,
            "schema": {name: str(field) for name, field in schema.items()},
            "files": [
                {
                    "file": os.path.relpath(shard.path, self._folder or "."),
                    "start": shard.start,
                    "stop": shard.stop,
                }
                for shard in shards
            ],
            "source": [_fingerprint(file) for file in source],
            "options": dict(options),
        }
        # Convert to JSON and back, so that it compares equal to a plan that was loaded.
        self._plan = json.loads(json.dumps(plan, default=repr))
        self._previous = PreviousOutput(self._folder, {})
        self._begun = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the run lock, so that no other thread or process writes to the same output."""
        key = os.path.realpath(self.path)
        with _RUNNING_LOCK:
            if key in _RUNNING:
                raise OutputExistsError(f"{self.path}: another thread is writing there")
            clear_temporary([self.path, *(shard.path for shard in self.shards)])
            _RUNNING.add(key)
        try:
            self.lock.acquire()
            yield
        finally:
            self.lock.release()
            with _RUNNING_LOCK:
                _RUNNING.discard(key)

    @property
    def begun(self) -> bool:
        """Whether the file on disk has this plan, not that of another conversion."""
        return self._begun and not self.lock.lost

    def begin(self, resume: bool, overwrite: bool) -> list[Shard]:
        """Start or resume the conversion, and return the shards that remain to be written.

        Existing files stay until they are replaced.
        """
        _refuse_foreign_manifest(self.path)
        known = load_manifest(self.path)
        same = {key: known.get(key) for key in self._plan} == self._plan
        if same and resume and not (known.get("complete") and overwrite):
            left = self._unfinished(known)
            if overwrite or not any(os.path.exists(shard.path) for shard in left):
                for shard in left:
                    refuse_foreign_output(shard.path, self._plan["format"])
                self._previous = PreviousOutput(self._folder, _replaced_states(known))
                self._begun = True
                return left
        self._replace(known, overwrite)
        return list(self.shards)

    def _replace(self, known: Mapping[str, Any], overwrite: bool) -> None:
        """Replace the plan on disk with this one; raise if that could delete foreign files."""
        planned = [shard.path for shard in self.shards]
        stems = {stem_of(path) for path in planned}
        named = existing_files(self.path, known.get("files"), known.get("replaces"))
        # A manifest can name any file, so consider only those that look like our shards.
        older = [p for p in dict.fromkeys(named) if p not in planned and stem_of(p) in stems]
        for path in planned + older:
            if os.path.realpath(path) in self._source:
                raise OptionError(f"{path} would be overwritten while it is read")
        existing = [path for path in planned if os.path.exists(path)] + older
        if existing and not overwrite:
            # A single finished file leaves no manifest to compare with.
            other = ", made by another conversion or from other files" if known else ""
            raise OutputExistsError(
                Message(
                    f"{existing[0]} exists already{other}",
                    hint=("use ", Option("overwrite", True), " to replace it"),
                )
            )
        for path in planned:
            refuse_foreign_output(path, self._plan["format"])
        self._previous = self.previous_output()
        self._previous.refuse_foreign(older)
        self.finished.clear()
        self._begun = True
        self._save(complete=False)

    def previous_output(self) -> PreviousOutput:
        """Return the files that recmap wrote here before."""
        known = load_manifest(self.path)
        states = _replaced_states(known)
        files = known.get("files")
        for number, *state in self._finished_entries(known):
            if isinstance(files, list) and number < len(files):
                states |= dict.fromkeys(file_names([files[number]]), state)
        return PreviousOutput(self._folder, states)

    def finish(self, results: Mapping[str, Any], keep: bool) -> None:
        """Mark the conversion complete, and remove old files that it did not replace."""
        planned = {shard.path for shard in self.shards}
        stems = {stem_of(path) for path in planned}
        for path in self._previous.paths:
            if path not in planned and stem_of(path) in stems and self._previous.owns(path):
                remove_output(path)
        if keep:
            states = [file_state(shard.path) for shard in self.shards]
            self._save(complete=True, states=states, **results)
        else:
            self.discard()
        self.finished.clear()

    def discard(self) -> None:
        """Remove the manifest and the lists of finished shards."""
        remove(self.path)
        self.finished.clear()

    @property
    def worth_keeping(self) -> bool:
        """Whether to keep the manifest after the conversion: a single file needs none."""
        return len(self.shards) > 1 or os.path.basename(self.path) == "_manifest.json"

    @property
    def done(self) -> int:
        """The number of finished shards."""
        return len(self.shards) - len(self._unfinished(load_manifest(self.path)))

    def _unfinished(self, known: Mapping[str, Any]) -> list[Shard]:
        # Two attempts at one shard leave two entries, and the file may match either.
        finished = {tuple(entry) for entry in self._finished_entries(known)}
        return [
            shard
            for number, shard in enumerate(self.shards)
            if not os.path.exists(shard.path) or (number, *file_state(shard.path)) not in finished
        ]

    def _finished_entries(self, known: Mapping[str, Any]) -> list[list[int]]:
        """Return ``[number, size, time]`` of each finished shard."""
        states = known.get("states")
        if known.get("complete") and isinstance(states, list):
            return _valid_entries(
                [number, *state] for number, state in enumerate(states) if isinstance(state, list)
            )
        return self.finished.entries()

    def _save(self, complete: bool, **results: Any) -> None:
        replaces = {} if complete else {"replaces": self._previous.entries}
        content = {**self._plan, **replaces, "complete": complete, **results}
        write_whole(self.path, json.dumps(content, indent=1))


def _refuse_foreign_manifest(path: str) -> None:
    """Raise if the file with the name of the manifest was not written by recmap."""
    try:
        with open(path, "rb") as file:
            head = file.read(32)
    except FileNotFoundError:
        return
    except OSError as e:
        raise OutputExistsError(f"{path} cannot be read: {e.strerror}; write elsewhere") from e
    if head and re.match(rb'\{\s*"recmap"\s*:', head) is None:
        raise OutputExistsError(
            f"{path} is not a manifest that recmap wrote, and would be replaced; move it away, or "
            "write elsewhere"
        )


def _replaced_states(known: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the names and states of the files that an unfinished conversion replaces."""
    entries = known.get("replaces")
    found: dict[str, list[int]] = {}
    for entry in entries if isinstance(entries, list) else []:
        state = entry.get("state") if isinstance(entry, dict) else None
        if isinstance(state, list):
            found |= dict.fromkeys(file_names([entry]), state)
    return found


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None  # cut off while it was written, or not ours


def _valid_entries(entries: Iterable[Any]) -> list[list[int]]:
    return [
        entry
        for entry in entries
        if isinstance(entry, list)
        and len(entry) == 3
        and all(isinstance(number, int) for number in entry)
        and entry[0] >= 0
    ]


def _fingerprint(path: str) -> list[Any]:
    # The modification time of a folder does not change when a file deep inside it does.
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    states = [file_state(file) for file in inside or [path]]
    return [os.path.abspath(path), sum(size for size, _ in states), max(time for _, time in states)]
