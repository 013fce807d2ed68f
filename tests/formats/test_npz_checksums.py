"""The CRCs of .npz members: every damaged byte is noticed, and verify names it."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.test_npz import SAVERS, patched


def flip(path: str, place: int) -> None:
    with open(path, "r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


READS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda ds: ds[:],
    "parts": lambda ds: [ds[at : at + 7] for at in range(0, 50, 7)],
    "batches": lambda ds: list(ds.batches(7)),
    "rows": list,
    "stats": lambda ds: ds.stats(),
    "pipeline": lambda ds: list(ds.batch(8)),
    "convert": lambda ds: ds.save("out.h5"),
    "shards": lambda ds: ds.save("out.npz", shards=3),
    "shuffled": lambda ds: ds.shuffle(seed=1).save("out.tfrecord"),
}


@pytest.mark.parametrize("read", list(READS))
@pytest.mark.parametrize("kind", ["plain", "fortran", "structured", "ragged", "offsets"])
@SAVERS
def test_a_flipped_byte_is_an_error_in_every_full_pass(save: Any, kind: str, read: str) -> None:
    rows = np.arange(150, dtype=np.float32).reshape(50, 3)
    if kind in ("ragged", "offsets"):
        column = rm.Ragged(np.arange(100), np.arange(51) * 2)
        compression = "deflate" if save is np.savez_compressed else None
        rm.from_arrays({"x": column}).save("x.npz", compression=compression)
    elif kind == "structured":
        save("x.npz", x=np.zeros(50, [("a", "f4"), ("b", "i8")]))
    else:
        save("x.npz", x=np.asfortranarray(rows) if kind == "fortran" else rows)
    READS[read](rm.open("x.npz"))
    for name in os.listdir():
        if name.startswith("out") and os.path.isfile(name):
            os.unlink(name)
    with zipfile.ZipFile("x.npz") as archive:
        info = archive.infolist()[1 if kind == "offsets" else 0]
    with open("x.npz", "rb") as file:
        data = file.read()
    begin = info.header_offset + 30 + sum(struct.unpack_from("<HH", data, info.header_offset + 26))
    stored = info.compress_type == zipfile.ZIP_STORED
    flip("x.npz", begin + (info.compress_size - 2 if stored else info.compress_size // 2))
    with pytest.raises(rm.DataError, match="x.npz"):
        READS[read](rm.open("x.npz"))


ANY_ORDER: dict[str, Callable[[Any], Any]] = {
    "one row": lambda ds: ds[0],
    "rows by number": lambda ds: ds[[3, 1]],
    "a few rows": lambda ds: ds[:3],
    "column": lambda ds: ds["x"],
    "sum of a column": lambda ds: ds["x"].sum(),
    "shuffled": lambda ds: list(ds.shuffle(seed=1).batch(8)),
    "in workers": lambda ds: list(ds.map(dict, workers=2).batch(8)),
    "part of a split": lambda ds: ds.split({"a": 0.5, "b": 0.5}, seed=0)["a"].save("out.npy"),
    "of many files": lambda _: rm.open(["x.npz"] * 70)[[3, 1]],
}


@pytest.mark.parametrize("read", list(ANY_ORDER))
def test_a_flipped_byte_in_a_small_file_is_an_error_in_any_read(read: str) -> None:
    np.savez("x.npz", x=np.arange(50), y=np.arange(50))
    ANY_ORDER[read](rm.open("x.npz"))
    patched((49).to_bytes(8, "little"), 0, (7).to_bytes(8, "little"))
    with pytest.raises(rm.RecmapError, match="x.npy: the CRC of its 528 bytes"):
        ANY_ORDER[read](rm.open("x.npz"))
    ANY_ORDER["one row"](rm.open("x.npz", verify=False))


@pytest.mark.parametrize(
    "verb",
    [
        lambda ds: ds.take(10),
        lambda ds: ds.select(slice(None, None, 7)),
        lambda ds: ds.cast({"x": "int64"}).shuffle(seed=1),
        lambda ds: ds.select(slice(5, 9)).cast({"x": "int64"}),
        lambda ds: ds.rename({"x": "z"}).select(slice(5, 9)),
    ],
    ids=["take", "steps", "shuffle", "cast", "rename"],
)
def test_a_conversion_of_some_rows_checks_all_of_a_large_file(
    verb: Callable[[rm.Dataset], rm.Dataset],
) -> None:
    np.savez("x.npz", x=np.zeros((100, 1 << 18), np.uint8))
    flip("x.npz", os.path.getsize("x.npz") // 2)
    with pytest.raises(rm.CorruptRecordError, match="x.npy: the CRC of its"):
        verb(rm.open("x.npz").select("x")).save("out.npy", memory="500MB")
    assert not os.path.exists("out.npy")


def test_rows_by_number_of_a_large_file_are_read_without_a_checksum() -> None:
    np.savez("x.npz", x=np.zeros((100, 1 << 18), np.uint8))
    flip("x.npz", os.path.getsize("x.npz") // 2)
    ds = rm.open("x.npz")
    assert ds[[1, 2]]["x"].sum() == 0
    assert ds["x"].sum() == 0x10
    assert rm.open("x.npz", verify=False)[:]["x"].sum() == 0x10
    with pytest.raises(rm.CorruptRecordError, match="x.npy: the CRC of its"):
        ds.stats()


@SAVERS
def test_a_flipped_byte_anywhere_never_gives_wrong_data(save: Any) -> None:
    """Some fields of the zip itself do not matter, such as the time of a member."""
    arrays = {"x": np.arange(5, dtype=np.int16), "y": np.array([b"a", b"bc", b"", b"d", b"e"])}
    save("x.npz", **arrays)
    with open("x.npz", "rb") as file:
        whole = file.read()
    wanted = {"x": arrays["x"].tolist(), "y": arrays["y"].tolist()}
    for place in range(len(whole)):
        flip("x.npz", place)
        try:
            found = {name: column.tolist() for name, column in rm.open("x.npz")[:].items()}
        except rm.RecmapError:
            pass
        else:
            assert found == wanted, place
        flip("x.npz", place)


@SAVERS
def test_verify_names_the_damaged_member(save: Any) -> None:
    save("x.npz", a=np.arange(1000), b=np.arange(7), c=np.array(3))
    assert rm.verify("x.npz").ok
    with zipfile.ZipFile("x.npz") as archive:
        place = archive.getinfo("b.npy").header_offset + 30 + 5 + 20
        size = archive.getinfo("b.npy").compress_size
    flip("x.npz", place + size // 2)
    found = rm.verify("x.npz")
    assert not found.ok
    (damage,) = found.damage
    assert damage.file == "x.npz"
    assert "b.npy" in damage.reason
    assert found.unchecked == []


def test_verify_says_which_files_have_no_checksums() -> None:
    np.save("a.npy", np.arange(10))
    np.savez("b.npz", x=np.arange(10))
    found = rm.verify(["a.npy", "b.npz"])
    assert found.ok
    assert (found.files, found.records, found.unchecked) == (2, 20, ["a.npy"])
    os.truncate("a.npy", 200)
    assert not rm.verify("a.npy").ok
