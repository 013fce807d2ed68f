"""Token files of llm.c and modded-nanogpt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket


def llmc(tokens: Any) -> bytes:
    """Return the file that llm.c writes: see write_datafile in its dev/data/data_common.py."""
    header = np.zeros(256, np.int32)
    kind = (20240520, 1) if tokens.dtype == np.uint16 else (20240801, 7)
    header[:3] = *kind, len(tokens)
    return header.tobytes() + bytes(tokens.tobytes())


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_tokens_are_read_and_written(dtype: str) -> None:
    tokens = np.random.default_rng(0).integers(0, 50_000, 1000).astype(dtype)
    Path("train_000001.bin").write_bytes(llmc(tokens))
    ds = rm.open("train_000001.bin")
    assert ds.info().format == "llmc"
    assert ds.info().mapped == ["tokens"]
    assert ds.schema == {"tokens": dtype}
    assert np.array_equal(ds["tokens"], tokens)
    assert ds.tokens("tokens", 100)[:]["tokens"].reshape(-1).tolist() == tokens[:900].tolist()
    ds.save("again.bin", format="llmc", verify="full")
    assert Path("again.bin").read_bytes() == llmc(tokens)
    assert not Path("again.bin.recmap.json").exists()
    ds.save("shards/x.bin", format="llmc", shards=3)
    assert np.array_equal(rm.open("shards")["tokens"], tokens)
    assert rm.verify("again.bin").unchecked == ["again.bin"]
    # As before: with a type, the numbers are read that are asked for.
    raw = rm.open("again.bin", dtype=dtype, offset=1024, format="raw")
    assert np.array_equal(raw["data"], tokens)


def test_documents_are_written_end_to_end() -> None:
    documents = rm.Ragged.from_rows([[1, 2, 3], [], [4]], "uint16")
    rows = rm.from_arrays({"tokens": documents, "id": [7, 8, 9]})
    with pytest.raises(rm.ColumnError, match=r'select\("ids"\).*\.explode\("ids"\)'):
        rows.save("a.bin", format="llmc")
    rows.select("tokens").explode("tokens").save("a.bin", format="llmc")
    assert Path("a.bin").read_bytes() == llmc(np.array([1, 2, 3, 4], np.uint16))
    with pytest.raises(rm.ColumnError, match="uint16 or uint32"):
        rm.from_arrays({"tokens": np.arange(3)}).save("b.bin", format="llmc")
    big = rm.from_arrays({"t": np.arange(3, dtype=">u4")})
    big.save("big.bin", format="llmc", verify="full")
    assert Path("big.bin").read_bytes() == llmc(np.arange(3, dtype=np.uint32))


def test_a_wrong_header_is_refused() -> None:
    whole = llmc(np.arange(9, dtype=np.uint16))
    for wrong, why in (
        (whole[:-1], "says 9 tokens of uint16"),
        (whole + b"x", "the file has 1,043"),
        (whole[:8] + b"\xff\xff\xff\xff" + whole[12:], "says -1 tokens"),
        (whole[:8] + b"\xff\xff\xff\x7f" + whole[12:], "says 2,147,483,647 tokens"),
        (whole[:1000], "1,000 bytes, but a header"),
    ):
        Path("a.bin").write_bytes(wrong)
        with pytest.raises(rm.DataError, match=why) as e:
            rm.open("a.bin")
        assert e.value.file == "a.bin"
    Path("a.bin").write_bytes(whole[:4] + b"\2" + whole[5:])
    with pytest.raises(rm.DataError, match="version 2"):
        rm.open("a.bin", format="llmc")


def test_a_billion_tokens_open_at_once(tmp_path: Path) -> None:
    path, count = tmp_path / "a.bin", 1_000_000_000
    header = bytearray(llmc(np.empty(0, np.uint16)))
    header[8:12] = count.to_bytes(4, "little")
    path.write_bytes(header)
    os.truncate(path, 1024 + 2 * count)
    ds = rm.open(path)
    assert len(ds.tokens("tokens", 1024)) == (count - 1) // 1024
    assert not ds[:]["tokens"].flags.owndata


def test_tokens_are_read_from_and_written_to_a_store(bucket: Bucket) -> None:
    tokens = np.arange(5000, dtype=np.uint16)
    path = f"{bucket.url}/a.bin"
    ds = rm.from_arrays({"tokens": tokens})
    ds.save(path, format="llmc", storage=bucket.storage)
    found = rm.open(path, storage=bucket.storage)
    assert np.array_equal(found["tokens"], tokens)
    assert found[[4999, 0]]["tokens"].tolist() == [4999, 0]
