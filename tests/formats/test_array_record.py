"""ArrayRecord files by themselves, compared with the ``array_record`` package."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

import recmap as rm
from tests import wire
from tests.buckets import Bucket
from tests.formats.every_format import assert_same


def write(path: str, records: list[bytes], options: str = "group_size:1") -> None:
    writer = ArrayRecordWriter(path, options)
    for record in records:
        writer.write(record)
    writer.close()


def read(path: str) -> list[bytes]:
    reader = ArrayRecordReader(path)
    found: list[bytes] = reader.read_all() if reader.num_records() else []
    reader.close()
    return found


def example(i: int) -> bytes:
    return wire.example(n=wire.int64_list(i), t=wire.bytes_list(b"t" * (i % 5)))


@pytest.mark.parametrize("options", ["group_size:1", "group_size:7", "group_size:3,uncompressed"])
def test_records_are_bytes_by_number(options: str) -> None:
    records = [b"\0record %d" % i * (i % 9) for i in range(100)]
    write("a.array_record", records, options)
    os.rename("a.array_record", "renamed")
    ds = rm.open("renamed")
    assert ds.info().format == "array_record"
    assert ds.schema == {"record": "bytes"}
    assert ds[:]["record"].tolist() == records
    assert ds[[99, 0, 42, 42]]["record"].tolist() == [records[i] for i in (99, 0, 42, 42)]
    train = ds.shuffle(seed=1).batch(8)
    batches = iter(train)
    found = [record for _ in range(3) for record in next(batches)["record"].tolist()]
    again = ds.shuffle(seed=1).batch(8)
    again.restore(train.state())
    found += [record for batch in again for record in batch["record"].tolist()]
    assert sorted(found) == sorted(records)
    ranks = [ds.shuffle(seed=1).batch(5).shard(rank, 2) for rank in range(2)]
    parts = [record for rank in ranks for batch in rank for record in batch["record"].tolist()]
    assert sorted(parts) == sorted(records)
    assert pickle.loads(pickle.dumps(ds))[5]["record"] == records[5]
    assert rm.verify("renamed").records == 100
    rm.convert("renamed", "b.array_record", verify="full")
    assert read("b.array_record") == records


def test_examples_are_decoded() -> None:
    write("a-0.array_record", [example(i) for i in range(30)])
    write("a-1.array_record", [example(i) for i in range(30, 50)])
    ds = rm.open("a-*.array_record")
    assert ds.schema == {"n": "int64", "t": "bytes"}
    assert ds["n"].tolist() == [*range(50)]
    assert ds[[49, 3]]["t"].tolist() == [b"tttt", b"ttt"]
    assert rm.open("a-1.array_record", {"t": "text"})[4]["t"] == "tttt"
    raw = rm.open("a-0.array_record", {"record": "bytes"})
    assert raw[:]["record"].tolist() == [example(i) for i in range(30)]
    # One that is not an Example, where none was looked at.
    write("b.array_record", [*map(example, range(100)), b"\xff", *map(example, range(199))])
    bad = rm.open("b.array_record")
    assert bad[99]["n"] == 99
    with pytest.raises(rm.DataError, match=r"b\.array_record.*100") as e:
        bad[100]
    assert e.value.record == 100


def test_rows_are_written_as_examples() -> None:
    columns: dict[str, Any] = {
        "n": np.arange(20), "x": np.random.default_rng(0).random((20, 3)).astype("float32"),
        "t": [b"t" * (i % 4) for i in range(20)],
    }  # fmt: skip
    ds = rm.from_arrays(columns)
    ds.save("a.array_record", verify="full")
    found = rm.open("a.array_record")
    assert_same(found[:]["x"], columns["x"])
    ds.save("a.tfrecord", options={"describe": False})
    assert read("a.array_record") == list(rm.tfrecord.records("a.tfrecord"))
    ds.save("shards/b.array_record", shards=3, options={"group_size": 4})
    assert rm.open("shards")["n"].tolist() == [*range(20)]
    ds.take(0).save("none.array_record")
    assert len(rm.open("none.array_record")) == 0
    with pytest.raises(rm.ColumnError, match="do not keep the types"):
        rm.from_arrays({"image": np.zeros((2, 4, 4), "uint8")}).save("c.array_record")
    assert not [name for name in os.listdir() if "c.array" in name]


def test_damaged_files_are_refused() -> None:
    write("a.array_record", [b"record %d" % i for i in range(100)])
    content = Path("a.array_record").read_bytes()
    cuts = {"cut": 70_000, "short": 40, "half": 65_536}
    for name, size in cuts.items():
        Path(f"{name}.array_record").write_bytes(content[:size])
        with pytest.raises(rm.DataError, match="not an ArrayRecord file") as e:
            rm.open(f"{name}.array_record")
        assert e.value.file == f"{name}.array_record"
    flipped = bytearray(content)
    flipped[90] ^= 255
    Path("a.array_record").write_bytes(flipped)
    with pytest.raises(rm.DataError):
        rm.open("a.array_record")[:]
    assert not rm.verify("a.array_record").ok


def test_objects_are_downloaded_once_and_removed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    records = [b"record %d" % i for i in range(100)]
    path = f"{bucket.url}/a.array_record"
    rm.from_arrays({"record": records}).save(path, storage=bucket.storage)
    ds = rm.open(path, storage=bucket.storage)
    assert ds[[99, 0]]["record"].tolist() == [records[99], records[0]]
    assert sorted(r for b in ds.shuffle(seed=1).batch(7) for r in b["record"].tolist()) == sorted(
        records
    )
    assert os.listdir(tmp_path)
    del ds
    assert not os.listdir(tmp_path)
