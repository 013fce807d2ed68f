"""Files that take the place of others, and how the others come back if not all get there.

The others are kept in a hidden folder. An incomplete manifest names it from before the
first rename until after the last, so that whoever comes after a process that was killed
meanwhile can put them back. Its name is none of a temporary file, for those are removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from recmap.conversion.cleanup import remove_output
from recmap.conversion.manifest_file import file_names, load_manifest
from recmap.files.array_sidecar import description_path
from recmap.files.atomic_write import sync
from recmap.files.temporary import remove
from recmap.tfrecord.sidecar import sidecar_path

__all__ = ["Replacement", "put_back"]

_MARK = ".before-"


class Replacement:
    """New files for old ones, beside a manifest."""

    def __init__(self, manifest: str, old: Sequence[str]) -> None:
        self._manifest, self._old = manifest, list(old)
        folder, name = os.path.split(manifest)
        self._kept = os.path.join(folder, f".{name}{_MARK}{uuid4().hex[:12]}")
        self._gone: str | None = None

    @property
    def note(self) -> dict[str, Any]:
        """What the manifest is to say until all is done."""
        names = [os.path.basename(path) for path in self._old]
        return {"kept": os.path.basename(self._kept), "old": names}

    def begin(self) -> None:
        """Keeps the old manifest, before it is written over."""
        os.mkdir(self._kept)
        if os.path.exists(self._manifest):
            shutil.copy2(self._manifest, self._kept)
            sync(os.path.join(self._kept, os.path.basename(self._manifest)))

    def put(self, new: str, path: str) -> None:
        """Gives a new file its name. An old one leaves it only now: names that are taken
        keep others from writing there.
        """
        if path in self._old:
            self._keep(path)
        for beside in (description_path, sidecar_path):
            if os.path.exists(beside(new)):
                os.rename(beside(new), beside(path))
        os.rename(new, path)

    def keep_others(self, taken: Sequence[str]) -> None:
        """Takes away the old files whose names no new one has."""
        for path in self._old:
            if path not in taken:
                self._keep(path)

    def commit(self, stage: str) -> None:
        """Lets go of the old files, once all new ones have their names: they go with the
        stage.
        """
        gone = os.path.join(stage, os.path.basename(self._kept))
        os.rename(self._kept, gone)
        self._gone = gone

    def undo(self) -> None:
        """Puts the old files back."""
        if self._gone is not None:
            os.rename(self._gone, self._kept)
        put_back(self._manifest)

    def _keep(self, path: str) -> None:
        # The file last: once it is kept, what lies beside its name is not its own.
        for old in (description_path(path), sidecar_path(path), path):
            if os.path.exists(old):
                os.rename(old, os.path.join(self._kept, os.path.basename(old)))


def put_back(manifest: str) -> None:
    """Puts back the files that a replacement was to replace, if it did not come to its end.
    Can itself be stopped anywhere, and called again.
    """
    folder, own = os.path.split(manifest)
    content = load_manifest(manifest)
    note = content.get("options")
    if isinstance(note, dict) and not content.get("complete"):
        for kept in _kept_folders(manifest):
            if os.path.basename(kept) == note.get("kept"):
                new, old = file_names(content.get("files")), file_names(note.get("old"))
                _exchange(folder, kept, own, new, old)
                if not os.path.exists(os.path.join(kept, own)):
                    remove(manifest)  # there was none before
                else:
                    os.replace(os.path.join(kept, own), manifest)
    for kept in _kept_folders(manifest):
        # Nothing was moved yet, or all is back.
        if set(os.listdir(kept)) <= {own}:
            remove(kept)


def _exchange(folder: str, kept: str, own: str, new: list[str], old: list[str]) -> None:
    """Removes the new files, and puts back the old ones, all but the manifest. An old file
    that is not among those kept was not moved yet, or is back already.
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
        os.path.join(folder, entry) for entry in entries if entry.startswith(f".{name}{_MARK}")
    ]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
