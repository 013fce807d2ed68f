"""The formats that tests/formats/test_every_format.py goes through, and rows for them.

A new format adds a line to FORMATS.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm

__all__ = [
    "DTYPES",
    "LOOSE",
    "PLAIN",
    "TEXTS",
    "TEXT_SCHEMA",
    "TYPED",
    "Case",
    "assert_same",
    "every_fixed_format",
    "every_format",
    "every_loose_format",
    "every_loose_source",
    "every_neighbour",
    "every_source",
    "every_typed_format",
    "folders",
    "from_file",
    "loose",
    "mixed",
    "numbers",
    "save_texts",
    "texts",
]


@dataclass(frozen=True)
class Case:
    """A format, and what it can hold. ``fixed`` formats hold rows of one size only."""

    name: str
    suffix: str
    options: dict[str, Any] = field(default_factory=dict)
    fixed: bool = False

    def path(self, stem: str) -> str:
        return f"{stem}-{self.name}{self.suffix}"

    def kept(self, column: Any) -> Any:
        """The column as it is read back: a TFRecord file is little-endian."""
        native = not self.name.startswith("tfrecord") or column.dtype.isnative
        return column if native else column.astype(column.dtype.newbyteorder("="))

    def save(
        self, columns: dict[str, Any] | rm.Dataset, stem: str = "data", *, verify: Any = True
    ) -> str:
        made = columns if isinstance(columns, rm.Dataset) else rm.from_arrays(columns)
        made.save(self.path(stem), **self.options, verify=verify)
        return self.path(stem)


FORMATS = [
    Case("tfrecord", ".tfrecord"),
    Case("tfrecord-gzip", ".tfrecord.gz"),
    Case("npy", ".npy", fixed=True),
    Case("raw", ".bin", fixed=True),
    Case("npz", ".npz"),
    Case("npz-deflated", ".npz", {"compression": "deflate"}),
    Case("hdf5", ".h5"),
    Case(
        "hdf5-gzip", ".h5", {"compression": "gzip", "options": {"shuffle": True, "chunk_rows": 3}}
    ),
    Case("zarr", ".zarr"),
    Case("zarr-small-chunks", ".zarr", {"options": {"chunk_rows": 3}, "compression": "none"}),
    Case("zarr-2", ".zarr", {"options": {"version": 2}, "compression": "blosc"}),
    Case("parquet", ".parquet", {"options": {"row_group_rows": 3}}),
    Case("arrow", ".arrow"),
]
LOOSE = [case for case in FORMATS if not case.fixed]
FIXED = [case for case in FORMATS if case.fixed]
# One variant of each format is enough on either side of a pair.
PLAIN = [case for case in FORMATS if case.name == case.name.split("-")[0]]
PAIRS = [pytest.param(a, b, id=f"{a.name}-{b.name}") for a, b in itertools.product(PLAIN, PLAIN)]
# Where formats do not meet, each one beside one other is enough.
NEIGHBOURS = [PAIRS[i] for i in range(1, len(PAIRS), len(PLAIN) + 1)] + [PAIRS[-len(PLAIN)]]
# Records of a TFRecord file may differ in their features; all features are read.
TYPED = [case for case in FORMATS if not case.name.startswith("tfrecord")]

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("datetime64[ns]", "datetime64[D]", "timedelta64[us]"),
    *(">i2", ">u4", ">i8", ">f4", ">f8", ">c16", ">M8[s]"),
    "bfloat16",
]

every_format = pytest.mark.parametrize("case", FORMATS, ids=lambda case: case.name)
every_loose_format = pytest.mark.parametrize("case", LOOSE, ids=lambda case: case.name)
every_fixed_format = pytest.mark.parametrize("case", FIXED, ids=lambda case: case.name)
every_typed_format = pytest.mark.parametrize("case", TYPED, ids=lambda case: case.name)
every_loose_source = pytest.mark.parametrize(
    "source", [case for case in PLAIN if not case.fixed], ids=lambda case: case.name
)
every_neighbour = pytest.mark.parametrize(("source", "target"), NEIGHBOURS)
every_source = pytest.mark.parametrize("source", PLAIN, ids=lambda case: case.name)


def numbers(dtype: str, rows: int, *inner: int) -> np.ndarray[Any, Any]:
    """Return random bits, so that none can be lost unnoticed."""
    made = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    count = rows * int(np.prod(inner)) * made.itemsize
    raw = np.random.default_rng(1).integers(0, 256, count, dtype=np.uint8)
    if dtype in ("datetime64[D]", ">M8[s]"):
        # Arrow counts days in 32 bits, and Parquet has no seconds, only milliseconds.
        raw = (raw.view(np.int64) >> 40).astype(f"{made.str[0]}i8")
    return (raw % 2 if made.kind == "b" else raw).view(made).reshape(rows, *inner)


def from_file(columns: dict[str, Any], stem: str = "given") -> rm.Dataset:
    """Return the columns as a file stores them: in memory, numbers are always native."""
    return rm.open({name: from_npy(array, f"{stem}-{i}") for i, (name, array) in
                    enumerate(columns.items())})  # fmt: skip


def from_npy(array: np.ndarray[Any, Any], stem: str) -> rm.Dataset:
    if array.dtype.kind == "V":
        return rm.from_arrays({"data": array})
    np.save(f"{stem}.npy", array)
    return rm.open(f"{stem}.npy")


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, rm.Ragged):
        assert isinstance(found, rm.Ragged)
        assert found.lengths.tolist() == wanted.lengths.tolist()
        assert_same(found.flat, wanted.flat)
        return
    assert isinstance(found, np.ndarray)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


def mixed(rows: int) -> dict[str, Any]:
    return {
        "image": numbers("uint8", rows, 4, 3),
        "größe/Ω": numbers("float64", rows),
        "label": np.arange(rows),
    }


def loose(rows: int) -> dict[str, Any]:
    """Rows of different lengths."""
    lengths = np.arange(rows) % 4
    return {
        "tokens": rm.Ragged(np.arange(lengths.sum()), np.cumsum([0, *lengths])),
        "boxes": rm.Ragged(
            np.arange(4.0 * lengths.sum(), dtype="float32").reshape(-1, 4),
            np.cumsum([0, *lengths]),
        ),
        "name": rm.Ragged.from_bytes([b"\0x\0" * (i % 3) for i in range(rows)]),
        "words": rm.Ragged(
            rm.Ragged.from_bytes([b"w\0" * (i % 3) for i in range(int(lengths.sum()))]),
            np.cumsum([0, *lengths]),
        ),
        "label": np.arange(rows),
    }


# A byte order mark, nothing, and characters of one to four bytes.
TEXTS = ["plain", "", "café", "\ufeffmarked", "漢字", "🦜 and e\u0301", "\U0010ffff"]


def texts(rows: int) -> dict[str, Any]:
    lengths = np.arange(rows) % 4
    words = [TEXTS[i % len(TEXTS)] for i in range(int(lengths.sum()))]
    pairs = [TEXTS[i % len(TEXTS)] for i in range(2 * rows)]
    return {
        "caption": rm.Ragged.from_text(TEXTS[i % len(TEXTS)] for i in range(rows)),
        "words": rm.Ragged(rm.Ragged.from_text(words), np.cumsum([0, *lengths])),
        "pair": rm.Ragged(rm.Ragged.from_text(pairs), np.arange(rows + 1) * 2),
        "label": np.arange(rows),
    }


TEXT_SCHEMA = {"caption": "text", "words": "text[*]", "pair": "text[2]", "label": "int64"}


def save_texts(case: Case, columns: dict[str, Any]) -> str:
    path = case.path("texts")
    rm.from_batches([columns], TEXT_SCHEMA).save(path, **case.options)
    return path


def folders(groups: list[list[str]]) -> Iterator[list[str]]:
    """Yield each group, in a folder of its own."""
    for number, group in enumerate(groups):
        os.mkdir(str(number))
        with contextlib.chdir(str(number)):
            yield group
