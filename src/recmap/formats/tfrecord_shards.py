"""The files of a ``TFRecordWriter``: their names, and what an earlier writer left there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from recmap.errors import OutputExistsError
from recmap.files.local_path import located, refuse_existing
from recmap.files.paths import shard_names
from recmap.files.temporary import alike, short_name
from recmap.files.whole_output import FOLDER_MANIFEST
from recmap.tfrecord.sidecar import is_written, remove_sidecar, sidecar_path

# A larger manifest is not read.
_MOST_READ = 256 << 20
# The state of a file that may be half there, in manifests of conversions, too.
_BEGUN = [0, ""]


def shard_paths(path: str, shards: int) -> list[str]:
    """Return the names of the files: the path itself, or ``name-00003-of-00016.tfrecord``."""
    path = _file(path)
    if shards == 1:
        return [path]
    stem, extension = _split(os.path.basename(path))
    return [located(path).sibling(name) for name in shard_names(stem, extension, shards)]


def _file(path: str) -> str:
    folder = path.endswith(os.sep) or located(path).is_folder()
    return located(path).child("data.tfrecord") if folder else path


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.+?)((\.\w+)(\.gz|\.zlib)?)?", name)
    stem, extension = (match[1], match[2]) if match else (name, None)
    return stem, extension or ".tfrecord"


class OlderFiles:
    """The files that have the names of the new ones, or are shards of a set of another size.

    Several files get their names one after the other. Meanwhile, a manifest beside them says that
    they are unfinished. It has the name of a conversion's, which may continue what a killed writer
    left.
    """

    def __init__(self, location: str, paths: Sequence[str]) -> None:
        """Look for files, and remove what killed writers of them left."""
        self._paths = paths
        hidden = f".{short_name(os.path.basename(location))}.manifest.json"
        in_folder = _file(location) != location
        self._manifest = located(paths[0]).sibling(FOLDER_MANIFEST if in_folder else hidden)
        self._remove_leftovers()
        # What the manifest says, which may be of other files in the folder.
        self._replaced: str | None = None
        self._of_others = False
        self._begun: set[str] = set()
        if len(paths) == 1:
            self.paths = [path for path in paths if located(path).exists()]
            return
        names = located(paths[0]).folder.children()
        self.paths = [located(paths[0]).sibling(name) for name in _shards_of(paths[0], names)]
        if os.path.basename(self._manifest) in names:
            try:
                self._read_manifest()
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise OutputExistsError(
                    f"{self._manifest} is not a manifest that recmap wrote, and would be replaced; "
                    "move it away, or write elsewhere"
                ) from None

    def _read_manifest(self) -> None:
        self._replaced = located(self._manifest).text(_MOST_READ)
        known = json.loads(self._replaced)
        self._of_others = not _shards_of(self._paths[0], [each["file"] for each in known["files"]])
        if known["complete"] is False:
            replaced = [each for each in known["replaces"] if each.get("state") == _BEGUN]
            self._begun = {each["file"] for each in replaced}

    def check(self, *, overwrite: bool) -> None:
        """Refuse to replace files without ``overwrite``, or to delete what recmap did not write."""
        for old in self.paths:
            if not self._is_begun(old):
                refuse_existing(old, overwrite)
            self._refuse_foreign(old)

    def _is_begun(self, path: str) -> bool:
        """Return whether a killed writer was about to give a file its name."""
        return os.path.basename(path) in self._begun

    def _refuse_foreign(self, old: str) -> None:
        if old not in self._paths and not self._is_begun(old) and not is_written(old):
            raise OutputExistsError(
                f"{old} belongs to a set with another number of shards and would be read together "
                "with the new ones, but recmap cannot tell whether it wrote it; remove it, or "
                "write elsewhere"
            )

    def begin(self) -> None:
        """Say that the files are unfinished, from before the first of them gets its name."""
        if len(self._paths) == 1:
            return
        names = [os.path.basename(path) for path in self._paths]
        old = [os.path.basename(path) for path in self.paths]
        begun = [name for name in old if name in self._begun]
        replaces: list[dict[str, Any]] = [{"file": name} for name in old]
        replaces += [{"file": name, "state": _BEGUN} for name in dict.fromkeys([*names, *begun])]
        files = [{"file": name} for name in names]
        content = {"recmap": 1, "files": files, "replaces": replaces, "complete": False}
        located(self._manifest).write_whole(json.dumps(content, indent=1).encode())

    def undo(self) -> None:
        """Remove new files after a failure, unless they replaced older ones.

        Then these may be of both kinds, and stay unfinished.
        """
        new = [path for path in self._paths if path not in self.paths]
        with suppress(OSError):  # the first error tells more
            for path in new:
                if not os.path.isdir(path):  # which no writer makes
                    located(path).remove()
                remove_sidecar(path)
            if len(new) > 1 and len(new) == len(self._paths):
                self._leave_manifest(self._replaced)

    def finish(self) -> None:
        """Remove the files that were not replaced, and what says that they are unfinished."""
        for old in sorted(set(self.paths) - set(self._paths)):
            if located(old).exists():
                self._refuse_foreign(old)  # it may have been replaced in the meantime
                located(old).remove()
                remove_sidecar(old)
        if len(self._paths) > 1:
            _remove_lone_indexes(self._paths[0])
            self._leave_manifest(self._replaced if self._of_others else None)

    def _leave_manifest(self, content: str | None) -> None:
        if content is None:
            located(self._manifest).remove()
        else:
            located(self._manifest).write_whole(content.encode())

    def _remove_leftovers(self) -> None:
        """Remove temporary files of killed writers of these files, or of their other shards."""
        path = located(self._paths[0])
        mine = alike(short_name(path.name)), os.path.basename(self._manifest)
        path.remove_leftovers(lambda name: alike(name) in mine)


def _shards_of(path: str, names: Iterable[str]) -> list[str]:
    """Return the names of shards with the same stem as that at ``path``, whatever their number."""
    first = os.path.basename(path)
    stem, extension = re.split(r"-\d{5,}-of-\d{5,}", first)[0], _split(first)[1]
    shard = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(extension)}")
    return sorted(filter(shard.fullmatch, names))


def _remove_lone_indexes(path: str) -> None:
    """Remove indexes of shards that a killed writer has not named, or has removed."""
    names = located(path).folder.children()
    kept = {os.path.basename(sidecar_path(name)) for name in names}
    for shard in _shards_of(path, [name[1:].removesuffix(".recmap") for name in names]):
        index = os.path.basename(sidecar_path(shard))
        if index in names and index not in kept:
            remove_sidecar(located(path).sibling(shard))
