"""Paths of objects in a store, and how they are read and written."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, BinaryIO, Self, cast

import numpy as np
import numpy.typing as npt

from recmap.errors import AccessDeniedError, OutputError, PathNotFoundError
from recmap.files.fetched_file import FetchedFile, Hold, held_object
from recmap.files.file_state import STORE_FILES
from recmap.files.find_objects import find_objects
from recmap.files.location import Location, OpenFile, Output, Stat, Version
from recmap.files.lru import Lru
from recmap.files.object_address import ObjectAddress
from recmap.files.object_reader import keep_beside, kept_beside
from recmap.files.object_store import ObjectInfo, ObjectStore
from recmap.files.object_tree import copy_tree, remove_others, replace_tree, tree_of
from recmap.files.object_writer import (
    Upload,
    copy_object,
    create_object,
    delete_object,
    parts_to_send,
    put_file,
    put_object,
    read_object,
    refuse_unwritable,
    replace_object,
)
from recmap.files.run_lock import RunLock
from recmap.files.s3_uploads import find_s3_uploads
from recmap.files.seekable import SeekableObject
from recmap.files.spans import as_places
from recmap.files.staging import files_below, send_files
from recmap.files.storage import Storage, parse_url
from recmap.files.store_lock import StoreLock
from recmap.files.whole_output import refuse_unfinished, warn_of_incomplete, warn_of_missing

# The beginning of an object, which is asked for several times, is fetched once.
_HEAD = 1 << 14
_KEPT_HEADS = 256
# Up to this many objects are looked up one by one; for more, their folder is listed.
_FEW = 8
# How often an object is changed again because another was faster.
_ATTEMPTS = 20


class ObjectPath(ObjectAddress):
    """The location of an object, or of a folder, whose path ends with a slash."""

    __slots__ = ()

    @property
    def folder(self) -> Self:
        return self.sibling("")

    def children(self) -> list[str]:
        if not self.store.listed:
            return []
        found = self.store.folder(self.key)
        return list(map(_name, [*(each.key for each in found.objects), *found.folders]))

    def folders(self) -> list[str]:
        return list(map(_name, self.store.folder(self.key).folders)) if self.store.listed else []

    def expand(self) -> Sequence[ObjectPath]:
        if self._info is not None:
            return [self]
        objects, listed = self._find()
        folders: dict[str, list[str]] = {}
        for key in listed or ():
            folders.setdefault(os.path.dirname(key), []).append(_name(key))
        if listed is not None and glob.has_magic(self.key):
            warn_of_incomplete(
                [self.at(each.key.rstrip("/")) for each in objects],
                lambda file: folders.get(os.path.dirname(file.key), ()),
            )
        elif listed is not None:
            names = folders.get(self.key.strip("/"), [])
            refuse_unfinished(self, names, lambda name: self.child(name).content())
            warn_of_missing(self, names, [each.name for each in objects])
        return objects

    def _find(self) -> tuple[list[ObjectPath], Mapping[str, ObjectInfo] | None]:
        """Return the objects that ``expand`` does, and all that were listed, by key.

        The latter is None if this is a single object. The path of a Zarr store is a folder.
        """
        found = find_objects(self._store, self._url)
        objects = [
            ObjectPath(self._url._replace(key=each.key), self._store, each, found.beside)
            for each in found.objects
        ]
        stores = [self.at(f"{key}/" if key else "") for key in found.stores]
        return sorted([*objects, *stores], key=lambda path: path.key), found.beside

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
        try:
            return self.stat()
        except PathNotFoundError:
            tree = tree_of(self)
            return Stat(tree.size, tree.digest)

    def size_below(self) -> int:
        if not self.is_folder() and not self.is_tree():
            return self.info.size
        return self.store.size_below(self.key) if self.store.listed else 0

    def versions(self) -> list[Stat]:
        if not self.is_folder():
            return [self.stat()]
        inside = [self.child(name) for name in STORE_FILES]
        return [path.stat() for path in inside if path.is_file()]

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

    def is_special(self) -> bool:
        return False

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
        return _ReadInOrder(self) if in_order else _OpenObject(self)

    @contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        file = self.file_object()
        file.fetch_beginning()
        try:
            yield cast("BinaryIO", file)
        finally:
            file.raise_error()

    def file_object(self) -> SeekableObject:
        return SeekableObject(self.store, self.info, lambda count: self.open().pread(count, 0))

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

    def create(self, *, unnamed: bool = False) -> Output:
        del unnamed
        return _SentOutput(self)

    def write_whole(
        self, data: bytes, *, durable: bool = True, temporary: str | None = None
    ) -> None:
        del durable, temporary  # a store keeps what it has confirmed
        put_object(self, data)

    def write_if(self, data: bytes, seen: Version | None) -> Version | None:
        return create_object(self, data) if seen is None else replace_object(self, data, seen)

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
            stores[parts.root] = ObjectStore(parts, storage or Storage())
        return ObjectPath(parts, stores[parts.root])
    return ObjectPath(parts, ObjectStore(parts, storage or Storage()))


class _OpenObject(OpenFile):
    """An object, of which each part is a request; the beginning is kept."""

    def __init__(self, path: ObjectPath) -> None:
        self._path, self._info = path, path.info

    @property
    def size(self) -> int:
        return self._info.size

    def pread(self, count: int, at: int) -> bytes:
        return self.pread_many([(count, at)])[0]

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        spans = [(min(at, self.size), min(at + count, self.size)) for count, at in parts]
        file = held_object(self._path, spans)
        if file is not None:
            with file.hold(*zip(*spans, strict=True)):
                return [file.bytes[begin:end].tobytes() for begin, end in spans]
        if all(end <= _HEAD for _, end in spans):
            head = self._head()
            return [head[begin:end] for begin, end in spans]
        read = self._path.store.read_many(self._info, spans)
        return [each.tobytes() for each in read]

    def _head(self) -> bytes:
        key = f"{self._path.store.place}/{self._info.key}", self._info
        head = _heads.get(key) if self._info.pinned else None
        if head is None:
            head = self._path.store.read(self._info, 0, min(_HEAD, self.size)).tobytes()
            if self._info.pinned:
                _heads.put(key, head)
        return head


class _ReadInOrder(OpenFile):
    """An object that is read more or less in order: what follows is fetched ahead."""

    def __init__(self, path: ObjectPath) -> None:
        self._file = path.map()
        # Keep what was fetched ahead until it has been read.
        held = self._file.holds(0, self.size)
        self._ahead = self._file.start(*as_places(0, self.size)) if held else None
        self._last: Hold | None = None

    @property
    def size(self) -> int:
        return self._file.size

    def pread(self, count: int, at: int) -> bytes:
        end = min(at + count, self.size)
        if at >= end:
            return b""
        hold = self._file.hold(at, end)
        hold.__enter__()
        # What was read last is often read again.
        self._close(self._last)
        self._last = hold
        return self._file.bytes[at:end].tobytes()

    def __exit__(self, *_: object) -> None:
        self._close(self._ahead)
        self._close(self._last)

    @staticmethod
    def _close(hold: Hold | None) -> None:
        if hold is not None:
            hold.close()


class _SentOutput(Output):
    """An object that is sent while it is written."""

    temporary = ""

    def __init__(self, path: ObjectPath) -> None:
        self._upload = Upload(path, parts_to_send())

    def write(self, data: npt.NDArray[np.uint8], at: int) -> None:
        del at
        self._upload.write(data)

    def file(self) -> IO[bytes]:
        raise RuntimeError("what was sent can be neither read nor changed")

    def finish(self, durable: bool) -> None:
        """Do nothing: the last part is sent by ``commit``."""

    def commit(self, durable: bool) -> None:
        del durable  # a store keeps what it has confirmed
        self._upload.complete()

    def abandon(self) -> None:
        self._upload.abandon()

    def abort(self) -> None:
        self._upload.abort()


# The beginnings of the objects that were looked at last.
_heads = Lru[tuple[str, ObjectInfo], bytes](_KEPT_HEADS)


def _stat(info: ObjectInfo) -> Stat:
    return Stat(info.size, info.etag or info.modified.isoformat(), info.etag, info.modified)


def _stat_now(path: ObjectPath, listed: Mapping[str, ObjectInfo] | None) -> Stat | None:
    if path.is_tree():
        tree = tree_of(path)
        return Stat(tree.size, tree.digest) if tree.objects else None
    if listed is not None:
        return _stat(listed[path.key]) if path.key in listed else None
    try:
        return path.stat()
    except PathNotFoundError:
        return None


def _name(key: str) -> str:
    return key.rpartition("/")[2]
