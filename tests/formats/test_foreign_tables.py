"""Tables of other programs that are unusual, or that changed a file of recmap."""

from __future__ import annotations

import pickle
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from tests.formats.foreign_tables import Struct, big_endian_stream, with_footer
from tests.formats.test_parquet import as_lists

SMALLEST = -(2**63)


def in_every_file(table: pa.Table) -> list[str]:
    """Write a table as Parquet, as an Arrow file, and as streams of today and before 0.15."""
    pq.write_table(table, "t.parquet")
    with pa.ipc.new_file("t.arrow", table.schema) as writer:
        writer.write_table(table)
    for name, legacy in (("t.arrows", False), ("old.arrows", True)):
        options = pa.ipc.IpcWriteOptions(use_legacy_format=legacy)
        with pa.ipc.new_stream(name, table.schema, options=options) as writer:
            writer.write_table(table)
    return ["t.parquet", "t.arrow", "t.arrows", "old.arrows"]


def test_streams_from_before_arrow_0_15_are_recognised_whatever_they_are_called() -> None:
    table = pa.table({"x": [1, 2], "s": ["a", "b"], "k": pa.array(["u", "u"]).dictionary_encode()})
    Path("numbers").write_bytes(Path(in_every_file(table)[-1]).read_bytes())
    for path in ("old.arrows", "numbers"):
        assert as_lists(rm.open(path)[:]) == {"x": [1, 2], "s": [b"a", b"b"], "k": [b"u", b"u"]}
        assert rm.verify(path).ok


def test_the_bytes_of_big_endian_streams_are_swapped() -> None:
    when = [1577836800123, -1, 1_000_000]
    columns: dict[str, Any] = {
        "i": pa.array([1_000_001, 2, -3], pa.int32()),
        "t": pa.array(when, pa.timestamp("ms")),
        "s": ["abcd", "", "h"],
    }
    big_endian_stream("x.arrows", pa.table(columns))
    ds = rm.open("x.arrows")
    assert ds[:]["i"].tolist() == [1_000_001, 2, -3]
    assert ds[[2, 0]]["t"].astype(np.int64).tolist() == [when[2], when[0]]
    assert as_lists(ds[:])["s"] == [b"abcd", b"", b"h"]
    ds.save("x.parquet", verify="full")
    assert pq.read_table("x.parquet").column("i").to_pylist() == [1_000_001, 2, -3]
    assert rm.verify("x.arrows").ok


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_valid_time_that_numpy_takes_for_nat_is_refused_or_read_as_a_number(unit: str) -> None:
    numbers = pa.array([5, SMALLEST, None], pa.int64())
    kinds = [pa.duration(unit), pa.timestamp(unit, "UTC")]
    for kind in kinds[: 1 if unit == "s" else 2]:  # Parquet has no seconds
        times = numbers.cast(kind)
        table = pa.table({"t": times, "l": pa.array([[5], [], [SMALLEST]]).cast(pa.list_(kind))})
        for each in [table, *in_every_file(table)]:
            with pytest.raises(rm.DataError, match=r"'t', row 1: .*the time -2\*\*63.*int64"):
                rm.open(each, ["t"])[:]
            with pytest.raises(rm.DataError, match=r"'l', row 2: .*the time -2\*\*63"):
                rm.open(each, ["l"])[:]
            read = rm.open(each, {"t": "int64 = 7"}, nulls="fill")
            assert read[:]["t"].tolist() == [5, SMALLEST, 7]


def test_a_time_under_a_null_may_be_anything() -> None:
    times = pa.Array.from_buffers(
        pa.timestamp("us"),
        2,
        [pa.py_buffer(b"\1"), pa.py_buffer(np.array([1, SMALLEST]).tobytes())],
    )
    assert np.isnat(rm.open(pa.table({"t": times}))[:]["t"]).tolist() == [False, True]


