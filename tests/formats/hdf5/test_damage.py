"""HDF5 files that are cut, damaged or malicious."""

from __future__ import annotations

import os
import random
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm

X = np.arange(4000, dtype="<f4").reshape(400, 10)


def made(**options: Any) -> list[Any]:
    """Write a file with one dataset, and return where its chunks lie."""
    with h5py.File("x.h5", "w") as file:
        data = file.create_dataset("x", data=X, chunks=(100, 10), **options)
        return [data.id.get_chunk_info(i) for i in range(4)]


def overwrite(at: int, data: bytes) -> None:
    with open("x.h5", "r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_damaged_stream_says_where_and_other_rows_are_read() -> None:
    chunk = made(compression="gzip")[2]
    overwrite(chunk.byte_offset + 20, b"\xff" * 8)
    ds = rm.open("x.h5")
    where = f"x.h5: dataset 'x': the chunk at (200, 0), {chunk.size:,} bytes at byte "
    with pytest.raises(rm.DataError, match=re.escape(where)) as caught:
        ds[:]
    assert (caught.value.file, caught.value.field) == ("x.h5", "x")
    assert caught.value.byte == chunk.byte_offset
    assert np.array_equal(ds[:200]["x"], X[:200])
    assert np.array_equal(ds[300:]["x"], X[300:])


def test_a_wrong_checksum_is_an_error() -> None:
    chunk = made(fletcher32=True)[0]
    overwrite(chunk.byte_offset, b"\x01")
    with pytest.raises(rm.DataError, match="its checksum is 0x[0-9a-f]{8}, but 0x[0-9a-f]{8} was"):
        rm.open("x.h5")[5]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (zlib.compress(bytes(50_000_000)), "it inflates to more than 4,000 bytes"),
        (zlib.compress(bytes(3999)), "its deflate stream ends after 3,999 of 4,000 bytes"),
        (zlib.compress(bytes(4000))[:-4], "its deflate stream ends after 4,000 of 4,000 bytes"),
    ],
)
def test_a_chunk_must_inflate_to_its_size(data: bytes, why: str) -> None:
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", (400, 10), "<f4", chunks=(100, 10), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), data)
    with pytest.raises(rm.DataError, match=why):
        rm.open("x.h5")[:]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00a" + b"\xe0\xff\x00" * 16, "its LZF stream overflows after 3,961 of 4,000 bytes"),
        (b"\x00a" + b"\xe0\xff\x00" * 15, "its LZF stream ends after 3,961 of 4,000 bytes"),
        (b"\x00a" + b"\xe0\xff\x00" * 15 + b"\xe0", "its LZF stream is cut off after 3,961"),
        (b"\x00a" + b"\xe0\xff\x01" * 16, "its LZF stream points before its start after 1 of"),
        (b"\x00a", "2 bytes of LZF cannot make 4,000"),
    ],
)
def test_an_lzf_stream_must_fill_its_chunk_exactly(data: bytes, why: str) -> None:
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", (400, 10), "<f4", chunks=(100, 10), compression="lzf")
        dataset.id.write_direct_chunk((0, 0), data)
    with pytest.raises(rm.DataError, match=why) as caught:
        rm.open("x.h5")[:]
    assert "the chunk at (0, 0)" in str(caught.value)


def test_a_stored_chunk_must_have_its_size() -> None:
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", (400, 10), "<f4", chunks=(100, 10), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), bytes(10), filter_mask=1)
    with pytest.raises(rm.DataError, match="it has 10 bytes, not 4,000"):
        rm.open("x.h5")[:]


def test_a_file_cut_while_it_is_open_is_an_error() -> None:
    chunk = max(made(compression="gzip"), key=lambda chunk: chunk.byte_offset)
    ds = rm.open("x.h5")
    os.truncate("x.h5", chunk.byte_offset + 10)
    size = chunk.byte_offset + 10
    with pytest.raises(rm.DataError, match=rf"the file shrank from .* to {size:,} bytes"):
        ds[:]


@pytest.mark.parametrize("left", [0, 7, 8, 100, 2000, 10_000, -1])
def test_a_cut_file_is_refused(left: int) -> None:
    made()
    Path("x.h5").write_bytes(Path("x.h5").read_bytes()[:left])
    why = "the HDF5 library cannot read it" if left else "an empty file"
    with pytest.raises(rm.DataError, match=rf"x\.h5: .*{why}"):
        rm.open("x.h5")


def test_a_file_of_another_format_is_refused() -> None:
    Path("x.h5").write_bytes(b"no HDF5 at all" * 100)
    with pytest.raises(rm.DataError, match="looks like text"):
        rm.open("x.h5")


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"compression": "lzf"}])
def test_rows_larger_than_memory_are_refused(options: dict[str, Any]) -> None:
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", (2, 1 << 58), "<f8", chunks=(1, 1 << 20), **options)
    with pytest.raises(rm.DataError, match="x"):
        rm.open("x.h5")[:]


