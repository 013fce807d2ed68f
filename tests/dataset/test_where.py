"""ds.where: rows filtered by conditions on columns."""

from __future__ import annotations

import os
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.model.progress import Progress


def found(ds: Any, condition: Any) -> list[int]:
    """Return the row numbers for which a condition holds."""
    numbers: list[int] = ds.where(condition)["row"][:].tolist()
    return numbers


def numbered(**columns: Any) -> rm.Dataset:
    rows = len(next(iter(columns.values())))
    return rm.from_arrays({**columns, "row": np.arange(rows)})


def test_rows_are_filtered_in_file_order_and_are_a_dataset() -> None:
    label = np.array([3, 1, 3, 2, 3])
    ds = numbered(label=label, x=np.arange(10.0).reshape(5, 2))
    cats = ds.where(rm.col("label") == 3)
    assert isinstance(cats, rm.Dataset)
    assert (len(cats), cats.columns) == (3, ["label", "x", "row"])
    assert cats["row"][:].tolist() == [0, 2, 4]
    assert cats[1]["row"] == 2
    assert cats[-1]["row"] == 4
    assert cats[::-1]["row"].tolist() == [4, 2, 0]
    assert [row["row"] for row in cats] == [0, 2, 4]
    assert cats.where("row > 0").where("row < 4")["row"][:].tolist() == [2]
    numbers = cats.stats()["row"].values
    assert numbers is not None
    assert numbers.max == 4
    assert len(cats.split({"a": 0.5, "b": 0.5})["a"]) in (1, 2)
    assert sorted(b["row"][0] for b in cats.shuffle(seed=1).batch(1)) == [0, 2, 4]
    assert cats.save("cats.npz").rows == 3
    assert rm.open("cats.npz")["row"][:].tolist() == [0, 2, 4]
    none = ds.where("label == 7")
    assert (len(none), none[:]["row"].tolist(), list(none)) == (0, [], [])
    with pytest.raises(rm.RowNotFoundError):
        none[0]


