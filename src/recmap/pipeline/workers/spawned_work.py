"""The work of a spawned process, sent to it once it runs.

multiprocessing writes what a process needs to a pipe that it keeps open at both ends. If the
process dies before it has read everything, because the main module lacks a guard for example,
that write never ends. A socket reports it.
"""

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from multiprocessing.reduction import ForkingPickler

from recmap.pipeline.workers.pool import Request, Result, UnpicklableError, Work

_SIZE = struct.Struct("<Q")
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class SpawnedWork:
    """Work that is pickled when its process starts and sent through the socket."""

    def __init__(self, work: Work | None = None) -> None:
        self._work = work
        self._pickled: memoryview | bytes = b""

    def __reduce__(self) -> tuple[type[SpawnedWork], tuple[()]]:
        # Now and not in send: some objects can be pickled only while a process is started.
        self._pickled = ForkingPickler.dumps(self._work)
        return SpawnedWork, ()

    def send(self, end: socket.socket) -> None:
        """Send the work, once. Raise ConnectionError if the process is gone."""
        pickled, self._pickled = self._pickled, b""
        end.sendall(_SIZE.pack(len(pickled)), _NO_SIGNAL)
        end.sendall(pickled, _NO_SIGNAL)

    @staticmethod
    def receive(end: socket.socket) -> Work:
        """Wait for the work. Raise EOFError if the parent is gone.

        If the work cannot be unpickled, return work that raises the reason.
        """
        (size,) = _SIZE.unpack(_receive_exactly(end, _SIZE.size))
        pickled = _receive_exactly(end, size)
        try:
            work: Work = pickle.loads(pickled)  # noqa: S301  # from the parent
        except BaseException as e:  # raised again in the consumer's process
            return _Failed(e)
        return work


class _Failed:
    """Stands in for work that could not be unpickled."""

    def __init__(self, cause: BaseException) -> None:
        self._cause = cause

    def __call__(self, _: Request) -> Result:
        reason = "".join(traceback.format_exception_only(self._cause)).strip()
        raise UnpicklableError(
            f"a new process cannot import what the work needs: {reason} (define the function in "
            'a module that can be imported, or use workers="fork:N" or "threads:N")'
        ) from self._cause


def _receive_exactly(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = end.recv_into(rest)
        if not count:
            raise EOFError("the parent is gone")
        rest = rest[count:]
    return data
