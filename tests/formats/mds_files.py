"""Shards of Mosaic Streaming, made by its published layout.

What follows the offsets in a shard was compared with shards that mosaicml-streaming 0.13 wrote of
the same samples. It needs an older NumPy than the other tests, so it is not installed with them.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["array", "write_mds"]

_DTYPES = {
    "uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "float16": 18, "uint32": 32, "int32": 33,
    "float32": 34, "uint64": 64, "int64": 65, "float64": 66,
}  # fmt: skip


def array(value: Any, *, dtype: bool) -> bytes:
    """Encode an array that tells its shape and, with ``dtype``, its dtype."""
    width = next(i for i in range(4) if max(value.shape) < 1 << (8 << i))
    shape = np.array(value.shape, f"<u{1 << width}").tobytes()
    begin = bytes([_DTYPES[value.dtype.name]]) if dtype else b""
    return begin + bytes([value.ndim << 2 | width]) + shape + bytes(value.tobytes())


def _encode(encoding: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if encoding.startswith("ndarray"):
        parts = encoding.split(":")
        return bytes(value.tobytes()) if len(parts) == 3 else array(value, dtype=len(parts) == 1)
    number = np.dtype("int64" if encoding == "int" else encoding).type(value)
    return bytes(number.tobytes())


def _size(encoding: str) -> int | None:
    if encoding.startswith("ndarray"):
        _, *told = encoding.split(":")
        shape = [int(n) for n in told[1].split(",")] if len(told) == 2 else []
        return int(np.prod(shape)) * np.dtype(told[0]).itemsize if shape else None
    fixed = encoding in _DTYPES or encoding == "int"
    return np.dtype("int64" if encoding == "int" else encoding).itemsize if fixed else None


def write_mds(
    folder: str,
    columns: dict[str, str],
    shards: Sequence[Sequence[dict[str, Any]]],
    compression: str | None = None,
    hashes: Sequence[str] = (),
) -> None:
    """Write samples as the MDSWriter of Streaming does."""
    os.makedirs(folder, exist_ok=True)
    names = sorted(columns)
    encodings, sizes = [columns[n] for n in names], [_size(columns[n]) for n in names]
    config = {
        "version": 2, "format": "mds", "compression": compression, "hashes": list(hashes),
        "size_limit": 1 << 26, "column_names": names, "column_encodings": encodings,
        "column_sizes": sizes,
    }  # fmt: skip
    listed = []
    for number, samples in enumerate(shards):
        text = json.dumps(config, sort_keys=True).encode()
        rows = []
        for sample in samples:
            values = [_encode(columns[n], sample[n]) for n in names]
            varying = [len(v) for v, size in zip(values, sizes, strict=True) if size is None]
            rows.append(struct.pack(f"<{len(varying)}I", *varying) + b"".join(values))
        edges = np.cumsum([0, *map(len, rows)]) + 4 + 4 * (len(rows) + 1) + len(text)
        data = struct.pack("<I", len(rows)) + edges.astype("<u4").tobytes() + text + b"".join(rows)
        name = f"shard.{number:05d}.mds"
        entry: dict[str, Any] = {
            **config, "samples": len(rows), "raw_data": _file(name, data, hashes), "zip_data": None
        }  # fmt: skip
        if compression:
            import numcodecs

            packing = numcodecs.Zstd() if compression == "zstd" else numcodecs.GZip()
            data = bytes(packing.encode(data))
            name = f"{name}.{compression}"
            entry["zip_data"] = _file(name, data, hashes)
        with open(f"{folder}/{name}", "wb") as file:
            file.write(data)
        listed.append(entry)
    with open(f"{folder}/index.json", "w", encoding="utf-8") as file:
        json.dump({"version": 2, "shards": listed}, file, sort_keys=True)


def _file(name: str, data: bytes, hashes: Sequence[str]) -> dict[str, Any]:
    found = {kind: hashlib.new(kind, data).hexdigest() for kind in hashes}
    return {"basename": name, "bytes": len(data), "hashes": found}
