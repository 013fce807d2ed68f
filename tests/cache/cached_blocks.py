"""Shared by tests of the disk cache: objects whose bytes are known, and what is kept of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from recmap.cache.block_cache import BLOCK, BlockCache, CacheEntry
from recmap.cache.cache_folder import CacheFolder

__all__ = [
    "AMPLE",
    "URL",
    "allocated",
    "bytes_in",
    "content",
    "fill",
    "make_cache",
    "opened",
    "place",
    "sound_blocks",
]

URL = "s3://bucket/train.tfrecord"
AMPLE = 1 << 30


def make_cache(
    budget: int = AMPLE, *, folder: str = "cache", since: float | None = None
) -> BlockCache:
    made = CacheFolder(folder)
    made.make()
    return BlockCache(made, budget, since)


def opened(cache: BlockCache, name: str = URL, size: int = 3 * BLOCK) -> CacheEntry:
    entry = cache.entry(name, "v1", size)
    assert entry is not None
    return entry


def content(name: str, block: int, size: int) -> npt.NDArray[np.uint8]:
    """The bytes of a block, which its object and its number determine."""
    numbers = np.random.default_rng([block, *name.encode()])
    length = min(BLOCK, size - block * BLOCK)
    return numbers.integers(0, 256, length, np.uint8)


def fill(entry: CacheEntry, blocks: Iterable[int] | None = None, name: str = URL) -> None:
    for block in range(entry.blocks) if blocks is None else blocks:
        assert entry.admit(1)
        assert entry.store(block, content(name, block, entry.size))


def bytes_in(entry: CacheEntry, block: int) -> bytes:
    return os.pread(entry.fd, min(BLOCK, entry.size - block * BLOCK), block * BLOCK)


def sound_blocks(entry: CacheEntry, name: str = URL) -> set[int]:
    """Return the blocks that the entry claims to have, all of which must be right."""
    there = np.flatnonzero(entry.present(0, entry.blocks)).tolist()
    for block in there:
        assert bytes_in(entry, block) == content(name, block, entry.size).tobytes()
    return set(there)


def allocated(path: str = "cache") -> int:
    """Return the disk space of all entries, counted by a way of its own."""
    root = CacheFolder(path).path
    total = 0
    for folder, _, names in os.walk(root):
        total += os.lstat(folder).st_blocks * 512 if folder != root else 0
        total += sum(os.lstat(os.path.join(folder, n)).st_blocks * 512 for n in names)
    return total - os.lstat(os.path.join(root, "usage")).st_blocks * 512


def place(entry: CacheEntry) -> str:
    return os.path.dirname(entry.file("index"))
