"""Memory as large as an object, of which only the parts in use take space."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from recmap.machine.memory import anonymous_memory
from recmap.machine.sparse_memory import PAGE, SparseMemory

MB = 1 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists(), reason="only Linux tells what memory takes"
)


def flags_at(address: int) -> list[str]:
    """Return the flags of the mapping that contains an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if matched := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(matched[1], 16) <= address < int(matched[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(address)


def test_rows_far_apart_take_a_page_each() -> None:
    memory = SparseMemory(4096 * MB)
    before = anonymous_memory()
    for at in range(0, 4096 * MB, 4 * MB):
        memory.prepare(at, at + 100)
        memory.bytes[at : at + 100] = 7
    # With large pages, as some systems have them by default, this would take 2 GB.
    assert anonymous_memory() - before < 1024 * PAGE + 32 * MB
    address = memory.bytes.__array_interface__["data"][0]
    assert "nh" in flags_at(address + 8 * MB)


def test_large_pages_are_used_only_while_a_part_is_in_use() -> None:
    memory = SparseMemory(64 * MB)
    address = memory.bytes.__array_interface__["data"][0]
    memory.prepare(5 * MB, 13 * MB)
    assert "hg" not in flags_at(address + 5 * MB)
    assert "hg" in flags_at(address + 6 * MB)
    assert "hg" in flags_at(address + 12 * MB - 1)
    assert "hg" not in flags_at(address + 12 * MB)
    memory.free(5 * MB, 13 * MB)
    assert all("nh" in flags_at(address + at * MB) for at in (5, 6, 11, 12))


def test_a_large_page_that_is_freed_in_pieces_is_large_no_more() -> None:
    memory = SparseMemory(64 * MB)
    address = memory.bytes.__array_interface__["data"][0]
    memory.prepare(0, 8 * MB)
    memory.bytes[: 8 * MB] = 5
    memory.free(0, 3 * MB)
    assert memory.bytes[3 * MB : 8 * MB].all()
    memory.free(3 * MB, 8 * MB)
    assert all("nh" in flags_at(address + at * MB) for at in range(8))
    before = anonymous_memory()
    memory.bytes[0] = memory.bytes[2 * MB] = memory.bytes[4 * MB] = 1
    assert anonymous_memory() - before < MB


def test_freed_parts_take_no_space_and_hold_zeros() -> None:
    memory = SparseMemory(64 * MB + 5)
    before = anonymous_memory()
    rng = np.random.default_rng(1)
    for _ in range(20):
        begin, end = np.sort(rng.integers(0, memory.bytes.size, 2)).tolist()
        begin = begin // PAGE * PAGE
        memory.prepare(begin, end)
        assert not memory.bytes[begin:end].any()
        memory.bytes[begin:end] = 1
        end = min(-(-end // PAGE) * PAGE, memory.bytes.size)
        memory.free(begin, end)
        assert not memory.bytes[begin:end].any()
        memory.free(begin, end)  # reading made pages of zeros
    assert anonymous_memory() - before < 10 * MB


def test_an_object_may_be_empty() -> None:
    memory = SparseMemory(0)
    assert memory.bytes.size == 0
