"""Zarr stores, on disk or in an object store, and where the chunks of their arrays lie.

A shard holds several chunks, and an index of their places. To recmap they are chunks like others.
"""

from __future__ import annotations

import asyncio
import math
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import zarr
import zarr.storage
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from recmap.chunks.codecs import Bytes, ChunkError
from recmap.chunks.stored import NO_CHUNK, ChunkPlaces, StoredChunk, StoredChunks, StoredOf
from recmap.errors import DataError, RecmapError, StoreError
from recmap.formats.zarr.encoding import ChunkEncoding
from recmap.local.location import Location
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.store.object_address import store_of
from recmap.store.object_store import ObjectStore

_T = TypeVar("_T")
Numbers = npt.NDArray[np.int64]
_Get: TypeAlias = "Callable[..., Awaitable[Bytes | None]]"

# Chunks and shards kept mapped, of all arrays together: a process may have 65,530 mappings.
_MOST_MAPPED = 1 << 14
# Both numbers of a chunk that a shard does not have.
_ABSENT = 2**64 - 1


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
        pause_after = self._ours.patience.pauses(self._ours.url.root)
        while True:
            try:
                return await self._once(key, request)
            except StoreError as e:
                if (pause := pause_after(e)) is None:
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
        try:
            raise failure  # here, so that the original is not its context
        finally:
            del failure  # its traceback would keep this frame and its callers alive


class _MappedChunk(NamedTuple):
    """A file, and where a chunk of it lies; or a shard with its index."""

    file: MappedFile
    begin: int = 0
    size: int = 0
    entries: npt.NDArray[Any] | None = None


# By the id of their array, and the number of a chunk or the key of a shard.
_mapped = Lru[tuple[int, int | str], _MappedChunk](_MOST_MAPPED)


def _forget(array: int) -> None:
    for key in _mapped:
        if key[0] == array:
            _mapped.pop(key)


