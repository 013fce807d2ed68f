"""The files that recmap itself wrote to a place before. No others are deleted there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from recmap.conversion.finished_shards import state_of
from recmap.conversion.manifest_file import file_names
from recmap.errors import OutputExistsError
from recmap.formats.zarr.attributes import not_ours
from recmap.tfrecord.sidecar import is_written

__all__ = ["Before"]


class Before:
    """Names, with the size and time each file had when it was finished: those in a
    manifest, of a conversion that finished or of one that was to replace them.
    """

    def __init__(self, manifest: str, known: Mapping[str, Any], states: Sequence[Any]) -> None:
        """``states`` are the number, size and time of files that ``known`` lists."""
        self._folder = os.path.dirname(manifest)
        self._states = _recorded(known.get("replaces"))
        files = known.get("files")
        for number, *state in states:
            if isinstance(files, list) and number < len(files):
                self._states |= dict.fromkeys(file_names([files[number]]), state)

    @property
    def paths(self) -> list[str]:
        """Where the files are, or were."""
        return [os.path.join(self._folder, name) for name in self._states]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What a manifest keeps of them."""
        return [{"file": name, "state": state} for name, state in self._states.items()]

    def has(self, path: str) -> bool:
        """Whether the file at a path is still the one that recmap wrote."""
        if os.path.islink(path) or not os.path.exists(path):
            return False
        if os.path.isdir(path):
            return not not_ours(path)
        # By size and time only: it may have got another name since.
        return state_of(path) in self._states.values() or is_written(path)

    def refuse_others(self, paths: Sequence[str]) -> None:
        """Raise if one of the files, which would have to be deleted, is not recmap's."""
        for path in paths:
            if not self.has(path):
                raise OutputExistsError(
                    f"{path} would be read together with the new files, and is not deleted: it "
                    "changed since recmap wrote it, or recmap did not. Remove it, or write "
                    "elsewhere"
                )


def _recorded(entries: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for entry in entries if isinstance(entries, list) else []:
        state = entry.get("state") if isinstance(entry, dict) else None
        if isinstance(state, list):
            found |= dict.fromkeys(file_names([entry]), state)
    return found
