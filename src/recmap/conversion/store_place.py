"""Outputs in an object store.

Objects appear when they are complete, so there are no temporary names. What a killed process
leaves are the parts of unfinished uploads, which recmap can abort on S3.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from recmap.conversion.place import Place, State
from recmap.conversion.run_lock import RunLock
from recmap.conversion.store_lock import StoreLock
from recmap.errors import OutputExistsError, PathNotFoundError, StoreError
from recmap.files.array_sidecar import description_path, is_description, remove_description
from recmap.files.object_path import ObjectPath
from recmap.files.object_store import ObjectInfo, ObjectStore
from recmap.files.object_tree import remove_others, tree_of
from recmap.files.object_writer import (
    Version,
    create_object,
    delete_object,
    put_object,
    read_object,
    refuse_unwritable,
    replace_object,
)
from recmap.files.s3_uploads import find_s3_uploads
from recmap.files.temporary import Process
from recmap.formats.registry import FORMATS, format_of
from recmap.tfrecord.sidecar import is_written, remove_sidecar, sidecar_path
from recmap.warn import warn

__all__ = ["StorePlace"]

# Up to this many objects are looked up one by one; for more, their folder is listed.
_FEW = 8


class StorePlace(Place):
    """A prefix in a store."""

    def __init__(self, path: ObjectPath) -> None:
        refuse_unwritable(path)
        self._store: ObjectStore = path.store
        self._place = path
        # The versions of the files that were read or saved here.
        self._seen: dict[str, Version | None] = {}
        self._lines: dict[str, list[str]] = {}

    def _object(self, path: str) -> ObjectPath:
        """Return the path of an object, to be looked up again."""
        if isinstance(path, ObjectPath):
            return path.anew()
        return self._place.beside(os.path.basename(path))

    def states(self, paths: Sequence[str]) -> list[State | None]:
        objects = [self._object(path) for path in paths]
        listed: dict[str, ObjectInfo] | None = None
        if len(objects) > _FEW:
            folders = {path.key.rpartition("/")[0] for path in objects}
            listed = {i.key: i for folder in folders for i in self._store.folder(folder).objects}
        return [self._state(path, listed) for path in objects]

    def _state(self, path: ObjectPath, listed: dict[str, ObjectInfo] | None) -> State | None:
        if _is_tree(path):
            tree = tree_of(path)
            return [tree.size, tree.digest] if tree.objects else None
        if listed is not None:
            info = listed.get(path.key)
        else:
            try:
                info = path.info
            except PathNotFoundError:
                info = None
        return None if info is None else [info.size, info.etag or info.modified.isoformat()]

    def sizes(self, paths: Sequence[str]) -> list[int]:
        return [int(state[0]) for state in self.states(paths) if state is not None]

    def real_path(self, path: str) -> str:
        return str(path)

    def read(self, path: str, most: int) -> bytes | None:
        found = read_object(self._object(path))
        self._seen[str(path)] = None if found is None else found[1]
        return None if found is None or len(found[0]) > most else found[0]

    def save(self, path: str, text: str) -> None:
        target, data = self._object(path), text.encode()
        seen = self._seen.get(str(path))
        made = create_object(target, data) if seen is None else replace_object(target, data, seen)
        if made is None:
            raise OutputExistsError(
                f"{path}: another conversion has written it in the meantime, and its output stays; "
                "nothing else was replaced"
            )
        self._seen[str(path)] = made

    def append(self, path: str, line: str) -> None:
        lines = self._lines.setdefault(str(path), [])
        lines.append(line)
        put_object(self._object(path), "".join(f"{each}\n" for each in lines).encode())

    def names(self, path: str) -> list[str]:
        folder = self._store.folder(self._object(path).key.rpartition("/")[0])
        keys = [*(info.key for info in folder.objects), *folder.folders]
        return list(map(os.path.basename, keys))

    def owns(self, path: str, states: Sequence[State]) -> bool:
        state = self.states([path])[0]
        if state is None:
            return False
        target = self._object(path)
        return state in states or (not _is_tree(target) and is_written(target))

    def remove_output(self, path: str) -> None:
        target = self._object(path)
        if _is_tree(target):
            remove_others(target, [])
            return
        # The object last: while it is there, the next run finds what belongs to it.
        remove_description(target)
        remove_sidecar(target)
        delete_object(target)

    def refuse_foreign_output(self, path: str, format: str, states: Sequence[State]) -> None:
        target = self._object(path)
        if FORMATS[format].folder:
            state = self.states([path])[0]
            if state is not None and state not in states:
                raise OutputExistsError(
                    f"{path} is not replaced: recmap did not write it, or it has changed since. "
                    "Delete it, or write elsewhere"
                )
            return
        description = self._object(description_path(target))
        if self.exists(description) and not is_description(description):
            raise OutputExistsError(
                f"{description} would be replaced, but is not a description that recmap wrote; "
                "move it away, or write elsewhere"
            )

    def run_lock(self, manifest: str) -> RunLock:
        path = self._object(manifest)
        return StoreLock(path.beside(f".{path.name}.lock"), str(manifest))

    def check_free(self, paths: Sequence[str]) -> None:
        """Do nothing: whoever writes here holds the lock."""

    def clear(self, paths: Sequence[str], owner: Process | None, lock: RunLock | None) -> None:
        """Abort unfinished uploads of these objects."""
        del owner  # the lock is ours
        uploads = find_s3_uploads(self._store.url, self._store.storage)
        if uploads is None or not paths:
            return
        objects = [self._object(path) for path in paths]
        keys = {path.key for path in objects}
        keys |= {index.key for o in objects if isinstance(index := sidecar_path(o), ObjectPath)}
        trees = tuple(f"{path.key.rstrip('/')}/" for path in objects if _is_tree(path))
        since = lock.since if lock is not None else None
        try:
            # All are in one folder.
            folder, slash, _ = objects[0].key.rpartition("/")
            for each in uploads.unfinished(f"{folder}{slash}"):
                ours = each.key in keys or each.key.startswith(trees)
                if ours and (since is None or each.began <= since):
                    uploads.abort(each)
        except StoreError as e:
            warn(
                f"unfinished uploads of an earlier run may remain: {e}. A lifecycle rule of "
                "the bucket can delete them"
            )


def _is_tree(path: ObjectPath) -> bool:
    found = format_of(path)
    return found is not None and FORMATS[found].folder
