"""Peak memory of conversions from Parquet and Arrow: no more than ``memory=``, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.limited import peak_of

pytestmark = pytest.mark.slow

MB = 10**6
# Pages of a few kilobytes, as far as rows allow.
SMALL_PAGES: dict[str, Any] = {"data_page_size": 1 << 16, "write_batch_size": 16}


def small_and_large(large: int) -> list[bytes]:
    """Return small rows, large ones in the middle, and small ones."""
    return [b"x"] * 30_000 + [bytes([i % 251]) * large for i in range(2_500)] + [b"y"] * 30_000


def strings() -> pa.Table:
    return pa.table({"s": pa.array(small_and_large(20_000), pa.binary())})


def structs() -> pa.Table:
    rows = small_and_large(20_000)
    members = [pa.array(rows, pa.large_binary()), pa.array(np.arange(len(rows)))]
    return pa.table({"a": pa.StructArray.from_arrays(members, ["b", "c"])})


def lists(inner: int | None = None, large: int = 1_200) -> pa.Table:
    counts = np.repeat([1, 10_000, 1], [30_000, large, 30_000])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    values = pa.array(np.arange(offsets[-1] * (inner or 1), dtype=np.float32))
    if inner:
        ends = np.arange(0, len(values) + 1, inner, dtype=np.int32)
        values = pa.ListArray.from_arrays(pa.array(ends), values)
    return pa.table({"x": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)})


def nested_lists() -> pa.Table:
    return lists(inner=2, large=600)


def dictionaries() -> pa.Table:
    words = pa.array([b"w" * size for size in (1, 40_000)])
    picked = np.repeat(np.array([0, 1, 0], np.int32), [30_000, 1_500, 30_000])
    return pa.table({"d": pa.DictionaryArray.from_arrays(pa.array(picked), words)})


def numbers() -> pa.Table:
    return pa.table({"x": np.arange(8_000_000.0)})


def write_arrow(table: pa.Table, **options: Any) -> str:
    with pa.ipc.new_file("x.arrow", table.schema, **options) as file:
        file.write_batch(table.combine_chunks().to_batches()[0])
    return "x.arrow"


def write_parquet(table: pa.Table) -> str:
    pq.write_table(table, "x.parquet", use_dictionary="d" in table.column_names, **SMALL_PAGES)
    return "x.parquet"


def peak(source: str, to: str, memory: int = 60, verb: str = "") -> int:
    saved = f"save({to!r}, memory='{memory}MB', options={{'durable': False}})"
    return peak_of(f"rm.open({source!r}){verb}.{saved}") // MB


TABLES = [strings, structs, lists, nested_lists, dictionaries, numbers]


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_any_size_of_an_arrow_file_stay_within_the_budget(
    table: Callable[[], pa.Table],
) -> None:
    assert peak(write_arrow(table()), "y.npz") < 60


@pytest.mark.parametrize("table", TABLES[:-1])
def test_rows_of_any_size_of_a_parquet_file_stay_within_the_budget(
    table: Callable[[], pa.Table],
) -> None:
    assert peak(write_parquet(table()), "y.h5") < 60


def test_a_small_budget_holds_for_parquet_as_well() -> None:
    assert peak(write_parquet(strings()), "y.h5", 36) < 36


@pytest.mark.parametrize("table", [numbers, strings])
def test_a_shuffle_of_an_arrow_file_stays_within_the_budget(
    table: Callable[[], pa.Table],
) -> None:
    source = write_arrow(table())
    assert peak(source, "y.parquet", verb=".shuffle(seed=1)") < 60
    assert len(rm.open("y.parquet")) == len(rm.open(source))


def test_millions_of_tiny_rows_become_records_within_the_budget() -> None:
    source = write_arrow(pa.table({"b": np.arange(4_000_000) % 3 == 0}))
    assert peak(source, "y.tfrecord") < 60
    rows = "np.arange(4_000_000) % 3 == 0"
    saved = "save('z.tfrecord', memory='60MB', options={'durable': False})"
    assert (
        peak_of(f"rm.from_arrays({{'b': {rows}}}).{saved}") // MB < 60 + 12
    )  # with the rows themselves


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_a_page_that_does_not_fit_is_refused_before_it_is_decoded(compression: str) -> None:
    table = pa.table(
        {"i": np.arange(3), "s": [b"a", np.random.default_rng(0).bytes(30 * MB), b"b"]}
    )
    parts = pa.concat_tables([table.slice(0, 1), table])
    pq.write_table(parts, "x.parquet", row_group_size=1, compression=compression)
    wanted = r"30 MB that are decoded whole \(x.parquet, row group 2\); give memory="
    refused = f"""
    with np.testing.assert_raises_regex(rm.MemoryLimitError, {wanted!r}):
        rm.convert("x.parquet", "y.npz", memory="60MB")"""
    assert peak_of(refused) < 20 * MB
    assert not Path("y.npz").exists()


def test_a_compressed_record_batch_that_does_not_fit_is_refused() -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    write_arrow(strings(), options=options)
    wanted = r"decoded whole \(x.arrow, row group 0\); give memory=\"(\d+)MB"
    with pytest.raises(rm.MemoryLimitError, match=wanted) as e:
        rm.convert("x.arrow", "y.npz", memory="60MB")
    enough = int(str(e.value).split('memory="')[-1].split("MB")[0])
    assert peak("x.arrow", "y.npz", enough) < enough


@pytest.mark.parametrize("write", [write_arrow, write_parquet])
@pytest.mark.parametrize("table", [structs, nested_lists, dictionaries])
def test_rows_that_are_read_in_pieces_are_those_that_pyarrow_reads(
    table: Callable[[], pa.Table], write: Callable[[pa.Table], str]
) -> None:
    made = table()
    expected = made.flatten().column(0)
    ds, at = rm.open(write(made)), 0
    for batch in ds.batches(5_000):
        column = next(iter(batch.values()))
        assert column[:3].tolist() == expected.slice(at, 3).to_pylist()
        assert column[-1:].tolist() == expected.slice(at + len(column) - 1, 1).to_pylist()
        at += len(column)
    assert at == len(expected)


def test_a_shuffle_of_bools_reads_only_the_rows_it_needs() -> None:
    source = write_arrow(pa.table({"b": np.arange(2_000_000) % 3 == 0}))
    rm.open(source).shuffle(seed=1).save("y.npy", memory="60MB", options={"durable": False})
    rm.open(source).shuffle(seed=1).save("z.npy", memory="200MB", options={"durable": False})
    shuffled = np.load("y.npy")
    assert shuffled.sum() == 666_667
    assert shuffled[:9].tolist() != [True, False, False] * 3
    np.testing.assert_array_equal(shuffled, np.load("z.npy"))


def test_compressed_dictionaries_are_counted() -> None:
    words = pa.array([bytes([i]) * 400_000 for i in range(100)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(100, dtype=np.int32)), words)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    write_arrow(pa.table({"d": column}), options=options)
    with pytest.raises(rm.MemoryLimitError, match=r"40 MB that are decoded whole \(x.arrow"):
        rm.convert("x.arrow", "y.npz", memory="60MB")


def test_tables_in_a_store_stay_within_the_budget(bucket: Bucket) -> None:
    made = lists(large=600)  # 24 MB
    pq.write_table(made, "x.parquet", use_dictionary=False, **SMALL_PAGES)
    bucket.put("x.parquet", Path("x.parquet").read_bytes())
    call = f"rm.convert({bucket.url_of('x.parquet')!r}, 'y.h5', memory='50MB', "
    assert peak_of(call + f"storage={bucket.storage!r})") // MB < 50
    assert len(rm.open("y.h5")) == made.num_rows
    page = pa.table({"s": [b"a", np.random.default_rng(0).bytes(12 * MB), b"b"]})
    pq.write_table(page, "z.parquet", compression="none")
    write_arrow(pa.table({"s": [b"x" * 10_000] * 1_200}))
    for name in ("z.parquet", "x.arrow"):
        bucket.put(name, Path(name).read_bytes())
        with pytest.raises(rm.MemoryLimitError, match="give memory="):
            url = bucket.url_of(name)
            rm.convert(
                url, "z.npz", memory="60MB", storage=bucket.storage, options={"durable": False}
            )
