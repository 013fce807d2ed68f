"""The description of the columns in the first record keeps their types when a file is copied."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.tfrecord.sidecar import sidecar_path

ROWS = 12
RNG = np.random.default_rng(0)
LENGTHS = [i % 4 for i in range(ROWS)]
# Fields that cannot be inferred from records, and a column of each.
DESCRIBED: dict[str, Any] = {
    "uint8[4,5]": RNG.integers(0, 256, (ROWS, 4, 5)).astype(np.uint8),
    "uint8": np.arange(ROWS, dtype=np.uint8),
    "bool": np.arange(ROWS) % 2 == 0,
    "int32": np.arange(ROWS, dtype=np.int32),
    "uint16[3]": np.arange(ROWS * 3, dtype=np.uint16).reshape(ROWS, 3),
    "uint64": np.arange(ROWS, dtype=np.uint64) + 2**63,
    "float16[2]": RNG.random((ROWS, 2)).astype(np.float16),
    "float64": RNG.random(ROWS),
    "complex64[2]": RNG.random((ROWS, 4)).view(np.complex64)[:, :2].copy(),
    "datetime64[ns]": np.arange(ROWS).astype("datetime64[ns]"),
    "float32[1]": RNG.random((ROWS, 1), np.float32),
    "float32[2,3]": RNG.random((ROWS, 2, 3), np.float32),
    "int64[1,1]": np.arange(ROWS).reshape(ROWS, 1, 1),
    "float32[*]": rm.Ragged.from_rows([np.arange(3, dtype=np.float32)] * ROWS),
    "int64[*]": rm.Ragged.from_rows([np.arange(n) for n in LENGTHS]),
    "int32[*,2]": rm.Ragged.from_rows([np.ones((n, 2), np.int32) for n in LENGTHS]),
    "bytes[*]": rm.Ragged(rm.Ragged.from_bytes([b"x"] * ROWS), np.arange(ROWS + 1)),
    "bytes[1]": rm.Ragged(rm.Ragged.from_bytes([b"x"] * ROWS), np.arange(ROWS + 1)),
    "bytes[2,3]": np.full((ROWS, 2, 3), b"ab"),
    "int64[*,*]": rm.Ragged(
        rm.Ragged(np.arange(ROWS), np.arange(ROWS + 1)), np.arange(ROWS + 1)
    ),
}  # fmt: skip
TOLD: dict[str, Any] = {
    "float32": RNG.random(ROWS, np.float32),
    "float32[7]": RNG.random((ROWS, 7), np.float32),
    "int64": np.arange(ROWS),
    "int64[2]": np.arange(ROWS * 2).reshape(ROWS, 2),
    "bytes": [b"x" * i for i in range(ROWS)],
    "bytes[2]": np.full((ROWS, 2), b"ab"),
}


def copied(*paths: str) -> str:
    """Copy the files, without their indexes, to another folder."""
    os.makedirs("elsewhere", exist_ok=True)
    for path in paths:
        shutil.copyfile(path, os.path.join("elsewhere", os.path.basename(path)))
    return "elsewhere/*"


def write(columns: dict[str, Any], path: str = "x.tfrecord", **options: Any) -> str:
    fields = options.pop("fields", {name: name for name in columns})
    with rm.TFRecordWriter(path, fields, overwrite=True, **options) as w:
        w.write(columns)
    return path


def values(column: Any) -> Any:
    return column.tolist()


@pytest.mark.parametrize("field", DESCRIBED)
@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_a_copied_file_keeps_its_types(field: str, compression: Any) -> None:
    write({field: DESCRIBED[field]}, compression=compression)
    before = rm.open("x.tfrecord")
    ds = rm.open(copied("x.tfrecord"))
    assert ds.schema == before.schema == {field: field}
    assert "from the first record" in repr(ds)
    assert values(ds[:][field]) == values(before[:][field])


@pytest.mark.parametrize("field", TOLD)
def test_types_that_can_be_inferred_are_not_embedded(field: str) -> None:
    write({field: TOLD[field]})
    write({field: TOLD[field]}, "plain.tfrecord", describe=False)
    assert Path("x.tfrecord").read_bytes() == Path("plain.tfrecord").read_bytes()
    for rows in (slice(0, 1), slice(None)):
        write({field: TOLD[field][rows]})
        assert rm.open(copied("x.tfrecord")).schema == {field: field}


def test_all_columns_at_once_keep_their_types_and_their_order() -> None:
    columns = {**DESCRIBED, **TOLD}
    write(columns, shards=3)
    ds = rm.open(copied(*[f"x-{i:05}-of-00003.tfrecord" for i in range(3)]))
    assert list(ds.schema) == list(columns)
    assert ds.schema == {name: name for name in columns}
    assert len(ds) == ROWS


def test_a_description_changes_only_the_first_record() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]})
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]}, "plain.tfrecord", describe=False)
    ours = list(rm.tfrecord.records("x.tfrecord"))
    plain = list(rm.tfrecord.records("plain.tfrecord"))
    assert ours[1:] == plain[1:]
    assert ours[0].endswith(plain[0])
    assert len(ours[0]) > len(plain[0])
    assert rm.open(copied("plain.tfrecord")).schema == {"uint8[4,5]": "bytes"}


@pytest.mark.parametrize("align", [None, 8, 64, 4096])
@pytest.mark.parametrize("rows", [1, 2, ROWS])
def test_described_files_are_mapped(align: int | None, rows: int) -> None:
    columns = {
        "image": DESCRIBED["uint8[4,5]"][:rows],
        "half": DESCRIBED["float16[2]"][:rows],
        "label": np.zeros(rows, np.int32),
    }
    with rm.TFRecordWriter("x.tfrecord", align=align) as w:
        w.write(columns)
    for path in ("x.tfrecord", copied("x.tfrecord")):
        ds = rm.open(path)
        for name in ("image", "half"):
            column = ds[name]
            assert isinstance(column, np.ndarray)
            assert column.base is not None
            assert np.array_equal(column, columns[name])
            assert align is None or column.ctypes.data % align == 0
            assert align is None or column.strides[0] % align == 0
        for i in range(rows):
            assert np.array_equal(ds[i]["image"], columns["image"][i])
        order = RNG.permutation(rows)
        assert np.array_equal(ds[order]["image"], columns["image"][order])


def test_a_long_name_does_not_break_the_alignment() -> None:
    for length in range(60, 200):
        name = "n" * length
        with rm.TFRecordWriter("x.tfrecord", align=64, overwrite=True) as w:
            w.write({name: np.arange(6.0).reshape(3, 2)})
        column = rm.open(copied("x.tfrecord"))[name]
        assert column.ctypes.data % 64 == 0
        assert column.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("first", [0, 1, 60, 200])
@pytest.mark.parametrize("describe", [True, False])
def test_a_longer_first_row_keeps_columns_mapped(first: int, describe: bool) -> None:
    # The first string is about as long as the description. So the first record, with or
    # without the description, sometimes has the same length as the others.
    for more in range(first, first + 60):
        with rm.TFRecordWriter("x.tfrecord", overwrite=True, describe=describe) as w:
            w.write({"a": np.arange(12.0).reshape(4, 3), "s": [b"x" * more, *[b"y" * 100] * 3]})
        for path in ("x.tfrecord", copied("x.tfrecord")):
            ds = rm.open(path, None if describe else {"a": "float64[3]", "s": "bytes"})
            assert np.array_equal(ds["a"][:], np.arange(12.0).reshape(4, 3))
            assert [len(s) for s in ds[:]["s"].tolist()] == [more, 100, 100, 100]


def test_other_readers_skip_the_description() -> None:
    import tensorflow as tf

    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    wanted = [row.tobytes() for row in DESCRIBED["uint8[4,5]"]]
    spec = {
        "uint8[4,5]": tf.io.FixedLenFeature([], tf.string),
        "int32": tf.io.FixedLenFeature([], tf.int64),
    }
    records = list(tf.data.TFRecordDataset("x.tfrecord").as_numpy_iterator())
    parsed = tf.io.parse_example(records, spec)
    assert parsed["uint8[4,5]"].numpy().tolist() == wanted
    assert parsed["int32"].numpy().tolist() == list(range(ROWS))
    one = tf.io.parse_single_example(records[0], spec)
    assert one["uint8[4,5]"].numpy() == wanted[0]
    message = tf.train.Example.FromString(records[0])
    assert message.features.feature["uint8[4,5]"].bytes_list.value[0] == wanted[0]


def test_the_tfrecord_package_skips_the_description() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    script = (
        "from tfrecord.reader import tfrecord_loader\n"
        "rows = tfrecord_loader('x.tfrecord', None, {'int32': 'int', 'uint8[4,5]': 'byte'})\n"
        "print([(int(row['int32'][0]), bytes(row['uint8[4,5]'])) for row in rows])"
    )
    # In another process, because its protobuf messages clash with TensorFlow's.
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    images = [row.tobytes() for row in DESCRIBED["uint8[4,5]"]]
    assert done.stdout.strip() == str(list(enumerate(images))), done.stderr


def test_tensorflow_skips_the_description_of_a_sequence() -> None:
    import tensorflow as tf

    column = rm.Ragged.from_rows([np.ones((n, 2), np.float32) for n in LENGTHS])
    with rm.TFRecordWriter("x.tfrecord", encoding={"s": "feature_list"}) as w:
        w.write({"s": column, "id": np.arange(ROWS, dtype=np.int32)})
    record = next(iter(rm.tfrecord.records("x.tfrecord")))
    spec = {"s": tf.io.FixedLenSequenceFeature([2], tf.float32)}
    context = {"id": tf.io.FixedLenFeature([], tf.int64)}
    parsed = tf.io.parse_single_sequence_example(record, context, spec)
    assert parsed[0]["id"].numpy() == 0
    assert parsed[1]["s"].shape == (0, 2)
    assert rm.open(copied("x.tfrecord")).schema == {"s": "float32[*,2]", "id": "int32"}


def test_concatenated_or_compressed_files_keep_their_types() -> None:
    one, two = {"uint8[4,5]": DESCRIBED["uint8[4,5]"]}, {"uint8[4,5]": DESCRIBED["uint8[4,5]"] ^ 1}
    write(one, "a.tfrecord")
    write(two, "b.tfrecord")
    data = Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    Path("c.tfrecord").write_bytes(data)
    Path("d.tfrecord.gz").write_bytes(gzip.compress(data))
    wanted = np.concatenate([one["uint8[4,5]"], two["uint8[4,5]"]])
    for path in ("c.tfrecord", "d.tfrecord.gz"):
        ds = rm.open(path)
        assert ds.schema == {"uint8[4,5]": "uint8[4,5]"}
        assert np.array_equal(ds[:]["uint8[4,5]"], wanted)
        assert np.array_equal(ds[[23, 12, 0, 11]]["uint8[4,5]"], wanted[[23, 12, 0, 11]])
    assert rm.index("c.tfrecord")
    assert np.array_equal(rm.open("c.tfrecord")[:]["uint8[4,5]"], wanted)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_index_of_an_empty_file_never_conflicts(compression: Any) -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"][:1]}
    with rm.TFRecordWriter("x.tfrecord", shards=3, compression=compression) as w:
        w.write(columns)
    files = copied(*sorted(map(str, Path().glob("x-*"))))
    rm.index(files)
    ds = rm.open(files)
    assert ds.schema == {"x": "uint8[4,5]"}
    assert ds[:]["x"].tolist() == columns["x"].tolist()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_repair_keeps_the_types_when_the_first_record_is_damaged(compression: Any) -> None:
    images = DESCRIBED["uint8[4,5]"]
    write({"uint8[4,5]": images})
    data = bytearray(Path("x.tfrecord").read_bytes())
    length = int.from_bytes(data[:8], "little")
    data[12 + length - 3] ^= 1  # in the values of the first row
    Path("x.tfrecord").write_bytes(gzip.compress(data) if compression else data)
    done = rm.repair("x.tfrecord", "y.tfrecord")
    assert done.records == ROWS - 1
    ds = rm.open(copied("y.tfrecord"))
    assert ds.schema == {"uint8[4,5]": "uint8[4,5]"}
    assert np.array_equal(ds[:]["uint8[4,5]"], images[1:])
    assert rm.verify("y.tfrecord").ok
    assert (
        list(rm.tfrecord.records("y.tfrecord"))[1:]
        == list(rm.tfrecord.records("x.tfrecord", errors="skip"))[1:]
    )


@pytest.mark.parametrize("align", [None, 64])
def test_indexing_a_described_file_makes_the_same_index_as_its_writer(align: int | None) -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "y": DESCRIBED["float64"]}
    with rm.TFRecordWriter("x.tfrecord", align=align) as w:
        w.write(columns)
    written = Path(sidecar_path("x.tfrecord")).read_bytes()
    os.unlink(sidecar_path("x.tfrecord"))
    rm.index("x.tfrecord")
    made = Path(sidecar_path("x.tfrecord")).read_bytes()

    def info(content: bytes) -> Any:
        fields = json.JSONDecoder().raw_decode(content[24:].decode("latin-1"))[0]
        del fields["encoding"], fields["written"]  # an index cannot know who wrote the file
        return fields | {"mapped": sorted(fields["mapped"])}

    assert info(made) == info(written)
    assert np.array_equal(rm.open("x.tfrecord")["x"], columns["x"])


def test_fields_override_a_description() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    path = copied("x.tfrecord")
    assert rm.open(path, {"uint8[4,5]": "bytes"}).schema == {"uint8[4,5]": "bytes"}
    assert rm.open(path, ["int32"]).schema == {"int32": "int32"}
    assert rm.open(path, {"int32": "int64"})[:]["int32"].dtype == np.int64


@pytest.mark.parametrize("fill", ["float32 = 1.5", "int64 = -1", "float32 = nan", "bytes = x"])
def test_a_fill_value_survives_a_copy(fill: str) -> None:
    column = [b"x"] * 2 if fill.startswith("bytes") else np.ones(2, fill.split(maxsplit=1)[0])
    write({"x": column}, fields={"x": fill})
    assert str(rm.open(copied("x.tfrecord")).schema["x"]) == fill


def test_a_file_without_rows_has_no_description() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"x": "uint8[2]"}):
        pass
    assert os.path.getsize("x.tfrecord") == 0
    assert rm.open("x.tfrecord").schema == {"x": "uint8[2]"}


def test_batches_of_any_size_make_the_same_file() -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "s": [b"x" * i for i in range(ROWS)]}
    contents = set()
    for size in (1, 5, ROWS):
        with rm.TFRecordWriter("x.tfrecord", overwrite=True) as w:
            for start in range(0, ROWS, size):
                w.write({name: c[start : start + size] for name, c in columns.items()})
        contents.add(Path("x.tfrecord").read_bytes())
    assert len(contents) == 1


@pytest.mark.filterwarnings("ignore::recmap.MissingShardsWarning")
def test_convert_describes_each_file_unless_told_not_to() -> None:
    np.save("x.npy", DESCRIBED["uint8[4,5]"])
    rm.convert("x.npy", "out/", shards=3, verify="full")
    rm.convert("x.npy", "plain/", shards=3, options={"describe": False})
    for i in range(3):
        name = f"data-{i:05}-of-00003.tfrecord"
        assert rm.open(copied(f"out/{name}")).schema == {"data": "uint8[4,5]"}
        assert rm.open(copied(f"plain/{name}")).schema == {"data": "bytes"}


def test_bit_rot_despite_a_valid_index_is_noticed_by_every_read() -> None:
    rows = 3000
    images = RNG.integers(0, 256, (rows, 500)).astype(np.uint8)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"x": images})
    data = bytearray(Path("x.tfrecord").read_bytes())
    # Between two of the blocks that the index samples.
    at = len(data) // 63 * 31 - 8000
    data[at] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = rm.open("x.tfrecord")
    bad = at // (len(data) // rows)
    for read in (
        lambda: ds[:],
        lambda: ds[np.arange(rows)],
        lambda: ds[bad - 3 : bad + 4],
        lambda: list(ds.batches(100)),
        lambda: list(ds.shuffle(seed=1).batch(64)),
        lambda: rm.convert("x.tfrecord", "y.npy"),
        ds.stats,
    ):
        with pytest.raises(rm.CorruptRecordError, match="data"):
            read()
    assert not rm.verify("x.tfrecord").ok


@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.tfrecord.zlib", "X.TFRECORD.GZ"])
def test_writers_compress_by_name(name: str) -> None:
    magic = b"\x78" if name.endswith("zlib") else b"\x1f\x8b"
    with rm.TFRecordWriter(name) as w:
        w.write({"x": np.arange(5)})
    assert Path(name).read_bytes().startswith(magic)
    assert rm.open(name)[:]["x"].tolist() == [0, 1, 2, 3, 4]
    with rm.TFRecordWriter(f"a-{name}", shards=2) as w:
        w.write({"x": np.arange(5)})
    parts = sorted(Path().glob("a-*"))
    assert len(parts) == 2
    assert all(part.read_bytes().startswith(magic) for part in parts)
    rm.tfrecord.write_records(f"r-{name}", [b"one", b"two"])
    assert Path(f"r-{name}").read_bytes().startswith(magic)
    assert list(rm.tfrecord.records(f"r-{name}")) == [b"one", b"two"]
    with pytest.raises(rm.OptionError, match="align"):
        rm.TFRecordWriter(f"b-{name}", {"x": "int64"}, align=64)
