"""Shards of Mosaic Streaming."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.formats.mds_files import write_mds

COLUMNS = {
    "any": "ndarray", "bytes": "bytes", "digits": "str_int", "dyn": "ndarray:float64",
    "fix": "ndarray:int16:2,3", "i": "int", "json": "json", "text": "str", "u": "uint16",
}  # fmt: skip


def samples(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "any": rng.integers(0, 9, (i % 4 + 1, 2)).astype("uint8"),
            "bytes": b"\0x" * (i % 200), "digits": str(10 ** (i % 30)),
            "dyn": rng.random(i % 300 + 1), "fix": rng.integers(-9, 9, (2, 3)).astype("int16"),
            "i": i - 50, "json": json.dumps({"a": i}), "text": "é" * (i % 3), "u": i,
        }
        for i in range(count)
    ]  # fmt: skip


def write(folder: str, count: int = 60, **options: Any) -> list[dict[str, Any]]:
    made = samples(count)
    write_mds(folder, COLUMNS, [made[:25], [], made[25:26], made[26:]], **options)
    return made


def same(row: Any, sample: dict[str, Any]) -> bool:
    return all(np.array_equal(row[name], value) for name, value in sample.items())


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("compression", [None, "zstd", "gz"])
def test_samples_are_rows(compression: str | None) -> None:
    made = write("mds/train", compression=compression, hashes=["sha1"])
    ds = rm.open("mds/train")
    assert ds.info().format == "mds"
    assert ds.schema == {
        "any": "uint8[*,2]", "bytes": "bytes", "digits": "text", "dyn": "float64[*]",
        "fix": "int16[2,3]", "i": "int64", "json": "text", "text": "text", "u": "uint16",
    }  # fmt: skip
    assert all(same(row, sample) for row, sample in zip(ds, made, strict=True))
    assert all(same(ds[i], made[i]) for i in (59, 0, 25, 26, -1))
    batch = ds[[59, 3, 25]]
    assert batch["i"].tolist() == [9, -47, -25]
    assert batch["dyn"].tolist()[2] == made[25]["dyn"].tolist()
    train = ds.select("i").shuffle(seed=1).batch(7)
    batches = iter(train)
    found = next(batches)["i"].tolist() + next(batches)["i"].tolist()
    again = ds.select("i").shuffle(seed=1).batch(7)
    again.restore(train.state())
    found += [i for batch in again for i in batch["i"].tolist()]
    assert sorted(found) == [*range(-50, 10)]
    ranks = [ds.select("i").shuffle(seed=1).batch(5).shard(rank, 2) for rank in range(2)]
    assert sorted(i for r in ranks for b in r for i in b["i"].tolist()) == [*range(-50, 10)]
    assert pickle.loads(pickle.dumps(ds))[5]["u"] == 5
    assert rm.open("mds/train/index.json").schema == ds.schema
    rm.convert("mds/train", "a.npz", verify="full", memory="64MB")
    assert rm.open("a.npz")["i"].tolist() == [*range(-50, 10)]


def test_hashes_are_verified() -> None:
    write("mds", hashes=["md5", "sha1", "xxh64_unknown"][:2])
    assert rm.verify("mds").ok
    shard = Path("mds/shard.00003.mds")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    found = rm.verify("mds")
    assert not found.ok
    assert "shard.00003.mds" in str(found)
    write("plain")
    assert rm.verify("plain").unchecked == ["plain/index.json"]
    write("other", hashes=["sha1"])
    index = Path("other/index.json")
    index.write_text(index.read_text().replace("sha1", "shake_128"))  # its length is not told
    assert rm.verify("other").unchecked == ["other/index.json"]


def test_rows_are_made_again_if_only_a_shard_changes() -> None:
    columns = {"i": "int"}
    write_mds("mds", columns, [[{"i": 1}], [{"i": 2}]])
    assert [row["i"] for row in rm.open("mds").cache()] == [1, 2]
    index = Path("mds/index.json").read_bytes()
    write_mds("mds", columns, [[{"i": 1}], [{"i": 3}]])
    assert Path("mds/index.json").read_bytes() == index
    ds = rm.open("mds")
    assert [os.path.basename(file) for file in ds.files] == [
        "index.json", "shard.00000.mds", "shard.00001.mds",
    ]  # fmt: skip
    assert [row["i"] for row in ds.cache()] == [1, 3]
    assert rm.open(ds.files)["i"].tolist() == [1, 3]


def test_what_is_not_read_is_left_out() -> None:
    rows = [{"p": pickle.dumps(1), "i": 1, "image": b"..."}]
    write_mds("mds", {"p": "pkl", "i": "int", "image": "pil"}, [rows])
    with pytest.warns(rm.LeftOutWarning, match="any code"):
        assert rm.open("mds").schema == {"i": "int64"}
    assert rm.open("mds", ["i"])[0] == {"i": 1}
    with pytest.raises(rm.DataError, match="'p' holds pickles"):
        rm.open("mds", ["p"])
    write_mds("two", {"x": "ndarray"}, [[{"x": np.ones(2)}, {"x": np.ones((2, 2))}]])
    assert rm.open("two")[0]["x"].tolist() == [1, 1]
    with pytest.raises(rm.DataError, match="row 1: an array of float64.*unlike the first"):
        rm.open("two")[:]


def test_a_wrong_index_is_refused() -> None:
    write("mds")
    whole = json.loads(Path("mds/index.json").read_text())
    shard = whole["shards"][0]
    for wrong, why in (
        ({"version": 3}, "version 3"),
        ({"shards": [{**shard, "compression": "br", "zip_data": shard["raw_data"]}]}, "with br"),
        ({"shards": [{**shard, "format": "jsonl"}]}, "'jsonl'"),
        ({"shards": [{**shard, "raw_data": {"basename": "../x", "bytes": 9}}]}, "'../x'"),
        ({"shards": [{**shard, "samples": -1}]}, "-1 samples"),
        ({"shards": [{**shard, "samples": 10**12}]}, "samples"),
        ({"shards": [{**shard, "column_sizes": [None] * 9}]}, "has the size"),
        ({"shards": [{**shard, "column_names": ["a"] * 9}]}, "do not match"),
        ({"shards": [shard, {**shard, "column_names": list("abcdefghi")}]}, "different columns"),
        ({"shards": [{**shard, "samples": 24}]}, "25 samples, not 24"),
    ):
        Path("mds/index.json").write_text(json.dumps({**whole, **wrong}))
        with pytest.raises(rm.DataError, match=why) as e:
            rm.open("mds")[:]
        assert e.value.file is not None
        assert e.value.file.startswith("mds/")


def test_damaged_shards_are_refused() -> None:
    write("mds")
    path = Path("mds/shard.00000.mds")
    whole = path.read_bytes()
    begin = int.from_bytes(whole[4:8], "little")  # of the first sample
    for at, wrong in ((0, b"\xff"), (8, b"\xff\xff"), (begin, b"\xff\xff"), (len(whole) - 1, b"")):
        changed = whole[:at] + (wrong + whole[at + len(wrong) :] if wrong else b"")
        path.write_bytes(changed)
        with pytest.raises(rm.DataError, match="damaged") as e:
            rm.open("mds")[:]
        assert e.value.file == str(path)
    write("zipped", compression="zstd")
    path = Path("zipped/shard.00000.mds.zstd")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(rm.DataError, match="damaged"):
        rm.open("zipped")[:]


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_shards_are_read_in_a_store(bucket: Bucket, compression: str | None) -> None:
    made = write("mds", compression=compression)
    for name in os.listdir("mds"):
        bucket.put(f"mds/{name}", Path(f"mds/{name}").read_bytes())
    ds = rm.open(f"{bucket.url}/mds/", storage=bucket.storage)
    assert all(same(row, sample) for row, sample in zip(ds, made, strict=True))
    assert all(same(ds[i], made[i]) for i in (59, 0, 25))
    found = [i for batch in ds.select("i").shuffle(seed=1).batch(9) for i in batch["i"].tolist()]
    assert sorted(found) == [*range(-50, 10)]
