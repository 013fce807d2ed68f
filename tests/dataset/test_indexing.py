"""Opening files and indexing them like arrays."""

from __future__ import annotations

import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests import wire

ROWS = 1000


@pytest.fixture(params=["uniform", "mixed", "gzip", "shards"])
def ds(request: pytest.FixtureRequest) -> rm.Dataset:
    """Return the same thousand rows, stored in different ways."""
    kind = request.param
    x = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
    columns = {"i": np.arange(ROWS, dtype=np.int32), "x": x}
    if kind != "uniform":
        columns["text"] = [b"t" * (i % 7) for i in range(ROWS)]  # type: ignore[assignment]
    with rm.TFRecordWriter(
        "data.tfrecord",
        encoding={"i": "raw"},
        shards=3 if kind == "shards" else 1,
        rows=ROWS if kind == "shards" else None,
        compression="gzip" if kind == "gzip" else None,
        index=False,
    ) as w:
        w.write(columns)
    return rm.open(
        "data*.tfrecord",
        {"i": "int32", "x": "float32[3]"} | ({} if kind == "uniform" else {"text": "bytes"}),
    )


def test_length_is_the_number_of_rows(ds: rm.Dataset) -> None:
    assert len(ds) == ROWS


def test_a_row_is_a_dict_of_values(ds: rm.Dataset) -> None:
    row = ds[7]
    assert row["i"] == 7
    assert row["x"].tolist() == [21.0, 22.0, 23.0]
    assert ds[-1]["i"] == ROWS - 1
    assert ds[np.int64(5)]["i"] == 5
    if "text" in row:
        assert ds[8]["text"] == b"t"


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, 10**12])
def test_a_row_number_out_of_range_is_an_index_error(ds: rm.Dataset, row: int) -> None:
    with pytest.raises(rm.RowNotFoundError, match="there are 1,000"):
        ds[row]
    with pytest.raises(IndexError):
        ds[[0, row]]


@pytest.mark.parametrize(
    "rows",
    [slice(0, 10), slice(990, 2000), slice(None), slice(500, 400), slice(-5, None), slice(0, 9, 4),
     slice(None, None, -1), slice(10, 5, -1), slice(2000, 3000)],
    ids=str,
)  # fmt: skip
def test_slices_match_numpy(ds: rm.Dataset, rows: slice) -> None:
    batch = ds[rows]
    assert batch["i"].tolist() == list(range(ROWS))[rows]
    assert batch["x"][:, 0].tolist() == [3.0 * i for i in range(ROWS)[rows]]


@pytest.mark.parametrize(
    "rows",
    [[999, 3, 3], [], [0], [-1, 0], np.array([5, 4, 3], np.uint8), range(10, 0, -3)],
    ids=str,
)
def test_gathers_keep_order_and_repeats(ds: rm.Dataset, rows: list[int]) -> None:
    batch = ds[rows]
    assert batch["i"].tolist() == [int(i) % ROWS for i in rows]
    assert batch["i"].dtype == np.int32


def test_a_mask_selects_rows(ds: rm.Dataset) -> None:
    mask = np.arange(ROWS) % 250 == 1
    assert ds[mask]["i"].tolist() == [1, 251, 501, 751]
    with pytest.raises(rm.RowNotFoundError, match="a mask of 3"):
        ds[np.array([True, False, True])]


@pytest.mark.parametrize("key", [1.5, None, [[1, 2]], ["a"], (1, 2, 3.5)])
def test_other_keys_are_refused(ds: rm.Dataset, key: object) -> None:
    with pytest.raises(rm.OptionError, match="indexed by"):
        ds[key]  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [1, 7, 999, 1000, 1001])
