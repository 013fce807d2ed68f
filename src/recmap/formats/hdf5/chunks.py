"""Chunked datasets: where their chunks lie, and the filters that were applied to them.

Chunks are read and decoded on recmap's own threads, outside the HDF5 lock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.chunks import codecs
from recmap.chunks.array import ChunkedArray
from recmap.chunks.codecs import Codec, CodecChain, bitshuffle, packed, shuffle
from recmap.chunks.stored import (
    ChunkPlaces,
    Grid,
    LibraryChunks,
    StoredChunk,
    StoredChunks,
    StoredOf,
    Values,
)
from recmap.errors import DataError
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.model.fetching import Fetching
from recmap.store.mapped_files import fetch_ahead

Numbers = npt.NDArray[Any]
# A table of the places of more chunks would take too much memory.
_MOST_PLACES = 1 << 20
# Numbers of filters.
DEFLATE, SHUFFLE, FLETCHER32, SZIP, LZO, LZF, BITSHUFFLE = 1, 2, 3, 4, 305, 32000, 32008

_NAMES = {
    DEFLATE: "gzip",
    SHUFFLE: "shuffle",
    FLETCHER32: "fletcher32",
    SZIP: "szip",
    5: "nbit",
    6: "scaleoffset",
    LZO: "lzo",
    LZF: "lzf",
}
# The filters in the package hdf5plugin.
_PLUGINS = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    BITSHUFFLE: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}
_NAMES |= _PLUGINS
_CODECS = {DEFLATE: codecs.ZLIB, FLETCHER32: codecs.FLETCHER32, LZF: codecs.LZF}
_IN_BITSHUFFLE = {0: "", 2: "lz4", 3: "zstd"}
_PACKED = {32001: "blosc", 32004: "hdf5_lz4", 32015: "zstd"}


def chunked_array(
    file: Hdf5File,
    name: str,
    dataset: Any,
    dtype: np.dtype[Any],
    chain: CodecChain,
    label: str | None = None,
) -> ChunkedArray:
    """Return a dataset with chunks that decode to the layout of a NumPy array. Calls h5py.

    A dataset of lists decodes to the references to its lists. ``name`` is the path of the
    dataset, ``label`` its key in the chunk cache.
    """
    # False if the chunks hold references to lists.
    values = dtype == dataset.dtype
    grid = Grid(dataset.shape, dataset.chunks)
    chunks = Hdf5Chunks(file, name, grid, chain, values)
    fill = _fill(dataset) if values else np.zeros((), dtype)[()]
    return ChunkedArray(chunks, grid, dtype, chain, fill, file.chunk_cache, label or name)


def library_array(file: Hdf5File, name: str, dataset: Any) -> ChunkedArray:
    """Return a dataset with chunks that only h5py can decode, all of a row group at once."""

    def load(start: int, stop: int) -> Values:
        with file.locked(name):
            read: Values = file.dataset(name)[start:stop]
            return read

    grid = Grid(dataset.shape, (dataset.chunks[0], *dataset.shape[1:]))
    chunks = LibraryChunks(grid, load, partial(_error, file, name))
    chain, label = CodecChain([], 0), f"{name} (h5py)"
    return ChunkedArray(chunks, grid, dataset.dtype, chain, None, file.chunk_cache, label)


def _error(file: Hdf5File, name: str, why: str, byte: int | None = None) -> DataError:
    return DataError(f"{file.path}: dataset {name!r}: {why}", file=file.path, byte=byte, field=name)


class Hdf5Chunks(StoredChunks):
    """The chunks of a dataset, found when the first is needed."""

    def __init__(
        self, file: Hdf5File, name: str, grid: Grid, chain: CodecChain, values: bool
    ) -> None:
        self._file, self._name, self._grid = file, name, grid
        self._chain, self._values = chain, values
        self._index: ChunkIndex | None = None
        self._asked = False

    @property
    def remote(self) -> bool:
        return not self.mappable

    @property
    def mappable(self) -> bool:
        return self._file.mapped.whole

    def _found(self) -> ChunkIndex | None:
        if not self._asked:
            with self._file.locked(self._name):
                if not self._asked:
                    self._index = ChunkIndex.of(self._file.dataset(self._name), self._grid)
                    self._asked = True
        return self._index

    def written(self, numbers: range) -> Sequence[int]:
        index = self._found()
        return numbers if index is None else index.written(numbers)

    @contextmanager
    def fetched(self, numbers: Sequence[int]) -> Iterator[StoredOf]:
        """Make the bytes of all chunks available. Those of an object are fetched at once."""
        index = self._found()
        entries = None if index is None else index.entries(np.array(numbers, np.int64)).tolist()
        found = None if entries is None else dict(zip(numbers, entries, strict=True))
        with self._file.mapped.hold(*self._spans(numbers)) if self.remote else nullcontext():
            yield partial(self._stored, found)

    def fetch_ahead(self, numbers: Sequence[int]) -> Fetching | None:
        return fetch_ahead(self._file.mapped, *self._spans(numbers))

    def _spans(self, numbers: Sequence[int]) -> tuple[Numbers, Numbers]:
        index = self._found()
        if index is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        entries = index.entries(np.array(numbers, np.int64))
        entries = entries[entries >= 0]
        return self._file.spans(index.offsets[entries], index.sizes[entries])

    def _stored(
        self, entries: dict[int, int] | None, number: int
    ) -> StoredChunk | Callable[[], Values] | None:
        index = self._index
        if index is None or entries is None:  # the table of chunks cannot be trusted
            return partial(self._through_library, number, "its chunks are not found")
        entry = entries[number]
        if entry < 0:
            return None
        offset, size = int(index.offsets[entry]), int(index.sizes[entry])
        if self._chain and size == self._chain.nbytes and self._grid.at_edge(number):
            # Chunks at the edges may be stored unfiltered, and h5py does not say which are.
            return partial(self._through_library, number, "it may or may not be filtered")
        left = max(0, self._file.size - offset)
        if left < size:
            raise self.error(number, f"the file ends after {left:,} of its {size:,} bytes")
        return StoredChunk(*self._file.place(offset, size), int(index.masks[entry]))

    def _through_library(self, number: int, why: str) -> Values:
        """Read a chunk through h5py, or raise an error if it holds references."""
        if not self._values:
            raise self.error(number, why)
        corner = self._grid.corner(number)
        extent = self._grid.extent(corner)
        with self._file.locked(self._name):
            dataset = self._file.dataset(self._name)
            missing = missing_filters(dataset.id.get_create_plist())
            if missing:
                only = f"only the HDF5 library can read it; {how_to_get(missing[0][0])}"
                raise self.error(number, f"{why}, so {only}")
            region = tuple(slice(at, at + n) for at, n in zip(corner, extent, strict=True))
            read: Values = dataset[region]
            return read

    def places(self, groups: npt.NDArray[np.int64]) -> ChunkPlaces | None:
        offsets, missing = self._table
        if offsets is None:
            return None
        return ChunkPlaces([self._file.mapped], None, offsets[groups], missing)

    @cached_property
    def _table(self) -> tuple[npt.NDArray[np.int64] | None, bool]:
        """Where all chunks of unfiltered data begin, by row group, and whether some are missing.

        None if there are too many of them, or one is not what it should be.
        """
        index, count = self._found(), math.prod(self._grid.counts)
        if index is None or count > _MOST_PLACES or not self._sound(index):
            return None, False
        entries = index.entries(np.arange(count))
        offsets = np.append(index.offsets, -1)[entries]
        return offsets.reshape(-1, self._grid.chunks_per_group), bool((entries < 0).any())

    def _sound(self, index: ChunkIndex) -> bool:
        """Return whether all chunks have their size and lie in the file."""
        same = (index.sizes == self._chain.nbytes).all()
        last = self._file.size - self._chain.nbytes
        return bool(same and (index.offsets >= 0).all() and (index.offsets <= last).all())

    def error(self, number: int | None, why: str) -> DataError:
        where, byte = "", None
        index = self._index
        entry = None if number is None or index is None else index.entry(number)
        if number is not None and index is not None and entry is not None:
            byte = int(index.offsets[entry])
            corner, size = self._grid.corner(number), int(index.sizes[entry])
            where = f"the chunk at {corner}, {size:,} bytes at byte {byte:,}: "
        return _error(self._file, self._name, f"{where}{why}", byte)


class ChunkIndex:
    """The chunks that were written: their numbers in order, and their place in the file."""

    def __init__(self, numbers: Numbers, where: Numbers) -> None:
        """``where`` holds the byte offset, the size and the filter mask of each chunk."""
        self._numbers = numbers
        self.offsets, self.sizes, self.masks = where.astype(np.int64).T.copy()

    def __len__(self) -> int:
        return len(self._numbers)

    @staticmethod
    def of(dataset: Any, grid: Grid) -> ChunkIndex | None:
        """Get the table of chunks from the library; None if the table cannot be right."""
        if not _reliable(dataset):
            return None
        corners, where = array("Q"), array("Q")

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                corners.extend(chunk.chunk_offset)
                where.extend((chunk.byte_offset, chunk.size, chunk.filter_mask))

        dataset.id.chunk_iter(note)
        at = np.array(corners, np.uint64).reshape(-1, len(grid.shape))
        chunk = np.array(grid.chunk, np.uint64)
        if (at % chunk).any() or (at >= np.array(grid.shape, np.uint64)).any():
            return None
        at //= chunk
        numbers = np.zeros(len(at), np.int64)
        for axis, count in enumerate(grid.counts):
            numbers = numbers * count + at[:, axis].astype(np.int64)
        numbers, first = np.unique(numbers, return_index=True)
        found = np.array(where, np.uint64).reshape(-1, 3)
        if len(numbers) < len(found) or not _complete(dataset, grid, found):
            return None
        return ChunkIndex(numbers, found[first])

    def entries(self, numbers: Numbers) -> Numbers:
        """Return the entries of chunks, positions in ``offsets`` and so on; -1 if not written."""
        if not len(self):
            return np.full(numbers.shape, -1)
        found = np.minimum(np.searchsorted(self._numbers, numbers), len(self) - 1)
        return np.where(self._numbers[found] == numbers, found, -1)

    def written(self, numbers: range) -> list[int]:
        """Return those of some chunks that were written."""
        first, end = np.searchsorted(self._numbers, [numbers.start, numbers.stop])
        found: list[int] = self._numbers[first:end].tolist()
        return found

    def entry(self, number: int) -> int | None:
        """Return the entry of a chunk; None if it was not written."""
        at = int(np.searchsorted(self._numbers, number))
        return at if at < len(self) and self._numbers[at] == number else None


def _reliable(dataset: Any) -> bool:
    # A dataset with one unlimited axis indexes its chunks in an extensible array, which puts
    # that axis first. HDF5 1.14 ignores this when it lists the chunks: it reports the corners
    # of other chunks, and these may still tile the grid. h5py does not expose which kind of
    # index a dataset has.
    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    return len(unlimited) != 1 or unlimited == [0]


def _complete(dataset: Any, grid: Grid, where: Numbers) -> bool:
    """Tell whether the table has as many chunks and bytes as the dataset."""
    whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    if whole and len(where) != math.prod(grid.counts):
        return False
    return int(where[:, 1].sum()) == int(dataset.id.get_storage_size())


def _fill(dataset: Any) -> Any:
    """Return the value of chunks that were never written."""
    defined = dataset.id.get_create_plist().fill_value_defined()
    if defined == h5py.h5d.FILL_VALUE_UNDEFINED:
        return np.zeros((), dataset.dtype)[()]
    return dataset.fillvalue


def filters_of(storage: Any) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    """Return the number, flags, parameters and name of each filter of a dataset. Calls h5py."""
    return [storage.get_filter(i) for i in range(storage.get_nfilters())]


def missing_filters(storage: Any) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    """Return those filters of a dataset that the library does not have. Calls h5py."""
    return [f for f in filters_of(storage) if not h5py.h5z.filter_avail(f[0])]


def filter_names(filters: Sequence[tuple[int, int, tuple[int, ...], bytes]]) -> str:
    """Format the names of filters for display, like ``gzip+shuffle``."""
    names = {n: name.decode("utf-8", "replace") or f"filter {n}" for n, _, _, name in filters}
    return "+".join(_NAMES.get(n, names[n]) for n in sorted(names))


def how_to_get(number: int) -> str:
    """Say what to do about a filter that the library is missing."""
    if number in _PLUGINS:
        return "pip install hdf5plugin and import it"
    repack = "h5repack -f GZIP=4 old.h5 new.h5"
    if number == LZO:
        return (
            "hdf5plugin does not have it. Rewrite the file with a PyTables that does, such as "
            "conda-forge's: ptrepack --complib=zlib old.h5 new.h5; or, with an LZO plugin in "
            f"HDF5_PLUGIN_PATH, {repack}"
        )
    if number == SZIP:
        return "this h5py was built without it; the one from PyPI has it: pip install h5py"
    return (
        "hdf5plugin does not have it either. Put its plugin into HDF5_PLUGIN_PATH, or rewrite "
        f"the file on a machine that can read it: {repack}"
    )


def codecs_of(storage: Any, chunk: tuple[int, ...], itemsize: int) -> CodecChain | None:
    """Return the codecs of a dataset with chunks of this shape; None if recmap has not all.

    Calls h5py.
    """
    found = [_codec(number, values) for number, _, values, _ in filters_of(storage)]
    known = [codec for codec in found if codec is not None]
    chain = CodecChain(known, math.prod(chunk) * itemsize)
    return chain if len(known) == len(found) and chain.known else None


def _codec(number: int, values: tuple[int, ...]) -> Codec | None:
    if number == SHUFFLE:
        return shuffle(values[0] if values else 1)
    if number == BITSHUFFLE:
        _, _, item_size, block_items, compression = (*values, 0, 0, 0, 0, 0)[:5]
        return bitshuffle(item_size, block_items, _IN_BITSHUFFLE.get(compression, "?"))
    return packed(_PACKED[number]) if number in _PACKED else _CODECS.get(number)
