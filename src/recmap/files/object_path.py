"""The paths of objects in a store.

A path is text everywhere. That of an object is an ``ObjectPath``: its text is the URL, and it
also knows the store, with its credentials, and what was found there. So it can be passed
wherever a path can, also to another process, and nothing secret is in its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from recmap.errors import AccessDeniedError, PathNotFoundError
from recmap.files.find_objects import find_objects
from recmap.files.found_path import STORE_FILES
from recmap.files.object_store import ObjectInfo, ObjectStore
from recmap.files.storage import ObjectUrl, Storage, parse_url

__all__ = ["ObjectPath", "in_store", "object_path"]


class ObjectPath(str):
    """The URL of an object, which may exist or not."""

    __slots__ = ("_beside", "_info", "_store", "_url")

    _url: ObjectUrl
    _store: ObjectStore
    # The object as it was when it was found; reading it later fails if it has changed.
    _info: ObjectInfo | None
    # All objects in the same folder, if it was listed.
    _beside: Mapping[str, ObjectInfo] | None

    def __new__(
        cls,
        url: ObjectUrl,
        store: ObjectStore,
        info: ObjectInfo | None = None,
        beside: Mapping[str, ObjectInfo] | None = None,
    ) -> Self:
        path = super().__new__(cls, url.at(url.key))
        path._url, path._store, path._info, path._beside = url, store, info, beside
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectPath, (self._url, self._store, self._info, self._beside)

    @property
    def store(self) -> ObjectStore:
        """The bucket or server that holds the object."""
        return self._store

    @property
    def key(self) -> str:
        """The name of the object in its store."""
        return self._url.key

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rstrip("/").rpartition("/")[2]

    @property
    def info(self) -> ObjectInfo:
        """The object's size and version. Look it up, once; raise if it does not exist."""
        if self._info is None:
            found = self._listed()
            self._info = self._store.head(self.key) if found is None else found
        return self._info

    @property
    def versions(self) -> list[ObjectInfo]:
        """What tells versions of the data apart: the object, or the metadata of a folder."""
        if self.key and not self.key.endswith("/"):
            return [self.info]
        inside = [self.inside(name) for name in STORE_FILES]
        return [path.info for path in inside if path.exists]

    @property
    def size_below(self) -> int:
        """The size of all objects in this folder; 0 if they cannot be listed."""
        return self._store.size_below(self.key) if self._store.listed else 0

    @property
    def exists(self) -> bool:
        """Whether there is such an object, as far as these credentials may know."""
        try:
            return self.info is not None
        except (PathNotFoundError, AccessDeniedError):
            # S3 denies access to a missing object if the folder must not be listed.
            return False

    def _listed(self) -> ObjectInfo | None:
        """Return what the listing of the folder says; None if there is no listing."""
        if self._beside is None:
            return None
        if self.key not in self._beside:
            raise PathNotFoundError(f"{self}: no such object")
        return self._beside[self.key]

    def beside(self, name: str) -> ObjectPath:
        """Return the path of another object in the same folder."""
        folder, slash, _ = self.key.rpartition("/")
        url = self._url._replace(key=f"{folder}{slash}{name}")
        return ObjectPath(url, self._store, beside=self._beside)

    def at(self, key: str) -> ObjectPath:
        """Return the path of another object in the same store."""
        return ObjectPath(self._url._replace(key=key), self._store)

    def inside(self, name: str) -> ObjectPath:
        """Return the path of an object below this one, which is a folder."""
        folder = self.key.rstrip("/")
        url = self._url._replace(key=f"{folder}/{name}" if folder else name)
        return ObjectPath(url, self._store)

    def objects(self) -> list[ObjectPath]:
        """Return the objects that this path, pattern or folder stands for.

        One that was found already stays what it was then, also in another process. The path of a
        Zarr store, which is a folder, ends with a slash.
        """
        return self.found_objects()[0]

    def found_objects(self) -> tuple[list[ObjectPath], Mapping[str, ObjectInfo] | None]:
        """Return what ``objects`` does, and all objects in the folders that were listed, by key.

        The latter is None if this is a single object.
        """
        if self._info is not None:
            return [self], None
        found = find_objects(self._store, self._url)
        objects = [
            ObjectPath(self._url._replace(key=each.key), self._store, each, found.beside)
            for each in found.objects
        ]
        folders = [f"{key}/" if key else "" for key in found.stores]
        stores = [ObjectPath(self._url._replace(key=key), self._store) for key in folders]
        return sorted([*objects, *stores], key=lambda path: path.key), found.beside

    def alone(self) -> ObjectPath:
        """Return the same object without what is known about the others in its folder."""
        return ObjectPath(self._url, self._store, self._info)

    def anew(self) -> ObjectPath:
        """Return the same path, to be looked up again."""
        return ObjectPath(self._url, self._store)


def in_store(paths: Iterable[str]) -> bool:
    """Return whether any of these are paths of objects."""
    return any(isinstance(path, ObjectPath) for path in paths)


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