def test_columns_that_nobody_asked_for_block_nothing() -> None:
    coded = pa.array(["a", "b"]).dictionary_encode()
    bad = {
        "d": pa.array([Decimal("1.5"), None]),
        "n": pa.array([1, None]),
        "nothing": pa.nulls(2),
        "k": coded,
        "l": pa.array([[1, None], None]),
    }
    inside = pa.StructArray.from_arrays(
        [pa.array([3, 4]), *(v for k, v in bad.items() if k != "k")],
        ["x", *(k for k in bad if k != "k")],
    )
    table = pa.table({**bad, "s": inside, "x": [1, 2]})
    for each in [table, *in_every_file(table)]:
        assert as_lists(rm.open(each, ["x"])[:]) == {"x": [1, 2]}
        assert as_lists(rm.open(each, ["s/x", "k"])[:]) == {"s/x": [3, 4], "k": [b"a", b"b"]}
        masked = rm.open(each, ["s/n"], nulls="mask")[:]
        assert as_lists(masked) == {"s/n": [1, 0], "s/n/is_null": [False, True]}
        assert rm.open(each, ["s/d"])["s/d"][:].tolist() == [1.5, None]
        with pytest.raises(rm.FieldNotFoundError, match="'s/y'; there are: .*s/x"):
            rm.open(each, ["s/y"])


def test_a_file_beside_others_is_read_for_its_column_alone() -> None:
    table = pa.table({"n": pa.array([1, None]), "x": [1, 2], "l": pa.array([[1, None], None])})
    for each in in_every_file(table):
        assert as_lists(rm.open({"x": each})[:]) == {"x": [1, 2]}
        (batch,) = rm.open({"x": each, "y": np.arange(2)}).batch(2)
        assert as_lists(batch) == {"x": [1, 2], "y": [0, 1]}


def test_a_column_may_be_called_like_the_member_of_another() -> None:
    table = pa.table({"a": [1, 2], "a/b": [3, None]})
    wanted = {"a": [1, 2], "a/b": [3, 0]}
    for each in [table, *in_every_file(table)]:
        assert as_lists(rm.open(each, {"a": None, "a/b": "int64 = 0"}, nulls="fill")[:]) == wanted
        assert as_lists(rm.open(each, {"a/b": "int64 = 0"}, nulls="fill")[:]) == {"a/b": [3, 0]}
        assert as_lists(rm.open(each, {"a": "int64"})[:]) == {"a": [1, 2]}
    clash = pa.table({"a": pa.array([{"b": 1, "c": 2}]), "a/b": [3]})
    for each in [clash, *in_every_file(clash)]:
        with pytest.raises(rm.DataError, match="two columns with the name 'a/b'; rename one"):
            rm.open(each, ["a/b"])
        assert as_lists(rm.open(each, ["a/c"])[:]) == {"a/c": [2]}


def drop_members(footer: Struct) -> None:
    """Make the group ``e`` of a footer an empty one."""
    elements = footer[2][1][1]
    place = next(i for i, element in enumerate(elements) if element[4][1] == b"e")
    elements[place][5] = (elements[place][5][0], 0)
    del elements[place + 1]
    for group in footer[4][1][1]:
        group[1][1][1][:] = [c for c in group[1][1][1] if c[3][1][3][1][1] != [b"e", b"z"]]
    del footer[5], footer[7]  # the schema of Arrow, and the order of values


def test_a_column_after_an_empty_group_is_read() -> None:
    members = pa.array([{"z": 1}] * 3)
    pq.write_table(pa.table({"a": [7, 8, 9], "e": members, "x": [1, 2, 3], "y": ["u"] * 3}), "x.pq")
    with_footer("x.pq", drop_members)
    with pytest.warns(rm.LeftOutWarning, match="'e'.*without members"):
        ds = rm.open("x.pq")
    assert as_lists(ds[:]) == {"a": [7, 8, 9], "x": [1, 2, 3], "y": [b"u"] * 3}
    assert rm.open("x.pq", ["x"])[1]["x"] == 2


def test_a_footer_that_leaves_out_the_number_of_rows_does_not_hide_them() -> None:
    def leave_out(footer: Struct) -> None:
        footer[3] = (footer[3][0], 0)

    def leave_out_of_groups(footer: Struct) -> None:
        leave_out(footer)
        for group in footer[4][1][1]:
            group[3] = (group[3][0], 0)

    pq.write_table(pa.table({"x": range(6)}), "x.parquet")
    with_footer("x.parquet", leave_out)
    assert rm.open("x.parquet")[:]["x"].tolist() == list(range(6))
    with_footer("x.parquet", leave_out_of_groups)
    with pytest.raises(rm.DataError, match="0 rows, but 6 values"):
        rm.open("x.parquet")
    assert not rm.verify("x.parquet").ok


