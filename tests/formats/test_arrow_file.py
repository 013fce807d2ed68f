"""Arrow files and streams, and Feather: those of other programs, damaged ones, and recmap's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

import recmap as rm
from tests.formats.test_parquet import as_lists, random_table, wanted


def written(table: Any, kind: str, chunk: int, path: str = "x.arrow") -> str:
    if kind.startswith("feather"):
        feather.write_feather(table, path, compression=kind.split("-")[1], chunksize=chunk)
        return path
    opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with opened(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return path


KINDS = ["file", "stream", "feather-lz4", "feather-zstd", "feather-uncompressed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_that_pyarrow_reads(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 160))
    table = random_table(rows, seed)
    ds = rm.open(written(table, kind, int(rng.integers(1, 60))))
    assert len(ds) == rows
    assert as_lists(ds[:]) == wanted(table, np.arange(rows))
    for _ in range(5):
        start, stop = sorted(rng.integers(0, rows + 1, 2).tolist())
        assert as_lists(ds[start:stop]) == wanted(table, np.arange(start, stop))
        some = rng.integers(0, rows, int(rng.integers(0, 40)))
        assert as_lists(ds[some]) == wanted(table, some)
    names = ["list", "i"]
    assert as_lists(rm.open("x.arrow", names)[:]) == wanted(table.select(names), np.arange(rows))


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_of_a_stream_may_grow_and_be_replaced(deltas: bool) -> None:
    parts: list[list[str | None]] = [["a", "b", "a"], ["b", "c"], ["d"], ["e", None, "a"]]
    if deltas:
        parts = [["a", "b", "a"], ["b", "c"], ["d"]]
    known: list[str] = []
    batches = []
    for part in parts:
        fresh = [value for value in dict.fromkeys(part) if value is not None]
        known = [*known, *(v for v in fresh if v not in known)] if deltas else fresh
        indices = [None if value is None else known.index(value) for value in part]
        coded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(known))
        batches.append(pa.record_batch({"x": coded, "n": list(range(len(part)))}))
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream("x.arrows", batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    ds = rm.open("x.arrows", nulls="fill")
    wanted = [(value or "").encode() for part in parts for value in part]
    assert as_lists(ds[:])["x"] == wanted
    order = np.random.default_rng(0).permutation(len(wanted))
    assert as_lists(ds[order])["x"] == [wanted[i] for i in order]
    assert rm.open("x.arrows", ["n"])[:]["n"].tolist() == [i for p in parts for i in range(len(p))]


def test_rows_that_are_not_compressed_are_views_of_the_file() -> None:
    rm.from_arrays({"x": np.arange(4000.0).reshape(1000, 4)}).save("x.arrow")
    ds = rm.open("x.arrow")
    first, again = ds[10:20]["x"], ds[10:20]["x"]
    assert np.shares_memory(first, again)
    assert not first.flags.writeable


def test_a_file_without_rows_or_batches_is_read() -> None:
    table = random_table(5, 0).slice(0, 0)
    assert len(rm.open(written(table, "file", 5))) == 0
    with pa.ipc.new_file("y.arrow", table.schema):
        pass
    assert rm.open("y.arrow")[:]["list"].tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "stream", "feather-lz4"])
def test_damaged_bytes_are_an_error_or_other_values_and_never_a_crash(kind: str) -> None:
    table = random_table(60, 1)
    table = table.drop(["kind"]) if kind == "stream" else table
    whole = np.frombuffer(Path(written(table, kind, 25)).read_bytes(), "u1")
    rng = np.random.default_rng(5)
    for i in range(150):
        damaged = whole.copy()
        places = rng.integers(0, len(whole), 3)
        damaged[places] = rng.integers(0, 256, 3)
        end = int(rng.integers(0, len(whole))) if i % 10 == 0 else None
        Path("y.arrow").write_bytes(damaged[:end].tobytes())
        try:
            ds = rm.open("y.arrow", format="arrow")
            for batch in ds.batches(16):
                as_lists(batch)
        except (rm.RecmapError, UnicodeDecodeError):
            continue


def test_a_buffer_that_claims_to_be_huge_is_an_error() -> None:
    rows = np.zeros(10_000)
    rm.from_arrays({"x": rows}).save("x.arrow", compression="lz4")
    data = bytearray(Path("x.arrow").read_bytes())
    at = data.index(struct.pack("<q", rows.nbytes))
    for claim in (1 << 62, 1 << 40, -5):
        data[at : at + 8] = struct.pack("<q", claim)
        Path("y.arrow").write_bytes(data)
        with pytest.raises(rm.RecmapError):
            rm.open("y.arrow")[:]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_batch_that_claims_fewer_rows_than_its_columns_is_an_error(kind: str) -> None:
    table = pa.table({"x": np.arange(7), "y": np.arange(7.0)})
    whole = Path(written(table, kind, 7)).read_bytes()
    counted = [at for at in range(len(whole) - 8) if whole[at : at + 8] == struct.pack("<q", 7)]
    assert len(counted) == 3  # of the batch, and of its two columns
    for claim in (0, 3):
        data = bytearray(whole)
        data[counted[0] : counted[0] + 8] = struct.pack("<q", claim)
        Path("y.arrow").write_bytes(data)
        with pytest.raises(rm.DataError, match=f"batch of {claim} rows, unlike its columns"):
            rm.open("y.arrow", format="arrow")


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("wrong", ["zone", "name"])
def test_a_name_or_a_time_zone_that_is_not_text_is_an_error(kind: str, wrong: str) -> None:
    table = pa.table({"name": pa.array([1], pa.timestamp("ns", "zone"))})
    path = Path(written(table, kind, 1))
    path.write_bytes(path.read_bytes().replace(wrong.encode(), b"x\xfex" + wrong[3:].encode()))
    with pytest.raises(rm.DataError, match="x.arrow: not a valid Arrow file: 'utf-8' codec") as e:
        rm.open(path)
    assert e.value.file == "x.arrow"


def test_the_file_is_read_by_other_programs() -> None:
    columns = {"x": np.arange(6.0).reshape(2, 3), "s": [b"a", b""]}
    for compression in ("none", "zstd"):
        rm.from_arrays(columns).save("x.feather", compression=compression, overwrite=True)
        found = feather.read_table("x.feather")
        assert found["x"].to_pylist() == columns["x"].tolist()  # type: ignore[attr-defined]
        assert found["s"].to_pylist() == [b"a", b""]
