"""Parquet files: those of other programs, damaged ones, and what recmap writes."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import os
import pickle
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import recmap as rm
from recmap.cli import main
from recmap.formats.row_group_file import GroupDecoding
from recmap.machine.cpus import using_threads
from tests.limited import peak_of


def written(table: Any, path: str = "x.parquet", **options: Any) -> str:
    pq.write_table(table, path, **options)
    return path


def random_table(rows: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    words = [rng.bytes(int(n)) for n in rng.integers(0, 30, rows)]
    lists = [rng.integers(0, 99, int(n)).tolist() for n in rng.integers(0, 5, rows)]
    return pa.table(
        {
            "i": pa.array(rng.integers(-9, 9, rows), pa.int8()),
            "f": pa.array(rng.random(rows), pa.float32()),
            "word": pa.array(words, pa.binary()),
            "kind": pa.array(rng.choice(["cat", "dog", "ünï"], rows)).dictionary_encode(),
            "list": pa.array(lists, pa.list_(pa.int32())),
            "flag": pa.array(rng.random(rows) < 0.5),
            "when": pa.array(rng.integers(0, 1 << 40, rows), pa.timestamp("us")),
        }
    )


def as_lists(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: [_plain(value) for value in column] for name, column in batch.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.tolist() if hasattr(value, "tolist") else value


def wanted(table: Any, rows: Any) -> dict[str, Any]:
    taken = table.take(pa.array(rows, pa.int64())).to_pydict()
    return {name: [_plain(value) for value in column] for name, column in taken.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"compression": "none", "use_dictionary": False}])
def test_rows_are_those_that_pyarrow_reads(seed: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 200))
    table = random_table(rows, seed)
    ds = rm.open(written(table, row_group_size=int(rng.integers(1, 80)), **options))
    assert len(ds) == rows
    assert as_lists(ds[:]) == wanted(table, np.arange(rows))
    for _ in range(5):
        start, stop = sorted(rng.integers(0, rows + 1, 2).tolist())
        assert as_lists(ds[start:stop]) == wanted(table, np.arange(start, stop))
        some = rng.integers(0, rows, int(rng.integers(0, 40)))
        assert as_lists(ds[some]) == wanted(table, some)
    names = ["list", "i"]
    batches = list(ds.select(*names).batch(17))
    joined = {name: [_plain(v) for b in batches for v in b[name]] for name in names}
    assert joined == wanted(table.select(names), np.arange(rows))
    with pytest.warns(rm.SlowOrderWarning, match="window="):
        shuffled = [v for b in ds.select("word").shuffle(seed=seed).batch(16) for v in b["word"]]
    assert sorted(shuffled) == sorted(table["word"].to_pylist())


def test_reads_in_order_that_take_turns_get_their_own_rows() -> None:
    values = np.arange(300_000, dtype=np.int64).reshape(-1, 4)
    rm.from_arrays({"x": values}).save("x.parquet", options={"row_group_rows": 9_000})
    ds = rm.open("x.parquet")
    late, early = ds.batches(4_001), ds.batches(4_001)
    read = [next(early), next(early)]
    for batch in late:
        read += [batch, *([more] if (more := next(early, None)) is not None else [])]
    assert sum(len(batch["x"]) for batch in read) == 2 * len(values)
    for batch in read:
        first = int(batch["x"][0, 0]) // 4
        assert np.array_equal(batch["x"], values[first : first + len(batch["x"])])
    backwards = [ds[at : at + 5_000]["x"] for at in range(70_000, -1, -5_000)]
    assert np.array_equal(np.concatenate(backwards[::-1]), values)


@pytest.mark.slow
def test_threads_that_read_one_file_in_turns_get_their_own_rows() -> None:
    values = np.arange(4000).reshape(2000, 2)
    rm.from_arrays({"x": values}).save("x.parquet", options={"row_group_rows": 30})
    source = rm.open("x.parquet")
    spans = [(at, at + 20) for at in range(0, 2000, 20)] * 5
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda span: source[span[0] : span[1]]["x"], spans))
    for (start, stop), rows in zip(spans, found, strict=True):
        assert np.array_equal(rows, values[start:stop])


def test_rows_before_a_damaged_row_group_are_read_in_order() -> None:
    rm.from_arrays({"x": np.random.default_rng(0).random((40_000, 8))}).save(
        "x.parquet", options={"row_group_rows": 10_000}
    )
    start = pq.ParquetFile("x.parquet").metadata.row_group(2).column(0).data_page_offset
    data = bytearray(Path("x.parquet").read_bytes())
    data[start + 5_000] ^= 1
    Path("x.parquet").write_bytes(data)
    rows = 0
    with pytest.raises(rm.DataError, match="row group 2 cannot be decoded"):
        for batch in rm.open("x.parquet").batches(1_000):
            rows += len(batch["x"])
    assert rows == 20_000


def test_structs_are_columns_and_only_chosen_members_are_read() -> None:
    points = [{"x": i, "y": {"z": -i, "w": [i] * (i % 3)}} for i in range(9)]
    ds = rm.open(written(pa.table({"p": points, "k": range(9)}), row_group_size=4))
    assert set(ds.schema) == {"p/x", "p/y/z", "p/y/w", "k"}
    assert ds[:]["p/y/w"].tolist() == [[i] * (i % 3) for i in range(9)]
    only = rm.open("x.parquet", ["p/y/z"])
    assert only[3:]["p/y/z"].tolist() == [-i for i in range(3, 9)]


def test_times_of_all_units_keep_their_values() -> None:
    moment = dt.datetime(2026, 11, 17, 1, 2, 3, 456789, dt.UTC)
    table = pa.table(
        {
            "zoned": pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
            "ms": pa.array([moment.replace(tzinfo=None, microsecond=0)], pa.timestamp("ms")),
            "date": pa.array([moment.date()], pa.date32()),
            "span": pa.array([dt.timedelta(seconds=5)], pa.duration("ns")),
            "time": pa.array([moment.time()], pa.time64("us")),
        }
    )
    row = rm.open(written(table))[0]
    assert row["zoned"] == np.datetime64("2026-11-17T01:02:03.456789")  # in UTC
    assert row["ms"] == np.datetime64("2026-11-17T01:02:03")
    assert row["date"] == np.datetime64("2026-11-17")
    assert row["span"] == np.timedelta64(5, "s")
    assert row["time"] == np.timedelta64(3723456789, "us")


def test_what_cannot_be_a_column_is_left_out_with_the_reason() -> None:
    table = pa.table([[1, 2], [3, 4], [5, 6]], ["n", "twice", "twice"])
    written(table)
    with pytest.warns(rm.LeftOutWarning, match="'twice'.*two columns.*columns="):
        ds = rm.open("x.parquet")
    assert list(ds.schema) == ["n"]
    assert rm.open("x.parquet", ["n"])[:]["n"].tolist() == [1, 2]
    with pytest.raises(rm.DataError, match="'twice' cannot be a column.*two columns"):
        rm.open("x.parquet", ["twice"])
    with pytest.raises(rm.FieldNotFoundError, match="no column 'm'; there are: n"):
        rm.open("x.parquet", ["m"])


def test_decimals_are_float64_where_that_loses_nothing_and_else_text() -> None:
    def decimals(digits: int, scale: int, *numbers: str) -> Any:
        values = [None, *map(decimal.Decimal, numbers)]
        return pa.array(values, pa.decimal128(digits, scale))

    table = pa.table(
        {
            "short": decimals(15, 2, "1.50", "-9999999999999.99", "0.07"),
            "long": decimals(38, 2, "1.50", "-999999999999999999999999999999999999.99", "0.07"),
            "whole": decimals(38, 0, "1", "-9223372036854775808", "7"),
        }
    )
    written(table)
    ds = rm.open("x.parquet")
    assert ds.schema == {"short": "float64?", "long": "text?", "whole": "int64?"}
    assert ds["short"][:].tolist() == [None, 1.5, -9999999999999.99, 0.07]
    long = [None, "1.50", "-999999999999999999999999999999999999.99", "0.07"]
    assert ds["long"][:].tolist() == long
    hundreds = rm.open(pa.table({"x": decimals(5, -2, "100", "-9999900")}))
    assert hundreds["x"][:].tolist() == [None, 100, -9999900]
    assert ds.to_arrow().equals(table)
    read = rm.open("x.parquet", {"long": "float64?", "whole": "text?", "short": "text?"})
    assert read["long"][1:].tolist() == [1.5, -1e36, 0.07]
    assert read["whole"][:].tolist() == [None, "1", "-9223372036854775808", "7"]
    assert read["short"][2] == "-9999999999999.99"
    assert rm.open("x.parquet", nulls="mask")["short/is_null"][:].tolist() == [True, *[False] * 3]
    ds.save("y.tfrecord")
    assert rm.open("y.tfrecord")["long"][:].tolist() == long


def test_nulls_are_kept_filled_masked_or_an_error() -> None:
    table = pa.table({"n": [1, 2, None, 4], "f": [0.5, None, 2.5, 3.5], "s": ["a", None, "", "d"]})
    path = written(table, row_group_size=2)
    with pytest.raises(rm.DataError, match=r"x.parquet: column 'n' has no value in row 2") as e:
        rm.open(path, ["n"], nulls="error")[:]
    assert (e.value.file, e.value.field, e.value.record) == (path, "n", 2)
    # Other row groups, and columns, are not affected.
    assert rm.open(path, ["n"], nulls="error")[1]["n"] == 2
    assert rm.open(path)[:]["n"].tolist() == [1, 2, None, 4]
    ds = rm.open(path, {"n": "int64 = -1", ...: None}, nulls="fill")
    assert ds[:]["n"].tolist() == [1, 2, -1, 4]
    assert np.isnan(ds[1]["f"])
    masked = rm.open(path, nulls="mask")[:]
    assert masked["n"].tolist() == [1, 2, 0, 4]
    assert masked["n/is_null"].tolist() == [False, False, True, False]
    with pytest.raises(rm.DataError, match="nothing to fill it with"):
        rm.open(path, nulls="fill")[:]


@pytest.mark.parametrize(("version", "advice"), [("25.0.1", True), ("26.0.1", False)])
def test_what_an_old_pyarrow_cannot_decode_names_the_release_that_can(
    version: str, advice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("Expected all lists to be of size=2 but index 2 had size=0")

    ds = rm.open(written(pa.table({"x": pa.array([[1, 2], None], pa.list_(pa.int32(), 2))})))
    monkeypatch.setattr(pa, "__version__", version)
    monkeypatch.setattr("recmap.formats.arrow_columns.ArrowColumns.batch", fail)
    with pytest.raises(rm.DataError, match="row group 0 cannot be decoded: Expected") as caught:
        ds[0]
    assert ("since release 26" in str(caught.value)) == advice


def test_only_the_chosen_columns_are_read() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.random(5000), "y": rng.random(5000)})
    written(table, use_dictionary=False)
    chunk = pq.ParquetFile("x.parquet").metadata.row_group(0).column(1)
    with open("x.parquet", "r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)
    ds = rm.open("x.parquet")
    assert np.array_equal(next(iter(ds.select("x").batch(5000)))["x"], table["x"].to_numpy())
    assert np.array_equal(np.asarray(ds["x"]), table["x"].to_numpy())
    with pytest.raises(rm.DataError, match="x.parquet: row group 0 cannot be decoded"):
        ds[:]


def test_partitions_in_the_names_of_folders_are_told_of() -> None:
    for year in (2025, 2026):
        os.makedirs(f"data/year={year}")
        written(pa.table({"x": [year]}), f"data/year={year}/part.parquet")
    with pytest.warns(rm.LeftOutWarning, match="data: 'year' in the names of folders"):
        ds = rm.open("data/**/*.parquet")
    assert ds[:]["x"].tolist() == [2025, 2026]
    assert rm.open("data/**/*.parquet", ["x"])[:]["x"].tolist() == [2025, 2026]
    with pytest.raises(rm.PathNotFoundError, match=r"year=2025.*\*\*/\*\.parquet"):
        rm.open("data")


@pytest.mark.slow
def test_folders_and_many_files_open_as_one() -> None:
    table = random_table(300, 7)
    os.mkdir("many")
    for i in range(100):
        written(table.slice(3 * i, 3), f"many/{i:03}.parquet")
    ds = rm.open("many")
    assert as_lists(ds[:]) == wanted(table, np.arange(300))
    some = np.random.default_rng(0).permutation(300)
    assert as_lists(ds[some]) == wanted(table, some)


def test_a_dataset_is_opened_again_by_workers() -> None:
    table = random_table(200, 3)
    ds = rm.open(written(table, row_group_size=64), ["i", "list"])
    again = pickle.loads(pickle.dumps(ds))
    assert as_lists(again[:]) == wanted(table.select(["i", "list"]), np.arange(200))
    pipeline = ds.map(lambda row: {"n": len(row["list"])}, workers="processes:2").batch(50)
    assert [n for batch in pipeline for n in batch["n"]] == [len(x) for x in table["list"]]


@pytest.mark.parametrize("cut", [0, 3, 11, 12, 200, -1, -9])
def test_a_cut_file_is_an_error(cut: int) -> None:
    whole = Path(written(random_table(20, 1))).read_bytes()
    Path("y.parquet").write_bytes(whole[:cut] if cut >= 0 else whole[: len(whole) + cut])
    with pytest.raises(rm.RecmapError):
        rm.open("y.parquet")


@pytest.mark.slow
def test_damaged_bytes_are_an_error_or_other_values_and_never_a_crash() -> None:
    whole = np.frombuffer(Path(written(random_table(60, 1), row_group_size=20)).read_bytes(), "u1")
    rng = np.random.default_rng(5)
    for _ in range(150):
        damaged = whole.copy()
        places = rng.integers(0, len(whole), 3)
        damaged[places] = rng.integers(0, 256, 3)
        Path("y.parquet").write_bytes(damaged.tobytes())
        try:
            ds = rm.open("y.parquet", format="parquet")
            for batch in ds.batches(16):
                assert batch
        except rm.RecmapError:
            continue


def test_a_time_zone_that_is_not_text_is_an_error() -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.timestamp("ns", "Europe/Berlin"))}), "x.parquet")
    data = Path("x.parquet").read_bytes()
    stored = base64.b64decode(pq.read_metadata("x.parquet").metadata[b"ARROW:schema"])
    damaged = stored.replace(b"Europe", b"Eur\xfepe")
    assert damaged != stored
    data = data.replace(base64.b64encode(stored), base64.b64encode(damaged))
    Path("x.parquet").write_bytes(data)
    with pytest.raises(rm.DataError, match="x.parquet: not a valid Parquet file: 'utf-8'") as e:
        rm.open("x.parquet")
    assert e.value.file == "x.parquet"


def test_an_unknown_compression_is_an_error_and_not_the_end_of_the_process() -> None:
    pq.write_table(pa.table({"x": np.arange(100)}), "x.parquet", compression="snappy")
    snappy, unknown = b"\x18\x01x\x15\x02", b"\x18\x01x\x15\x41"
    data = Path("x.parquet").read_bytes()
    assert data.count(snappy) == 1
    Path("x.parquet").write_bytes(data.replace(snappy, unknown))
    ds = rm.open("x.parquet")
    assert "1 row group, an unknown compression" in str(ds.info())
    with pytest.raises(rm.DataError, match="row group 0 cannot be decoded"):
        ds[:]
    assert not rm.verify("x.parquet").ok


def test_damaged_pages_of_recmap_are_found_by_their_checksums() -> None:
    rm.from_arrays({"x": np.random.default_rng(0).random(5000)}).save(
        "x.parquet", compression="none"
    )
    data = bytearray(Path("x.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    Path("x.parquet").write_bytes(data)
    with pytest.raises(rm.DataError, match="row group 0 cannot be decoded.*(CRC|checksum)"):
        rm.open("x.parquet")[:]
    assert not rm.verify("x.parquet").ok


def test_the_file_says_what_other_programs_need() -> None:
    columns: dict[str, Any] = {
        "image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "x": np.arange(4, dtype=np.float32).reshape(2, 2),
        "tokens": rm.Ragged.from_rows([[1, 2], [3]]),
        "name": [b"a", b"bc"],
        "c": np.array([1 + 2j, 3j]),
    }
    rm.from_arrays(columns).save("x.parquet")
    table = pq.read_table("x.parquet")
    assert table["image"].to_pylist() == columns["image"].reshape(2, 12).tolist()
    assert table.schema.field("image").type.shape == [3, 4]
    assert table["tokens"].to_pylist() == [[1, 2], [3]]
    assert table["c"].to_pylist() == [[1.0, 2.0], [0.0, 3.0]]
    group = pq.ParquetFile("x.parquet").metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}
    rm.from_arrays(columns).save("y.parquet", options={"tensors": "list"})
    assert pq.read_table("y.parquet")["image"].to_pylist() == columns["image"].tolist()
    assert rm.open("y.parquet").schema == rm.open("x.parquet").schema


def test_columns_that_another_program_changed_have_the_types_they_have_now() -> None:
    columns = {"c": np.array([1j, 2]), "d": np.arange(2), "e": np.zeros((2, 0))}
    rm.from_arrays(columns).save("x.parquet")
    table = pq.read_table("x.parquet")
    as_text = pa.array(["a", "b"])
    changed = table.set_column(1, "d", as_text).drop(["e"]).append_column("new", as_text)
    written(changed.replace_schema_metadata(table.schema.metadata), "y.parquet")
    with pytest.warns(rm.StaleIndexWarning, match="'d' is int64, but it holds text"):
        ds = rm.open("y.parquet")
    assert ds[:]["c"].tolist() == [1j, 2]
    texts = rm.open("y.parquet", {"d": "text", "new": None})[:]
    assert as_lists(texts) == {"d": [b"a", b"b"], "new": [b"a", b"b"]}


@pytest.mark.slow
def test_row_groups_have_the_rows_that_were_asked_for_or_fit_into_the_memory() -> None:
    rows = np.random.default_rng(0).integers(0, 9, (60_000, 100), np.int8)
    rm.from_arrays({"x": rows}).save("x.parquet", options={"row_group_rows": 25_000})
    assert group_rows("x.parquet") == [25_000, 25_000, 10_000]
    rm.from_arrays({"x": rows}).save("y.parquet", memory="64MB")
    assert group_rows("y.parquet") == [10_000] * 6
    rm.from_arrays({"x": rows}).save("z.parquet")
    assert group_rows("z.parquet") == [60_000]


def group_rows(path: str) -> list[int]:
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def test_rows_of_different_sizes_fill_row_groups_by_their_bytes() -> None:
    rows = [b"x" * (100_000 if i % 10 == 0 else 10) for i in range(200)]
    rm.from_arrays({"s": rows}).save("x.parquet", memory="24MB")
    assert all(n > 1 for n in group_rows("x.parquet")[:-1])
    assert len(group_rows("x.parquet")) > 3
    assert rm.open("x.parquet")[:]["s"].tolist() == rows


def test_a_resumed_conversion_gives_the_same_bytes() -> None:
    rng = np.random.default_rng(0)
    ds = rm.from_arrays({"x": rng.random((3000, 8)), "s": [rng.bytes(i % 50) for i in range(3000)]})
    ds.save("whole.tfrecord")
    rm.convert("whole.tfrecord", "a/x.parquet", shards=3)
    rm.convert("whole.tfrecord", "b/x.parquet", shards=3)
    os.unlink("b/x-00001-of-00003.parquet")
    report = rm.convert("whole.tfrecord", "b/x.parquet", shards=3, memory="100MB")
    assert report.resumed == 2
    for name in os.listdir("a"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes() or name[0] == "."


@pytest.mark.slow
def test_a_row_group_larger_than_the_memory_is_converted_in_pieces() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (400_000, 64), np.uint8)  # 26 MB
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 64)})
    written(table, row_group_size=400_000, compression="zstd")
    del table
    statement = 'rm.convert("x.parquet", "x.npy", memory="40MB")'
    assert peak_of(statement) < 40 * 10**6
    assert np.array_equal(np.load("x.npy"), rows)


@pytest.mark.slow
def test_strings_that_are_stored_once_are_read_within_the_limit() -> None:
    words = pa.array([bytes([i]) * 50_000 for i in range(10)], pa.binary())
    table = pa.table({"s": pa.DictionaryArray.from_arrays(pa.array(np.arange(2000) % 10), words)})
    written(table)
    assert os.path.getsize("x.parquet") < 100_000
    statement = 'rm.convert("x.parquet", "x.npz", memory="64MB")'
    assert peak_of(statement) < 64 * 10**6
    assert rm.open("x.npz")[1999]["s"] == bytes([9]) * 50_000


def test_info_and_head_show_row_groups_and_compression(capsys: pytest.CaptureFixture[str]) -> None:
    written(random_table(100, 1), row_group_size=30, compression="zstd")
    assert main(["info", "x.parquet"]) == 0
    assert "parquet, 4 row groups, zstd" in capsys.readouterr().out
    assert main(["convert", "x.parquet", "y.arrow"]) == 0
    assert main(["head", "y.arrow", "-n", "1"]) == 0


def test_other_options_are_refused() -> None:
    ds = rm.from_arrays({"x": np.arange(3)})
    with pytest.raises(rm.OptionError, match="compression"):
        ds.save("x.parquet", compression="lzma")
    with pytest.raises(rm.OptionError, match="level=3: lz4 has no levels"):
        ds.save("x.parquet", compression="lz4", options={"level": 3})
    with pytest.raises(rm.OptionError, match="row_group_rows"):
        ds.save("x.parquet", options={"row_group_rows": 0})
    with pytest.raises(rm.OptionError, match="row_groups"):
        ds.save("x.parquet", options={"row_groups": 2})
    assert os.listdir() == []


# Written by pyarrow 25, which counts no nulls in null lists of structs: [None, [{"a": 1}]].
_UNCOUNTED_NULLS = (
    "c-oavy$ZrG5Wd7Cc6GSYK!z?Bg;rGP*2T@iK^&Z1f&?s7TU-C0$rtlAJpXWUF}cfK@_qN0`D8I7pqS#AkR3(J1fG"
    "D``g%U}e!O-%d`MR04bTb!J`kZ^r4XoQy>VMh5>gq63rSM5jNudmEb`{?0@|){Teo}M2)j(Q;G;I$L|`~kSAm|2%"
    "QN6Z6_%LeUj<9#Wq<Xo4NnSOEbB)IdMV#iJhEZrv4LJ#*?NC;hh$w<iLLAM9G+a=<mE0Lr-R{Oq>bT_8|$3^@D2*"
    "CDR%"
)


def test_null_lists_of_structs_are_found_though_the_statistics_count_none() -> None:
    Path("x.parquet").write_bytes(zlib.decompress(base64.b85decode(_UNCOUNTED_NULLS)))
    ds = rm.open("x.parquet")
    assert ds.schema == {"x/a": "int64[*]?"}
    assert ds[0]["x/a"] is None
    assert ds[1]["x/a"].tolist() == [1]


def test_a_dictionary_of_no_strings_is_read_without_a_warning() -> None:
    pl.DataFrame(
        {"x": [None, None], "i": [1, 2]}, schema={"x": pl.String, "i": pl.Int64}
    ).write_parquet("x.parquet")
    ds = rm.open("x.parquet")
    assert ds[:]["x"].tolist() == [None, None]
    assert ds.where("x is null")["i"][:].tolist() == [1, 2]


class Keys(encryption.KmsClient):  # type: ignore[misc]
    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(key)


def test_encrypted_columns_are_refused_by_name() -> None:
    secret = encryption.EncryptionConfiguration(
        "f", column_keys={"k": ["b"]}, plaintext_footer=True
    )
    keys = encryption.CryptoFactory(lambda _: Keys())
    made = keys.file_encryption_properties(encryption.KmsConnectionConfig(), secret)
    path = written(pa.table({"a": [1, 2], "b": [3, 4]}), encryption_properties=made)
    with pytest.raises(rm.DataError, match="encrypted Parquet: 'b'. Decrypt it"):
        rm.open(path)


def test_two_row_groups_are_decoded_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is decoded piece by piece, which leaves other threads to the next one."""
    rows = np.arange(8192 * 2048, dtype="f4").reshape(-1, 2048)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(rows.reshape(-1), 2048)})
    pq.write_table(table, "x.parquet", row_group_size=4096, compression="none")
    piece, second, met = GroupDecoding.piece, threading.Event(), list[bool]()

    def meet(self: GroupDecoding, number: int) -> Any:
        if self._group == 1:
            second.set()
        elif number >= 12:
            met.append(second.wait(60))
        return piece(self, number)

    monkeypatch.setattr(GroupDecoding, "piece", meet)
    with using_threads(2):
        batches = [batch["x"] for batch in rm.open("x.parquet").batch(128)]
    assert np.array_equal(np.concatenate(batches), rows)
    assert met
    assert all(met)
