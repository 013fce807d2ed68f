"""Batches that other libraries read through the Arrow interface."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import recmap as rm
from recmap.model.arrow import ArrowBatches, ArrowReader
from recmap.model.schema import Batch, Schema
from tests.model.arrow_cases import (
    NUMBERS,
    STRINGS,
    TIMES,
    as_lists,
    assert_same,
    random_batch,
    random_schema,
)


@pytest.mark.parametrize("tensors", ["extension", "list"])
@pytest.mark.parametrize("seed", range(15))
def test_pyarrow_reads_the_same_values_and_they_come_back(seed: int, tensors: Any) -> None:
    rng = np.random.default_rng(seed)
    schema = random_schema(rng, NUMBERS + STRINGS)
    batches = [random_batch(rng, schema, rows) for rows in (5, 0, 17)]
    table = pa.table(ArrowBatches(schema, batches, tensors))
    table.validate(full=True)
    for name, kind in zip(schema, table.schema.types, strict=True):
        rows = [row for batch in batches for row in as_lists(batch[name])]
        if isinstance(kind, pa.FixedShapeTensorType):
            array = table[name].combine_chunks()
            # pyarrow makes no arrays of booleans.
            if kind.value_type != pa.bool_():
                assert array.to_numpy_ndarray().tolist() == rows
        else:
            assert table[name].to_pylist() == rows
    reader = ArrowReader(table)
    assert reader.schema == schema
    for found, batch in zip(reader.batches(), [b for b in batches if len(b["x0"])], strict=True):
        assert_same(found, batch)


@pytest.mark.parametrize("seed", range(10))
def test_times_come_back_and_nat_is_null(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = random_schema(rng, TIMES)
    batch = random_batch(rng, schema, 20)
    table = pa.table(ArrowBatches(schema, [batch], "list"))
    table.validate(full=True)
    for name, field in schema.items():
        if not field.shape:
            column = batch[name]
            assert isinstance(column, np.ndarray)
            assert table[name].null_count == np.isnat(column).sum()
            np.testing.assert_array_equal(table[name].to_numpy(), column)
    assert_same(next(ArrowReader(table).batches()), batch)


def test_the_types_are_those_the_docs_name() -> None:
    fields = {
        "number": "int64",
        "vector": "float32[3]",
        "image": "uint8[2,3]",
        "tokens": "int64[*]",
        "boxes": "float32[*,4]",
        "data": "bytes",
        "caption": "text",
        "flag": "bool",
        "day": "datetime64[D]",
        "time": "datetime64[us]",
        "wait": "timedelta64[ms]",
        "key": "V16",
    }
    found = pa.schema(ArrowBatches(Schema(fields), []))
    item = pa.field("item", pa.float32())
    assert found == pa.schema(
        {
            "number": pa.int64(),
            "vector": pa.list_(item, 3),
            "image": pa.fixed_shape_tensor(pa.uint8(), [2, 3]),
            "tokens": pa.large_list(pa.int64()),
            "boxes": pa.large_list(pa.list_(item, 4)),
            "data": pa.large_binary(),
            "caption": pa.large_string(),
            "flag": pa.bool_(),
            "day": pa.date32(),
            "time": pa.timestamp("us"),
            "wait": pa.duration("ms"),
            "key": pa.binary(16),
        }
    )
    nested = pa.schema(ArrowBatches(Schema({"image": "uint8[2,3]"}), [], "list"))
    assert nested.field("image").type == pa.list_(pa.list_(pa.uint8(), 3), 2)


def test_tensors_are_arrays_in_pyarrow() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    table = pa.table(ArrowBatches(Schema({"image": "uint8[3,4]"}), [{"image": images}]))
    found = table["image"].combine_chunks().to_numpy_ndarray()
    np.testing.assert_array_equal(found, images)


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("complex64", "ds.select"),
        ("datetime64[h]", "datetime64\\[s\\]"),
        ("timedelta64[D]", "timedelta64\\[s\\]"),
        ("longdouble", "float64"),
        ("bfloat16", "float32"),
    ],
)
def test_a_type_that_arrow_lacks_is_refused_with_a_remedy(field: str, hint: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if field == "bfloat16" else field)
    with pytest.raises(rm.FieldMismatchError, match=f"'x'.*{hint}"):
        ArrowBatches(Schema({"x": rm.Field(dtype)}), [])


def test_big_endian_columns_are_swapped() -> None:
    schema = Schema({"x": ">i4", "y": ">f8[2]"})
    batch: Batch = {"x": np.arange(3, dtype=">i4"), "y": np.ones((3, 2), ">f8")}
    table = pa.table(ArrowBatches(schema, [batch]))
    assert table.to_pydict() == {"x": [0, 1, 2], "y": [[1.0, 1.0]] * 3}


def test_columns_share_their_memory() -> None:
    x = np.arange(1000.0).reshape(100, 10)
    strings = rm.Ragged.from_bytes([b"ab"] * 100)
    schema = Schema({"x": "float64[10]", "s": "bytes"})
    table = pa.table(ArrowBatches(schema, [{"x": x, "s": strings}]))
    floats = table["x"].chunk(0).values.buffers()[1]
    assert floats.address == x.ctypes.data
    assert isinstance(strings.values, np.ndarray)
    addresses = [buffer and buffer.address for buffer in table["s"].chunk(0).buffers()]
    assert addresses == [None, strings.offsets.ctypes.data, strings.values.ctypes.data]


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        ({"x": np.arange(3.0), "t": rm.Ragged.from_rows([[1], [2], [3]])}, "float64"),
        ({"x": np.zeros((3, 2), int), "t": rm.Ragged.from_rows([[1], [2], [3]])}, "shape"),
        ({"x": np.arange(3), "t": np.arange(3)}, "'t'"),
        ({"x": np.arange(3), "t": rm.Ragged.from_rows([[1]])}, "has 1 rows, not 3"),
        ({"x": np.arange(3)}, "lacks 't'"),
        ({"x": np.arange(2), "t": rm.Ragged(np.arange(2), [0, 5, 1])}, "ascend"),
        ({"x": np.arange(1), "t": rm.Ragged(np.arange(2), [0, 3])}, "ascend"),
        ({"x": np.arange(1), "t": rm.Ragged(np.arange(2), [-1, 1])}, "ascend"),
    ],
)
def test_a_batch_that_does_not_fit_ends_the_stream(batch: Batch, what: str) -> None:
    batches = ArrowBatches(Schema({"x": "int64", "t": "int64[*]"}), [batch])
    with pytest.raises(OSError, match=what):
        pa.table(batches)
    assert isinstance(batches.error, rm.ColumnError)


def test_text_that_is_not_utf8_is_refused() -> None:
    broken = rm.Ragged(rm.Ragged.from_bytes([b"a", b"\xff"]).values, [0, 1, 2])
    from recmap.model.text import as_strings_of

    column = as_strings_of(rm.Field("text"), broken)
    with pytest.raises(OSError, match="row 1 of a batch is not UTF-8"):
        pa.table(ArrowBatches(Schema({"x": "text"}), [{"x": column}]))


def test_an_error_of_a_batch_reaches_the_consumer_with_its_text() -> None:
    def batches() -> Iterator[Batch]:
        yield {"x": np.arange(3)}
        raise ValueError("disk on fire")

    stream = pa.RecordBatchReader.from_stream(ArrowBatches(Schema({"x": "int64"}), batches()))
    assert stream.read_next_batch().num_rows == 3
    with pytest.raises(OSError, match="ValueError: disk on fire"):
        stream.read_next_batch()


def test_a_date_that_arrow_cannot_hold_is_refused() -> None:
    days = np.array([2**40], "M8[D]")
    with pytest.raises(OSError, match="'x'.*out of range"):
        pa.table(ArrowBatches(Schema({"x": "datetime64[D]"}), [{"x": days}]))


def test_memory_is_released_once_the_consumer_lets_go() -> None:
    schema, seen = Schema({"x": "float64"}), list[weakref.ref[Any]]()

    def batches() -> Iterator[Batch]:
        for _ in range(10):
            x = np.arange(1000.0)
            seen.append(weakref.ref(x))
            yield {"x": x}

    stream = pa.RecordBatchReader.from_stream(ArrowBatches(schema, batches()))
    held = stream.read_next_batch()
    for _ in range(4):
        stream.read_next_batch()
    gc.collect()
    # One is held by the test, and the generator holds the one it made last.
    assert [ref() is not None for ref in seen] == [True, False, False, False, True]
    column = held.column(0)
    del held, stream
    gc.collect()
    assert [ref() is not None for ref in seen] == [True, False, False, False, False]
    assert column[999].as_py() == 999.0
    del column
    gc.collect()
    assert seen[0]() is None


def test_streams_that_nobody_reads_are_released() -> None:
    closed = []

    def batches() -> Iterator[Batch]:
        try:
            yield {"x": np.arange(3)}
            yield {"x": np.arange(3)}
        finally:
            closed.append(True)

    made = ArrowBatches(Schema({"x": "int64"}), batches())
    capsule = made.__arrow_c_stream__()
    del capsule
    gc.collect()
    started = ArrowBatches(Schema({"x": "int64"}), batches())
    stream = pa.RecordBatchReader.from_stream(started)
    stream.read_next_batch()
    del stream, started
    gc.collect()
    assert closed == [True]
    made.__arrow_c_schema__()


def test_batches_may_be_released_by_threads_without_the_lock_of_python() -> None:
    schema = Schema({"x": "float64[4]", "s": "bytes", "t": "int64[*]"})
    rng = np.random.default_rng(0)
    stream = pa.RecordBatchReader.from_stream(
        ArrowBatches(schema, (random_batch(rng, schema, 50) for _ in range(200)))
    )
    lock, rows = threading.Lock(), []

    def consume() -> None:
        while True:
            with lock:
                batch = next(iter(stream), None)
            if batch is None:
                return
            rows.append(batch.num_rows)
            pa.compute.sum(batch.column(0).flatten())
            del batch

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(rows) == 200 * 50


@pytest.mark.slow
def test_the_program_may_end_while_tables_are_alive() -> None:
    import subprocess
    import sys

    program = (
        "import numpy as np, recmap as rm, pyarrow as pa, polars as pl, builtins\n"
        "ds = rm.from_arrays({'x': np.arange(1000.0)})\n"
        "builtins.kept = [pa.table(ds), pl.DataFrame(ds), pa.RecordBatchReader.from_stream(ds)]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
