"""Zarr stores that are folders, on disk or in an object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import zarr
import zarr.storage

from recmap.errors import RecmapError, StoreError
from recmap.local.location import Location
from recmap.store.object_address import store_of
from recmap.store.object_store import ObjectStore

_T = TypeVar("_T")


def open_node(path: Location, **options: Any) -> Any:
    """Open the array or group at a path for reading."""
    store = store_of(path)
    if store is None:
        # Absolute: after a change of the working directory, no chunk would be found, and missing
        # chunks read as zeros.
        return zarr.open(str(path.absolute()), mode="r", **options)
    return zarr.open(_ZarrRequests(store), path=path.key.strip("/"), mode="r", **options)


class _ZarrRequests(zarr.storage.ObjectStore[Any]):  # type: ignore[misc]  # zarr is not checked
    """Makes the requests of zarr. Errors are those of recmap, without secrets."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store.connection(), read_only=True)
        self._ours = store

    def with_read_only(self, read_only: bool = False) -> _ZarrRequests:
        if not read_only:
            raise ValueError("recmap opens Zarr stores only for reading")
        return self

    def __reduce__(self) -> Any:
        return _ZarrRequests, (self._ours,)

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
