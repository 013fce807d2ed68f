"""Slots: anonymous shared memory that one process fills and another reads.

The life of a slot: the sender creates it with a descriptor, which travels to the receiver once
(``Outbox.lend``), and the receiver maps it (``Inbox.add``). From then on only its number
travels. The sender fills the slot and lends it; the receiver's columns are views of it
(``Inbox.borrow``). When the last view is gone, the receiver tells the sender with its next
message (``Inbox.freed``), and the sender may fill the slot again (``Outbox.take_back``). A
sender with more free slots than it needs drops some and tells the receiver to forget them,
which frees the memory. Slots have no name in the system, so nothing is left over, whichever
process dies.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError

__all__ = ["Inbox", "Outbox", "Slot"]

_SMALLEST = 1 << 16
# Free slots that the sender keeps.
_SPARE = 4


class Slot:
    """One mapping of shared memory."""

    def __init__(self, number: int, descriptor: int, size: int) -> None:
        self.number = number
        self.size = size
        if sys.version_info >= (3, 13):
            self._map = mmap.mmap(descriptor, size, trackfd=False)
        else:
            self._map = mmap.mmap(descriptor, size)

    def memory(self) -> npt.NDArray[np.uint8]:
        """Return a new array of all bytes, which is the base of every view made of it."""
        return np.frombuffer(self._map, np.uint8)


class Outbox:
    """The slots of a sender."""

    def __init__(self) -> None:
        self._made = 0
        self._spare: list[Slot] = []
        self._lent: dict[int, Slot] = {}
        self._dropped: list[int] = []

    def lend(self, size: int) -> tuple[Slot, int | None]:
        """Return a slot of at least ``size`` bytes and, if it is new, its descriptor.

        The caller closes the descriptor after sending it.
        """
        for slot in reversed(self._spare):
            if slot.size >= size:
                self._spare.remove(slot)
                self._lent[slot.number] = slot
                return slot, None
        if self._spare:
            self._drop_oldest()  # it is too small, and a larger one replaces it
        slot, descriptor = self._make(size)
        self._lent[slot.number] = slot
        return slot, descriptor

    def _make(self, size: int) -> tuple[Slot, int]:
        # Untouched memory costs nothing, so leave room to grow.
        size = max(_SMALLEST, 1 << (size - 1).bit_length())
        try:
            descriptor = _anonymous(size)
        except OSError as e:
            raise _no_memory(size) from e
        try:
            slot = Slot(self._made, descriptor, size)
        except OSError as e:
            os.close(descriptor)
            raise _no_memory(size) from e
        self._made += 1
        return slot, descriptor

    def take_back(self, numbers: Iterable[int]) -> None:
        """Take back slots that the receiver no longer uses."""
        self._spare += [self._lent.pop(number) for number in numbers]
        while len(self._spare) > _SPARE:
            self._drop_oldest()

    def dropped(self) -> list[int]:
        """Return the slots dropped since the last call, which the receiver must forget."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop_oldest(self) -> None:
        self._dropped.append(self._spare.pop(0).number)


class Inbox:
    """The slots of a sender, as the receiver has mapped them."""

    def __init__(self, limit: int | None = None) -> None:
        """Create an inbox that is ``full`` while more than ``limit`` slots are borrowed."""
        self._slots: dict[int, Slot] = {}
        self._borrowed: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}
        self._freed: deque[int] = deque()
        self._limit = limit

    def add(self, number: int, descriptors: Sequence[int], size: int) -> None:
        """Map a new slot. The system drops its descriptor if too many files are open."""
        try:
            (descriptor,) = descriptors
            self._slots[number] = Slot(number, descriptor, size)
        except (OSError, ValueError) as e:
            raise _no_memory(size) from e

    def borrow(self, number: int) -> npt.NDArray[np.uint8]:
        """Return the memory of a slot, which is free once this array and its views are gone."""
        memory = self._slots[number].memory()
        freed = self._freed
        # Arrays can be freed at any time, in any thread: only an append is safe there.
        self._borrowed[number] = weakref.ref(memory, lambda _: freed.append(number))
        return memory

    @property
    def full(self) -> bool:
        """Whether the receiver should copy columns, because too many slots are borrowed."""
        return self._limit is not None and len(self._borrowed) - len(self._freed) > self._limit

    def freed(self) -> list[int]:
        """Return the slots freed since the last call, to tell the sender."""
        numbers = [self._freed.popleft() for _ in range(len(self._freed))]
        for number in numbers:
            del self._borrowed[number]
        return numbers

    def forget(self, numbers: Iterable[int]) -> None:
        """Unmap slots that the sender has dropped."""
        for number in numbers:
            del self._slots[number]


def _anonymous(size: int) -> int:
    """Return a descriptor of anonymous memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("recmap-slot")
    else:
        with tempfile.TemporaryFile() as file:  # it has no name either
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _no_memory(size: int) -> OptionError:
    return OptionError(
        f"cannot get {size:,} bytes of shared memory: too many files are open, or memory has "
        "run out (use fewer workers or smaller batches, or raise the limit of open files with "
        "ulimit -n)"
    )
