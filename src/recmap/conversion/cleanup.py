"""Delete leftovers next to an output: temporary files of dead processes, and old outputs.

recmap deletes only files that it wrote itself. For any other file it raises an error that names
the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from recmap.conversion.local_place import LocalPlace
from recmap.conversion.place import BEGUN, Place, State
from recmap.conversion.store_place import StorePlace
from recmap.errors import OutputExistsError
from recmap.files.local_path import located
from recmap.files.object_path import ObjectPath
from recmap.files.temporary import Process

__all__ = [
    "PreviousOutput",
    "clear_temporary",
    "place_of",
    "refuse_foreign_output",
    "remove_output",
]


def place_of(path: str) -> Place:
    """Return the place of an output."""
    return StorePlace(path) if isinstance(path, ObjectPath) else LocalPlace()


class PreviousOutput:
    """The files that an earlier conversion wrote to the same place.

    ``files`` are their names, each with the state the file had when it was finished. A name comes
    twice if a file was about to be replaced by another. They are in the folder of ``manifest``.
    """

    def __init__(self, place: Place, manifest: str, files: Iterable[tuple[str, State]]) -> None:
        self._place, self._manifest, self._files = place, manifest, list(files)

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
        return all(state in self.states for state in self._place.states(self.paths))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The files, in the form a manifest lists them."""
        return [{"file": name, "state": state} for name, state in self._files]

    def including(self, paths: Sequence[str]) -> PreviousOutput:
        """Return these files and others that recmap wrote, as they are now."""
        now = zip(map(os.path.basename, paths), self._place.states(paths), strict=True)
        more = [(name, state) for name, state in now if state is not None]
        more = [each for each in more if each not in self._files]
        return PreviousOutput(self._place, self._manifest, [*self._files, *more])

    def about_to_change(self, paths: Sequence[str]) -> PreviousOutput:
        """Return these files, some of which may be in any state from here on, and are ours."""
        more = [(os.path.basename(path.rstrip("/")), BEGUN) for path in paths]
        return PreviousOutput(self._place, self._manifest, [*self._files, *more])

    def owns(self, path: str) -> bool:
        """Return whether the file at a path is still the one that recmap wrote, or part of it."""
        return self._begun(path) or self._place.owns(path, self.states)

    def refuse_foreign_output(self, path: str, format: str) -> None:
        """Raise if there is something at an output path that recmap must not overwrite."""
        if not self._begun(path):
            self._place.refuse_foreign_output(path, format, self.states)

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


def clear_temporary(paths: Sequence[str], owner: Process | None = None) -> None:
    """Remove what killed writers of these outputs left; raise if a running process owns it.

    ``owner`` is the process to remove it for; by default, this one.
    """
    if paths:
        place_of(paths[0]).clear(paths, owner, None)


def remove_output(path: str) -> None:
    """Remove a file or a Zarr store that recmap wrote, with its sidecar and description."""
    place_of(path).remove_output(path)


def refuse_foreign_output(path: str, format: str) -> None:
    """Raise if there is something at an output path that recmap must not overwrite."""
    place_of(path).refuse_foreign_output(path, format, [])
