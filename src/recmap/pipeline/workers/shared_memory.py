"""Slots: shared memory without a name, which one process fills and another looks at.

The sender makes slots and the receiver maps each of them once. A slot comes back
to its sender when no array of the receiver looks at it any more.
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
# Slots the sender keeps for later; the memory of others is given back.
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
        """A new array of all its bytes; it is the base of all views made of it."""
        return np.frombuffer(self._map, np.uint8)


class Outbox:
    """The slots of a sender."""

    def __init__(self) -> None:
        self._made = 0
        self._spare: list[Slot] = []
        self._lent: dict[int, Slot] = {}
        self._dropped: list[int] = []

    def lend(self, size: int) -> tuple[Slot, int | None]:
        """A slot of ``size`` bytes or more and, if it is a new one, its descriptor,
        which the caller closes when it was sent.
        """
        for slot in reversed(self._spare):
            if slot.size >= size:
                self._spare.remove(slot)
                self._lent[slot.number] = slot
                return slot, None
        if self._spare:  # too small, and a larger one takes its place
            self._drop(0)
        # Memory that is never touched costs nothing, so there is room to grow.
        size = max(_SMALLEST, 1 << (size - 1).bit_length())
        try:
            descriptor = _anonymous(size)
        except OSError as e:
            raise _refused(size) from e
        try:
            slot = Slot(self._made, descriptor, size)
        except OSError as e:
            os.close(descriptor)
            raise _refused(size) from e
        self._made += 1
        self._lent[slot.number] = slot
        return slot, descriptor

    def take_back(self, numbers: Iterable[int]) -> None:
        """The receiver does not look at these any more."""
        self._spare += [self._lent.pop(number) for number in numbers]
        while len(self._spare) > _SPARE:
            self._drop(0)

    def dropped(self) -> list[int]:
        """Slots that went since the last call; the receiver forgets them, too."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop(self, index: int) -> None:
        self._dropped.append(self._spare.pop(index).number)


class Inbox:
    """The slots of a sender, as the receiver has them mapped."""

    def __init__(self, limit: int | None = None) -> None:
        """Beyond ``limit`` borrowed slots the receiver should copy rather than borrow."""
        self._slots: dict[int, Slot] = {}
        self._borrowed: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}
        self._freed: deque[int] = deque()
        self._limit = limit

    def add(self, number: int, descriptors: Sequence[int], size: int) -> None:
        """Maps a new slot. The system leaves its descriptor out if too many are open."""
        try:
            (descriptor,) = descriptors
            self._slots[number] = Slot(number, descriptor, size)
        except (OSError, ValueError) as e:
            raise _refused(size) from e

    def borrow(self, number: int) -> npt.NDArray[np.uint8]:
        """The memory of a slot; when this array and its views are gone, it is free."""
        memory = self._slots[number].memory()
        freed = self._freed
        # Arrays go whenever they go, in any thread: an append is all that is safe then.
        self._borrowed[number] = weakref.ref(memory, lambda _: freed.append(number))
        return memory

    @property
    def full(self) -> bool:
        return self._limit is not None and len(self._borrowed) - len(self._freed) > self._limit

    def freed(self) -> list[int]:
        """Slots that came free since the last call, to be told to the sender."""
        numbers = [self._freed.popleft() for _ in range(len(self._freed))]
        for number in numbers:
            del self._borrowed[number]
        return numbers

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._slots[number]


def _anonymous(size: int) -> int:
    """A descriptor of memory without a name: nothing is left of it, whoever dies."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("recmap-slot")
    else:
        with tempfile.TemporaryFile() as file:  # has no name, either
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refused(size: int) -> OptionError:
    return OptionError(
        f"cannot have {size:,} bytes of shared memory: too many files are open, or memory has "
        "run out (use fewer workers or smaller batches, or raise the limit of open files with "
        "ulimit -n)"
    )
