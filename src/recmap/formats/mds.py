"""Shards of Mosaic Streaming (MDS): a folder with an ``index.json``."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.chunks.codecs import GZIP, ChunkError, CodecChain, packed
from recmap.errors import DataError, FieldNotFoundError, LeftOut, MissingPackageError
from recmap.formats.column_source import reopened, warn_of_left_out
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.machine.lru import Lru
from recmap.machine.mapped import Guard, guarded
from recmap.model.arguments import no_column
from recmap.model.batch import RowArray, gather_from
from recmap.model.description import json_object
from recmap.model.facts import LargestChunk, SourceFacts
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.null_columns import empty_column
from recmap.model.preview import listed
from recmap.model.ragged import BYTE, Column, Ragged
from recmap.model.row_sizes import OFFSET, fitting
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.model.text import stored_strings
from recmap.store.mapped_files import MappedFiles

Bytes: TypeAlias = npt.NDArray[np.uint8]
Hold: TypeAlias = Callable[[npt.ArrayLike, npt.ArrayLike], AbstractContextManager[None]]

# Values may take this many times their bytes while they are decoded.
_GROWTH = 3
# Longer values are copied one by one, and shorter ones byte by byte, in one call.
_SLICE_FROM = 64
# An index lists each shard in about 500 bytes.
_MOST_INDEX = 256 << 20
# Offsets in a shard are uint32.
_MOST_SHARD = 2**32 - 1
# Decompressed shards that are kept.
_KEPT = 2
_CODECS = ("zstd", "gz")
# Hashes of one length, which Python always has.
_HASHES = {name for name in hashlib.algorithms_guaranteed if not name.startswith("shake")}
_SCALARS = {
    "int": "int64",
    **{
        name: name
        for name in (
            *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
            *("float16", "float32", "float64"),
        )
    },
}
_STRINGS = {
    **dict.fromkeys(("bytes", "jpeg", "png"), "bytes"),
    # Numbers of any length are the digits that are stored.
    **dict.fromkeys(("str", "json", "str_int", "str_float", "str_decimal"), "text"),
}
_REFUSED = {
    "pkl": "holds pickles, which recmap never loads, because they can run any code",
    "pil": "holds raw pixels of PIL, in any size; write them as png or jpeg",
}
# The numbers of dtypes and of the dtypes of shapes, in arrays that tell them.
_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPES = ("<u1", "<u2", "<u4", "<u8")


@dataclass(frozen=True)
class MdsColumn:
    """A column of an index. ``field`` is None if only its values tell their type.

    ``dtype`` and ``shape`` are those of arrays, if the index has them.
    """

    name: str
    size: int | None
    field: Field | None = None
    refusal: str = ""
    #: Whether values are arrays, and what the index tells of them.
    array: bool = False
    dtype: str | None = None

    @classmethod
    def listed(cls, shard: Mapping[str, Any]) -> list[MdsColumn]:
        """Return the columns that the index lists for a shard."""
        lists = [shard[f"column_{what}"] for what in ("names", "encodings", "sizes")]
        if len({len(each) for each in lists}) != 1 or len(set(lists[0])) != len(lists[0]):
            raise ValueError("its column_names, column_encodings and column_sizes do not match")
        return [cls._of(*each) for each in zip(*lists, strict=True)]

    @classmethod
    def _of(cls, name: str, encoding: str, size: int | None) -> MdsColumn:
        column = cls._encoded(name, encoding)
        if column.refusal:
            fits = size is None or (type(size) is int and 0 < size < 2**32)
        else:
            fits = size == column.size and type(size) is type(column.size)
        if not fits:
            raise ValueError(f"column {name!r} is {encoding}, but has the size {size!r}")
        return replace(column, size=size)

    @classmethod
    def _encoded(cls, name: str, encoding: str) -> MdsColumn:
        kind, _, details = encoding.partition(":")
        if encoding in _SCALARS:
            field = Field(np.dtype(_SCALARS[encoding]).newbyteorder("<"))
            return cls(name, field.dtype.itemsize, field)
        if encoding in _STRINGS:
            return cls(name, None, Field(_STRINGS[encoding]))
        if kind != "ndarray":
            return cls(name, None, refusal=_REFUSED.get(encoding) or f"is {encoding}")
        dtype, _, shape = details.partition(":")
        if dtype and dtype not in _DTYPES.values():
            raise ValueError(f"column {name!r} is {encoding}")
        if not shape:
            return cls(name, None, None, array=True, dtype=dtype or None)
        axes = tuple(int(axis) for axis in shape.split(","))
        size = math.prod(axes) * np.dtype(dtype).itemsize
        if not dtype or any(axis < 1 for axis in axes) or size >= 2**32:
            raise ValueError(f"column {name!r} is {encoding}")
        return cls(name, size, Field(np.dtype(dtype).newbyteorder("<"), axes))

    def like(self, value: bytes) -> MdsColumn:
        """Return the column with the type of an array that is in it."""
        dtype, shape, _ = self._parsed(value)
        return replace(self, field=Field(dtype, (None, *shape[1:])))

    def decode(self, strings: Ragged, path: str, rows: RowArray) -> Column:
        """Return the values of rows, given their bytes. ``rows`` are their numbers, for errors."""
        assert self.field is not None
        if self.field.is_bytes:
            return stored_strings(path, self.name, self.field, strings, rows)
        flat = np.ascontiguousarray(strings.flat).view(np.uint8)
        if self.size is not None:
            return flat.view(self.field.dtype).reshape(len(rows), *self.field.inner)
        inner = self.field.shape[1:]
        values, lengths = [], []
        for row, string in zip(rows.tolist(), strings.tolist(), strict=True):
            try:
                dtype, shape, found = self._parsed(string)
                if dtype != self.field.dtype or shape[1:] != inner:
                    raise ValueError(f"an array of {dtype}{list(shape)}, unlike the first")
            except ValueError as e:
                raise DataError(
                    f"{path}: column {self.name!r}, row {row:,}: {e}; it is {self.field}. Choose "
                    "other columns, columns=[...]",
                    file=path,
                    record=row,
                    field=self.name,
                ) from e
            values.append(found)
            lengths.append(shape[0])
        if not values:
            return empty_column(self.field)
        return Ragged(
            np.concatenate(values), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        )

    def _parsed(self, value: bytes) -> tuple[np.dtype[Any], tuple[int, ...], Any]:
        """Return dtype, shape and values of an array that tells its shape, and perhaps its dtype.

        Raise a ValueError if it is not one.
        """
        at, name = 0, self.dtype
        if name is None:
            name, at = _DTYPES.get(value[0] if value else -1), 1
        if name is None or len(value) <= at:
            raise ValueError("not an array")
        dtype, kind = np.dtype(name).newbyteorder("<"), np.dtype(_SHAPES[value[at] & 3])
        axes, at = value[at] >> 2, at + 1
        end = at + axes * kind.itemsize
        shape = tuple(np.frombuffer(value[at:end], kind).tolist())
        size = math.prod(shape) * dtype.itemsize
        if len(shape) != axes or not axes or 0 in shape or len(value) - end != size:
            raise ValueError(f"{len(value) - end:,} bytes for an array of {dtype}{list(shape)}")
        return dtype, shape, np.frombuffer(value, dtype, -1, end).reshape(shape)


@dataclass(frozen=True)
class MdsShard:
    """What the index says about a shard."""

    path: Location
    #: How the file is compressed; "" if it is not.
    codec: str
    #: The bytes that it has decompressed.
    size: int
    samples: int
    hashes: dict[str, str]


def check_shards(path: str) -> Iterator[tuple[str, DataError | None]] | None:
    """Compare the hashes of every shard; None if the index has none that Python knows."""
    _, shards = _read_index(path)
    known = [shard for shard in shards if set(shard.hashes) & _HASHES]
    return _hashed(known) if known or not shards else None


def _hashed(shards: Sequence[MdsShard]) -> Iterator[tuple[str, DataError | None]]:
    for shard in shards:
        wrong: DataError | None = None
        file = shard.path.map()
        with file.hold(0, file.size):
            for name in set(shard.hashes) & _HASHES:
                found = hashlib.new(name, file.bytes.data, usedforsecurity=False).hexdigest()
                if found != shard.hashes[name]:
                    why = f"its {name} is {found}, but {shard.hashes[name]} in the index"
                    wrong = DataError(f"{shard.path}: {why}", file=shard.path)
        yield shard.path.name, wrong


def _read_index(path: str) -> tuple[list[MdsColumn], list[MdsShard]]:
    """Return the columns and the shards of an index."""

    def fail(why: str) -> DataError:
        return DataError(f"{path}: not an index of Mosaic Streaming: {why}", file=path)

    try:
        content = json_object(located(path).text(_MOST_INDEX))
        if content.get("version") != 2:
            raise fail(f"version {content.get('version')!r}, not 2")
        told = content["shards"]
        if not isinstance(told, list) or not told:
            raise fail("it lists no shards")
        columns = MdsColumn.listed(told[0])
        for entry in told:
            if entry.get("format") != "mds":
                raise fail(f"a shard of format {entry.get('format')!r}, which recmap does not read")
            if MdsColumn.listed(entry) != columns:
                raise fail("its shards have different columns")
        return columns, [_shard(path, entry) for entry in told]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise fail(f"{type(e).__name__}: {e}" if isinstance(e, KeyError) else str(e)) from e


def _shard(path: str, told: dict[str, Any]) -> MdsShard:
    compression, raw, zipped = told.get("compression"), told["raw_data"], told.get("zip_data")
    algorithm = str(compression or "").partition(":")[0]
    if algorithm not in ("", *_CODECS):
        raise ValueError(
            f"its shards are compressed with {algorithm}; recmap reads zstd and gz, so decompress "
            "them, or write them again"
        )
    folder = located(path)
    # Streaming keeps decompressed shards beside those that it has downloaded.
    is_packed = zipped is not None and (folder.remote or not folder.sibling(_name(raw)).is_file())
    file: Any = zipped if is_packed else raw
    samples, size = told["samples"], raw["bytes"]
    for number in (samples, size):
        if type(number) is not int or not 0 <= number <= _MOST_SHARD:
            raise ValueError(f"a shard of {samples!r} samples and {size!r} bytes")
    hashes = file.get("hashes") or {}
    codec = algorithm if is_packed else ""
    return MdsShard(folder.sibling(_name(file)), codec, size, samples, dict(hashes))


def _name(file: Any) -> str:
    name = file["basename"]
    if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
        raise ValueError(f"a shard with the name {name!r}")
    return name


class MdsSource(Source):
    """The samples of all shards, end to end."""

    def __init__(self, path: str, names: Sequence[str] | None = None) -> None:
        self._path = path
        self._columns, self._shards = _read_index(path)
        counts = [shard.samples for shard in self._shards]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._files = MappedFiles()
        self._unpacked = Lru[int, Bytes](_KEPT)
        self._lock = Lock()
        self._chosen = [self._typed(column) for column in _choose(path, self._columns, names)]
        self._schema = Schema({c.name: c.field for c in self._chosen if c.field is not None})

    def __reduce__(self) -> tuple[Any, ...]:
        reopen = partial(MdsSource, self._path, list(self._schema))
        return reopened, (reopen, self._schema, len(self))

    def _typed(self, column: MdsColumn) -> MdsColumn:
        """Return a column with a type: arrays that the index does not tell are like the first."""
        if column.field is not None:
            return column
        first = next((i for i, shard in enumerate(self._shards) if shard.samples), None)
        if first is None:
            return replace(column, field=Field("uint8", (None,)))
        with Guard(self._path):
            strings = self._strings(first, np.zeros(1, np.int64), [column])
        try:
            return column.like(strings[column.name].tolist()[0])
        except ValueError as e:
            path = self._shards[first].path
            raise DataError(
                f"{path}: column {column.name!r}, row 0: {e}", file=path, field=column.name
            ) from e

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        compressed = [shard for shard in self._shards if shard.codec]
        rows = max((shard.samples for shard in compressed), default=1)
        size = max((shard.size for shard in compressed), default=0)
        return SourceFacts(
            "mds",
            [self._path, *(shard.path for shard in self._shards)],
            chunk_rows=partial(max, rows, 1),
            largest_chunk=partial(LargestChunk, size),
            stored_in_order=bool(compressed),
            owns_rows=True,
            remote=located(self._path).remote,
        )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def info(self) -> Info:
        size = sum(located(shard.path).size_below() for shard in self._shards)
        return replace(super().info(), size=size + located(self._path).size_below())

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        rows = np.arange(start, max(start, min(stop, len(self))), dtype=np.int64)
        if limit is not None and len(rows):
            shard = int(np.searchsorted(self._starts, start, side="right")) - 1
            rows = rows[: int(self._starts[shard + 1]) - start]
            sizes = np.diff(self._places(shard, rows - self._starts[shard]), axis=0)[0]
            rows = rows[: fitting(_GROWTH * sizes + OFFSET * len(self._chosen), len(rows), limit)]
        return self.gather(rows)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        if not len(rows):
            return {name: empty_column(field) for name, field in self._schema.items()}
        return gather_from(self._starts, rows, self._of_shard)

    def select(self, names: Sequence[str]) -> MdsSource:
        return MdsSource(self._path, list(self._schema.select(names)))

    @guarded
    def _of_shard(self, number: int, rows: RowArray) -> Batch:
        strings = self._strings(number, rows, self._chosen)
        path, first = self._shards[number].path, int(self._starts[number])
        return {c.name: c.decode(strings[c.name], path, rows + first) for c in self._chosen}

    def _strings(
        self, number: int, rows: RowArray, columns: Sequence[MdsColumn]
    ) -> dict[str, Ragged]:
        """Return the bytes of the values of some samples of a shard."""
        begins, ends = self._places(number, rows)
        data, hold = self._content(number)
        varying = [column for column in self._columns if column.size is None]
        head = 4 * len(varying)
        with hold(begins, ends):
            self._check(number, rows, begins + head <= ends)
            heads = data[begins[:, None] + np.arange(head)].view("<u4").astype(np.int64)
            sizes = np.array([c.size or 0 for c in self._columns]) + np.zeros((len(rows), 1), int)
            sizes[:, [c.size is None for c in self._columns]] = heads
            self._check(number, rows, begins + head + sizes.sum(axis=1) == ends)
            starts = begins[:, None] + head + np.cumsum(sizes, axis=1) - sizes
            chosen = {column.name for column in columns}
            return {
                column.name: _spans(data, starts[:, i], sizes[:, i])
                for i, column in enumerate(self._columns)
                if column.name in chosen
            }

    def _places(self, number: int, rows: RowArray) -> npt.NDArray[np.int64]:
        """Return where samples of a shard begin and end."""
        shard = self._shards[number]
        data, hold = self._content(number)
        table = 4 * (shard.samples + 2)
        if len(data) != shard.size or table > shard.size:
            raise self._error(number, f"{len(data):,} bytes for {shard.samples:,} samples, not "
                f"{shard.size:,} as the index says")  # fmt: skip
        at = 4 + 4 * rows
        with hold(np.append(at, 0), np.append(at + 8, 4)):
            (samples,) = data[:4].view("<u4")
            if samples != shard.samples:
                told = f"{samples:,} samples, not {shard.samples:,} as the index says"
                raise self._error(number, told)
            pairs = data[at[:, None] + np.arange(8)].view("<u4").astype(np.int64)
        begins, ends = pairs.T
        self._check(number, rows, (table <= begins) & (begins <= ends) & (ends <= len(data)))
        return np.stack([begins, ends])

    def _check(self, number: int, rows: RowArray, sound: npt.NDArray[np.bool_]) -> None:
        if not sound.all():
            row = int(rows[~sound][0])
            raise self._error(number, f"sample {row:,} has sizes that do not fit", row)

    def _error(self, number: int, why: str, row: int | None = None) -> DataError:
        path = self._shards[number].path
        return DataError(f"{path}: damaged: {why}", file=path, record=row)

    def _content(self, number: int) -> tuple[Bytes, Hold]:
        """Return the bytes of a shard, and what makes spans of them available."""
        shard = self._shards[number]
        if not shard.codec:
            file = self._files.open(shard.path)
            file.check_size()
            return file.bytes, file.hold
        with self._lock:  # others would decompress the same shard
            data = self._unpacked.get(number)
            if data is None:
                data = self._decompressed(number)
                self._unpacked.put(number, data)
        return data, lambda *_: nullcontext()

    def _decompressed(self, number: int) -> Bytes:
        shard = self._shards[number]
        codec = GZIP if shard.codec == "gz" else packed(shard.codec)
        if codec is None:
            raise MissingPackageError(
                f"{shard.path}: zstd needs the package numcodecs", extra="zarr"
            )
        file = self._files.open(shard.path)
        try:
            with file.hold(0, file.size):
                return CodecChain([codec], shard.size).undo(file.bytes)
        except ChunkError as e:
            raise self._error(number, str(e)) from e


def _choose(
    path: str, columns: Sequence[MdsColumn], names: Sequence[str] | None
) -> list[MdsColumn]:
    """Return the columns to read; warn of those that recmap does not read."""
    known = {column.name: column for column in columns}
    for name in names or ():
        if name not in known:
            raise FieldNotFoundError(f"{path}: {no_column(name, known)}")
        if known[name].refusal:
            raise DataError(f"{path}: {name!r} {known[name].refusal}", file=path, field=name)
    if names is not None:
        return [known[name] for name in names]
    refused = [column for column in columns if column.refusal]
    if len(refused) == len(columns):
        why = "; ".join(f"{column.name!r} {column.refusal}" for column in refused)
        raise DataError(f"{path}: no columns that recmap reads: {why}", file=path)
    if refused:
        told = listed([f"{column.name!r} {column.refusal}" for column in refused])
        others = {column.name: LeftOut(column.refusal, "") for column in refused}
        warn_of_left_out(f"{path}: left out: {told}", others)
    return [column for column in columns if not column.refusal]


def _spans(data: Bytes, starts: RowArray, sizes: RowArray) -> Ragged:
    """Return strings that lie at several places."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if len(sizes) and int(offsets[-1]) > _SLICE_FROM * len(sizes):
        pieces = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        flat = np.concatenate([data[begin:end] for begin, end in pieces])
    else:
        flat = data[np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], sizes)]
    return Ragged(flat.view(BYTE), offsets)
