"""Compressed files that are damaged, padded or not what they seem."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests import wire

DATA = b"".join(wire.frame(wire.example(a=wire.int64_list(i))) for i in range(20_000))


def test_rows_in_any_order_are_right() -> None:
    Path("x.gz").write_bytes(gzip.compress(DATA))
    ds = rm.open("x.gz")
    assert ds[19_999]["a"] == 19_999
    assert ds[3]["a"] == 3
    rows = np.random.default_rng(0).integers(0, 20_000, 300)
    assert np.array_equal(ds[rows]["a"], rows)
    assert ds[100:90:-3]["a"].tolist() == [100, 97, 94, 91]
    assert len(ds) == 20_000


@pytest.mark.parametrize("left", [1, 10, 17, 1000, -1, -5, -9])
@pytest.mark.parametrize("kind", ["gzip", "zlib"])
def test_a_stream_that_ends_early_is_an_error(kind: str, left: int) -> None:
    packed = gzip.compress(DATA) if kind == "gzip" else zlib.compress(DATA)
    Path("x.gz").write_bytes(packed[:left])
    with pytest.raises((rm.CompressionError, rm.CorruptRecordError), match=r"x\.gz"):
        rm.open("x.gz")[:]


def test_a_flipped_bit_in_the_stream_is_an_error() -> None:
    packed = bytearray(gzip.compress(DATA))
    packed[len(packed) // 2] ^= 1
    Path("x.gz").write_bytes(packed)
    with pytest.raises(rm.DataError, match=r"x\.gz"):
        rm.open("x.gz")[:]
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.gz", errors="skip")
    # What could be inflated is kept, and only sound records of it.
    values = ds[:]["a"]
    assert np.array_equal(values, np.sort(values))
    assert len(ds.skipped) >= 1


def test_zeros_behind_the_last_member_are_ignored() -> None:
    Path("x.gz").write_bytes(gzip.compress(DATA) + bytes(512))
    assert len(rm.open("x.gz")) == 20_000


def test_other_bytes_behind_the_last_member_are_an_error() -> None:
    Path("x.gz").write_bytes(gzip.compress(DATA) + b"garbage")
    with pytest.raises(
        rm.CompressionError, match=r"follows the gzip stream at byte [\d,]+ is not gzip"
    ):
        len(rm.open("x.gz"))


def test_a_gzip_of_an_example_without_framing_is_refused() -> None:
    Path("x.gz").write_bytes(gzip.compress(wire.example(a=wire.int64_list(1, 2, 3))))
    with pytest.raises(rm.CorruptRecordError, match="holds no TFRecord framing"):
        rm.open("x.gz")


def test_a_gzip_of_nothing_has_no_rows() -> None:
    Path("x.gz").write_bytes(gzip.compress(b""))
    assert len(rm.open("x.gz")) == 0


def test_a_stream_without_end_is_read_in_bounded_memory() -> None:
    # A record that claims 2 GiB in a file of a few bytes, and a bomb of zeros.
    Path("x.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(rm.CorruptRecordError, match="length CRC"):
        rm.open("x.gz")


def test_bad_rows_of_compressed_files_are_skipped() -> None:
    records = [wire.example(a=wire.int64_list(i)) for i in range(10)]
    records[4] = b"not an example"
    records[7] = wire.example(b=wire.int64_list(1))
    Path("x.gz").write_bytes(gzip.compress(b"".join(map(wire.frame, records))))
    with pytest.warns(rm.SkippedRecordsWarning, match="2 bad records"):
        ds = rm.open("x.gz", {"a": "int64"}, errors="skip")
    assert ds[:]["a"].tolist() == [0, 1, 2, 3, 5, 6, 8, 9]
    assert ds[4]["a"] == 5
    assert [skipped.record for skipped in ds.skipped] == [4, 7]
    assert len(ds) == 8
