"""A channel between two processes: columns are in shared memory, and a socket says where.

A slot is anonymous shared memory that one process fills and another reads. The sender creates
it with a descriptor, which travels to the receiver once (``Outbox.lend``), and the receiver
maps it (``Inbox.add``). From then on only its number travels. The sender fills the slot and
lends it; the receiver's columns are views of it (``Inbox.borrow``). When the last view is
gone, the receiver tells the sender with its next message (``Inbox.freed``), and the sender may
fill the slot again (``Outbox.take_back``). A sender with more free slots than it needs drops
some and tells the receiver to forget them, which frees the memory. Slots have no name in the
system, so nothing is left over, whichever process dies.

A message through the socket is a head, then the numbers of two kinds of slots: the other
end's slots that the sender has stopped reading, and its own slots that it has dropped. The
descriptor of a new slot travels with the head. All of this is small, so with few messages
in flight, sending never blocks.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.pipeline.workers.column_message import PackedColumns, Section, copied, unpack

# Kind, number, epoch, seconds busy, slot, its size (0 unless it is new), length of the
# header in the slot, number of freed slots, number of dropped slots.
_HEAD = struct.Struct("<BqqdiqIII")
# A broken pipe may end the program with a signal; a broken pipe to a worker must not.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# Bytes of the smallest slot.
_SMALLEST = 1 << 16
# Free slots that the sender keeps.
_SPARE = 4


class MessageKind(IntEnum):
    """What the sections of a message contain."""

    ROWS = 0  # a section of positions
    BATCH = 1  # the same, then a section of the columns to work on
    RESULT = 2
    ERROR = 3


class WorkerMessage(NamedTuple):
    """A message from one end to the other."""

    kind: MessageKind
    number: int
    epoch: int
    busy: float
    sections: list[Section]


class Channel:
    """One end of a channel."""

    def __init__(self, end: socket.socket, limit: int | None = None) -> None:
        """Open one end. While more than ``limit`` received slots are in use, copy columns out."""
        self._socket = end
        self._outbox = Outbox()
        self._inbox = Inbox(limit)
        close_in_forks(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(
        self,
        kind: MessageKind,
        columns: PackedColumns,
        *,
        number: int = 0,
        epoch: int = 0,
        busy: float = 0.0,
    ) -> None:
        """Send columns. Raise OSError if the other end is closed."""
        slot, descriptor = self._outbox.lend(columns.size)
        try:
            columns.write(slot.memory())
            freed, dropped = self._inbox.freed(), self._outbox.dropped()
            size = 0 if descriptor is None else slot.size
            data = _HEAD.pack(
                kind, number, epoch, busy, slot.number, size,
                len(columns.header), len(freed), len(dropped),
            )  # fmt: skip
            data += struct.pack(f"<{len(freed) + len(dropped)}i", *freed, *dropped)
            self._send(data, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _send(self, data: bytes, descriptor: int | None) -> None:
        ancillary = []
        if descriptor is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        sent = self._socket.sendmsg([data], ancillary, _NO_SIGNAL)
        if sent < len(data):
            self._socket.sendall(data[sent:], _NO_SIGNAL)

    def has_message(self) -> bool:
        """Return whether ``receive`` would not wait."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self) -> WorkerMessage | None:
        """Wait for the next message. Return None if the other end is closed."""
        try:
            return self._receive()
        except ConnectionResetError:
            return None

    def _receive(self) -> WorkerMessage | None:
        data, descriptors, *_ = socket.recv_fds(self._socket, _HEAD.size, 1)
        try:
            head = self._receive_rest(data, _HEAD.size)
            if head is None:
                return None
            kind, number, epoch, busy, slot, size, header, freed, dropped = _HEAD.unpack(head)
            tail = self._receive_rest(b"", 4 * (freed + dropped))
            if tail is None:
                return None
            if size:
                self._inbox.add(slot, descriptors, size)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        numbers = struct.unpack(f"<{freed + dropped}i", tail)
        self._outbox.take_back(numbers[:freed])
        self._inbox.forget(numbers[freed:])
        return WorkerMessage(MessageKind(kind), number, epoch, busy, self._sections(slot, header))

    def _sections(self, slot: int, header: int) -> list[Section]:
        sections = unpack(self._inbox.borrow(slot), header)
        if self._inbox.full:
            return [[(name, copied(column)) for name, column in section] for section in sections]
        return sections

    def _receive_rest(self, data: bytes, size: int) -> bytes | None:
        """Receive up to ``size`` bytes in all. Return None if the other end closes first."""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                return None
            data += chunk
        return data

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            # This wakes another thread that waits on the socket. The other end may be gone.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def abandon(self) -> None:
        """Close this process's copy of the socket; the connection stays open."""
        self._socket.close()


_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_in_forks(end: Any) -> None:
    """Make processes forked from this one call ``end.abandon()``.

    If they kept a copy of the socket, the other end would not notice when this process dies.
    """
    _open.add(end)


def _abandon_all() -> None:
    for end in list(_open):
        end.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_abandon_all)


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
        self._borrowed: dict[int, weakref.KeyedRef[int, npt.NDArray[np.uint8]]] = {}
        self._freed: deque[weakref.KeyedRef[int, npt.NDArray[np.uint8]]] = deque()
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
        # Arrays can be freed at any time, in any thread: only an append is safe there. It is called
        # without a function of Python, in which Ctrl-C would be ignored.
        self._borrowed[number] = weakref.KeyedRef(memory, self._freed.append, number)
        return memory

    @property
    def full(self) -> bool:
        """Whether the receiver should copy columns, because too many slots are borrowed."""
        return self._limit is not None and len(self._borrowed) - len(self._freed) > self._limit

    def freed(self) -> list[int]:
        """Return the slots freed since the last call, to tell the sender."""
        numbers = [self._freed.popleft().key for _ in range(len(self._freed))]
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
