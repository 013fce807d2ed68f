"""Round trips of random schemas and values."""

from __future__ import annotations

import tempfile
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import recmap as rm
from tests import wire

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="=", sizes=(64, 128)),
)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    kind = draw(st.sampled_from(["dense", "ragged", "bytes", "strings", "nested"]))
    if kind == "bytes":
        return rm.Ragged.from_bytes(draw(st.lists(st.binary(), min_size=rows, max_size=rows)))
    if kind == "strings":
        lists = draw(st.lists(st.lists(st.binary(), max_size=4), min_size=rows, max_size=rows))
        flat = rm.Ragged.from_bytes([item for row in lists for item in row])
        return rm.Ragged(flat, np.cumsum([0, *map(len, lists)]))
    dtype = draw(DTYPES)
    inner = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=4))
    if kind == "dense":
        return draw(hnp.arrays(dtype, (rows, *inner)))
    lengths = draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    items = sum(lengths)
    offsets = np.cumsum([0, *lengths])
    if kind == "ragged":
        return rm.Ragged(draw(hnp.arrays(dtype, (items, *inner))), offsets)
    steps = draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    values = draw(hnp.arrays(dtype, (sum(steps), *inner)))
    return rm.Ragged(rm.Ragged(values, np.cumsum([0, *steps])), offsets)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(1, 8))
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    return {f"f{name}": draw(columns(rows)) for name in names}


def bits(column: Any) -> Any:
    """Return a column as lists and bytes, so that NaN equals itself."""
    if isinstance(column, rm.Ragged):
        return [bits(row) if not isinstance(row, bytes) else row for row in column]
    return [row.tobytes() for row in column]


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches(), st.sampled_from([None, "gzip"]), st.integers(1, 3))
def test_written_columns_are_read_back(
    batch: dict[str, Any], compression: Any, shards: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = len(next(iter(batch.values())))
        with rm.TFRecordWriter(
            f"{folder}/", compression=compression, shards=shards, rows=rows, durable=False
        ) as w:
            w.write(batch)
        ds = rm.open(folder)
        assert len(ds) == rows
        back = ds[:]
        assert set(back) == set(batch)
        for name, column in batch.items():
            assert back[name].dtype == column.dtype
            assert bits(back[name]) == bits(column)
        order = np.random.default_rng(0).permutation(rows)
        picked = ds[order]
        for name, column in batch.items():
            assert bits(picked[name]) == bits(column[order])


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_crash_the_reader(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for content in (data, wire.frame(data), wire.frame(wire.field(1, data))):
            with open(f"{folder}/x", "wb") as file:
                file.write(content)
            try:
                rm.open(f"{folder}/x")[:]
            except rm.RecmapError:
                continue


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_byte_is_never_read_as_good_data(data: st.DataObject) -> None:
    records = [
        wire.example(a=wire.int64_list(i, -i), b=wire.bytes_list(b"b" * i)) for i in range(6)
    ]
    content = bytearray(b"".join(map(wire.frame, records)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/x", "wb") as file:
            file.write(content)
        try:
            rm.open(f"{folder}/x", compression=None)[:]
        except rm.RecmapError:
            return
    raise AssertionError(f"byte {at} was changed and nothing said")
