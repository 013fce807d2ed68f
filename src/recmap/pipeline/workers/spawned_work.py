"""The work of a spawned process, sent to it once it runs.

multiprocessing writes what a process needs to a pipe that it keeps open at both ends. If the
process dies before it has read everything, because the main module lacks a guard for example,
that write never ends. A socket reports it.
"""

from __future__ import annotations

import pickle
import socket
import struct
from multiprocessing.reduction import ForkingPickler

from recmap.pipeline.workers.pool import Work

__all__ = ["SpawnedWork"]

_SIZE = struct.Struct("<Q")
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class SpawnedWork:
    """Work that is pickled along with its process, and travels on its own."""

    def __init__(self, work: Work | None = None) -> None:
        self._work = work
        self._pickled: memoryview | bytes = b""

    def __reduce__(self) -> tuple[type[SpawnedWork], tuple[()]]:
        # Now and not in send: some objects can be pickled only while a process is started.
        self._pickled = ForkingPickler.dumps(self._work)
        return SpawnedWork, ()

    def send(self, end: socket.socket) -> None:
        """Send the work. Raise ConnectionError if the process is gone."""
        end.sendall(_SIZE.pack(len(self._pickled)), _NO_SIGNAL)
        end.sendall(self._pickled, _NO_SIGNAL)

    @staticmethod
    def receive(end: socket.socket) -> Work:
        """Wait for the work. Raise EOFError if the parent is gone."""
        (size,) = _SIZE.unpack(_receive_exactly(end, _SIZE.size))
        work: Work = pickle.loads(_receive_exactly(end, size))  # noqa: S301  # from the parent
        return work


def _receive_exactly(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = end.recv_into(rest)
        if not count:
            raise EOFError("the parent is gone")
        rest = rest[count:]
    return data
