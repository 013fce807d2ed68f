"""Delete leftovers next to an output: temporary files of dead processes, and old outputs.

recmap deletes only files that it wrote itself. For any other file it raises an error that names
the file. On disk, what a killed process leaves are files with temporary names. In a store, objects
appear when they are complete, so only parts of unfinished uploads are left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from recmap.conversion.plan import stem_of
from recmap.errors import OutputExistsError, PathNotFoundError, StoreError
from recmap.formats.array_sidecar import description_path, is_description, remove_description
from recmap.formats.megatron import remove_tokens, tokens_path
from recmap.formats.registry import FORMATS
from recmap.formats.zarr.attributes import not_ours, refuse_foreign
from recmap.local.local_path import located, refuse_special
from recmap.local.location import Location
from recmap.local.run_lock import RunLock
from recmap.local.temporary import Process, short_name, this_process
from recmap.local.whole_output import appended_outputs
from recmap.tfrecord.sidecar import is_written, remove_sidecar, sidecar_path
from recmap.warn import warn

# What says whether a file has changed: its size and time, or the size and ETag of an object.
State: TypeAlias = "list[int | str]"
# The state of a file that is about to appear in a store, where its ETag is not known before.
BEGUN: State = [0, ""]
# What describes a TFDS folder.
_METADATA = re.compile(r"dataset_info\.json|features\.json|.+\.labels\.txt")


def states_of(paths: Sequence[str]) -> list[State | None]:
    """Return the state of each file of an output, None for those that do not exist."""
    files = list(map(located, paths))
    found = files[0].stats(files) if files else []
    return [None if each is None else [each.size, each.version] for each in found]


def state_of(path: str) -> State:
    """Return the state of a file that has just been written."""
    (state,) = states_of([path])
    if state is None:
        raise PathNotFoundError(f"{path}: no such file, although it has just been written")
    return state


class PreviousOutput:
    """The files that an earlier conversion wrote to the same place.

    ``files`` are their names, each with the state the file had when it was finished. A name comes
    twice if a file was about to be replaced by another. They are in the folder of ``manifest``.
    """

    def __init__(self, manifest: str, files: Iterable[tuple[str, State]]) -> None:
        self._manifest, self._files = manifest, list(files)

    @property
    def paths(self) -> list[str]:
        """The paths of the files, which may no longer exist."""
        return [
            located(self._manifest).sibling(name)
            for name in dict.fromkeys(n for n, _ in self._files)
        ]

    @property
    def states(self) -> list[State]:
        """The states of the files when they were finished."""
        return [state for _, state in self._files]

    @property
    def intact(self) -> bool:
        """Whether all of the files are still there."""
        return all(state in self.states for state in states_of(self.paths))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The files, in the form a manifest lists them."""
        return [{"file": name, "state": state} for name, state in self._files]

    def including(self, paths: Sequence[str]) -> PreviousOutput:
        """Return these files and others that recmap wrote, as they are now."""
        now = zip(map(os.path.basename, paths), states_of(paths), strict=True)
        more = [(name, state) for name, state in now if state is not None]
        more = [each for each in more if each not in self._files]
        return PreviousOutput(self._manifest, [*self._files, *more])

    def about_to_change(self, paths: Sequence[str]) -> PreviousOutput:
        """Return these files, some of which may be in any state from here on, and are ours."""
        more = [(os.path.basename(path.rstrip("/")), BEGUN) for path in paths]
        return PreviousOutput(self._manifest, [*self._files, *more])

    def owns(self, path: str) -> bool:
        """Return whether the file at a path is still the one that recmap wrote, or part of it."""
        if self._begun(path):
            return True
        target = located(path).anew()
        (state,) = states_of([target])
        if state is None or target.is_link():
            return False
        if target.is_tree():
            return state in self.states if known_by_state(target) else not not_ours(target)
        # The name does not count: the file may have been renamed since.
        return state in self.states or is_written(target)

    def refuse_foreign_output(self, path: str, format: str) -> None:
        """Raise if there is something at an output path that recmap must not overwrite."""
        if self._begun(path):
            return
        target, folder = located(path).anew(), FORMATS[format].folder
        if folder and known_by_state(target):
            (state,) = states_of([path])
            if state is not None and state not in self.states:
                raise OutputExistsError(
                    f"{path} is not replaced: recmap did not write it, or it has changed since. "
                    "Delete it, or write elsewhere"
                )
            return
        if target.is_folder() and not known_by_state(target):
            if not folder:
                raise OutputExistsError(f"{path} is a folder; give another name for the file")
            refuse_foreign(path)
        refuse_special(path)
        description = description_path(target)
        there = description.exists() or description.is_link()
        if there and not is_description(description):
            raise OutputExistsError(
                f"{description} would be replaced, but is not a description that recmap wrote; "
                "move it away, or write elsewhere"
            )

    def _begun(self, path: str) -> bool:
        """Return whether a killed conversion was about to write an object."""
        return (os.path.basename(path.rstrip("/")), BEGUN) in self._files

    def refuse_foreign(self, paths: Sequence[str]) -> None:
        """Raise unless recmap wrote all of these files, which would have to be deleted."""
        for path in paths:
            if not self.owns(path):
                raise OutputExistsError(
                    f"{path} would be read together with the new files, but is not deleted: recmap "
                    "did not write it, or it has changed since. Remove it, or write elsewhere"
                )


