"""Where the chunks of Zarr arrays are stored.

A shard holds several chunks, and an index of their places. To recmap they are chunks like others.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
import zarr.storage
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from recmap.chunks.array import Stored, StoredOf
from recmap.chunks.codecs import Bytes, ChunkError
from recmap.chunks.mapped import ChunkPlaces
from recmap.errors import DataError
from recmap.formats.zarr.encoding import Encoding
from recmap.local.location import Location
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.model.fetching import Fetching

Numbers = npt.NDArray[np.int64]

# Files of chunks kept mapped, and bytes of shard indexes kept.
_MAPPED_FILES = 4096
_INDEX_SIZE = 16 << 20
# Both numbers of a chunk that a shard does not have.
_ABSENT = 2**64 - 1
# What a file that holds no chunk is for zarr.
_NO_CHUNK = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class ZarrChunks:
    """The chunks of an array, in files or in any other store of zarr."""

    def __init__(
        self, path: str, name: str, array: Any, encoding: Encoding, place: Location
    ) -> None:
        """``place`` is the folder of the array: chunks of another one may take their place."""
        self._path, self._name, self._array = path, name, array
        self._grid, self._shards = encoding.grid, encoding.shards
        self._nbytes = encoding.chain.nbytes
        self._place = place
        at = array.store_path
        local = isinstance(at.store, zarr.storage.LocalStore)
        self._folder = os.path.join(str(at.store.root), at.path) if local else None
        self._mapped = Lru[int, tuple[MappedFile, int]](_MAPPED_FILES)
        self._files = Lru[str, MappedFile](_MAPPED_FILES)
        self._indexes = Lru[Any, npt.NDArray[Any]](_INDEX_SIZE, lambda index: index.nbytes)

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

    def fetch_ahead(self, numbers: Sequence[int]) -> Fetching | None:
        del numbers  # zarr makes the requests
        return None

    def written(self, numbers: range) -> Sequence[int]:
        return numbers  # looking takes as long as reading

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

    def _from_file(self, number: int) -> Stored | None:
        assert self._folder is not None
        key, inner = self._key(number)
        try:
            with open(os.path.join(self._folder, key), "rb", buffering=0) as file:
                if self._shards is None:
                    return Stored(np.frombuffer(file.readall(), np.uint8))
                return self._of_shard(number, inner, file)
        except _NO_CHUNK:
            return None
        except OSError as e:
            raise self.error(number, f"{e.strerror}") from e

    def _of_shard(self, number: int, inner: int, file: Any) -> Stored | None:
        state = os.fstat(file.fileno())
        # A shard may be written again while it is read.
        version = file.name, state.st_ino, state.st_size, state.st_mtime_ns
        index = self._indexes.get(version)
        if index is None:
            assert self._shards is not None
            size = self._shards.index_size
            begin = max(0, state.st_size - size) if self._shards.at_end else 0
            index = self._index(number, os.pread(file.fileno(), size, begin))
            self._indexes.put(version, index)
        span = self._span(number, index[inner], state.st_size)
        return None if span is None else Stored(_bytes(os.pread(file.fileno(), span[1], span[0])))

    def _index(self, number: int, stored: bytes) -> npt.NDArray[Any]:
        assert self._shards is not None
        try:
            return self._shards.entries(_bytes(stored))
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

    async def _get_all(self, numbers: Sequence[int]) -> dict[int, Stored]:
        keys: dict[str, dict[int, int]] = {}
        for number in numbers:
            key, inner = self._key(number)
            keys.setdefault(key, {})[number] = inner
        get = _Requests(self._array.store_path)
        work = self._get_chunk if self._shards is None else self._get_shard
        found = await asyncio.gather(*(work(get, key, inside) for key, inside in keys.items()))
        return {n: Stored(data) for each in found for n, data in each.items() if data is not None}

    @staticmethod
    async def _get_chunk(
        get: _Requests, key: str, inside: Mapping[int, int]
    ) -> dict[int, Bytes | None]:
        data = await get(key)
        return dict.fromkeys(inside, data)

    async def _get_shard(
        self, get: _Requests, key: str, inside: Mapping[int, int]
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
        index = self._index(first, (stored[-size:] if shards.at_end else stored[:size]).tobytes())
        most = _ABSENT if whole is None else len(whole)
        found = {n: self._span(n, index[inner], most) for n, inner in inside.items()}
        spans = {n: span for n, span in found.items() if span is not None}
        if whole is not None:
            return {n: whole[at : at + count] for n, (at, count) in spans.items()}
        ranges = (RangeByteRequest(at, at + count) for at, count in spans.values())
        parts = await asyncio.gather(*(get(key, each) for each in ranges))
        return dict(zip(spans, parts, strict=True))

    def places(self, groups: Numbers) -> ChunkPlaces | None:
        if self._folder is None:
            return None
        wanted, back = np.unique(groups, return_inverse=True)
        count = self._grid.chunks_per_group
        owners = np.zeros((len(wanted), count), np.uint32)
        offsets = np.full((len(wanted), count), -1, np.int64)
        files: dict[str, tuple[int, MappedFile]] = {}
        for i, group in enumerate(wanted.tolist()):
            for j in range(count):
                found = self._mapped_chunk(group * count + j)
                if found is not None:
                    file, offsets[i, j] = found
                    owners[i, j] = files.setdefault(file.path, (len(files), file))[0]
        mapped = [file for _, file in files.values()]
        MappedFile.check_sizes(mapped)
        missing = bool((offsets < 0).any())
        return ChunkPlaces(
            mapped, owners[back] if len(mapped) > 1 else None, offsets[back], missing
        )

    def _mapped_chunk(self, number: int) -> tuple[MappedFile, int] | None:
        """Return the file that holds a chunk, and where; None if it was never written."""
        known = self._mapped.get(number)
        if known is not None:
            return known
        assert self._folder is not None
        key, inner = self._key(number)
        file = self._file(os.path.join(self._folder, key))
        span = None if file is None else self._span_of(number, inner, file)
        if file is None or span is None:
            return None
        if span[1] != self._nbytes:
            raise self.error(number, f"it has {span[1]:,} bytes, not {self._nbytes:,}")
        self._mapped.put(number, (file, span[0]))
        return file, span[0]

    def _file(self, path: str) -> MappedFile | None:
        """Map a file that holds chunks; None if there is none."""
        if self._shards is None:
            return MappedFile(path) if os.path.isfile(path) else None
        file = self._files.get(path)
        if file is None and os.path.isfile(path):
            file = MappedFile(path)
            self._files.put(path, file)
        return file

    def _span_of(self, number: int, inner: int, file: MappedFile) -> tuple[int, int] | None:
        if self._shards is None:
            return 0, file.size
        index = self._indexes.get(file)
        if index is None:
            size = self._shards.index_size
            stored = file.bytes[-size:] if self._shards.at_end else file.bytes[:size]
            index = self._index(number, stored.tobytes())
            self._indexes.put(file, index)
        return self._span(number, index[inner], file.size)


class _Requests:
    """Gets objects of an array from a store of zarr, so many at a time as zarr would."""

    def __init__(self, at: Any) -> None:
        self._at = at
        self._at_once = asyncio.Semaphore(zarr.config.get("async.concurrency") or 10)

    async def __call__(self, key: str, part: Any = None) -> Bytes | None:
        whole = f"{self._at.path}/{key}" if self._at.path else key
        async with self._at_once:
            found = await self._at.store.get(whole, default_buffer_prototype(), part)
        data: Bytes | None = None if found is None else found.as_numpy_array().view(np.uint8)
        return data


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)