def test_batches_cover_every_row_once(ds: rm.Dataset, size: int) -> None:
    batches = list(ds.batches(size))
    assert [len(batch["i"]) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert np.concatenate([batch["i"] for batch in batches]).tolist() == list(range(ROWS))
    full = list(ds.batches(size, drop_last=True))
    assert len(full) == ROWS // size


def test_iterating_gives_rows(ds: rm.Dataset) -> None:
    assert [int(row["i"]) for row in ds] == list(range(ROWS))


def test_a_column_can_be_indexed(ds: rm.Dataset) -> None:
    column = ds["x"]
    assert len(column) == ROWS
    assert column[5].tolist() == [15.0, 16.0, 17.0]
    assert column[2:4].shape == (2, 3)
    assert np.asarray(column).shape == (ROWS, 3)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'nope'; there are: i, x"):
        ds["nope"]
    with pytest.raises(KeyError):
        ds["nope"]


def test_a_ragged_column_does_not_become_an_array() -> None:
    wire.write(
        "r.tfrecord", wire.example(a=wire.int64_list(1, 2)), wire.example(a=wire.int64_list())
    )
    column = rm.open("r.tfrecord")["a"]
    assert column[0].tolist() == [1, 2]
    with pytest.raises(rm.OptionError, match="pad"):
        np.asarray(column)


def test_the_first_rows_are_read_without_scanning_the_rest() -> None:
    good = wire.frame(wire.example(a=wire.int64_list(1)))
    Path("x.tfrecord").write_bytes(good * 3_000_000 + b"garbage")
    ds = rm.open("x.tfrecord")
    assert ds[10]["a"] == 1
    assert "not counted" in repr(ds)
    with pytest.raises(rm.CorruptRecordError):
        len(ds)


def test_paths_may_be_patterns_folders_and_lists(tmp_path: Path) -> None:
    for name in ("b-1.tfrecord", "b-0.tfrecord"):
        wire.write(name, wire.example(a=wire.int64_list(int(name[2]))))
    Path(".hidden").write_bytes(b"x")
    Path("_SUCCESS").write_bytes(b"")
    assert rm.open("b-*.tfrecord")[:]["a"].tolist() == [0, 1]
    assert rm.open(tmp_path)[:]["a"].tolist() == [0, 1]
    assert rm.open(["b-1.tfrecord", Path("b-0.tfrecord")])[:]["a"].tolist() == [1, 0]
    os.mkdir("empty")
    for path, message in [
        ("nope.tfrecord", "no such file or folder"),
        ("nope-*", "no file matches"),
        ("empty", "an empty folder"),
        ([], "list of paths is empty"),
    ]:
        with pytest.raises(rm.PathNotFoundError, match=message):
            rm.open(path)
    with pytest.raises(FileNotFoundError):
        rm.open("nope.tfrecord")


def test_more_files_than_a_process_may_open_can_be_read() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    for i in range(400):
        wire.write(f"x-{i:03d}", wire.example(a=wire.int64_list(i)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        ds = rm.open("x-*")
        assert ds[:]["a"].tolist() == list(range(400))
        assert ds[[399, 0, 200, 0]]["a"].tolist() == [399, 0, 200, 0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_pattern_finds_each_file_once() -> None:
    os.makedirs("a/b")
    np.save("a/b/x.npy", np.arange(3))
    assert rm.open("**/**/*.npy").files == ["a/b/x.npy"]
    assert len(rm.open("**/**/*.npy")) == 3


def test_a_file_name_may_look_like_a_pattern() -> None:
    wire.write("a[1].tfrecord", wire.example(a=wire.int64_list(1)))
    assert len(rm.open("a[1].tfrecord")) == 1


def test_raw_bytes_get_a_type_from_fields() -> None:
    values = np.arange(20, dtype=np.float32).reshape(2, 10)
    wire.write("raw.tfrecord", *(wire.example(data=wire.bytes_list(v.tobytes())) for v in values))
    assert rm.open("raw.tfrecord").schema == {"data": "bytes"}
    info = str(rm.open("raw.tfrecord").info())
    assert "40 bytes, always a multiple of 8: perhaps float32[10] or float64[5]" in info
    typed = rm.open("raw.tfrecord", fields={"data": "float32[10]"})
    assert np.array_equal(typed[:]["data"], values)
    assert np.array_equal(
        rm.open("raw.tfrecord", {"data": "float32[2,5]"})[0]["data"].ravel(), values[0]
    )
    assert np.array_equal(rm.open("raw.tfrecord", {"data": "float32[*]"})[1]["data"], values[1])
    assert np.array_equal(
        rm.open("raw.tfrecord", {"data": "float32[*,2]"})[1]["data"].ravel(), values[1]
    )
    big = rm.open("raw.tfrecord", {"data": ">f4[10]"})[:]["data"]
    assert np.array_equal(big, values.view(">f4"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": "float32[11]"}, r"40 raw bytes, expected 44: the column is float32\[11\]"),
        ({"data": "float64[*,2]"}, r"size of 5, not a multiple of 2"),
        (
            {"dta": "float32[10]"},
            r"no feature 'dta'.*they hold: 'data' \(bytes_list, 1 values of 40",
        ),
        ({"label": "float32"}, r"the feature is a int64_list, but the column is float32"),
        ({"label": "int8"}, r"the value 300 does not fit: the column is int8"),
        ({"data": "int64[*,*]"}, r"not a feature list"),
    ],
)
def test_a_wrong_field_says_what_the_records_hold(fields: dict[str, str], message: str) -> None:
    record = wire.example(data=wire.bytes_list(bytes(40)), label=wire.int64_list(300))
    wire.write("x.tfrecord", record)
    with pytest.raises(rm.FieldMismatchError, match=message) as caught:
        rm.open("x.tfrecord", fields)[:]
    assert caught.value.field in fields
    assert isinstance(caught.value, ValueError)


def test_fields_can_be_a_list_of_names() -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1), b=wire.float_list(2)))
    assert rm.open("x.tfrecord", ["b"])[:].keys() == {"b"}
    assert rm.open("x.tfrecord", {"b": None, "a": "int8"}).schema == {"b": "float32", "a": "int8"}


def test_ints_are_read_into_any_dtype_they_fit() -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1, 0, 1)))
    for dtype in ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"):
        column = rm.open("x.tfrecord", {"a": f"{dtype}[3]"})[:]["a"]
        assert column.dtype == dtype
        assert column.tolist() == [[1, 0, 1]]
    wire.write("y.tfrecord", wire.example(a=wire.float_list(0.1)))
    assert rm.open("y.tfrecord", {"a": "float64"})[0]["a"] == np.float64(np.float32(0.1))


