"""Files that h5py writes: every layout, filter and chunk index, grown and shrunk."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import h5py
import numcodecs
import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case, NoReferenceError
from hostile.file_damage import check_damaged, damage
from hostile.reading import check_some_ways
from hostile.table import Table, table_of

__all__ = ["case"]


def case(case: Case) -> None:
    path = case.path("x.h5")
    if case.chance(0.15):
        _plugins(case, path)
        return
    rows = case.between(1, 40)
    libver = case.pick(["earliest", "v108", "v110", "latest", "latest"])
    block = case.pick([0, 0, 0, 512, 1024])
    case.note(f"libver {libver}, user block {block}")
    names = []
    try:
        with h5py.File(path, "w", libver=libver, userblock_size=block) as file:
            if case.chance(0.2):
                file.create_group("group")
            for i in range(case.between(1, 3)):
                group = file["group"] if "group" in file and case.chance(0.5) else file
                names.append(_dataset(case, group, f"x{i}", rows).lstrip("/"))
    except (ValueError, TypeError, OSError, RuntimeError) as e:
        raise NoReferenceError(repr(e)) from e
    if case.chance(0.25):
        check_damaged(case, path, lambda: _read(path, names))
        return
    wanted = _read(path, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.LeftOutWarning)
        ds = rm.open(path, fields=list(wanted))
    check_some_ways(case, ds, wanted)


def _dataset(case: Case, group: Any, name: str, rows: int) -> str:
    kind = case.pick(["numbers", "numbers", "numbers", "numbers", "vlen", "text", "compound"])
    if kind == "vlen":
        dataset = group.create_dataset(name, (rows,), h5py.vlen_dtype(np.dtype("i4")))
        for i in range(rows):
            dataset[i] = case.rng.integers(-9, 9, case.between(0, 5))
    elif kind == "text":
        texts = ["é" * case.between(0, 4) + "a" for _ in range(rows)]
        dataset = group.create_dataset(name, data=texts, dtype=h5py.string_dtype())
    elif kind == "compound":
        record = np.zeros(rows, _record(case))
        for field in record.dtype.names or ():
            inner = record.dtype[field]
            record[field] = arrays.values(case, (rows, *inner.shape), inner.base)
        options = _options(case, record.shape)
        dataset = group.create_dataset(name, data=record, **options)
    else:
        array = arrays.values(
            case, arrays.shape(case, rows), arrays.dtype(case, strings=False, dates=False)
        )
        options = _options(case, array.shape)
        dataset = group.create_dataset(name, array.shape, array.dtype, **options)
        _fill(case, dataset, array)
    case.note(
        f"{dataset.name}: {dataset.dtype} {dataset.shape} chunks {dataset.chunks} "
        f"maxshape {dataset.maxshape} {dataset.compression} shuffle {dataset.shuffle} "
        f"fletcher32 {dataset.fletcher32}"
    )
    return str(dataset.name)


def _plugins(case: Case, path: str) -> None:
    """Read chunks of filters that h5py does not have, as other programs encode them."""
    number = case.pick([*_PLUGINS])
    values, encode = _PLUGINS[number]
    item = case.pick([1, 2, 3, 4, 8])
    chunk = case.between(1, 20), case.between(1, 5)
    # Not beyond the edges: only the HDF5 library knows whether chunks there are filtered.
    shape = chunk[0] * case.between(1, 5), chunk[1] * case.between(1, 3)
    array = arrays.values(case, shape, np.dtype("<i4"))
    shuffled = case.chance(0.5)
    case.note(f"filter {number} of items of {item}, chunks {chunk} of {array.shape}, {shuffled=}")
    with h5py.File(path, "w") as file:
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_chunk(chunk)
        if shuffled:
            storage.set_shuffle()
        storage.set_filter(number & 0xFFFF, h5py.h5z.FLAG_OPTIONAL, (0, 4, item, *values))
        space = h5py.h5s.create_simple(array.shape, (h5py.h5s.UNLIMITED,) * 2)
        kind = h5py.h5t.py_create(array.dtype)
        dataset = h5py.h5d.create(file.id, b"x", kind, space, storage)
        for at in itertools.product(*map(range, (0, 0), array.shape, chunk)):
            data = array[at[0] : at[0] + chunk[0], at[1] : at[1] + chunk[1]].tobytes()
            if shuffled:
                data = np.frombuffer(data, np.uint8).reshape(-1, 4).T.tobytes()
            dataset.write_direct_chunk(at, encode(data, item))
    if not case.chance(0.3):
        check_some_ways(case, rm.open(path), table_of({"x": array}))
        return
    damage(case, path)  # there is no reference, and values have no checksum
    try:
        found = rm.open(path)[:]  # the name may be damaged, too
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    case.note(f"read {[column.dtype for column in found.values()]}")


def _bitshuffled(data: bytes, item: int, pack: Callable[[bytes], bytes] | None) -> bytes:
    block = 16 * item
    done = b"" if pack is None else len(data).to_bytes(8, "big") + block.to_bytes(4, "big")
    whole = len(data) // item // 8 * 8 * item
    for at in range(0, whole, block):
        items = np.frombuffer(data[at : min(at + block, whole)], np.uint8).reshape(-1, item)
        bits = np.unpackbits(items, axis=1, bitorder="little").T
        planes = np.packbits(bits, axis=1, bitorder="little").tobytes()
        done += planes if pack is None else _sized(pack(planes))
    return done + data[whole:]


def _lz4(data: bytes) -> bytes:
    return bytes(numcodecs.LZ4().encode(data)[4:])


def _zstd(data: bytes) -> bytes:
    return bytes(numcodecs.Zstd().encode(data))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _lz4_blocks(data: bytes, block: int) -> bytes:
    parts = [data[at : at + block] for at in range(0, len(data), block)]
    packed = [min(part, _lz4(part), key=len) for part in parts]
    return len(data).to_bytes(8, "big") + block.to_bytes(4, "big") + b"".join(map(_sized, packed))


# The options of filters by their number (bitshuffle has three kinds), and what they do.
_PLUGINS: dict[int, tuple[tuple[int, ...], Callable[[bytes, int], bytes]]] = {
    32015: ((), lambda data, _: _zstd(data)),
    32001: ((), lambda data, item: bytes(numcodecs.Blosc("lz4", 5, item % 3).encode(data))),
    32004: ((), lambda data, item: _lz4_blocks(data, 16 * item)),
    32008: ((16, 0), lambda data, item: _bitshuffled(data, item, None)),
    32008 | 1 << 16: ((16, 2), lambda data, item: _bitshuffled(data, item, _lz4)),
    32008 | 2 << 16: ((16, 3), lambda data, item: _bitshuffled(data, item, _zstd)),
}


def _record(case: Case) -> np.dtype[Any]:
    members = []
    for i in range(case.between(1, 4)):
        inner = tuple(case.between(1, 3) for _ in range(case.between(0, 1)))
        members.append((f"m{i}", np.dtype(case.pick(arrays.NUMBERS + arrays.BIG)), inner))
    return np.dtype(members, align=case.chance(0.4))


def _options(case: Case, shape: tuple[int, ...]) -> dict[str, Any]:
    """Draw how it is stored: contiguous, or in chunks with an index of any kind."""
    if case.chance(0.3) or 0 in shape:
        return {}
    sides = [case.between(1, max(1, side + 2)) for side in shape]
    chunks = tuple(
        min(side, c) if case.chance(0.8) else c for side, c in zip(shape, sides, strict=True)
    )
    limits = [case.pick([side, side, None, side + 3]) for side in shape]
    chunks = tuple(
        min(c, side if limit is not None else c)
        for c, side, limit in zip(chunks, shape, limits, strict=True)
    )
    options: dict[str, Any] = {"chunks": chunks, "maxshape": tuple(limits)}
    packing = case.pick([None, None, "gzip", "lzf", "szip"])
    if packing is not None:
        options["compression"] = packing
    options["shuffle"] = case.chance(0.3)
    options["fletcher32"] = case.chance(0.2)
    return options


def _fill(case: Case, dataset: Any, array: npt.NDArray[Any]) -> None:
    """Write all of it, or only some, or grow and shrink it."""
    history = case.pick(["whole", "whole", "whole", "part", "rows", "grown", "shrunk", "empty"])
    if history == "part" and len(array):
        start = case.between(0, len(array) - 1)
        dataset[start:] = array[start:]
    elif history == "rows":
        for i in case.rng.permutation(len(array)):
            dataset[int(i)] = array[i]
    elif history in ("grown", "shrunk") and None in dataset.maxshape:
        dataset[...] = array
        axis = list(dataset.maxshape).index(None)
        size = dataset.shape[axis]
        if axis == 0:  # as many rows as the others have
            dataset.resize(size + 5, axis)
            dataset.resize(max(1, size // 2), axis)
            dataset.resize(size, axis)
        else:
            dataset.resize(case.between(1, size + 7), axis)
    elif history != "empty":
        dataset[...] = array


def _read(path: str, names: list[str]) -> Table:
    """Return what h5py reads, strings as bytes and lists as arrays."""
    table: Table = {}
    with h5py.File(path) as file:
        for name in names:
            dataset = file[name]
            array = dataset[...]
            if h5py.check_string_dtype(dataset.dtype) is not None:
                table[name] = [bytes(text) for text in array]
            elif h5py.check_vlen_dtype(dataset.dtype) is not None:
                table[name] = list(array)
            else:
                table.update(table_of({name: array}))
    return table