@pytest.mark.parametrize("content", [b"PAR1PAR1", b"PAR1\x01\0\0\0PAR1", b"PAR1\0PAR1"])
def test_a_parquet_file_without_anything_in_it_is_damaged(content: bytes) -> None:
    for name in ("x.parquet", "x", "x.txt"):
        Path(name).write_bytes(content)
        with pytest.raises(rm.DataError, match="Parquet"):
            rm.open(name)
        assert not rm.verify(name).ok
    Path("x.parquet").write_bytes(b"PAR1")
    with pytest.raises(rm.DataError, match="a Parquet file that was cut"):
        rm.open("x.parquet")


def test_the_beginning_of_a_parquet_file_is_called_damaged_whatever_its_name() -> None:
    pq.write_table(pa.table({"x": range(6)}), "x.parquet")
    Path("x").write_bytes(Path("x.parquet").read_bytes()[:-20])
    with pytest.raises(rm.DataError, match=r"cut or damaged|not a valid Parquet file"):
        rm.open("x")


def edited(path: str, **columns: Any) -> None:
    """Replace columns of a file of recmap as other programs do, which keep its metadata."""
    table = pq.read_table(path)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    if path.endswith(".parquet"):
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_a_note_never_changes_a_value_that_another_program_wrote(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"x.{end}"
    columns = {
        "t": np.array(["2020-01-01", "NaT", "2021-01-01"], "M8[s]"),
        "e": np.zeros((3, 0), np.float32),
        "c": np.arange(3) * 1j,
        "r": rm.Ragged(np.array([3, 4], "M8[s]"), [0, 1, 1, 2]),
    }
    monkeypatch.setattr(pq, "read_table", _read_any)
    rm.from_arrays(columns).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rm.open(path).schema == rm.from_arrays(columns).schema
    milliseconds = pa.array([0, 1500, None], pa.timestamp("ms"))
    edited(path, t=milliseconds)
    with pytest.warns(rm.StaleIndexWarning, match=r"'t' is datetime64\[s\], but it holds"):
        ds = rm.open(path)
    assert ds[:2]["t"].astype(np.int64).tolist() == [0, 1500]
    assert ds.schema["c"].dtype == np.complex128
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rm.open(path, {"t": "datetime64[ms]"})[1]["t"].astype(np.int64) == 1500
        warnings.simplefilter("ignore")  # workers open it again
        mapped = ds.select("t").map(_same, workers="processes:1").batch(3)
        assert next(iter(mapped))["t"].astype(np.int64).tolist()[:2] == [0, 1500]
    lists = pa.array([[1], [], [1000]]).cast(pa.list_(pa.timestamp("ms")))
    edited(
        path, t=pa.array([0, 1, 2], pa.timestamp("us")), e=pa.array([False, True, False]), r=lists
    )
    with pytest.warns(rm.StaleIndexWarning, match="'t' is.*'e' is.*'r' is"):
        ds = rm.open(path)
    assert ds[:]["t"].astype(np.int64).tolist() == [0, 1, 2]
    assert ds[:]["e"].tolist() == [False, True, False]
    assert ds[0]["r"].astype(np.int64).tolist() == [1]


def _same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _read_any(path: str) -> pa.Table:
    if path.endswith(".arrow"):
        return pa.ipc.open_file(path).read_all()
    return pq.ParquetFile(path).read()


def test_a_misfit_far_behind_in_a_file_is_an_error_and_not_another_value() -> None:
    from recmap.formats import arrow_columns

    rows = arrow_columns._CHECKED + 5
    rm.from_arrays({"t": np.zeros(rows, "M8[s]")}).save("x.parquet")
    times = np.zeros(rows, "M8[ms]")
    times[-2] += np.timedelta64(3, "ms")
    table = pq.read_table("x.parquet")
    pq.write_table(table.set_column(0, "t", pa.array(times)), "x.parquet")
    ds = rm.open("x.parquet")
    assert ds[0]["t"].astype(int) == 0
    with pytest.raises(
        rm.DataError, match=r"'t'.*columns={\"t\": \"datetime64\[ms\]\", ...: None}"
    ):
        ds[-5:]
    assert rm.open("x.parquet", {"t": "datetime64[ms]", ...: None})[-2]["t"].astype(int) == 3


def test_a_note_that_cannot_be_read_is_said() -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata({"recmap": "{"})
    pq.write_table(table, "x.parquet")
    with pytest.warns(rm.StaleIndexWarning, match="cannot be read"):
        assert rm.open("x.parquet")[:]["x"].tolist() == [1]


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_bytes_of_a_fixed_size_stay_what_they_are(end: str) -> None:
    rng = np.random.default_rng(0)
    uuids = np.frombuffer(rng.bytes(64), "V16")
    columns: dict[str, Any] = {
        "u": uuids,
        "four": np.frombuffer(rng.bytes(16), "V4"),
        "rows": np.frombuffer(rng.bytes(24), "V3").reshape(4, 2),
        "grid": np.frombuffer(rng.bytes(48), "V3").reshape(4, 2, 2),
        "r": rm.Ragged(uuids[:3], [0, 1, 1, 2, 3]),
    }
    rm.from_arrays(columns).save(f"x.{end}", verify="full")
    stored = _read_any(f"x.{end}")
    assert stored.schema.field("u").type == pa.binary(16)
    assert stored.schema.field("four").type == pa.binary(4)
    assert stored.column("u").to_pylist() == [u.tobytes() for u in uuids]
    assert stored.schema.field("r").type.value_type == pa.binary(16)
    ds = rm.open(f"x.{end}")
    assert ds.schema == rm.from_arrays(columns).schema
    assert all(ds[:][name].tolist() == columns[name].tolist() for name in columns)
    # Files of recmap 0.2 hold numbers and a note.
    old = {"u": uuids.view(np.uint8).reshape(4, 16), "four": columns["four"].view(np.uint32)}
    rm.from_arrays(old).save(f"old.{end}")
    table = _read_any(f"old.{end}").replace_schema_metadata(
        {"recmap": '{"columns": [["u", "|V16"], ["four", "|V4"]]}'}
    )
    if end == "parquet":
        pq.write_table(table, "old.parquet")
    else:
        with pa.ipc.new_file("old.arrow", table.schema) as writer:
            writer.write_table(table)
    read = rm.open(f"old.{end}")[:]
    assert read["u"].tolist() == uuids.tolist()
    assert read["four"].tolist() == columns["four"].tolist()


def test_a_table_with_nulls_and_types_that_recmap_lacks_is_sound() -> None:
    table = pa.table(
        {
            "n": pa.array([1, None, 3]),
            "l": pa.array([[1, None], None, []]),
            "d": pa.array([Decimal("1.5"), None, None]),
            "nothing": pa.nulls(3),
            "s": pa.array([{"a": None}, None, {"a": 1}]),
            "f": pa.array([b"abc", None, b"def"], pa.binary(3)),
            "late": pa.array([SMALLEST, None, 0]).cast(pa.timestamp("us")),
        }
    )
    for some in (table, table.select(["d", "nothing"])):
        for path in in_every_file(some):
            found = rm.verify(path)
            assert (found.ok, found.records) == (True, 3), str(found)
            assert "0 damaged" in str(found)


def test_verify_goes_on_after_a_damaged_row_group_and_counts_the_sound_rows() -> None:
    table = pa.table({"x": np.arange(30), "n": pa.array([None, 1, 2] * 10)})
    pq.write_table(
        table, "x.parquet", row_group_size=10, write_page_checksum=True, compression="none"
    )
    content = bytearray(Path("x.parquet").read_bytes())
    column = pq.ParquetFile("x.parquet").metadata.row_group(1).column(0)
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    Path("x.parquet").write_bytes(content)
    found = rm.verify("x.parquet")
    assert (found.records, [each.record for each in found.damage]) == (20, [10])


def test_only_columns_that_hold_nulls_get_a_mask_whichever_file_comes_first() -> None:
    structs = pa.array([{"a": None}, None], pa.struct({"a": pa.int64()}))
    parts = {
        "none": pa.table({"x": [1, 2], "y": [1.0, 2.0], "s": [{"a": 1}, {"a": 2}]}),
        "some": pa.table({"x": [3, None], "y": [3.0, 4.0], "s": structs}),
    }
    wanted = {"x": [1, 2, 3, 0], "y": [1, 2, 3, 4], "s/a": [1, 2, 0, 0]}
    masks = {"x/is_null": [False] * 3 + [True], "s/a/is_null": [False] * 2 + [True] * 2}
    for name, table in parts.items():
        for made in in_every_file(table):
            Path(f"{name}-{made}").write_bytes(Path(made).read_bytes())
    for made in ("t.parquet", "t.arrow", "t.arrows"):
        none, some = f"none-{made}", f"some-{made}"
        assert list(rm.open(none, nulls="mask").schema) == ["x", "y", "s/a"]
        ds = rm.open([none, some], nulls="mask")
        assert list(ds.schema) == ["x", "x/is_null", "y", "s/a", "s/a/is_null"]
        assert as_lists(ds[:]) == wanted | masks
        assert rm.open([some, none], nulls="mask").schema == ds.schema
        # Workers and selections name the masks that they read.
        alone = rm.open(none, ["x", "x/is_null", "s/a/is_null"], nulls="mask")
        assert as_lists(alone[:])["x/is_null"] == as_lists(alone[:])["s/a/is_null"] == [False] * 2
        kept = ds.map(dict).batch(3)
        assert [batch["x/is_null"].tolist() for batch in kept] == [[False] * 3, [True]]
        copied = pickle.loads(pickle.dumps(ds))
        assert as_lists(copied[:]) == as_lists(ds[:])
    assert list(rm.open(parts["none"], nulls="mask").schema) == ["x", "y", "s/a"]
    masked = ["x", "x/is_null", "y", "s/a", "s/a/is_null"]
    assert list(rm.open(parts["some"], nulls="mask").schema) == masked
    pq.write_table(parts["none"], "unknown.parquet", write_statistics=False)
    unknown = rm.open("unknown.parquet", nulls="mask")
    assert list(unknown.schema) == ["x", "x/is_null", "y", "y/is_null", "s/a", "s/a/is_null"]


def test_masked_floats_are_nan_in_every_source() -> None:
    table = pa.table({"x": pa.array([1.5, None])})
    rm.open(table).save("x.npz")
    for each in (table, "x.npz", *in_every_file(table)):
        batch = rm.open(each, nulls="mask")[:]
        assert np.isnan(batch["x"]).tolist() == batch["x/is_null"].tolist() == [False, True]


@pytest.mark.parametrize("shape", ["times", "lists", "structs", "maps"])
def test_times_of_96_bits_are_never_turned_into_others(shape: str) -> None:
    early, late = np.datetime64("2024-01-01T01:02:03", "us"), np.datetime64("9999-12-31", "us")
    time = pa.timestamp("us")
    type = {
        "times": time,
        "lists": pa.list_(time),
        "structs": pa.struct({"t": time}),
        "maps": pa.map_(pa.string(), time),
    }[shape]

    def inside(time: Any) -> Any:
        each = None if time is None else time.astype(object)
        made = {"times": each, "lists": [each, None], "structs": {"t": each}, "maps": [("k", each)]}
        return made[shape]

    def written(*times: Any) -> rm.Dataset:
        rows = list(map(inside, times))
        table = pa.table({"a": pa.array(rows, type), "b": [1] * len(rows)})
        pq.write_table(table, "t.parquet", use_deprecated_int96_timestamps=True)
        return rm.open("t.parquet")

    assert str(early) in str(written(early, None)[:])
    ds = written(early, None, late)
    for key in (slice(None), [0], 2):
        with pytest.raises(rm.DataError, match=r"'a.*, row group 0: a time is out of the range"):
            ds[key]
    assert ds["b"][:].tolist() == [1, 1, 1]
    table = pq.read_table("t.parquet", coerce_int96_timestamp_unit="us")
    assert "9999-12-31" in str(rm.open(table)[2])