class ZarrChunks(StoredChunks):
    """The chunks of an array, in files or in any other store of zarr."""

    def __init__(
        self, path: str, name: str, array: Any, encoding: ChunkEncoding, place: Location
    ) -> None:
        """``place`` is the folder of the array: chunks of another one may take their place."""
        self._path, self._name, self._array = path, name, array
        self._grid, self._shards = encoding.grid, encoding.shards
        self._chain, self._nbytes = encoding.chain, encoding.chain.nbytes
        self._place = place
        at = array.store_path
        local = isinstance(at.store, zarr.storage.LocalStore)
        self._folder = os.path.join(str(at.store.root), at.path) if local else None
        # Files looked for so far: those of another array may have taken their place.
        self._looked = 0
        weakref.finalize(self, _forget, id(self))

    @property
    def remote(self) -> bool:
        return not self.mappable

    @property
    def mappable(self) -> bool:
        return self._folder is not None

    def check(self) -> None:
        self._place.check_unchanged()

    def error(self, number: int | None, why: str) -> DataError:
        where = ""
        if number is not None:
            where = f"the chunk at {self._grid.corner(number)}, {self._key(number)[0]}: "
        return DataError(
            f"{self._path}: {self._name!r} cannot be read: {where}{why}",
            file=self._path,
            field=self._name,
        )

    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        if self._folder is not None:
            return nullcontext(self._from_file)
        return self._requested(numbers)

    def _key(self, number: int) -> tuple[str, int]:
        """Return the key of the object that holds a chunk, and which chunk of it that is."""
        at = self._grid.position(number)
        if self._shards is None:
            return self._array.metadata.encode_chunk_key(at), 0
        shape = self._shards.shape
        shard = tuple(i // count for i, count in zip(at, shape, strict=True))
        within = tuple(i % count for i, count in zip(at, shape, strict=True))
        inner = int(np.ravel_multi_index(within, shape))
        return self._array.metadata.encode_chunk_key(shard), inner

    def _from_file(self, number: int) -> StoredChunk | None:
        if self._shards is None:
            return StoredChunk(os.fsencode(self._file_of(self._key(number)[0])))
        try:
            found = self._mapped_chunk(number)
        except NO_CHUNK:
            return None
        except OSError as e:
            raise self.error(number, f"{e.strerror}") from e
        if found is None:
            return None
        return StoredChunk(found.file.bytes[found.begin : found.begin + found.size])

    def _file_of(self, key: str) -> str:
        assert self._folder is not None
        return os.path.join(self._folder, key)

    def _index(self, number: int, stored: Bytes) -> npt.NDArray[Any]:
        assert self._shards is not None
        try:
            return self._shards.entries(stored)
        except ChunkError as e:
            raise self.error(number, f"the index of its shard: {e}") from e

    def _span(self, number: int, entry: Any, most: int) -> tuple[int, int] | None:
        """Return where a chunk begins in its shard, and its size; None if it is not there."""
        offset, size = int(entry["offset"]), int(entry["size"])
        if offset == size == _ABSENT:
            return None
        if offset + size > most:
            raise self.error(number, f"its shard has {most:,} bytes, not {offset + size:,}")
        return offset, size

    @contextmanager
    def _requested(self, numbers: Sequence[int]) -> Iterator[StoredOf]:
        """Get chunks from a store, several at a time."""
        yield sync(self._get_all(numbers)).get

    async def _get_all(self, numbers: Sequence[int]) -> dict[int, StoredChunk]:
        keys: dict[str, dict[int, int]] = {}
        for number in numbers:
            key, inner = self._key(number)
            keys.setdefault(key, {})[number] = inner
        # So many at a time as zarr would.
        at_once = asyncio.Semaphore(zarr.config.get("async.concurrency") or 10)
        get = partial(_get_object, self._array.store_path, at_once)
        work = self._get_chunk if self._shards is None else self._get_shard
        found = await asyncio.gather(*(work(get, key, inside) for key, inside in keys.items()))
        return {
            n: StoredChunk(data) for each in found for n, data in each.items() if data is not None
        }

    @staticmethod
    async def _get_chunk(get: _Get, key: str, inside: Mapping[int, int]) -> dict[int, Bytes | None]:
        return dict.fromkeys(inside, await get(key))

    async def _get_shard(
        self, get: _Get, key: str, inside: Mapping[int, int]
    ) -> dict[int, Bytes | None]:
        """Get chunks of a shard: all of them in one request, some by its index."""
        shards, first = self._shards, next(iter(inside))
        assert shards is not None
        size = shards.index_size
        whole = await get(key) if len(inside) == math.prod(shards.shape) else None
        part = SuffixByteRequest(size) if shards.at_end else RangeByteRequest(0, size)
        stored = await get(key, part) if whole is None else whole
        if stored is None:
            return {}
        index = self._index(first, stored[-size:] if shards.at_end else stored[:size])
        most = _ABSENT if whole is None else len(whole)
        found = {n: self._span(n, index[inner], most) for n, inner in inside.items()}
        spans = {n: span for n, span in found.items() if span is not None}
        if whole is not None:
            return {n: whole[at : at + count] for n, (at, count) in spans.items()}
        ranges = (RangeByteRequest(at, at + count) for at, count in spans.values())
        parts = await asyncio.gather(*(get(key, each) for each in ranges))
        return dict(zip(spans, parts, strict=True))

    def places(self, groups: Numbers) -> ChunkPlaces | None:
        known = _mapped.get((id(self), int(groups[0]))) if len(groups) == 1 else None
        if known is not None and self._grid.chunks_per_group == 1:  # a row of a chunk read before
            known.file.check_size()
            return ChunkPlaces([known.file], None, np.array([[known.begin]]), False)
        wanted, back = np.unique(groups, return_inverse=True)
        count = self._grid.chunks_per_group
        owners = np.zeros((len(wanted), count), np.uint32)
        offsets = np.full((len(wanted), count), -1, np.int64)
        files: dict[MappedFile, int] = {}
        looked = self._looked
        try:
            for i, group in enumerate(wanted.tolist()):
                for j in range(count):
                    found = self._mapped_chunk(group * count + j)
                    if found is not None:
                        offsets[i, j] = found.begin
                        owners[i, j] = files.setdefault(found.file, len(files))
        except OSError:  # it cannot be mapped; reading it will say why
            return None
        finally:
            if self._looked != looked:
                self._check_mapped()
        MappedFile.check_sizes(list(files))
        missing = bool((offsets < 0).any())
        return ChunkPlaces(
            list(files), owners[back] if len(files) > 1 else None, offsets[back], missing
        )

    def _check_mapped(self) -> None:
        try:
            self.check()
        except RecmapError:
            _forget(id(self))
            raise

    def _mapped_chunk(self, number: int) -> _MappedChunk | None:
        """Map the file that holds a chunk; None if it was never written."""
        known = _mapped.get((id(self), number))
        if known is not None:
            return known
        key, inner = self._key(number)
        if self._shards is None:
            file = self._map(key)
            found = None if file is None else _MappedChunk(file, 0, file.size)
        else:
            found = self._in_shard(number, key, inner)
        if found is None:
            return None
        if not self._chain and found.size != self._nbytes:
            raise self.error(number, f"it has {found.size:,} bytes, not {self._nbytes:,}")
        _mapped.put((id(self), number), found)
        return found

    def _in_shard(self, number: int, key: str, inner: int) -> _MappedChunk | None:
        shard = _mapped.get((id(self), key))
        if shard is None:
            file = self._map(key)
            if file is None:
                return None
            assert self._shards is not None
            size = self._shards.index_size
            stored = file.bytes[-size:] if self._shards.at_end else file.bytes[:size]
            shard = _MappedChunk(file, entries=self._index(number, stored))
            _mapped.put((id(self), key), shard)
        assert shard.entries is not None
        span = self._span(number, shard.entries[inner], shard.file.size)
        return None if span is None else _MappedChunk(shard.file, *span)

    def _map(self, key: str) -> MappedFile | None:
        """Map a file of this array; None if there is none."""
        self._looked += 1
        path = self._file_of(key)
        return MappedFile(path) if os.path.isfile(path) else None


async def _get_object(
    at: Any, at_once: asyncio.Semaphore, key: str, part: Any = None
) -> Bytes | None:
    """Get an object of an array from a store of zarr."""
    async with at_once:
        whole = f"{at.path}/{key}" if at.path else key
        found = await at.store.get(whole, default_buffer_prototype(), part)
    data: Bytes | None = None if found is None else found.as_numpy_array().view(np.uint8)
    return data


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)
