"""The index of a compressed stream: rows at random, on all cores, and never trusted when stale."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from zlib_ng import zlib_ng

import recmap as rm
from recmap.local import deflate
from recmap.native import _core
from recmap.tfrecord.sidecar import Fingerprint, remove_sidecar, stream_index_path
from recmap.tfrecord.stream_index import load_stream_index

ROWS = 1500
RNG = np.random.default_rng(0)
# Rows of many sizes, some larger than a chunk, that deflate to dynamic, fixed and stored blocks.
LENGTHS = np.where(np.arange(ROWS) % 600 == 7, 250_000, RNG.integers(0, 1500, ROWS))
VALUES = rm.Ragged(
    np.where(np.arange(LENGTHS.sum()) % 97 < 70, 5, RNG.integers(0, 1 << 40, LENGTHS.sum())),
    np.concatenate([[0], np.cumsum(LENGTHS)]),
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("plain") / "x.tfrecord"
    rm.from_arrays({"i": np.arange(ROWS), "x": VALUES}).save(path)
    return path.read_bytes()


def packed(data: bytes, kind: str) -> bytes:
    if kind == "zlib":
        return zlib.compress(data, 6)
    if kind == "stored":
        return gzip.compress(data, 0)
    third = len(data) // 3
    parts = {"gzip": [data], "members": [data[:third], data[third:-5], data[-5:]]}[kind]
    return b"".join(gzip.compress(part, 6) for part in parts)


def numbers(ds: rm.Dataset, rows: np.ndarray) -> np.ndarray:
    batch = ds[rows]
    assert [len(x) for x in batch["x"]] == LENGTHS[rows].tolist()
    chosen = rows[rows % 600 != 7][0]
    assert np.array_equal(ds[int(chosen)]["x"], VALUES[int(chosen)])
    return np.asarray(batch["i"])


@pytest.mark.parametrize("kind", ["gzip", "members", "zlib", "stored"])
def test_the_first_pass_leaves_an_index_that_reads_any_row(kind: str, plain: bytes) -> None:
    Path("x.tfrecord.gz").write_bytes(packed(plain, kind))
    assert len(rm.open("x.tfrecord.gz")) == ROWS
    index = load_stream_index("x.tfrecord.gz")
    assert index is not None
    assert len(index) > 3
    ds = rm.open("x.tfrecord.gz")
    order = RNG.permutation(ROWS)
    assert numbers(ds, order[:300]).tolist() == order[:300].tolist()
    assert np.concatenate([b["i"] for b in ds.batches(500)]).tolist() == list(range(ROWS))
    assert ds.info().rows == ROWS
    several = [int(ds[int(i)]["i"]) for i in order[:5]]
    assert several == order[:5].tolist()


def test_chunks_are_the_bytes_of_the_stream(plain: bytes) -> None:
    Path("x.tfrecord.gz").write_bytes(packed(plain, "members"))
    len(rm.open("x.tfrecord.gz"))
    index = load_stream_index("x.tfrecord.gz")
    assert index is not None
    for chunk in range(len(index)):
        _, _, _, base = index.start(chunk)
        blocks = index.inflate("x.tfrecord.gz", "gzip", base, ahead=chunk % 2 == 0)
        assert b"".join(bytes(block.plain) for block in blocks) == plain[base:]


def test_an_index_of_other_data_is_not_used(plain: bytes) -> None:
    path = Path("x.tfrecord.gz")
    path.write_bytes(packed(plain, "gzip"))
    len(rm.open(path))
    kept = Path(stream_index_path(str(path))).read_bytes()
    rm.from_arrays({"i": np.arange(5)}).save("few.tfrecord")
    path.write_bytes(gzip.compress(Path("few.tfrecord").read_bytes()))
    assert len(rm.open(path)) == 5
    rm.from_arrays({"i": np.arange(5)}).save(path, overwrite=True)
    assert load_stream_index(str(path)) is None
    remove_sidecar(str(path))
    assert not os.path.exists(stream_index_path(str(path)))
    path.write_bytes(packed(plain, "members"))
    Path(stream_index_path(str(path))).write_bytes(kept)
    assert load_stream_index(str(path)) is None
    assert numbers(rm.open(path), np.array([1400, 3])).tolist() == [1400, 3]


def test_damage_that_the_fingerprint_misses_is_found_and_named(plain: bytes) -> None:
    path = Path("x.tfrecord.gz")
    path.write_bytes(packed(plain, "gzip"))
    len(rm.open(path))
    data = bytearray(path.read_bytes())
    place = len(data) // 2 + 6000  # between the sampled blocks
    data[place] ^= 0x10
    path.write_bytes(data)
    assert load_stream_index(str(path)) is not None
    ds = rm.open(path)
    with (
        pytest.warns(rm.StaleIndexWarning, match="damaged"),
        pytest.raises(rm.DataError, match=r"x\.tfrecord\.gz"),
    ):
        ds[:]
    assert int(rm.open(path)[3]["i"]) == 3


def test_damaged_indexes_are_ignored(plain: bytes) -> None:
    path = Path("x.tfrecord.gz")
    path.write_bytes(packed(plain, "gzip"))
    len(rm.open(path))
    beside = Path(stream_index_path(str(path)))
    sound = beside.read_bytes()
    for place in RNG.integers(0, len(sound), 40).tolist():
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(RNG.integers(8))
        beside.write_bytes(damaged if place % 3 else sound[:place])
        assert load_stream_index(str(path)) is None
    beside.write_bytes(sound[:5])  # shorter than its header, as after a full disk
    assert load_stream_index(str(path)) is None
    assert numbers(rm.open(path), np.array([1499, 1])).tolist() == [1499, 1]


def test_going_back_leaves_an_index_and_one_pass_in_order_does_not(plain: bytes) -> None:
    path = Path("x.tfrecord.gz")
    path.write_bytes(packed(plain, "gzip"))
    ds = rm.open(path)
    assert sum(len(b["i"]) for b in ds.batches(100)) == ROWS
    assert load_stream_index(str(path)) is None
    assert numbers(ds, np.array([700, 1200, 3])).tolist() == [700, 1200, 3]
    assert load_stream_index(str(path)) is not None


def test_files_are_read_without_the_c_libraries_and_in_folders_that_cannot_be_written(
    plain: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("x.tfrecord.gz")
    path.write_bytes(packed(plain, "gzip"))
    with monkeypatch.context() as patch:
        patch.setattr(deflate, "_zlib", lambda: None)
        assert numbers(rm.open(path), np.array([1300, 3])).tolist() == [1300, 3]
        assert not os.path.exists(stream_index_path(str(path)))
    Path(stream_index_path(str(path))).mkdir()
    ds = rm.open(path)
    assert len(ds) == ROWS
    assert numbers(ds, np.array([1300, 3])).tolist() == [1300, 3]


@pytest.mark.slow
@pytest.mark.parametrize("isal", [True, False])
def test_windows_resume_at_every_bit(
    isal: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not isal:
        assert _core.use_zlib_ng_of(zlib_ng.__file__)
        request.addfinalizer(deflate.can_inflate)  # takes ISA-L again
        request.addfinalizer(deflate.can_inflate.cache_clear)
    text = b"".join(b"%d " % i for i in RNG.integers(0, 5000, 600_000).tolist())
    data, plain, bits = gzip.compress(text, 9), b"", set()
    engine = deflate.BlockInflater("gzip")
    monkeypatch.setattr(deflate, "SPACING", 1 << 15)
    rest = data
    while not engine.eof:
        plain += engine.decompress(rest, 1 << 16)
        rest = engine.unconsumed_tail
        if engine.found is not None:
            unused, window = engine.found
            at, out = len(data) - len(rest) - (unused > 0), np.empty(50_000, np.uint8)
            out, expected = out[: len(text) - len(plain)], text[len(plain) :][:50_000]
            source, before = np.frombuffer(data, np.uint8)[at:], deflate.open_window(window)
            crc = _core.crc32c(np.frombuffer(expected, np.uint8), 5)
            parts = [(source, unused, before, out, 5, crc)]
            assert _core.inflate_parts(parts, 1) == 1
            assert out.tobytes() == expected
            bits.add(unused)
    assert plain == text
    assert len(bits) > 4
    member = np.frombuffer(gzip.compress(text, 6), np.uint8)
    for source, size, sound in (
        (member, len(text), True),
        (member, len(text) + 1, False),
        (member, len(text) - 1, False),
        (member[:-1], len(text), False),
        (np.append(member, np.uint8(0)), len(text), False),
    ):
        out = np.empty(size, np.uint8)
        assert _core.inflate_members(source, [(len(source), size)], out, 1) == sound
        assert not sound or out.tobytes() == text


def test_an_entry_after_the_end_of_the_file_is_not_used(plain: bytes) -> None:
    Path("x.tfrecord.gz").write_bytes(packed(plain, "gzip"))
    assert len(rm.open("x.tfrecord.gz")) == ROWS
    index = load_stream_index("x.tfrecord.gz")
    assert index is not None
    index._table = index._table.copy()
    index._table["position"][-1] = (1 << 63) - 1
    content = index.encoded(Fingerprint.of("x.tfrecord.gz"))
    stream_index_path("x.tfrecord.gz").write_whole(content, durable=False)
    with pytest.warns(rm.StaleIndexWarning):
        assert rm.open("x.tfrecord.gz")[[ROWS - 1]]["i"].tolist() == [ROWS - 1]
