"""The places where outputs go: a folder on disk, or a prefix in a store.

A ``Place`` is what a conversion asks about its outputs, and how it saves what it notes beside
them. ``cleanup.place_of`` returns the one for a path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from recmap.conversion.run_lock import RunLock
from recmap.files.temporary import Process

__all__ = ["BEGUN", "Place", "State"]

# What tells whether a file has changed: its size and time, or the size and ETag of an object.
State: TypeAlias = "list[int | str]"
# The state of a file that is about to appear in a store, where its ETag is not known before.
BEGUN: State = [0, ""]


class Place(ABC):
    """Where the files of one conversion go."""

    @abstractmethod
    def states(self, paths: Sequence[str]) -> list[State | None]:
        """Return the state of each file, None for those that do not exist."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes in bytes of files that exist, all files of a folder together."""

    @abstractmethod
    def real_path(self, path: str) -> str:
        """Return the one name of a file that may have several."""

    @abstractmethod
    def read(self, path: str, most: int) -> bytes | None:
        """Return the content of a small file; None if there is none, or if it is larger."""

    @abstractmethod
    def save(self, path: str, text: str) -> None:
        """Write a small file, all of it or nothing.

        Raise if another conversion has written it since ``read`` or ``save``.
        """

    @abstractmethod
    def append(self, path: str, line: str) -> None:
        """Add a line to a list that only this process writes."""

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """Return the names of all files in the folder of a path."""

    @abstractmethod
    def owns(self, path: str, states: Sequence[State]) -> bool:
        """Return whether recmap wrote the file, and nothing has changed it since.

        ``states`` are those of the files that recmap wrote here before.
        """

    @abstractmethod
    def remove_output(self, path: str) -> None:
        """Remove a file or a Zarr store that recmap wrote, with its sidecar and description."""

    @abstractmethod
    def refuse_foreign_output(self, path: str, format: str, states: Sequence[State]) -> None:
        """Raise if there is something at an output path that recmap must not overwrite.

        ``states`` are those of the files that recmap wrote here before.
        """

    @abstractmethod
    def run_lock(self, manifest: str) -> RunLock:
        """Return the lock that marks a conversion to this place."""

    @abstractmethod
    def check_free(self, paths: Sequence[str]) -> None:
        """Raise if a running process writes these files, before the lock is taken."""

    @abstractmethod
    def clear(self, paths: Sequence[str], owner: Process | None, lock: RunLock | None) -> None:
        """Remove what killed writers of these files left behind.

        ``owner`` is the process to remove it for; by default, this one. With ``lock``, only what
        is older than that.
        """

    def exists(self, path: str) -> bool:
        """Return whether there is such a file."""
        return self.states([path])[0] is not None
