"""What requests need to know of an object: its URL, its store, and what was found there.

The text of the path is the URL. It also knows the store, with its credentials. So it can be passed
wherever a path can, also to another process, and nothing secret is in its text. ``ObjectPath`` is
the rest of it: how it is read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from recmap.errors import PathNotFoundError
from recmap.local.location import Location
from recmap.store.object_store import ObjectInfo, ObjectStore
from recmap.store.storage import ObjectUrl


class ObjectAddress(Location):
    """The URL of an object, which may exist or not."""

    __slots__ = ("_beside", "_info", "_url", "store")

    remote = True

    _url: ObjectUrl
    #: The bucket or server that holds the object.
    store: ObjectStore
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
        path._url, path.store, path._info, path._beside = url, store, info, beside
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._url, self.store, self._info, self._beside)

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
            self._info = self.store.head(self.key) if found is None else found
        return self._info

    def _listed(self) -> ObjectInfo | None:
        """Return what the listing of the folder says; None if there is no listing."""
        if self._beside is None:
            return None
        if self.key not in self._beside:
            raise PathNotFoundError(f"{self}: no such object")
        return self._beside[self.key]

    def sibling(self, name: str) -> Self:
        folder, slash, _ = self.key.rpartition("/")
        url = self._url._replace(key=f"{folder}{slash}{name}")
        return type(self)(url, self.store, beside=self._beside)

    def at(self, key: str) -> Self:
        """Return the path of another object in the same store."""
        return type(self)(self._url._replace(key=key), self.store)

    def child(self, name: str) -> Self:
        folder = self.key.rstrip("/")
        url = self._url._replace(key=f"{folder}/{name}" if folder else name)
        return type(self)(url, self.store)

    def alone(self) -> Self:
        return type(self)(self._url, self.store, self._info)

    def anew(self) -> Self:
        return type(self)(self._url, self.store)


def store_of(path: Location) -> ObjectStore | None:
    """Return the bucket or server that holds a file; None if it is on disk."""
    return path.store if isinstance(path, ObjectAddress) else None