def test_field_attributes_that_do_not_match_are_ignored() -> None:
    with h5py.File("x.h5", "w") as file:
        for i, mark in enumerate(["float64", "bytes", "int32[*]", "nonsense[", 5, "bfloat16[7]"]):
            file[f"x{i}"] = np.arange(3, dtype="<i4")
            file[f"x{i}"].attrs["recmap"] = mark
    with warnings.catch_warnings(record=True, action="always") as said:
        ds = rm.open("x.h5")
    assert "'x0' is float64, but it holds int32" in str(said[0].message)
    assert {each.category for each in said} == {rm.StaleIndexWarning}
    assert set(map(str, ds.schema.values())) == {"int32"}
    assert ds[:]["x0"].tolist() == [0, 1, 2]


def test_a_note_of_the_same_size_does_not_change_what_numbers_mean() -> None:
    lists = h5py.vlen_dtype(np.dtype("<i8"))
    with h5py.File("x.h5", "w") as file:
        file["x"] = np.arange(3, dtype="<i8")
        file["x"].attrs["recmap"] = "float64"
        file["l"] = np.array([np.arange(2), np.arange(1), np.arange(3)], object).astype(lists)
        file["l"].attrs["recmap"] = "float64[*]"
        file["t"] = np.arange(3, dtype="<i8")
        file["t"].attrs["recmap"] = "datetime64[s]"
    with warnings.catch_warnings(record=True, action="always") as said:
        ds = rm.open("x.h5", ["x", "l"])
    assert len(said) == 2
    assert (ds.schema["x"], ds.schema["l"]) == (rm.Field("int64"), rm.Field("int64", (None,)))
    assert rm.open("x.h5", ["t"])[1]["t"] == np.datetime64(1, "s")


def test_groups_that_only_claim_to_be_columns_are_groups() -> None:
    with h5py.File("x.h5", "w") as file:
        for i, mark in enumerate(["int64[*,*]", "int64[*]", "float32", "nonsense[", 5]):
            group = file.create_group(f"g{i}")
            group.attrs["recmap"] = mark
            group["values"] = group["offsets"] = np.arange(3)
    names = {f"g{i}/{part}" for i in range(5) for part in ("values", "offsets")}
    assert set(rm.open("x.h5").schema) == names


@pytest.mark.parametrize(
    ("part", "values", "why"),
    [
        ("offsets", np.array([0, 1, 9]), "x.h5: 'x' has offsets that do not fit its 4 values"),
        ("offsets", np.array([0, 2, 1]), "offsets that do not fit its 4 values"),
        ("offsets", np.array([-5, 0, 4]), "offsets that do not fit"),
        ("offsets", np.array([0.0, 2.0, 4.0]), "offsets that are float64, not int64"),
        ("offsets", np.zeros((0,), "<i8"), "offsets that do not fit"),
        ("steps", np.array([0, 1, 2, 3, 99]), "offsets that do not fit its 6 values"),
        ("values", np.arange(6.0), r"float64\[\*,\*\], although the file says int64\[\*,\*\]"),
        ("values", 7, "'x/values' cannot be a part of a column: it is a single value"),
        ("values", np.zeros(6, "i4,i4"), "'x/values' cannot be a part of a column: it has fields"),
    ],
)
def test_arrays_of_a_nested_column_that_do_not_match_are_refused(
    part: str, values: Any, why: str
) -> None:
    nested = rm.Ragged(rm.Ragged(np.arange(6), [0, 1, 2, 3, 6]), [0, 1, 4])
    rm.from_arrays({"x": nested}).save("x.h5")
    assert rm.open("x.h5")[:]["x"] == nested
    with h5py.File("x.h5", "r+") as file:
        del file["x"][part]
        file["x"][part] = values
    with pytest.raises(rm.DataError, match=why):
        rm.open("x.h5", ["x"])[:]


@pytest.mark.parametrize("seed", range(2))
def test_random_damage_is_a_recmap_error_or_harmless(seed: int) -> None:
    with h5py.File("good.h5", "w") as file:
        file["c"] = X
        file.create_dataset("gz", data=X, chunks=(50, 4), compression=1, shuffle=True)
        file.create_dataset("sum", data=X, chunks=(37, 10), fletcher32=True)
        file.create_dataset("g/lzf", data=X, chunks=(100, 10), compression="lzf")
        table = np.zeros(400, [("a", "<i4"), ("b", "S5"), ("n", [("q", "<f8", (2,))])])
        file.create_dataset("t", data=table, chunks=(64,), compression="gzip")
        file.create_dataset("s", data=["text"] * 400, dtype=h5py.string_dtype())
    good = Path("good.h5").read_bytes()
    rng = random.Random(seed)
    for i in range(15):
        data = bytearray(good)
        for _ in range(rng.choice((1, 5, 20))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
        path = f"{i}.h5"
        Path(path).write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", rm.LeftOutWarning)
                ds = rm.open(path, format="hdf5")
            for name in ds.schema:
                if len(ds) < 10_000 and ds._source.row_bytes() < 1 << 20:
                    rm.open(path, [name], format="hdf5")[:]
        except rm.RecmapError as e:
            assert path in str(e)  # noqa: PT017 - what raises may be any of these
