"""An entry of the block cache: the blocks of one object.

A block is compared with its checksum when it is first read, and again when it is read after the
file has changed in any way: the system notes the time of the last change. So what another program
does to the file while it is in use is noticed, and the block is fetched again. Only what changes
without the system's knowledge, on the disk itself, is noticed no earlier than in the next process.
"""

from __future__ import annotations

import os
import re
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.cache.cache_folder import CacheBudget, Reservations
from recmap.machine.memory import empty_bytes
from recmap.native import _core

#: Bytes of a block. The last block of an object may be shorter.
BLOCK = 1 << 20

_PAGE = 4096
_FILE_NAME = re.compile(r"[a-z][a-z0-9-]*")
#: The file with the random number of an entry, and its size.
NUMBER, NUMBER_SIZE = "number", 16
_OWN_FILES = ("data", "table", NUMBER)
_CRC = np.dtype("<u4")
_MASK_DELTA = 0xA282EAD8


def table_size(size: int) -> int:
    """Return the bytes of the table for an object of this size."""
    return -(-size // BLOCK) * _CRC.itemsize


class CacheEntry:
    """The blocks of one object, open: no process evicts them.

    ``fd`` is a sparse file as long as the object. Map it, but write to it only with ``store``, and
    never punch holes into it: other processes rely on the blocks.
    """

    def __init__(self, budget: CacheBudget, path: str, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self.blocks = -(-size // BLOCK)
        self._budget = budget
        self._folder = path
        self._seed = _crc(os.path.basename(path).encode())
        # The number of an inode may be used again, so each entry has a number of its own.
        self._number = _read_number(path)
        # When the file had last changed as this process found each block sound; 0 if it never did.
        self._checked = np.zeros(self.blocks, np.int64)
        # The checksums of those, because somebody may remove the table.
        self._sums = np.zeros(self.blocks, np.uint32)
        self._reservations = Reservations(min(BLOCK, -(-size // _PAGE) * _PAGE))
        budget.register(fd, self._reservations)
        self._finalizer = weakref.finalize(self, _close, fd, budget)
        # At exit, threads may still be writing. What they have reserved is found by a count.
        self._finalizer.atexit = False

    @property
    def known_blocks(self) -> int:
        """How many blocks this process has found sound."""
        return int(np.count_nonzero(self._checked))

    def knows(self, block: int) -> bool:
        """Return whether this process has found a block sound."""
        return bool(self._checked[block])

    @property
    def complete(self) -> bool:
        """Whether this process has found all blocks sound."""
        return self.known_blocks == self.blocks

    def settled(self, most: int) -> int | None:
        """Return the time of the last change, if all blocks were found sound since.

        Before that, check some of the others, at most this many. Return None if there are more.
        """
        changed = self._changed()
        for block in np.flatnonzero(self._checked != changed)[:most].tolist():
            self.present(block, block + 1)
        return changed if (self._checked == changed).all() else None

    def seen(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which of these blocks were stored. Whether they are sound is found by ``read``."""
        self._check_open()
        found: npt.NDArray[np.bool_] = self._expected(first, stop) != 0
        return found

    def present(self, first: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which of these blocks are there and sound at this moment."""
        self._check_open()
        stale = self._checked[first:stop] != self._changed()
        for block in (np.flatnonzero(stale) + first).tolist():
            self._read_block(block, self._buffer(block))
        found: npt.NDArray[np.bool_] = self._checked[first:stop] != 0
        return found

    def read(self, begin: int, target: npt.NDArray[np.uint8]) -> bool:
        """Copy what the file has at ``begin``. Return whether it is what was stored there.

        The file may change at any moment, so it is the copy that is checked, unless the file did
        not change from the last check until the copy was made.
        """
        first, stop = begin // BLOCK, -(-(begin + len(target)) // BLOCK)
        before = self._changed()
        checked = (self._checked[first:stop] == before).all() and self._copy(begin, target)
        if checked and self._changed() == before:
            return True
        # All of them, so that all that is damaged is fetched before the next attempt.
        sound = [self._read_part(block, begin, target) for block in range(first, stop)]
        return all(sound)

    def _read_part(self, block: int, begin: int, target: npt.NDArray[np.uint8]) -> bool:
        """Copy what a block has of a target that begins at ``begin``, and check the block."""
        at = block * BLOCK - begin
        end = at + min(BLOCK, self.size - block * BLOCK)
        if at >= 0 and end <= len(target):
            return self._read_block(block, target[at:end])
        whole, low, high = self._buffer(block), max(at, 0), min(end, len(target))
        sound = self._read_block(block, whole)
        target[low:high] = whole[low - at : high - at]
        return sound

    def _read_block(self, block: int, target: npt.NDArray[np.uint8]) -> bool:
        """Copy a whole block. Return whether it is what was stored there, and remember that."""
        changed = self._changed()
        expected = int(self._expected(block, block + 1)[0])
        if not expected:
            return False
        sound = self._copy(block * BLOCK, target) and self._masked(block, target) == expected
        self._checked[block], self._sums[block] = (changed, expected) if sound else (0, 0)
        if not sound:
            self._note(block, 0)  # the data stays: another process may be writing it
        return sound

    def _buffer(self, block: int) -> npt.NDArray[np.uint8]:
        return empty_bytes(min(BLOCK, self.size - block * BLOCK))

    def _copy(self, begin: int, target: npt.NDArray[np.uint8]) -> bool:
        """Copy what the file has at ``begin``; return whether there was that much."""
        done = 0
        try:
            while done < len(target):
                count = os.preadv(self.fd, [target[done:].data], begin + done)
                if count == 0:
                    return False  # somebody cut the file
                done += count
        except OSError:
            return False
        return True

    def _changed(self) -> int:
        """Return when the file was last changed, and give it its size again if somebody cut it."""
        facts = os.fstat(self.fd)
        if facts.st_size != self.size:
            with suppress(OSError):
                os.ftruncate(self.fd, self.size)
            facts = os.fstat(self.fd)
        return facts.st_ctime_ns

    @property
    def file_of_data(self) -> str:
        """The path of the sparse file."""
        return os.path.join(self._folder, "data")

    def resume(self, closed: CacheEntry) -> None:
        """Take over what another entry has found out about the same file."""
        if self._number is not None and closed._number == self._number:
            np.maximum(self._checked, closed._checked, out=self._checked)
            np.maximum(self._sums, closed._sums, out=self._sums)

    def admit(self, count: int) -> bool:
        """Reserve room for blocks before they are fetched. Return False if there is none."""
        return self._budget.admit(self._reservations, count)

    def give_back(self, count: int) -> None:
        """Give up reservations, because the blocks could not be fetched."""
        for _ in range(count):
            if self._reservations.take():
                self._budget.give_up(self._reservations.cost)
                self._reservations.finish()

    def store(self, block: int, data: Any) -> bool:
        """Keep a block, and use up a reservation, without which it is not kept.

        Return whether the block is in the file now. It is not if the disk is full.
        """
        self._check_open()
        content = memoryview(data).cast("B")
        begin, end = block * BLOCK, min((block + 1) * BLOCK, self.size)
        if not 0 <= begin < end or content.nbytes != end - begin:
            raise ValueError(f"block {block} does not have {content.nbytes:,} bytes")
        if self._checked[block]:
            self.give_back(1)  # another thread was first
            return True
        if not self._reservations.take():
            return False
        try:
            rest = content
            while rest:
                rest = rest[os.pwrite(self.fd, rest, end - rest.nbytes) :]
        except OSError:
            # Other programs need the disk, too: do not fill what they free.
            self._budget.stop()
            self._budget.give_up(self._reservations.cost)
            self._reservations.finish()
            return False
        if self._stored(block, block + 1)[0]:
            self._budget.give_up(self._reservations.cost)  # another process was first
        self._reservations.finish()
        self._sums[block] = self._masked(block, np.frombuffer(content, np.uint8))
        self._note(block, int(self._sums[block]))
        self._checked[block] = self._changed()
        return True

    def file(self, name: str) -> str:
        """Return the path for a small file that is removed with the entry, such as an index.

        Write it under a temporary name in the same folder, and rename it.
        """
        if not _FILE_NAME.fullmatch(name) or name in _OWN_FILES:
            raise ValueError(f"{name!r}: not the name of a file in an entry")
        return os.path.join(self._folder, name)

    def close(self) -> None:
        """Close the file and give up reservations. Other processes may then evict the entry.

        No other thread may be in ``store``.
        """
        self._finalizer()
        self.fd = -1
        with suppress(OSError):  # the next count finds it
            self._budget.settle()

    def _check_open(self) -> None:
        if self.fd < 0:
            raise ValueError("the entry is closed")

    def _expected(self, first: int, stop: int) -> npt.NDArray[np.uint32]:
        """Return the checksums that blocks must have, 0 for those that are not there."""
        own = self._sums[first:stop]
        return own if own.all() else np.where(own, own, self._stored(first, stop))

    def _stored(self, first: int, stop: int) -> npt.NDArray[np.uint32]:
        """Return the checksums of blocks, 0 for those that are not there."""
        table = np.zeros(stop - first, _CRC)
        try:
            fd = os.open(os.path.join(self._folder, "table"), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                data = os.pread(fd, table.nbytes, first * _CRC.itemsize)
            finally:
                os.close(fd)
        except OSError:
            return table  # somebody removed it
        whole = np.frombuffer(data, _CRC, len(data) // _CRC.itemsize)
        table[: len(whole)] = whole
        return table

    def _note(self, block: int, checksum: int) -> None:
        """Write the checksum of a block. If that fails, the block is fetched again next time."""
        try:
            fd = os.open(os.path.join(self._folder, "table"), os.O_WRONLY | os.O_NOFOLLOW)
            try:
                data = np.array(checksum, _CRC).tobytes()
                os.pwrite(fd, data, block * _CRC.itemsize)
            finally:
                os.close(fd)
        except OSError:
            return

    def _masked(self, block: int, data: npt.NDArray[np.uint8]) -> int:
        """Return the checksum of a block: of the object's key, the block's number and its bytes.

        A block of another object, or at another place, does not fit. 0 stands for no block.
        """
        crc = _crc(data, _crc(block.to_bytes(8, "little"), self._seed))
        # As in TFRecord files: the CRC of data that contains its own CRC says little.
        return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF or 1


def _read_number(path: str) -> bytes | None:
    try:
        with open(os.path.join(path, NUMBER), "rb") as file:
            return file.read(NUMBER_SIZE)
    except OSError:
        return None


def _close(fd: int, budget: CacheBudget) -> None:
    budget.unregister(fd)
    # Without unlocking: a forked process may go on with the entry.
    os.close(fd)


def _crc(data: bytes | npt.NDArray[np.uint8], crc: int = 0) -> int:
    return _core.crc32c(np.frombuffer(data, np.uint8), crc)
