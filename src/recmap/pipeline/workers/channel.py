"""A channel between two processes: columns in slots, and a few bytes in a socket.

A message is a head, then the numbers of the slots its sender does not look at any
more, then those it has dropped. The descriptor of a new slot comes with the head.
All of it is small: as long as few messages are under way nobody waits to send.
"""

from __future__ import annotations

import os
import socket
import struct
import weakref
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, Protocol

from recmap.pipeline.workers.column_message import Parcel, Section, copied, unpack
from recmap.pipeline.workers.shared_memory import Inbox, Outbox

__all__ = ["Channel", "Kind", "Message", "close_in_forks"]

# Kind, number, epoch, seconds busy, slot, its size if it is new or 0, length of the
# header in the slot, slots that came free, slots that were dropped.
_HEAD = struct.Struct("<BqqdiqIII")
# A program may want to die of a broken pipe, but not of this one.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Kind(IntEnum):
    """What the sections of a message are."""

    ROWS = 0  # a section of positions
    BATCH = 1  # the same, then one of the columns to work on
    RESULT = 2
    ERROR = 3


class Message(NamedTuple):
    """What one end tells the other."""

    kind: Kind
    number: int
    epoch: int
    busy: float
    sections: list[Section]


class Channel:
    """One end of it."""

    def __init__(self, end: socket.socket, limit: int | None = None) -> None:
        """Beyond ``limit`` slots that are in use here, columns are copied out of them."""
        self._socket = end
        self._outbox = Outbox()
        self._inbox = Inbox(limit)
        close_in_forks(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(
        self, kind: Kind, parcel: Parcel, *, number: int = 0, epoch: int = 0, busy: float = 0.0
    ) -> None:
        """Raises an OSError if nobody is there."""
        slot, descriptor = self._outbox.lend(parcel.size)
        try:
            parcel.write(slot.memory())
            freed, dropped = self._inbox.freed(), self._outbox.dropped()
            size = 0 if descriptor is None else slot.size
            data = _HEAD.pack(
                kind, number, epoch, busy, slot.number, size,
                len(parcel.header), len(freed), len(dropped),
            )  # fmt: skip
            data += struct.pack(f"<{len(freed) + len(dropped)}i", *freed, *dropped)
            self._send(data, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _send(self, data: bytes, descriptor: int | None) -> None:
        beside = []
        if descriptor is not None:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        sent = self._socket.sendmsg([data], beside, _NO_SIGNAL)
        if sent < len(data):
            self._socket.sendall(data[sent:], _NO_SIGNAL)

    def receive(self) -> Message | None:
        """The next message, or None if the other end is closed."""
        try:
            return self._receive()
        except ConnectionResetError:
            return None

    def _receive(self) -> Message | None:
        data, descriptors, *_ = socket.recv_fds(self._socket, _HEAD.size, 1)
        try:
            head = self._rest(data, _HEAD.size)
            if head is None:
                return None
            kind, number, epoch, busy, slot, size, header, freed, dropped = _HEAD.unpack(head)
            tail = self._rest(b"", 4 * (freed + dropped))
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
        return Message(Kind(kind), number, epoch, busy, self._sections(slot, header))

    def _sections(self, slot: int, header: int) -> list[Section]:
        sections = unpack(self._inbox.borrow(slot), header)
        if self._inbox.full:
            return [[(name, copied(column)) for name, column in section] for section in sections]
        return sections

    def _rest(self, data: bytes, size: int) -> bytes | None:
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            # Wakes whoever waits for this end in another thread; the other may be gone.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def abandon(self) -> None:
        """Closes this process's copy of the socket, and leaves the connection alone."""
        self._socket.close()


class _End(Protocol):
    """What holds a socket."""

    def abandon(self) -> None: ...


_open: weakref.WeakSet[_End] = weakref.WeakSet()


def close_in_forks(end: _End) -> None:
    """Has processes that are forked from this one abandon it: as long as they kept the
    sockets, the death of their parent would go unnoticed at the other ends.
    """
    _open.add(end)


def _abandon_all() -> None:
    for end in list(_open):
        end.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_abandon_all)
