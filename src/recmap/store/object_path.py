"""Paths of objects in a store, and how they are read and written."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt

from recmap.errors import AccessDeniedError, OutputError, PathNotFoundError
from recmap.local.file_state import ZARR_FILES
from recmap.local.location import Location, OpenFile, Stat, Version
from recmap.local.output import Output
from recmap.local.run_lock import RunLock
from recmap.local.whole_output import refuse_unfinished, warn_of_incomplete, warn_of_missing
from recmap.machine.threads import Threads
from recmap.store.fetched_file import FetchedFile, held_object
from recmap.store.find_objects import find_objects
from recmap.store.hub_store import HubStore
from recmap.store.object_address import ObjectAddress
from recmap.store.object_reader import keep_beside, kept_beside
from recmap.store.object_store import ObjectInfo, ObjectStore
from recmap.store.object_writer import (
    SentObject,
    copy_object,
    delete_object,
    parts_to_send,
    put_file,
    put_if,
    put_object,
    read_object,
    refuse_unwritable,
)
from recmap.store.open_object import OpenObject, ReadInOrder, SeekableObject
from recmap.store.s3_uploads import find_s3_uploads
from recmap.store.staging import StagedObject, files_below, send_files
from recmap.store.storage import ObjectUrl, Storage, parse_url
from recmap.store.store_lock import StoreLock

# Up to this many objects are looked up one by one; for more, their folder is listed.
_FEW = 8
# Objects to copy or delete at a time.
_REQUESTS = 16
# How often an object is changed again because another was faster.
_ATTEMPTS = 20


class ObjectPath(ObjectAddress):
    """The location of an object, or of a folder, whose path ends with a slash."""

    __slots__ = ()

    @property
    def folder(self) -> Self:
        return self.sibling("")

    @property
    def parent(self) -> Self:
        return self.at(self.key.rstrip("/").rpartition("/")[0])

    def children(self) -> list[str]:
        if not self.store.listed:
            return []
        found = self.store.folder(self.key)
        return list(map(_name, [*(each.key for each in found.objects), *found.folders]))

    def folders(self) -> list[str]:
        return list(map(_name, self.store.folder(self.key).folders)) if self.store.listed else []

    def below(self) -> list[tuple[str, Stat]]:
        inside = self.key.rstrip("/")
        start = len(inside) + 1 if inside else 0
        found: list[ObjectInfo] = []
        waiting = [inside]
        with Threads(_REQUESTS, "recmap-list") as threads:
            while waiting:
                folders = list(threads.map(self.store.folder, waiting))
                found += [each for folder in folders for each in folder.objects]
                waiting = [each for folder in folders for each in folder.folders]
        named = {each.key[start:]: _stat(each) for each in found}
        return sorted(
            (name, each)
            for name, each in named.items()
            if name and not any(part.startswith(".") for part in name.split("/"))
        )

    def child_found(self, name: str, stat: Stat) -> Self:
        path = self.child(name)
        assert stat.modified is not None
        path._info = ObjectInfo(path.key, stat.size, stat.etag, stat.modified)  # noqa: SLF001  # new
        return path

    def expand(self) -> Sequence[ObjectPath]:
        if self._info is not None:
            return [self]
        found = find_objects(self.store, self._url)
        objects = [
            *(
                ObjectPath(self._url._replace(key=i.key), self.store, i, found.beside)
                for i in found.objects
            ),
            *(self.at(f"{key}/" if key else "") for key in found.stores),
        ]
        objects.sort(key=lambda path: path.key)
        if found.beside is not None:  # None if this is a single object
            return self._complete(objects, found.beside)
        return objects

    def _complete(self, objects: list[ObjectPath], listed: Iterable[str]) -> list[ObjectPath]:
        """Return the objects without those of an unfinished append.

        Warn if objects of a set are missing, and raise if an output is unfinished.
        """
        folders: dict[str, list[str]] = {}
        for key in listed:
            folders.setdefault(os.path.dirname(key), []).append(_name(key))
        if glob.has_magic(self.key):
            warn_of_incomplete(
                [self.at(each.key.rstrip("/")) for each in objects],
                lambda file: folders.get(os.path.dirname(file.key), ()),
            )
        else:
            names = folders.get(self.key.strip("/"), [])
            added = refuse_unfinished(self, names, lambda name: self.child(name).content())
            objects = [each for each in objects if each.name.rstrip("/") not in added]
            warn_of_missing(self, names, [each.name for each in objects])
            if not objects:
                raise PathNotFoundError(f"{self}: no objects in this folder")
        return objects

    def stat(self) -> Stat:
        return _stat(self.info)

    def stats(self, paths: Sequence[Location]) -> list[Stat | None]:
        objects = [self.at(path.key) for path in paths]
        listed: dict[str, ObjectInfo] | None = None
        if len(objects) > _FEW:
            folders = {os.path.dirname(path.key) for path in objects}
            listed = {i.key: i for folder in folders for i in self.store.folder(folder).objects}
        return [_stat_now(path, listed) for path in objects]

    def stat_below(self) -> Stat:
        if self.is_folder() and self.store.listed:
            return stat_of_tree(self)
        try:
            return self.stat()
        except PathNotFoundError:
            return stat_of_tree(self)

    def size_below(self) -> int:
        unlisted = self.is_folder() and not self.store.listed
        return 0 if unlisted else super().size_below()

    def identity(self) -> tuple[Any, ...]:
        # An object whose changes cannot be noticed is opened anew.
        return self.store.place, self.info, None if self.info.pinned else object()

    def real_path(self) -> str:
        return str(self)

    def is_file(self) -> bool:
        try:
            return self.info is not None
        except (PathNotFoundError, AccessDeniedError):
            # S3 denies access to a missing object if the folder must not be listed.
            return False

    def is_tree(self) -> bool:
        return self.lower().rstrip("/").endswith(".zarr")

    def exists(self) -> bool:
        try:
            return self.anew().info is not None
        except PathNotFoundError:
            return False

    def is_folder(self) -> bool:
        return self.key.endswith("/") or not self.key

    @property
    def pinned(self) -> bool:
        return not self.is_folder() and self.info.pinned

    def open(self, *, in_order: bool = False) -> OpenFile:
        return ReadInOrder(self.map()) if in_order else OpenObject(self)

    def seekable(self) -> IO[bytes]:
        beginning = partial(self.open().pread, at=0)
        return cast("IO[bytes]", SeekableObject(self.store, self.info, beginning))

    def read_whole(self, most: int) -> tuple[bytes, Version] | None:
        found = read_object(self)
        return None if found is None or len(found[0]) > most else found

    def load(self, most: int) -> npt.NDArray[np.uint8]:
        if not self.is_file():
            raise PathNotFoundError(f"{self}: no such object")
        if self.info.size > most:
            raise ValueError("it is too large")
        return self.store.read(self.info, 0, self.info.size)

    def map(self) -> FetchedFile:
        # What was fetched ahead is used if its beginning is still held.
        return held_object(self, [(0, 1)]) or FetchedFile(self)

    def refuse_unwritable(self) -> None:
        refuse_unwritable(self)

    def create(self, *, seekable: bool = False, durable: bool = True) -> Output:
        del durable  # a store keeps what it has confirmed
        return StagedObject(self) if seekable else SentObject(self)

    def write_whole(
        self, data: bytes, *, durable: bool = True, temporary: str | None = None
    ) -> None:
        del durable, temporary  # a store keeps what it has confirmed
        put_object(self, data)

    def write_if(self, data: bytes, seen: Version | None) -> Version | None:
        return put_if(self, data, seen)

    def append(self, data: bytes, before: bytes) -> None:
        put_object(self, before + data)

    def copy(self, to: Location) -> None:
        target = self.at(to.key)
        if self.is_tree():
            copy_tree(self, target)
        else:
            copy_object(self.anew(), target)

    def send(self, local: str) -> None:
        if not os.path.isdir(local):
            put_file(self, local, parts_to_send())
            return

        def send(names: Sequence[str]) -> None:
            send_files({self.child(name): os.path.join(local, name) for name in names})

        replace_tree(self, list(files_below(local)), send)

    def keep(self, name: str, content: bytes) -> None:
        keep_beside(self, name, content)

    def kept(self, name: str, most: int) -> bytes | None:
        return kept_beside(self, name, most)

    def update(self, change: Callable[[str | None], str]) -> None:
        for _ in range(_ATTEMPTS):
            data, seen = read_object(self) or (None, None)
            text = change(None if data is None else data.decode())
            if self.write_if(text.encode(), seen) is not None:
                return
        raise OutputError(f"{self} cannot be written: other processes keep changing it")

    def remove(self) -> None:
        delete_object(self)

    def remove_tree(self) -> None:
        remove_others(self, [])

    def abort_uploads(self, paths: Sequence[Location], since: datetime | None = None) -> None:
        uploads = find_s3_uploads(self.store.url, self.store.storage)
        if uploads is None:
            return
        keys = {path.key for path in paths}
        below = tuple(f"{key.rstrip('/')}/" for key in keys)
        folder, slash, _ = self.key.rpartition("/")
        for each in uploads.unfinished(f"{folder}{slash}"):
            ours = each.key in keys or each.key.startswith(below)
            if ours and (since is None or each.began <= since):
                uploads.abort(each)

    def lock(self) -> RunLock:
        return StoreLock(self.sibling(f".{self.name}.lock"), str(self))


def object_path(
    url: str, storage: Storage | None = None, stores: dict[str, ObjectStore] | None = None
) -> ObjectPath:
    """Return the path of an object. This sends no request.

    ``storage`` defaults to what the environment says. ``stores`` are those to share with other
    paths.
    """
    parts = parse_url(url)
    if stores is not None:
        if parts.root not in stores:
            stores[parts.root] = _store(parts, storage or Storage())
        return ObjectPath(parts, stores[parts.root])
    return ObjectPath(parts, _store(parts, storage or Storage()))


def _store(url: ObjectUrl, storage: Storage) -> ObjectStore:
    return HubStore(url, storage) if url.scheme == "hf" else ObjectStore(url, storage)


def _stat(info: ObjectInfo) -> Stat:
    return Stat(info.size, info.etag or info.modified.isoformat(), info.etag, info.modified)


def _stat_now(path: ObjectPath, listed: Mapping[str, ObjectInfo] | None) -> Stat | None:
    if path.is_tree():
        tree = stat_of_tree(path)
        return tree if tree.size else None
    if listed is not None:
        return _stat(listed[path.key]) if path.key in listed else None
    try:
        return path.stat()
    except PathNotFoundError:
        return None


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def stat_of_tree(path: ObjectPath) -> Stat:
    """Return the size of all objects below a path, and a digest of their names and versions."""
    objects = tree_of(path)
    lines = (f"{name}\0{etag}\n" for name, (_, etag) in sorted(objects.items()))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:32]
    return Stat(sum(size for size, _ in objects.values()), digest)


def tree_of(path: ObjectPath) -> dict[str, tuple[int, str]]:
    """Return size and version of all objects below a path by name; none if it is not a folder."""
    return path.store.below(path.key.rstrip("/"))


def remove_others(path: ObjectPath, names: Iterable[str]) -> None:
    """Delete all objects below a path except those named."""
    others = set(tree_of(path)) - set(names)
    _for_each(others, lambda name: delete_object(path.child(name)))


def copy_tree(src: ObjectPath, dst: ObjectPath) -> None:
    """Make the objects below a path the same as those below another: a Zarr store."""

    def copy(name: str) -> None:
        copy_object(src.child(name), dst.child(name))

    replace_tree(dst, list(tree_of(src)), lambda names: _for_each(names, copy))


def replace_tree(
    path: ObjectPath, names: Sequence[str], send: Callable[[Sequence[str]], None]
) -> None:
    """Make a Zarr store of these objects, which ``send`` puts there, and remove all others.

    The metadata of every array and group is deleted first, from the root down, and sent last, from
    the arrays up. So neither the store nor an array in it ever seems to be whole while it is not.
    """
    for old in _by_depth(filter(_is_metadata, tree_of(path))):
        _for_each(old, lambda name: delete_object(path.child(name)))
    send([name for name in names if not _is_metadata(name)])
    remove_others(path, names)
    for new in reversed(_by_depth(filter(_is_metadata, names))):
        # What describes a group must be there when the group is.
        send([name for name in new if name.endswith(".zattrs")])
        send([name for name in new if not name.endswith(".zattrs")])


def _is_metadata(name: str) -> bool:
    return name.rpartition("/")[2] in (*ZARR_FILES, ".zattrs")


def _by_depth(names: Iterable[str]) -> list[list[str]]:
    """Group the names of objects by how deep they are, those at the root first."""
    depths: dict[int, list[str]] = {}
    for name in names:
        depths.setdefault(name.count("/"), []).append(name)
    return [depths[depth] for depth in sorted(depths)]


def _for_each(names: Iterable[str], work: Callable[[str], None]) -> None:
    with Threads(_REQUESTS, "recmap-objects") as pool:
        for future in [pool.submit(work, name) for name in names]:
            future.result()
