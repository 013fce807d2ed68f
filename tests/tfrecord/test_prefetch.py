"""Rows that are not in memory are loaded ahead of the read, and little else."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.machine.mapped import MappedFile, scattered_reads
from recmap.native import _core
from recmap.tfrecord.plain_file import PlainFile
from tests.jobs import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is cached")

ROWS = 4000


class Cached:
    """Tells which pages of a file are in memory. On some file systems, all of them always are."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            os.fdatasync(file.fileno())  # pages that are not written stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._map = mmap.mmap(file.fileno(), 0)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.dropped = not self.pages().any()

    def pages(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return True for each page in memory."""
        base = np.frombuffer(self._map, np.uint8)
        there = np.zeros(-(-len(base) // mmap.PAGESIZE), np.uint8)
        size = ctypes.c_size_t(len(base))
        wrong = self._libc.mincore(
            ctypes.c_void_p(base.ctypes.data), size, ctypes.c_void_p(there.ctypes.data)
        )
        assert wrong == 0
        return (there & 1).astype(bool)

    def wait_for(self, begins: Any, sizes: Any) -> None:
        """Wait until the pages of these spans are in memory."""
        wanted = np.concatenate(
            [
                np.arange(begin // mmap.PAGESIZE, (begin + size - 1) // mmap.PAGESIZE + 1)
                for begin, size in zip(begins, sizes, strict=True)
            ]
        )
        until(lambda: bool(self.pages()[wanted].all()))


def known(path: str) -> tuple[_core.Files, MappedFile]:
    file = TFRecordSource([path]).facts.record_files[0]
    assert isinstance(file, PlainFile)
    index = file.index
    assert file.known_count() == ROWS
    mapped = MappedFile(path)
    files = _core.Files()
    files.add(mapped.bytes, index.stride or 0, *index.anchors)
    return files, mapped


@pytest.mark.parametrize("even", [False, True])
def test_records_are_loaded_ahead_and_little_else(even: bool) -> None:
    lengths = np.full(ROWS, 300) if even else np.random.default_rng(0).integers(1, 1000, ROWS)
    rows = rm.Ragged(np.zeros(lengths.sum(), np.float32), np.concatenate([[0], lengths.cumsum()]))
    with rm.TFRecordWriter("d.tfrecord", {"x": "float32[*]"}) as writer:
        writer.write({"x": rows})
    files, _ = known("d.tfrecord")
    wanted = np.array([3, 3900, 1777, 2500])
    owners = np.zeros(4, np.uint32)
    offsets = _core.scan(
        np.fromfile("d.tfrecord", np.uint8), _core.ScanRequest(anchor_every=1, verify=True)
    ).anchor_offsets.astype(np.int64)
    cached = Cached("d.tfrecord")  # drops the pages that the scan loaded
    assert _core.prefetch_records(files, owners, wanted) == cached.dropped
    cached.wait_for(offsets[wanted], 4 * lengths[wanted])
    assert not cached.dropped or cached.pages().mean() < 0.1
    assert not _core.prefetch_records(files, owners, wanted)


def test_rows_of_an_array_are_loaded_ahead_and_little_else() -> None:
    np.save("d.npy", np.zeros((ROWS, 300), np.float32))
    cached = Cached("d.npy")
    flat = MappedFile("d.npy").bytes[128:]
    wanted = np.array([3, 3900, 1777, 2500])
    assert _core.prefetch_rows(flat, 1200, wanted) == cached.dropped
    cached.wait_for(128 + 1200 * wanted, [1200] * 4)
    assert not cached.dropped or cached.pages().mean() < 0.1
    assert not _core.prefetch_rows(flat, 1200, wanted)


def test_a_shuffle_reads_little_more_than_its_rows() -> None:
    values = np.arange(ROWS * 5000, dtype=np.float32).reshape(ROWS, -1)
    labels = [b"x" * (i % 7) for i in range(ROWS)]
    with rm.TFRecordWriter("d.tfrecord") as writer:
        writer.write({"x": values, "label": labels})
    ds = rm.open("d.tfrecord")
    cached = Cached("d.tfrecord")
    rows = np.random.default_rng(0).permutation(ROWS)[:64]
    assert np.array_equal(ds[rows]["x"], values[rows])
    assert not cached.dropped or cached.pages().mean() < 0.1


def is_read_by_page(path: str) -> bool:
    """Return whether a mapping of a file, or of one below it, has the flag of random reads."""
    mappings = Path("/proc/self/smaps").read_text().split(os.path.abspath(path))[1:]
    flags = [re.search("VmFlags: (.*)", mapping) for mapping in mappings]
    assert flags
    return any("rr" in found[1].split() for found in flags if found is not None)


def test_rows_that_are_not_there_yet_are_read_without_what_is_around_them() -> None:
    np.save("d.npy", np.arange(ROWS * 300, dtype=np.float32).reshape(ROWS, 300))
    cached, file = Cached("d.npy"), MappedFile("d.npy")
    places = mmap.PAGESIZE * np.array([3, 900, 400, 700])
    with scattered_reads([file], 1200, absent=True):
        with scattered_reads([file], 1200, absent=True):
            assert is_read_by_page("d.npy")
        assert is_read_by_page("d.npy")
        read = [file.bytes[place : place + 4].view(np.float32)[0] for place in places.tolist()]
        assert read == ((places - 128) // 4).tolist()
        assert not cached.dropped or cached.pages().sum() == len(places)
    assert not is_read_by_page("d.npy")


@pytest.mark.parametrize(("row_bytes", "absent"), [(1200, False), (64 << 10, True)])
def test_rows_that_are_there_or_large_are_read_as_usual(row_bytes: int, absent: bool) -> None:
    np.save("d.npy", np.zeros((ROWS, 300), np.float32))
    file = MappedFile("d.npy")
    with scattered_reads([file], row_bytes, absent=absent):
        assert not is_read_by_page("d.npy")


@pytest.mark.parametrize("name", ["d.npy", "d.tfrecord", "d.h5"])
def test_rows_that_are_not_cached_are_correct(name: str) -> None:
    values = np.arange(ROWS * 300, dtype=np.float32).reshape(ROWS, 300)
    rm.from_arrays({"data": values}).save(name)
    ds = rm.open(name)
    for path in [Path(name), *Path(name).rglob("*")]:
        if path.is_file():
            Cached(str(path))
    order = np.random.default_rng(1).permutation(ROWS)[:256]
    assert np.array_equal(ds[order]["data"], values[order])
    assert not is_read_by_page(name)


def test_rows_that_do_not_exist_are_ignored() -> None:
    with rm.TFRecordWriter("d.tfrecord") as writer:
        writer.write({"x": np.arange(ROWS) % 300})
    files, file = known("d.tfrecord")
    rows = np.array([-1, ROWS * 1000, 1 << 62, 0])
    assert not _core.prefetch_records(files, np.zeros(4, np.uint32), rows)
    assert not _core.prefetch_rows(file.bytes, 16, rows)
    assert not _core.prefetch_rows(file.bytes, 0, rows)
    with pytest.raises(ValueError, match="owner"):
        _core.prefetch_records(files, np.ones(4, np.uint32), rows)