def test_every_format_is_filtered() -> None:
    ds = numbered(label=np.arange(100) % 7, name=rm.Ragged.from_text([f"n{i}" for i in range(100)]))
    condition = (rm.col("label") == 3) & ~rm.col("name").starts_with("n1")
    expected = [i for i in range(100) if i % 7 == 3 and not f"n{i}".startswith("n1")]
    for suffix in (".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".parquet", ".arrow"):
        ds.save(f"x{suffix}")
        assert found(rm.open(f"x{suffix}"), condition) == expected
    ds.save("many/", shards=3)
    assert found(rm.open("many/"), condition) == expected


def test_numbers_compare_by_value_whatever_their_types() -> None:
    big = 2**63
    ds = numbered(
        u8=np.array([0, 255], np.uint8),
        u64=np.array([big, big + 1], np.uint64),
        i64=np.array([-(2**53) - 1, 2**53 + 1]),
        f32=np.array([0.1, np.inf], np.float32),
        f16=np.array([np.nan, 65504], np.float16),
        bf16=np.array([0.1, 300], ml_dtypes.bfloat16),
        flag=np.array([True, False]),
        c=np.array([1j, 2], np.complex64),
        be=np.array([1, 2], ">i4"),
    )
    cases = {
        "u8 == 300": [],
        "u8 < 300": [0, 1],
        "u8 > -1": [0, 1],
        "u8 != 2.5": [0, 1],
        "u8 > 254.5": [1],
        f"u64 == {big + 1}": [1],
        f"u64 in [{big}, 0, 1, -5]": [0],
        f"u64 > {float(big)}": [1],
        f"i64 == {float(2**53)}": [],
        f"i64 < {-float(2**53)}": [0],
        "i64 < inf": [0, 1],
        "f32 == 0.1": [0],
        "f32 < 1e300": [0],
        "f32 > 1e300": [1],
        "f32 == inf": [1],
        "f16 < 1e6": [1],
        "f16 != 3": [0, 1],
        "not f16 > 3": [0],
        "is_nan(f16)": [0],
        "bf16 == 0.1": [0],
        "bf16 in [300, 1]": [1],
        "flag": [0],
        "not flag": [1],
        "flag == false": [1],
        "flag == 1": [0],
        "c == 2": [1],
        "be in [2, 300]": [1],
        "be >= 2": [1],
    }
    for text, rows in cases.items():
        assert found(ds, text) == rows, text


def test_strings_and_dates_compare_as_in_python() -> None:
    words = ["", "a", "ab", "b", "é", "a\0"]
    days = np.array(["2024-01-31", "NaT", "1969-12-31", "2024-02-01", "9999-01-01", "0001-01-01"])
    ds = numbered(
        text=rm.Ragged.from_text(words),
        bytes=rm.Ragged.from_bytes([word.encode() for word in words]),
        void=np.array([b"ab", b"aa", b"b\0", b"\0\0", b"\xff\xff", b"ab"], "V2"),
        day=days.astype("M8[D]"),
        ns=np.array(["2024-01-31T00:00:00.000000001"] * 6, "M8[ns]"),
        wait=np.arange(6).astype("m8[s]"),
    )
    assert found(ds, 'text < "ab"') == [0, 1, 5]
    assert found(ds, 'bytes >= b"b"') == [3, 4]
    assert found(ds, "contains(text, '')") == [0, 1, 2, 3, 4, 5]
    assert found(ds, "'b' in text and text != 'b'") == [2]
    assert found(ds, 'void == b"ab"') == [0, 5]
    assert found(ds, 'starts_with(void, b"a")') == [0, 1, 5]
    assert found(ds, rm.col("text").is_in([f"w{i}" for i in range(50)] + ["é"])) == [4]
    # NaT is a null.
    assert found(ds, 'day >= "2024-01-31"') == [0, 3, 4]
    assert found(ds, 'not day >= "2024-01-31T12:00"') == [0, 2, 5]
    assert found(ds, 'day == "2024-01-31T12:00"') == []
    assert found(ds, rm.col("day") == np.datetime64("2024-01-31T00", "h")) == [0]
    assert found(ds, "day is null") == [1]
    assert found(ds, "ns < '9999-01-01' and not ns < '0001-01-01'") == list(range(6))
    assert found(ds, rm.col("wait") > np.timedelta64(1500, "ms")) == [2, 3, 4, 5]


def test_a_null_is_never_equal_and_never_unequal() -> None:
    table = pa.table({"x": pa.array([1, None, 3]), "s": ["a", None, "b"], "row": [0, 1, 2]})
    ds = rm.open(table, nulls="mask")
    for text, rows in {
        "x == 1": [0],
        "x != 1": [2],
        "not x == 1": [2],
        "x == 0 or x != 0": [0, 2],
        "x is null": [1],
        "x is not null": [0, 2],
        "s != 'a'": [2],
        "not (x == 1 and row == 1)": [0, 2],
        "x == 1 or row == 1": [0, 1],
        "not (x == 1 or row == 0)": [2],
        "not x in [1]": [2],
    }.items():
        assert found(ds, text) == rows, text
    assert ds.where("x is null").select("x").schema.keys() == {"x", "x/is_null"}


def test_rows_are_searched_when_they_are_needed_and_only_as_far() -> None:
    np.save("x.npy", np.arange(3_000_000) % 1000)
    some = rm.open("x.npy").where("data == 7")
    assert "rows not counted yet" in repr(some)
    assert some[2]["data"] == 7
    assert some.head(3)["data"].tolist() == [7, 7, 7]
    assert "rows not counted yet" in repr(some)
    assert len(some) == 3000
    assert "3,000 rows" in repr(some)
    assert "rows not counted yet" in repr(rm.open("x.npy").where("data == 7"))


def test_what_was_found_goes_to_other_processes() -> None:
    np.save("x.npy", np.arange(1000) % 10)
    some = rm.open("x.npy").where("data == 7", progress=print)
    assert "not counted" in repr(pickle.loads(pickle.dumps(some)))
    assert len(pickle.loads(pickle.dumps(some))) == 100
    some.head(2)
    assert len(some) == 100
    again = pickle.loads(pickle.dumps(some))
    assert "100 rows" in repr(again)
    assert again["data"][:].tolist() == [7] * 100
    batches = some.map(lambda row: row, workers="processes:2").batch(50)
    assert sum(len(batch["data"]) for batch in batches) == 100
    assert some.save("out/", shards=2, workers="processes:2").rows == 100


def test_a_search_shows_its_progress() -> None:
    np.save("x.npy", np.arange(100_000))
    told: list[Progress] = []
    ds = rm.open("x.npy").where("data > 5", progress=told.append)
    assert not told
    assert len(ds) == 99_994
    assert (told[-1].rows, told[-1].fraction) == (100_000, 1.0)
    with pytest.raises(rm.OptionError, match="progress"):
        rm.open("x.npy").where("data > 5", progress="yes")  # type: ignore[arg-type]


def damaged_parquet(columns: dict[str, Any], keep: dict[int, list[str]], **options: Any) -> str:
    """Write row groups of ten rows, and damage all pages but those of some columns of some."""
    pq.write_table(
        pa.table(columns),
        "x.parquet",
        row_group_size=10,
        write_page_checksum=True,
        use_dictionary=False,
        **options,
    )
    metadata = pq.ParquetFile("x.parquet").metadata
    with open("x.parquet", "r+b") as file:
        for group in range(metadata.num_row_groups):
            for i in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(i)
                if chunk.path_in_schema not in keep.get(group, []):
                    end = chunk.data_page_offset + chunk.total_compressed_size
                    file.seek(end - 4)
                    file.write(b"\xaa\x55\xaa\x55")
    return "x.parquet"


def test_parquet_reads_only_row_groups_and_columns_that_matter() -> None:
    columns = {
        "i": np.arange(100),
        "t": [f"{i:03}" for i in range(100)],
        "day": np.arange(100).astype("M8[D]").astype("M8[ms]"),
        "f": np.arange(100.0),
        "whole": pa.array(range(100), pa.decimal128(9, 0)),
        "price": pa.array([Decimal(i) / 100 for i in range(100)], pa.decimal128(15, 2)),
        "other": np.arange(100),
    }
    path = damaged_parquet(columns, {3: ["i", "t", "day", "f", "whole", "price"]})
    ds = rm.open(path)
    for condition in (
        "i == 35",
        "between(i, 30, 39) and i != 30",
        "i in [33, 34, 1000]",
        "t == '035'",
        "t.starts_with('03')",
        "day == '1970-02-05'",
        "f > 29.5 and f < 39.5",
        "whole == 35",
        "price == 0.35",
        "price > 0.3 and price <= 0.39",
        "i == 35 or i == 1000",
        "not (i < 30 or i > 39)",
    ):
        assert 1 <= len(ds.where(condition)) <= 10, condition
    for condition in ("i != 35", "not f < 100", "contains(t, '035')"):
        with pytest.raises(rm.DataError):
            len(ds.where(condition))
    assert len(ds.where("i is null")) == len(ds.where("i > 100 or f < -1")) == 0
    # Without statistics, all row groups are read.
    ds = rm.open(damaged_parquet(columns, {3: ["i"]}, write_statistics=False))
    with pytest.raises(rm.DataError):
        len(ds.where("i == 35"))


def test_doubtful_statistics_of_parquet_skip_nothing() -> None:
    table = pa.table({"x": pa.array([5, None, 7, 8]), "f": [1.0, np.nan, 3.0, np.nan]})
    pq.write_table(table, "nulls.parquet", row_group_size=2)
    filled = rm.open("nulls.parquet", {"x": "int64 = 0", "f": None}, nulls="fill")
    assert filled.where("x == 0")["x"][:].tolist() == [0]
    masked = rm.open("nulls.parquet", nulls="mask")
    assert len(masked.where("not f < 2")) == 3
    assert len(masked.where("f < 2 or f > 2")) == 2
    assert len(masked.where("x == 0")) == 0
    assert len(masked.where("x is null")) == 1
    # A program that nobody knows may have compared strings as if their bytes had signs.
    columns = {"i": np.arange(100), "t": [f"{i:03}" for i in range(100)]}
    path = Path(damaged_parquet(columns, {3: ["i", "t"]}))
    path.write_bytes(path.read_bytes().replace(b"parquet-cpp-arrow", b"parquet-xyz-arrow"))
    ds = rm.open(path)
    assert len(ds.where("i == 35")) == 1
    with pytest.raises(rm.DataError):
        len(ds.where("t == '035'"))


@pytest.mark.parametrize("program", ["parquet-mr version 1.8.2 (", "parquet-cpp-arrow version 3."])
def test_decimals_compared_as_signed_bytes_are_found(program: str) -> None:
    numbers = [Decimal(i) / 100 for i in range(100, 1000, 50)]
    table = pa.table({"x": pa.array(numbers, pa.decimal128(13, 2))})
    pq.write_table(table, "x.parquet", use_dictionary=False)
    content = Path("x.parquet").read_bytes()
    # Of 2.00, the last byte is 200: as a signed one, it is the least.
    least, other = (b"\x18\x06" + n.to_bytes(6, "big") for n in (100, 200))
    assert least in content
    writer = b"parquet-cpp-arrow version " + pa.__version__.encode()
    assert content.count(writer) == 1
    content = content.replace(least, other)
    content = content.replace(writer, program.ljust(len(writer), "0").encode())
    Path("x.parquet").write_bytes(content)
    assert pq.ParquetFile("x.parquet").metadata.row_group(0).column(0).statistics.min == 2
    assert rm.open("x.parquet").where("x == 1")["x"][:].tolist() == [1]


def test_unsigned_numbers_of_old_programs_are_found() -> None:
    table = pa.table({"x": pa.array([1, 2, 2**32 - 1], pa.uint32())})
    pq.write_table(table, "x.parquet", use_dictionary=False)
    content = Path("x.parquet").read_bytes()
    writer = b"parquet-cpp-arrow version " + pa.__version__.encode()
    least, greatest = (b"\x18\x04" + n.to_bytes(4, "little") for n in (1, 2**32 - 1))
    swapped = content.replace(greatest, b"\x18\x04" + (2).to_bytes(4, "little"))
    swapped = swapped.replace(least, greatest)
    old = b"parquet-rs version 12.0.0".ljust(len(writer))
    Path("x.parquet").write_bytes(swapped.replace(writer, old))
    assert rm.open("x.parquet").where("x == 1")["x"][:].tolist() == [1]


def test_a_file_that_shrinks_during_a_search_is_an_error() -> None:
    np.save("x.npy", np.arange(1_000_000))
    ds = rm.open("x.npy").where("data == 7")
    os.truncate("x.npy", 4096)
    with pytest.raises(rm.DataError, match=r"x.npy"):
        len(ds)


def test_what_cannot_be_searched_is_refused() -> None:
    ds = numbered(label=np.arange(3), tokens=rm.Ragged.from_rows([[1], [], [2]]))
    for condition, match in [
        (3, "a condition is a comparison"),
        (None, "a condition is a comparison"),
        (lambda row: row, "a condition is a comparison"),
        ("label = 3", "compare with =="),
        ("tokens == 3", r"ds.filter\(lambda row: ... row\['tokens'\]"),
    ]:
        with pytest.raises(rm.OptionError, match=match):
            ds.where(condition)  # type: ignore[arg-type]
    with pytest.raises(rm.FieldNotFoundError, match="did you mean 'label'"):
        ds.where("lable == 3")
    once = rm.from_batches(iter([{"x": np.arange(3)}]))
    with pytest.raises(rm.OptionError, match="come only once"):
        once.where("x == 1")


def test_a_state_belongs_to_its_condition() -> None:
    numbered(label=np.arange(30) % 3).save("x.npz")

    def batches(condition: str) -> rm.Stream:
        return rm.open("x.npz").where(condition).shuffle(seed=1).batch(2)

    first = batches("label == 1")
    seen = [batch["row"].tolist() for batch in first]
    again = batches("label == 1")
    rows = iter(again)
    assert [next(rows)["row"].tolist() for _ in range(2)] == seen[:2]
    resumed = batches("label == 1").restore(again.state())
    assert [batch["row"].tolist() for batch in resumed] == seen[2:]
    with pytest.raises(rm.RecmapError, match="where"):
        batches("label == 2").restore(again.state())


def test_a_conversion_of_other_rows_does_not_resume() -> None:
    ds = numbered(label=np.arange(10) % 3)
    ds.save("x.npz")
    ds = rm.open("x.npz")
    ds.where("label == 1").save("out/", shards=2)
    assert ds.where("label == 1").save("out/", shards=2).rows == 3
    with pytest.raises(rm.RecmapError, match="out"):
        ds.where("label == 2").save("out/", shards=2)