def known_by_state(path: str) -> bool:
    """Return whether only a manifest can tell that recmap wrote a folder, by its state.

    On disk, what is in it shows that, but to look through one in a store takes long.
    """
    return located(path).remote


def remove_output(path: str) -> None:
    """Remove a file or a Zarr store that recmap wrote, with its sidecar and description."""
    target = located(path).anew()
    if target.is_tree():
        if known_by_state(target) or not not_ours(target):
            target.remove_tree()
    else:
        # The file last: while it is there, the next run finds what belongs to it.
        remove_tokens(target)
        remove_description(target)
        remove_sidecar(target)
        target.remove()


def clear_temporary(paths: Sequence[str], owner: Process | None = None) -> None:
    """Remove what killed writers of these outputs left; raise if a running process owns it.

    ``owner`` is the process to remove it for; by default, this one.
    """
    clear_uploads(paths)
    check_free(paths, owner)


def check_free(paths: Sequence[str], owner: Process | None = None) -> None:
    """Raise if a running process writes these files; remove temporary files that others left.

    In a store, there are none: whoever writes holds the lock.
    """
    folders: dict[str, list[Location]] = {}
    for path in map(located, paths):
        folders.setdefault(path.folder, []).append(path)
    for files in folders.values():
        names = [name for file in files for name in (file.name, description_path(file).name)]
        names += [tokens_path(name) for name in names if name.endswith(".idx")]
        wanted = set(map(short_name, names))
        files[0].clear_temporary(wanted, owner or this_process())
        # Others may write such files at the same time: shards of another number or format,
        # metadata.
        stems = set(map(stem_of, wanted))
        files[0].remove_leftovers(
            lambda name: _output_stem(name) in stems or _METADATA.fullmatch(name),  # noqa: B023
        )


def _output_stem(name: str) -> str:
    """Return the stem of a shard, or of the shards that a manifest of an append is about."""
    return stem_of((appended_outputs([name]) or [name])[0])


def clear_uploads(paths: Sequence[str], lock: RunLock | None = None) -> None:
    """Abort unfinished uploads of these outputs; with ``lock``, only what is older than that."""
    if not paths:
        return
    files = list(map(located, paths))
    since = lock.since if lock is not None else None
    try:
        files[0].abort_uploads([*files, *map(sidecar_path, files)], since)
    except StoreError as e:
        warn(
            f"unfinished uploads of an earlier run may remain: {e}. A lifecycle rule of the bucket "
            "can delete them"
        )
