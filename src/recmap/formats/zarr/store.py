"""Zarr stores that are folders, on disk or in an object store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import zarr
import zarr.storage

from recmap.errors import RecmapError, StoreError
from recmap.files.object_path import ObjectPath

__all__ = ["ZarrFolder", "place_of"]

_T = TypeVar("_T")


def place_of(path: str) -> ZarrFolder:
    """Return where the store at a path is."""
    return _ZarrObjects(path) if isinstance(path, ObjectPath) else ZarrFolder(path)


class ZarrFolder:
    """A folder on disk that is a Zarr store."""

    #: Whether folders in it can be listed.
    listed = True

    def __init__(self, path: str) -> None:
        # Absolute: after a change of the working directory, no chunk would be found, and missing
        # chunks read as zeros.
        self._path = os.path.abspath(path)
        self._real = os.path.realpath(path)

    def open(self, **options: Any) -> Any:
        """Open the array or group for reading."""
        return zarr.open(self._path, mode="r", **options)

    def folders(self, group: str) -> list[tuple[str, str]]:
        """Return the names of the folders in a group, and what tells whether two are the same."""
        folder = os.path.join(self._path, group)
        # Links may lead in circles, also to the store itself.
        real = {name: os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder)}
        return [(name, place) for name, place in real.items() if place != self._real]

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder of the store."""
        inside = os.path.join(self._path, folder)
        return set(os.listdir(inside)) if os.path.isdir(inside) else set()


class _ZarrObjects(ZarrFolder):
    """A folder in an object store."""

    def __init__(self, path: ObjectPath) -> None:
        self._object, self._store, self._key = path, path.store, path.key.strip("/")
        self.listed = path.store.listed

    def open(self, **options: Any) -> Any:
        return zarr.open(_ZarrRequests(self._object), path=self._key, mode="r", **options)

    def folders(self, group: str) -> list[tuple[str, str]]:
        found = self._store.folder(self._at(group)).folders
        return [(folder.rpartition("/")[2], folder) for folder in found]

    def names(self, folder: str) -> set[str]:
        return {
            each.key.rpartition("/")[2] for each in self._store.folder(self._at(folder)).objects
        }

    def _at(self, folder: str) -> str:
        return "/".join(filter(None, [self._key, folder]))


class _ZarrRequests(zarr.storage.ObjectStore[Any]):  # type: ignore[misc]  # zarr is not checked
    """Makes the requests of zarr. Errors are those of recmap, without secrets."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__(path.store.connection(), read_only=True)
        self._path, self._ours = path, path.store

    def with_read_only(self, read_only: bool = False) -> _ZarrRequests:
        if not read_only:
            raise ValueError("recmap opens Zarr stores only for reading")
        return self

    def __reduce__(self) -> Any:
        return _ZarrRequests, (self._path,)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        get = super().get
        return await self._ask(key, lambda: get(key, prototype, byte_range))

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        ranges = list(key_ranges)
        key = ranges[0][0] if ranges else ""
        get = super().get_partial_values
        return await self._ask(key, lambda: get(prototype, ranges))

    async def exists(self, key: str) -> bool:
        exists = super().exists
        return await self._ask(key, lambda: exists(key))

    async def getsize(self, key: str) -> int:
        getsize = super().getsize
        return await self._ask(key, lambda: getsize(key))

    async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
        list_dir = super().list_dir

        async def collect() -> list[str]:
            return [name async for name in list_dir(prefix)]

        for name in await self._ask(prefix, collect):
            yield name

    async def _ask(self, key: str, request: Callable[[], Awaitable[_T]]) -> _T:
        """Make a request, and repeat it while the store is unavailable."""
        attempts = self._ours.attempts()
        while True:
            try:
                return await self._once(key, request)
            except StoreError as e:
                pause = attempts.pause_after(e)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _once(self, key: str, request: Callable[[], Awaitable[_T]]) -> _T:
        self._ours.connection()  # refuses a forked process
        failure: RecmapError | None = None
        try:
            return await request()
        except BaseException as e:
            failure = self._ours.translated(key, e)
            if failure is None:
                raise
        # Raised here, so that the original is not its context.
        raise failure
