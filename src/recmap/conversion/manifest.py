"""The manifest of a conversion, ``_manifest.json``: its plan and its progress.

It is written before the first shard and again after the last one. In between, lists next to it
record the number, size and time of each finished shard, or its size and ETag in a store. The same
conversion resumes from these lists, and no other file is mistaken for a finished shard. A manifest
may come from anywhere, so its contents are not trusted.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import (
    BEGUN,
    PreviousOutput,
    State,
    check_free,
    clear_uploads,
    known_by_state,
    remove_output,
    states_of,
)
from recmap.conversion.plan import Inputs, Shard, is_output_folder, stem_of, uncompressed_name
from recmap.errors import (
    Message,
    Option,
    OptionError,
    OutputExistsError,
    StoreError,
)
from recmap.formats.array_sidecar import description_path
from recmap.formats.registry import FORMATS
from recmap.local.atomic_write import writing
from recmap.local.local_path import located
from recmap.local.location import Version
from recmap.local.run_lock import RunLock
from recmap.local.temporary import short_name
from recmap.local.whole_output import FOLDER_MANIFEST, appended_manifest, appended_outputs
from recmap.model.description import Description
from recmap.model.schema import Schema
from recmap.tfrecord.sidecar import sidecar_path

_MAX_SIZE = 256 << 20
# Lines of a list. In a store, a list is written again with each new line.
_MOST_LINES = 500
_NUMBER = re.compile(r"-\d{5,}-of-\d{5,}")
_LIST = re.compile(r"-[0-9a-f]{12}")
_RUNNING: set[str] = set()
_RUNNING_LOCK = threading.Lock()


def manifest_path(dst: str) -> str:
    """Return the path of the manifest of an output.

    >>> manifest_path("out/"), manifest_path("out/x.npy")
    ('out/_manifest.json', 'out/.x.npy.manifest.json')
    """
    if is_output_folder(dst):
        return located(dst).child(FOLDER_MANIFEST)
    return located(dst).sibling(f".{short_name(os.path.basename(dst))}.manifest.json")


def load_manifest(path: str) -> dict[str, Any]:
    """Return the contents of a manifest, or ``{}`` if it is missing or damaged."""
    found = located(path).read_whole(_MAX_SIZE)
    return _parse(None if found is None else found[0])


def _parse(data: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(data.decode()) if data is not None else {}
    except (ValueError, RecursionError):
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
    paths = [located(path).sibling(name) for entries in lists for name in file_names(entries)]
    states = states_of(paths)
    return [path for path, state in zip(paths, states, strict=True) if state is not None]


class FinishedShards:
    """The number and state of each finished shard, in lists next to the manifest.

    Each process appends to its own list, because on storage shared by several machines, two
    processes cannot append to the same file.
    """

    def __init__(self, manifest: str) -> None:
        self._manifest = manifest
        self._prefix = f".{os.path.basename(manifest)}.done"
        self._own = located(manifest)
        self._lines: list[bytes] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FinishedShards, (self._manifest,)

    def add(self, number: int, state: State) -> None:
        """Record a shard: the state that it has, or will have, or that it is about to appear.

        A rename preserves the state of a temporary file.
        """
        entry = [number, *state]
        with self._lock:
            if len(self._lines) % _MOST_LINES == 0:
                self._own = located(self._manifest).sibling(f"{self._prefix}-{uuid4().hex[:12]}")
                self._lines = []
            line = json.dumps(entry).encode() + b"\n"
            self._own.append(line, b"".join(self._lines))
            self._lines.append(line)

    def entries(self, known: Mapping[str, Any]) -> list[list[int | str]]:
        """Return ``[number, *state]`` of each finished shard; skip damaged lines.

        If the conversion is complete, ``known``, the content of its manifest, has them.
        """
        states = known.get("states")
        if known.get("complete") and isinstance(states, list):
            return _valid_entries(
                [number, *state] for number, state in enumerate(states) if isinstance(state, list)
            )
        read = [located(path).read_whole(_MAX_SIZE) for path in self._lists()]
        lines = [line for found in read if found is not None for line in found[0].splitlines()]
        return _valid_entries(map(_parse_line, lines))

    def clear(self) -> None:
        """Remove the lists of all processes."""
        for path in self._lists():
            located(path).remove()

    def _lists(self) -> list[str]:
        prefix = self._prefix
        return [
            located(self._manifest).sibling(name)
            for name in located(self._manifest).folder.children()
            if name.startswith(prefix) and _LIST.fullmatch(name, len(prefix))
        ]


def appended_to(path: str) -> list[str]:
    """Return the outputs that were appended to the folder of this manifest, finished or not."""
    if os.path.basename(path) != FOLDER_MANIFEST:
        return []
    names = appended_outputs(located(path).folder.children())
    return [located(path).sibling(name) for name in names]


def previous_output(path: str, known: Mapping[str, Any]) -> PreviousOutput:
    """Return the files that recmap wrote before, given a manifest and its content."""
    found = _states(path, known)
    for output in appended_to(path):
        manifest = manifest_path(output)
        found += _states(manifest, load_manifest(manifest))
    return PreviousOutput(path, found)


def _states(path: str, known: Mapping[str, Any]) -> list[tuple[str, State]]:
    """Return the names and states of the files that are recmap's according to a manifest."""
    found = _replaced_states(known)
    files = known.get("files")
    for entry in FinishedShards(path).entries(known):
        number, state = int(entry[0]), entry[1:]
        if isinstance(files, list) and number < len(files):
            found += [(name, state) for name in file_names([files[number]])]
    return found


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
        lock: RunLock | None = None,
    ) -> None:
        """With ``lock``, the caller holds that, and no other is needed."""
        self.path = path
        self.shards = list(shards)
        self.finished = FinishedShards(path)
        located(path).refuse_unwritable()
        self.lock = lock or located(path).lock()
        self._holder = nullcontext if lock else self._locked
        # The version of the manifest that was read or saved last.
        self._seen: Version | None = None
        self.inputs = Inputs.of(source, len(shards))
        self._source = {located(file).real_path() for file in source}
        plan = {
            "recmap": 1,
            "format": format,
            "schema": Description(schema).texts,
            "files": [
                {
                    "file": os.path.basename(shard.path.rstrip(os.sep)),
                    "start": shard.start,
                    "stop": shard.stop,
                }
                for shard in shards
            ],
            "source": list(self.inputs.states),
            "options": dict(options),
        }
        # Convert to JSON and back, so that it compares equal to a plan that was loaded.
        self._plan = json.loads(json.dumps(plan, default=repr))
        self._previous = PreviousOutput(path, [])
        # The manifest of a complete output that this conversion replaces, and the files that were
        # there before.
        self._older: str | None = None
        self._before: list[State | None] = [None for _ in self.shards]
        self._begun = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the run lock, so that no other thread or process writes to the same output."""
        key = located(self.path).real_path()
        written = [self.path, *(shard.path for shard in self.shards)]
        with _RUNNING_LOCK:
            if key in _RUNNING:
                raise OutputExistsError(f"{self.path}: another thread is writing there")
            with writing(self.path):
                check_free(written)
            _RUNNING.add(key)
        try:
            with self._holder():
                clear_uploads(written, self.lock)
                yield
        finally:
            with _RUNNING_LOCK:
                _RUNNING.discard(key)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.lock.acquire()
        try:
            yield
        finally:
            self.lock.release()

    def is_of(self, known: Mapping[str, Any]) -> bool:
        """Return whether a manifest with this content is of the same rows, in whatever files."""
        return all(known.get(key) == self._plan[key] for key in self._plan if key != "files")

    @property
    def begun(self) -> bool:
        """Whether the file on disk has this plan, not that of another conversion."""
        return self._begun and not self.lock.lost

    def begin(self, resume: bool, overwrite: bool, *, append: bool = False) -> list[Shard]:
        """Start or resume the conversion, and return the shards that remain to be written.

        Existing files stay until they are replaced. With ``append``, those of another append that
        was not finished are replaced: nobody has read them.
        """
        content = self._own_content()
        known = _parse(content)
        overwrite |= append and bool(known) and not known.get("complete")
        if content is None:
            self.finished.clear()  # left by a run that was killed while it cleaned up
        same = {key: known.get(key) for key in self._plan} == self._plan
        if same and resume and not (known.get("complete") and overwrite):
            left = self._unfinished(known)
            # Those that this conversion was about to write may exist.
            begun = {number for number, *state in self.finished.entries(known) if state == BEGUN}
            others = [shard for shard in left if shard.number not in begun]
            states = states_of([shard.path for shard in others])
            if overwrite or not any(states):
                self._previous = PreviousOutput(self.path, _replaced_states(known))
                for shard in others:
                    self._previous.refuse_foreign_output(shard.path, self._plan["format"])
                self._begun = True
                return left
        self._replace(known, overwrite)
        return list(self.shards)

    def _replace(self, known: Mapping[str, Any], overwrite: bool) -> None:
        """Replace the plan on disk with this one; raise if that could delete foreign files."""
        planned = [shard.path for shard in self.shards]
        stems = {stem_of(path) for path in planned}
        named = existing_files(self.path, known.get("files"), known.get("replaces"))
        named += self._numbered_otherwise()
        appended = [load_manifest(manifest_path(output)) for output in appended_to(self.path)]
        for each in appended:
            named += existing_files(self.path, each.get("files"), each.get("replaces"))
        # A manifest can name any file, so consider only those that look like our shards.
        older = [p for p in dict.fromkeys(named) if p not in planned and stem_of(p) in stems]
        second = FORMATS[self._plan["format"]].sink_kind().beside
        beside = [second(path) for path in planned] if second else []
        for path in planned + older + beside:
            if located(path).real_path() in self._source:
                raise OptionError(f"{path} would be overwritten while it is read")
        states = states_of(planned)
        existing = [p for p, state in zip(planned, states, strict=True) if state] + older
        existing += [path for path in beside if located(path).anew().exists()]
        if existing and not overwrite:
            # A single finished file leaves no manifest to compare with.
            other = ", made by another conversion or from other files" if known else ""
            raise OutputExistsError(
                Message(
                    f"{existing[0]} already exists{other}",
                    hint=("use ", Option("overwrite", True), " to replace it"),
                )
            )
        self._previous = previous_output(self.path, known)
        for path in planned:
            self._previous.refuse_foreign_output(path, self._plan["format"])
        self._previous.refuse_foreign(older)
        self._previous = self._previous.including(older)
        for older_plan in (known, *appended):
            self._remove_lone_indexes(older_plan, stems)
        self._forget_finished(known)
        self._older = json.dumps(known, indent=1) if known.get("complete") else None
        self._before = states
        self._begun = True
        self._save(complete=False)

    def _numbered_otherwise(self) -> list[str]:
        """Return the files that would be read together with the shards.

        They have another number of shards in their names, or are compressed otherwise.
        """
        in_folder = os.path.basename(self.path) == FOLDER_MANIFEST
        if len(self.shards) == 1 and not in_folder:
            return []
        planned = {os.path.basename(shard.path.rstrip("/")) for shard in self.shards}
        alike = {_NUMBER.sub("", uncompressed_name(name)) for name in planned}
        names = [name for name in located(self.path).folder.children() if name not in planned]
        found = [name for name in names if _NUMBER.sub("", uncompressed_name(name)) in alike]
        # A store may list a folder for a moment after all objects in it were deleted.
        return existing_files(self.path, [n for n in found if in_folder or _NUMBER.search(n)])

    def _forget_finished(self, known: Mapping[str, Any]) -> None:
        """Remove the lists of an older plan, after what they tell was noted elsewhere."""
        if known and self.finished.entries({}):  # those in the lists
            noted = {**known, "complete": False, "replaces": self._previous.entries}
            self._write(json.dumps(noted, indent=1))
        self.finished.clear()

    def _remove_lone_indexes(self, known: Mapping[str, Any], stems: set[str]) -> None:
        """Remove what belongs to shards of an unfinished conversion that never got their names."""
        names = set(located(self.path).folder.children())
        for path in (located(self.path).sibling(name) for name in file_names(known.get("files"))):
            beside_it = {
                os.path.basename(sidecar_path(path)),
                os.path.basename(description_path(path)),
            }
            lone = os.path.basename(path) not in names and not names.isdisjoint(beside_it)
            if lone and stem_of(path) in stems:
                remove_output(path)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Mark the conversion complete, and remove old files that it did not replace."""
        planned = {shard.path for shard in self.shards}
        stems = {stem_of(path) for path in planned}
        named = [p for p in self._previous.paths if p not in planned and stem_of(p) in stems]
        old = list(filter(self._previous.owns, named))
        if old and known_by_state(self.path):
            # Half of a Zarr store would not be known as ours.
            self._previous = self._previous.about_to_change(old)
            self._save(complete=False)
        for path in old:
            remove_output(path)
        for output in appended_to(self.path):
            if stem_of(output) in stems:
                located(manifest_path(output)).remove()
                FinishedShards(manifest_path(output)).clear()
        if self._worth_keeping:
            states = states_of([shard.path for shard in self.shards])
            self._save(complete=True, states=states, **results)
        else:
            self.discard()
        self.finished.clear()

    def give_up(self) -> None:
        """Undo ``begin``, if no shard was finished: files that are still there keep their manifest.

        Without it, nobody would know that they are recmap's, to replace or to resume.
        """
        now = states_of([shard.path for shard in self.shards])
        if any(each not in (None, before) for each, before in zip(now, self._before, strict=True)):
            return  # half of a shard may be in a store, which only the lists tell to be ours
        if self._older is not None and self._previous.intact:
            self._write(self._older)
            self.finished.clear()
        elif not self._previous.paths:
            self.discard()

    def discard(self) -> None:
        """Remove the manifest and the lists of finished shards."""
        located(self.path).remove()
        self.finished.clear()

    @property
    def _worth_keeping(self) -> bool:
        """Whether to keep the manifest after the conversion: a single file needs none.

        A folder of objects does: nothing else shows that recmap wrote it. So does a single shard
        that could belong to another number of shards.
        """
        single = len(self.shards) == 1 and os.path.basename(self.path) != FOLDER_MANIFEST
        format = FORMATS[self._plan["format"]]
        folder = format.folder and known_by_state(self.path)
        appended = appended_manifest(os.path.basename(self.shards[0].path)) is not None
        return not single or folder or appended or format.sink_kind().names is not None

    @property
    def done(self) -> int:
        """The number of finished shards."""
        return len(self.shards) - len(self._unfinished(load_manifest(self.path)))

    def _unfinished(self, known: Mapping[str, Any]) -> list[Shard]:
        # Two attempts at one shard leave two entries, and the file may match either.
        finished = {tuple(entry) for entry in self.finished.entries(known)}
        states = states_of([shard.path for shard in self.shards])
        return [
            shard
            for shard, state in zip(self.shards, states, strict=True)
            if state is None or (shard.number, *state) not in finished
        ]

    def _save(self, complete: bool, **results: Any) -> None:
        replaces = {} if complete else {"replaces": self._previous.entries}
        content = {**self._plan, **replaces, "complete": complete, **results}
        self._write(json.dumps(content, indent=1))

    def _write(self, text: str) -> None:
        """Save the manifest; raise if another conversion has written it in the meantime."""
        made = located(self.path).write_if(text.encode(), self._seen)
        if made is None:
            raise OutputExistsError(
                f"{self.path}: another conversion has written it in the meantime, and its output "
                "stays; nothing else was replaced"
            )
        self._seen = made

    def _own_content(self) -> bytes | None:
        """Return the manifest, and raise if recmap did not write what has its name."""
        try:
            content, self._seen = located(self.path).read_whole(_MAX_SIZE) or (None, None)
        except StoreError:
            raise
        except OSError as e:
            raise OutputExistsError(
                f"{self.path} cannot be read: {e.strerror}; write elsewhere"
            ) from e
        if content and re.match(rb'\{\s*"recmap"\s*:', content[:32]) is None:
            raise OutputExistsError(
                f"{self.path} is not a manifest that recmap wrote, and would be replaced; move it "
                "away, or write elsewhere"
            )
        return content


def _replaced_states(known: Mapping[str, Any]) -> list[tuple[str, State]]:
    """Return the names and states of the files that an unfinished conversion replaces."""
    entries = known.get("replaces")
    found: list[tuple[str, State]] = []
    for entry in entries if isinstance(entries, list) else []:
        state = entry.get("state") if isinstance(entry, dict) else None
        if isinstance(state, list):
            found += [(name, state) for name in file_names([entry])]
    return found


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None  # cut off while it was written, or not ours


def _valid_entries(entries: Iterable[Any]) -> list[list[int | str]]:
    return [
        entry
        for entry in entries
        if isinstance(entry, list)
        and len(entry) == 3
        and all(isinstance(number, int) for number in entry[:2])
        and isinstance(entry[2], int | str)
        and entry[0] >= 0
    ]
