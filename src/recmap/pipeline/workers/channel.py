"""A channel between two processes: columns are in shared memory, and a socket says where.

A message through the socket is a head, then the numbers of two kinds of slots: the other
end's slots that the sender has stopped reading, and its own slots that it has dropped (the
top of ``shared_memory`` describes the life of a slot). The descriptor of a new slot travels
with the head. All of this is small, so with few messages under way, sending never blocks.
"""

from __future__ import annotations

import os
import socket
import struct
import weakref
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, Protocol

from recmap.pipeline.workers.column_message import PackedColumns, Section, copied, unpack
from recmap.pipeline.workers.shared_memory import Inbox, Outbox

__all__ = ["Channel", "Message", "MessageKind", "close_in_forks"]

# Kind, number, epoch, seconds busy, slot, its size (0 unless it is new), length of the
# header in the slot, number of freed slots, number of dropped slots.
_HEAD = struct.Struct("<BqqdiqIII")
# A broken pipe may end the program with a signal; a broken pipe to a worker must not.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class MessageKind(IntEnum):
    """What the sections of a message contain."""

    ROWS = 0  # a section of positions
    BATCH = 1  # the same, then a section of the columns to work on
    RESULT = 2
    ERROR = 3


class Message(NamedTuple):
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

    def receive(self) -> Message | None:
        """Wait for the next message. Return None if the other end is closed."""
        try:
            return self._receive()
        except ConnectionResetError:
            return None

    def _receive(self) -> Message | None:
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
        return Message(MessageKind(kind), number, epoch, busy, self._sections(slot, header))

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


class _HasSocket(Protocol):
    def abandon(self) -> None: ...


_open: weakref.WeakSet[_HasSocket] = weakref.WeakSet()


def close_in_forks(end: _HasSocket) -> None:
    """Make processes forked from this one abandon ``end``.

    If they kept a copy of the socket, the other end would not notice when this process dies.
    """
    _open.add(end)


def _abandon_all() -> None:
    for end in list(_open):
        end.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_abandon_all)