def test_feature_lists_are_ragged_columns() -> None:
    frames = wire.feature_list(wire.float_list(1, 2), wire.float_list(3, 4))
    words = wire.feature_list(wire.bytes_list(b"a", b"bc"), wire.bytes_list())
    wire.write("s.tfrecord", wire.sequence({"id": wire.int64_list(5)}, {"f": frames, "w": words}))
    ds = rm.open("s.tfrecord")
    assert ds.schema == {"id": "int64", "f": "float32[*,2]", "w": "bytes[*,*]"}
    row = ds[0]
    assert row["f"].tolist() == [[1, 2], [3, 4]]
    assert row["w"].tolist() == [[b"a", b"bc"], []]
    dense = rm.open("s.tfrecord", {"f": "float32[2,2]"})[0]["f"]
    assert dense.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(rm.FieldMismatchError, match="2 values, expected 3"):
        rm.open("s.tfrecord", {"f": "float32[*,3]"})[0]


def test_a_feature_and_a_feature_list_may_have_the_same_name() -> None:
    record = wire.sequence({"a": wire.int64_list(5)}, {"a": wire.feature_list(wire.int64_list(6))})
    wire.write("s.tfrecord", record)
    row = rm.open("s.tfrecord")[0]
    assert (row["a"], row["feature_lists/a"].tolist()) == (5, [6])


def test_records_that_are_not_examples_are_refused() -> None:
    wire.write("raw.tfrecord", b"hello", b"world")
    with pytest.raises(rm.NotExampleError, match=r"record 0 at byte 0.*rm\.tfrecord\.records"):
        rm.open("raw.tfrecord")
    wire.write("other.tfrecord", wire.field(4, b"abc"), wire.field(6, b"abc"))
    with pytest.raises(rm.NotExampleError, match="looks like another protobuf message"):
        rm.open("other.tfrecord")


@pytest.mark.slow
def test_a_file_that_shrinks_while_it_is_open_is_an_error() -> None:
    wire.write("x.tfrecord", *[wire.example(a=wire.int64_list(1))] * 100_000)
    ds = rm.open("x.tfrecord")
    assert len(ds) == 100_000
    os.truncate("x.tfrecord", 5000)
    with pytest.raises(rm.CorruptRecordError, match="shrank"):
        ds[90_000]


def test_reprs_show_files_rows_and_fields() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"image": np.zeros((2, 4), np.uint8), "label": [1, 2]})
    ds = rm.open("x.tfrecord")
    assert repr(ds) == (
        "Dataset(x.tfrecord: 2 rows, schema from the index)\n"
        "  image  uint8[4]  [4] 0 0 0 0  [4] 0 0 0 0\n"
        "  label  int64     1            2"
    )
    assert repr(ds["label"]) == "ColumnView('label': int64 of x.tfrecord: 1, 2)"


def test_index_files_and_sidecars_are_not_opened_as_data() -> None:
    os.mkdir("folder")
    with rm.TFRecordWriter("folder/x.tfrecord") as w:
        w.write({"x": np.arange(3)})
    rm.index("folder/x.tfrecord", text=True)
    rm.from_arrays({"x": np.arange(3)}).save("other/x.bin")
    assert sorted(os.listdir("folder")) == [".x.tfrecord.recmap", "x.tfrecord", "x.tfrecord.idx"]
    assert rm.open("folder").files == ["folder/x.tfrecord"]
    assert rm.open("folder/*").files == ["folder/x.tfrecord"]
    assert rm.open("other/").files == ["other/x.bin"]


@pytest.mark.parametrize("columns", [False, True])
def test_a_dataset_is_opened_again_by_a_process_in_another_folder(columns: bool) -> None:
    np.save("x.npy", np.arange(4))
    sent = pickle.dumps(rm.open({"x": "x.npy"} if columns else "x.npy"))
    assert len(sent) < 2000
    os.mkdir("other")
    os.chdir("other")
    again: rm.Dataset = pickle.loads(sent)
    assert again[:]["x" if columns else "data"].tolist() == [0, 1, 2, 3]


def test_an_iterator_of_paths_can_be_opened_again() -> None:
    np.save("x.npy", np.arange(4))
    ds = rm.open(path for path in ["x.npy"])
    assert pickle.loads(pickle.dumps(ds))[3]["data"] == 3


def test_the_hint_for_a_wrong_type_does_not_repeat_that_type() -> None:
    wire.write("x.tfrecord", wire.example(raw=wire.bytes_list(b"x" * 50)))
    with pytest.raises(rm.FieldMismatchError, match=r'columns=\{"raw": "bytes\[\*\]"\}'):
        rm.open("x.tfrecord", fields={"raw": "float32[*]"})[0]
