"""Stores that zarr writes: both versions, any chunks, codecs and fill values, some damaged."""

from __future__ import annotations

import os
import shutil
import warnings
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

import recmap as rm
from hostile import arrays
from hostile.case import READING_REFERENCE, Case, NoReferenceError
from hostile.file_damage import damage
from hostile.reading import check_some_ways
from hostile.table import Table, assert_same, plain, table_of

__all__ = ["case"]


def case(case: Case) -> None:
    path = case.path("x.zarr")
    rows = case.between(1, 40)
    version = case.pick([2, 3])
    columns: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = zarr.open_group(path, mode="w", zarr_format=version)
            for i in range(case.between(1, 3)):
                _array(case, store, f"x{i}", rows, version)
            for name in list(store.array_keys()):
                columns[name] = store[name][...]
    except Exception as e:
        shutil.rmtree(path, ignore_errors=True)
        raise NoReferenceError(repr(e)) from e
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.chance(0.25):
            _check_damaged(case, path, table_of(columns))
            return
        ds = rm.open(path)
        check_some_ways(case, ds, table_of(columns))


def _check_damaged(case: Case, path: str, before: Table) -> None:
    """Damage a chunk. What is read must be what zarr reads, or what was there, or an error."""
    chunks = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in sorted(names)
        if not name.startswith(".") and name != "zarr.json"
    ]
    if not chunks:
        return
    damage(case, case.pick(chunks))
    case.note(READING_REFERENCE)
    wanted: Table | None = None
    try:
        store = zarr.open_group(path, mode="r")
        wanted = table_of({name: store[name][...] for name in before})
    except Exception as e:
        case.note(f"the reference refuses it: {e!r}")
    case.note("reading with recmap")
    try:
        ds = rm.open(path)
        batches = list(ds.batches(case.between(1, 50)))
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    for name, column in (wanted or {}).items():
        found = [row for batch in batches for row in batch[name]]
        if list(map(plain, found)) != list(map(plain, before[name])):
            assert_same(found, column, f"damaged {name!r}")


def _array(case: Case, store: Any, name: str, rows: int, version: int) -> None:
    array = arrays.array(case, rows, strings=False)
    chunks = tuple(case.between(1, max(1, side + 2)) for side in array.shape)
    options: dict[str, Any] = {"chunks": chunks}
    options |= _codecs_2(case, array.dtype) if version == 2 else _codecs_3(case, array)
    if case.chance(0.2) and 0 not in array.shape and version == 3:
        options["chunks"] = tuple(max(1, side // 2) for side in array.shape)
        options["shards"] = tuple(2 * side for side in options["chunks"])
        if case.chance(0.5):
            _index_at_start(case, options)
    if version == 2 and case.chance(0.3):
        options["order"] = "F"
    if case.chance(0.3) and array.dtype.kind in "iuf":
        options["fill_value"] = 7
    case.note(f"{name}: version {version} {array.dtype} {array.shape} {options}")
    made = store.create_array(name, shape=array.shape, dtype=array.dtype, **options)
    if case.chance(0.7):
        made[...] = array
    elif len(array):
        # Chunks that were never written have the fill value.
        start = case.between(0, len(array) - 1)
        made[start:] = array[start:]
    if case.chance(0.1) and len(array):
        made[0] = np.zeros(array.shape[1:], array.dtype)


def _codecs_2(case: Case, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Draw filters and a compressor of version 2."""
    blosc = numcodecs.Blosc(case.pick(["lz4", "zstd", "zlib", "blosclz"]), 3, case.between(0, 2))
    packing = [None, numcodecs.Zlib(), numcodecs.GZip(), numcodecs.Zstd(), numcodecs.LZ4(), blosc]
    filters: list[Any] = []
    if case.chance(0.2) and dtype.kind in "iuf":
        filters.append(numcodecs.Delta(dtype))
    if case.chance(0.2):
        filters.append(numcodecs.Shuffle(dtype.itemsize))
    if case.chance(0.1):
        filters.append(numcodecs.Fletcher32())
    found = {"compressors": case.pick([*packing, numcodecs.BZ2()])}
    return found | ({"filters": filters} if filters else {})


def _codecs_3(case: Case, array: Any) -> dict[str, Any]:
    """Draw the codecs of version 3."""
    shuffle = case.pick(["noshuffle", "shuffle", "bitshuffle"])
    blosc = BloscCodec(cname=case.pick(["lz4", "zstd"]), shuffle=shuffle)
    packing = [GzipCodec(), ZstdCodec(checksum=case.chance(0.5)), blosc]
    found: dict[str, Any] = {"compressors": case.pick([None, *packing])}
    if case.chance(0.2):
        found["compressors"] = [*filter(None, [found["compressors"]]), Crc32cCodec()]
    if case.chance(0.2):
        order = tuple(case.rng.permutation(array.ndim).tolist())
        found["filters"] = [TransposeCodec(order=order)]
    if case.chance(0.2) and array.dtype.itemsize > 1 and array.dtype.kind in "iufc":
        found["serializer"] = BytesCodec(endian="big")
    return found


def _index_at_start(case: Case, options: dict[str, Any]) -> None:
    """Give the shards as a codec, with their index anywhere and with or without a checksum."""
    del case
    packing = options.pop("compressors")
    inner = [*options.pop("filters", []), options.pop("serializer", BytesCodec())]
    inner += packing if isinstance(packing, list) else filter(None, [packing])
    inner_shape, outer = options["chunks"], options.pop("shards")
    options["serializer"] = ShardingCodec(
        chunk_shape=inner_shape, codecs=inner, index_codecs=[BytesCodec()], index_location="start"
    )
    options |= {"chunks": outer, "compressors": None, "filters": None}
