"""Compressed files: any order of rows, damage, padding, members."""

from __future__ import annotations

import gzip
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.local.gzip import inflater
from tests import wire


@cache
def data() -> bytes:
    return b"".join(wire.frame(wire.example(a=wire.int64_list(i))) for i in range(20_000))


@cache
def packed_data(pack: Callable[[bytes], bytes] = gzip.compress) -> bytes:
    return pack(data())


def test_rows_are_read_in_any_order() -> None:
    Path("x.gz").write_bytes(packed_data())
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
    packed = packed_data(gzip.compress if kind == "gzip" else zlib.compress)
    Path("x.tfrecord.gz").write_bytes(packed[:left])
    with pytest.raises((rm.CompressionError, rm.CorruptRecordError), match=r"x\.tfrecord\.gz"):
        rm.open("x.tfrecord.gz")[:]


def test_a_flipped_bit_in_the_stream_is_an_error() -> None:
    packed = bytearray(packed_data())
    packed[len(packed) // 2] ^= 1
    Path("x.gz").write_bytes(packed)
    with pytest.raises(rm.DataError, match=r"x\.gz"):
        rm.open("x.gz")[:]
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.gz", errors="skip")
    # Only the sound records of what could be inflated are kept.
    values = ds[:]["a"]
    assert np.array_equal(values, np.sort(values))
    assert len(ds.skipped) >= 1


def test_trailing_zeros_are_ignored() -> None:
    Path("x.gz").write_bytes(packed_data() + bytes(512))
    assert len(rm.open("x.gz")) == 20_000


def test_other_trailing_bytes_are_an_error() -> None:
    Path("x.gz").write_bytes(packed_data() + b"garbage")
    with pytest.raises(
        rm.CompressionError, match=r"follows the gzip stream at byte [\d,]+ is not gzip"
    ):
        len(rm.open("x.gz"))


@pytest.mark.parametrize("size", [1, 2, 4, 17, 18, 300_000])
@pytest.mark.parametrize("kind", ["gzip", "members", "zlib"])
def test_a_trailing_byte_is_an_error_after_all_rows(kind: str, size: int) -> None:
    pack: Any = {"gzip": gzip.compress, "members": members, "zlib": zlib.compress}[kind]
    data = b"".join(wire.frame(wire.example(a=wire.int64_list(i))) for i in range(50))
    for junk in (b"x", b"\x78\x9c", b"\x1f\x8b\x08" * 6 + b"x" * 80):
        packed = pack(data) + (junk * size)[:size]
        Path("x.tfrecord").write_bytes(packed)
        seen: list[int] = []
        with pytest.raises(rm.CompressionError, match=r"x\.tfrecord"):
            seen.extend(row["a"] for row in rm.open("x.tfrecord"))
        assert seen == list(range(50))
        with pytest.raises(rm.CompressionError):
            len(rm.open("x.tfrecord"))
        with pytest.raises(rm.CompressionError):
            rm.index("x.tfrecord")
        with pytest.warns(rm.SkippedRecordsWarning):
            assert len(rm.open("x.tfrecord", errors="skip")) == 50


@pytest.mark.parametrize("zeros", [1, 3, 512, 300_000])
def test_zeros_pad_gzip_members_but_not_zlib_streams(zeros: int) -> None:
    half = len(data()) // 2
    one, two = gzip.compress(data()[:half]), gzip.compress(data()[half:])
    Path("x.gz").write_bytes(one + bytes(zeros) + two + bytes(zeros))
    assert rm.open("x.gz")[:]["a"].tolist() == list(range(20_000))
    Path("x.gz").write_bytes(one + bytes(zeros) + b"x" + two)
    with pytest.raises(rm.CompressionError, match=f"at byte {len(one) + zeros:,} is not gzip"):
        len(rm.open("x.gz"))
    Path("x.zlib").write_bytes(packed_data(zlib.compress) + bytes(zeros))
    with pytest.raises(rm.CompressionError, match="is not zlib"):
        len(rm.open("x.zlib"))


@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.integers(0, 5000).map(bytes),
        st.integers(0, 5000).map(lambda size: bytes(range(256)) * (size // 256)),
    ),
    behind=st.binary(max_size=20),
    read=st.integers(1, 40),
    most=st.integers(1, 500),
    level=st.integers(0, 9),
    kind=st.sampled_from([("gzip", 31), ("zlib", 15)]),
)
def test_a_stream_ends_where_zlib_says_however_it_is_split(
    data: bytes, behind: bytes, read: int, most: int, level: int, kind: tuple[Any, int]
) -> None:
    packer = zlib.compressobj(level, wbits=kind[1])
    packed = packer.compress(data) + packer.flush()
    engine, _ = inflater(kind[0])
    plain, pending, position, file = b"", b"", 0, BytesIO(packed + behind)
    while not engine.eof:
        packed_data = pending or file.read(read)
        assert packed_data, "it seems to be cut"
        plain += engine.decompress(packed_data, most)
        pending = engine.unused_data if engine.eof else engine.unconsumed_tail
        position += len(packed_data) - len(pending)
    assert (plain, position) == (data, len(packed))


def test_a_gzip_of_an_example_without_framing_is_refused() -> None:
    Path("x.tfrecord.gz").write_bytes(gzip.compress(wire.example(a=wire.int64_list(1, 2, 3))))
    with pytest.raises(rm.CorruptRecordError, match="holds no TFRecord framing") as e:
        rm.open("x.tfrecord.gz")
    assert [option.name for option in e.value.options] == ["errors"]


def test_a_gzip_of_nothing_has_no_rows() -> None:
    Path("x.gz").write_bytes(gzip.compress(b""))
    assert len(rm.open("x.gz")) == 0


def test_an_endless_stream_is_read_in_bounded_memory() -> None:
    # A small file that inflates to megabytes of zeros.
    Path("x.tfrecord.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(rm.CorruptRecordError, match="length CRC"):
        rm.open("x.tfrecord.gz")


def test_bad_rows_of_compressed_files_are_skipped() -> None:
    records = [wire.example(a=wire.int64_list(i)) for i in range(10)]
    records[4] = b"not an example"
    records[7] = wire.example(b=wire.int64_list(1))
    Path("x.gz").write_bytes(gzip.compress(b"".join(map(wire.frame, records))))
    ds = rm.open("x.gz", {"a": "int64"}, errors="skip")
    with pytest.warns(rm.SkippedRecordsWarning, match="2 bad records"):
        assert ds[:]["a"].tolist() == [0, 1, 2, 3, 5, 6, 8, 9]
    assert ds[4]["a"] == 5
    assert [skipped.record for skipped in ds.skipped] == [4, 7]
    begin = sum(len(wire.frame(record)) for record in records[:4])
    assert f"record 4 at byte {begin} of the inflated data" in str(ds.skipped[0])
    assert len(ds) == 8


def members(data: bytes, name: bytes = b"IG", size: int | None = None, block: int = 5000) -> bytes:
    """Make gzip members that state their size, as pgzip (``IG``) and bgzip (``BC``) do."""
    packed = bytearray()
    for at in range(0, len(data), block):
        plain = data[at : at + block]
        engine = zlib.compressobj(wbits=-15)
        body = engine.compress(plain) + engine.flush()
        form, less = ("<I", 0) if name == b"IG" else ("<H", 1)
        extra = 4 + struct.calcsize(form)
        whole = 12 + extra + len(body) + 8
        packed += b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H", extra) + name
        packed += struct.pack("<H", extra - 4) + struct.pack(form, (size or whole) - less)
        packed += body + struct.pack("<II", zlib.crc32(plain), len(plain))
    return bytes(packed)


@pytest.mark.parametrize("name", [b"IG", b"BC"])
def test_members_that_state_their_size_are_read(name: bytes) -> None:
    Path("x.gz").write_bytes(members(data(), name))
    assert gzip.decompress(Path("x.gz").read_bytes()) == data()
    assert np.array_equal(rm.open("x.gz")[:]["a"], np.arange(20_000))


@pytest.mark.parametrize("size", [1, 21, 28, 29, 40, 3000, 1 << 20, (1 << 20) + 1, 0xFFFFFFFF])
def test_a_wrong_member_size_changes_nothing(size: int) -> None:
    Path("x.gz").write_bytes(members(data(), size=size))
    assert np.array_equal(rm.open("x.gz")[:]["a"], np.arange(20_000))


def test_members_with_and_without_a_size_are_read_to_the_end() -> None:
    third = len(data()) // 3
    parts = members(data()[:third]) + gzip.compress(data()[third : 2 * third])
    Path("x.gz").write_bytes(parts + members(b"") + members(data()[2 * third :]) + bytes(100))
    assert np.array_equal(rm.open("x.gz")[:]["a"], np.arange(20_000))


@pytest.mark.parametrize("left", [-1, -9, -100, 30, 1000])
def test_a_member_that_ends_early_is_an_error(left: int) -> None:
    Path("x.tfrecord.gz").write_bytes(packed_data(members)[:left])
    with pytest.raises(
        rm.CompressionError, match=r"x\.tfrecord\.gz: the gzip stream ends early, at byte"
    ):
        rm.open("x.tfrecord.gz")[:]


@pytest.mark.parametrize("kind", ["of known size", "of unknown size"])
def test_a_damaged_member_is_named_and_the_others_are_kept(kind: str) -> None:
    blocks = [data()[at : at + 5000] for at in range(0, len(data()), 5000)]
    known = kind == "of known size"
    packed = bytearray(packed_data(members) if known else b"".join(map(gzip.compress, blocks)))
    packed[len(packed) // 2] ^= 1
    Path("x.gz").write_bytes(packed)
    with pytest.raises(rm.DataError, match=r"x\.gz: damaged gzip stream near byte [\d,]+"):
        rm.open("x.gz")[:]
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.gz", errors="skip")
    values = ds[:]["a"]
    assert (np.diff(values) > 0).all()
    # A member holds about 150 of the 20,000 records.
    assert len(values) > 19_800
    assert (values[0], values[-1]) == (0, 19_999)


def inflated(packed: bytes, wbits: int) -> bytes:
    """Inflate byte by byte, up to the damage."""
    engine, plain = zlib.decompressobj(wbits), bytearray()
    try:
        for i in range(len(packed)):
            plain += engine.decompress(packed[i : i + 1])
    except zlib.error:
        pass
    return bytes(plain)


@pytest.mark.parametrize("seed", range(24))
def test_damage_loses_no_more_records_than_in_a_plain_file(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.choice([0, 5, 100, 3000], 40)
    records = [
        wire.example(a=wire.int64_list(i), b=wire.bytes_list(random.bytes(size)))
        for i, size in enumerate(sizes)
    ]
    data, kind = b"".join(map(wire.frame, records)), ("gzip", "zlib", "stored")[seed % 3]
    packed = bytearray(zlib.compress(data) if kind == "zlib" else gzip.compress(data))
    packed = bytearray(gzip.compress(data, 0)) if kind == "stored" else packed
    at = int(random.integers(12, len(packed)))
    match seed % 4:
        case 0:
            packed[at] ^= 1 << int(random.integers(8))
        case 1:
            packed[-int(random.integers(1, 5))] ^= 1  # the checksum
        case 2:
            del packed[at:]
        case 3:
            packed[at:at] = random.bytes(3)
    Path("x.gz").write_bytes(packed)
    plain = inflated(bytes(packed), 15 if kind == "zlib" else 31)
    Path("x.tfrecord").write_bytes(plain)
    wanted = list(rm.tfrecord.records("x.tfrecord", errors="skip"))
    found = list(rm.tfrecord.records("x.gz", errors="skip"))
    assert all(record in records for record in found)
    assert len(found) >= len(wanted)
    if wanted:
        assert rm.repair("x.gz", "whole.tfrecord").records == len(found)


def in_order(rows: Iterator[Any]) -> tuple[list[Any], bool]:
    """Return the rows before an error, and whether there was one."""
    seen = []
    try:
        for row in rows:
            seen.append(row)  # noqa: PERF402
    except rm.DataError:
        return seen, True
    return seen, False


@cache
def three_thousand() -> list[bytes]:
    return [wire.example(a=wire.int64_list(i)) for i in range(3000)]


_frame = cache(wire.frame)


@pytest.mark.parametrize("what", ["length", "data", "not an example", "cut", "wrong field"])
@pytest.mark.parametrize("kind", ["plain", "gzip"])
@pytest.mark.parametrize("bad", [1, 1024, 2500])
def test_the_rows_before_a_bad_one_are_returned(kind: str, what: str, bad: int) -> None:
    records = list(three_thousand())
    if what == "wrong field":
        records[bad] = wire.example(b=wire.int64_list(1))
    if what == "not an example":
        records[bad] = b"\xff"
    frames = list(map(_frame, records))
    if what in ("length", "data"):
        broken = bytearray(frames[bad])
        broken[3 if what == "length" else 14] ^= 1
        frames[bad] = bytes(broken)
    data = b"".join(frames[:bad] if what == "cut" else frames)
    data += frames[bad][:-3] if what == "cut" else b""
    Path("x.tfrecord").write_bytes(gzip.compress(data) if kind == "gzip" else data)

    def ds() -> rm.Dataset:
        return (
            rm.open("x.tfrecord", {"a": "int64"})
            if what == "wrong field"
            else rm.open("x.tfrecord")
        )

    if what not in ("wrong field", "not an example"):
        seen, failed = in_order(rm.tfrecord.records("x.tfrecord"))
        assert failed
        assert seen == records[:bad]
    if what == "not an example" and (bad < 1000 or kind == "gzip"):
        return  # the sample includes it, so opening reports it
    rows, failed = in_order(iter(ds()))
    assert failed
    assert [row["a"] for row in rows] == list(range(bad))
    for size in (1, 7, 5000):
        batches, failed = in_order(ds().batches(size))
        assert failed
        assert [a for batch in batches for a in batch["a"].tolist()] == list(range(bad))


def test_a_bad_file_does_not_hide_the_rows_of_earlier_files() -> None:
    frame = wire.frame(wire.example(a=wire.int64_list(1)))
    Path("a.tfrecord").write_bytes(frame * 10)
    Path("b.tfrecord").write_bytes(frame * 3 + frame[:-1])
    rows, failed = in_order(iter(rm.open(["a.tfrecord", "b.tfrecord"])))
    assert failed
    assert len(rows) == 13


def test_gzip_reads_what_is_written_in_members() -> None:
    blocks = [bytes([i]) * 100_000 for i in range(20)]
    rm.tfrecord.write_records("x.gz", blocks, compression="gzip")
    packed = Path("x.gz").read_bytes()
    assert gzip.decompress(packed) == b"".join(map(wire.frame, blocks))
    assert packed.count(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0IG\x04\0") == 8
    assert list(rm.tfrecord.records("x.gz")) == blocks


def test_an_empty_file_is_one_empty_member() -> None:
    rm.tfrecord.write_records("x.gz", [], compression="gzip")
    assert gzip.decompress(Path("x.gz").read_bytes()) == b""
    assert list(rm.tfrecord.records("x.gz")) == []


@pytest.mark.slow
@pytest.mark.parametrize("packed", ["members", "one member"])
def test_distant_rows_of_a_large_file_are_correct(packed: str) -> None:
    x = np.random.default_rng(0).random((4000, 1024), np.float32)
    with rm.TFRecordWriter("x.gz", compression="gzip") as w:
        w.write({"x": x})
    if packed == "one member":
        Path("x.gz").write_bytes(gzip.compress(gzip.decompress(Path("x.gz").read_bytes()), 1))
        Path(".x.gz.recmap").unlink()
    ds = rm.open("x.gz")
    for row in (3999, 0, 2000, 1999, 3998, 10):
        assert np.array_equal(ds[row]["x"], x[row])
    rows = np.random.default_rng(1).integers(0, 4000, 50)
    assert np.array_equal(ds[rows]["x"], x[rows])
    assert np.array_equal(ds[900:1200]["x"], x[900:1200])
    assert np.array_equal(ds[:]["x"], x)


def test_an_abandoned_pass_ends_its_thread() -> None:
    Path("x.gz").write_bytes(members(data() * 20))
    before = set(threading.enumerate())
    ds = rm.open("x.gz")
    assert ds[200_000]["a"] == 0
    ahead = [t for t in set(threading.enumerate()) - before if t.name == "recmap-ahead"]
    del ds
    for thread in ahead:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("name", ["x.gz", "x.members.gz"])
def test_the_first_record_may_be_larger_than_a_window(name: str) -> None:
    rows = [3_000_000, 1, 5_000_000]
    data = b"".join(wire.frame(wire.example(a=wire.bytes_list(b"a" * n))) for n in rows)
    Path(name).write_bytes(members(data) if "members" in name else gzip.compress(data))
    ds = rm.open(name)
    assert [len(value) for value in ds[:]["a"]] == rows
    assert len(ds[2]["a"]) == 5_000_000


def test_a_record_over_the_limit_is_refused_and_can_be_read_later() -> None:
    rows = [10, 20, 3_000_000, 30]
    data = b"".join(wire.frame(wire.example(a=wire.bytes_list(b"a" * n))) for n in rows)
    Path("x.gz").write_bytes(members(data))
    source = rm.open("x.gz")._source
    assert len(source.read(0, 4, 1_000_000)["a"]) == 2
    for _ in range(2):
        with pytest.raises(rm.MemoryLimitError, match=r"x\.gz: row 2 has 3,0"):
            source.read(2, 4, 1_000_000)
    assert len(source.read(2, 4, 4_000_000)["a"][0]) == 3_000_000


def test_sizes_of_distant_rows_are_found_by_member() -> None:
    data = b"".join(wire.frame(wire.example(a=wire.bytes_list(b"a" * n))) for n in range(3000))
    Path("x.gz").write_bytes(members(data))
    source = rm.open("x.gz")._source
    rows = np.array([2999, 5, 1500, 5])
    sizes = source.row_sizes(rows)
    assert isinstance(sizes, np.ndarray)
    assert (sizes >= rows).all()
    assert (sizes < rows + 100).all()
    assert sizes[1] == sizes[3]


@pytest.mark.parametrize("byte", [3, 15])
def test_skipping_the_first_record_keeps_the_columns(byte: int) -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as writer:
        writer.write({"x": np.arange(5000)})
    damaged = bytearray(Path("x.tfrecord").read_bytes())
    damaged[byte] ^= 1
    Path("x.tfrecord.gz").write_bytes(gzip.compress(bytes(damaged)))
    with pytest.warns(rm.SkippedRecordsWarning):
        dataset = rm.open("x.tfrecord.gz", errors="skip")
    assert list(dataset.schema) == ["x"]
    assert dataset[:]["x"].tolist() == list(range(1, 5000))
