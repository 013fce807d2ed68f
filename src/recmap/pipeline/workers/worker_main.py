"""The life of a worker process: it gets its work, and then answers requests.

``processes`` starts and ends it. A forked process inherits its work. A spawned one is sent it
through the socket once it runs: multiprocessing writes what a process needs to a pipe that it
keeps open at both ends, so if the process dies before it has read everything, because the main
module lacks a guard for example, that write never ends. A socket reports it.
"""

from __future__ import annotations

import ctypes
import pickle
import re
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any, Never

import numpy as np

from recmap.machine.forks import keep_inherited
from recmap.native import _core
from recmap.pipeline.workers.channel import Channel, MessageKind, WorkerMessage
from recmap.pipeline.workers.column_message import PackedColumns, pack, pack_result
from recmap.pipeline.workers.errors import describe, show_stack_on_signal
from recmap.pipeline.workers.lookahead import Lookahead, lookahead_of
from recmap.pipeline.workers.pool import Request, Result, UnpicklableError, Work
from recmap.store.fetch import counted_here

_OPENMP = re.compile(r"/\S*/lib(?:gomp|omp|iomp5)\b[^/\s]*\.so[^/\s]*$")
_SIZE = struct.Struct("<Q")
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


def serve(end: socket.socket, stack: socket.socket, parent: int, work: Work | SpawnedWork) -> None:
    """Answer requests until the other end of the socket is closed or the parent is gone."""
    keep_inherited()
    # A killed parent cannot close anything, and the function may run for hours.
    _core.end_with_parent(parent)
    _set_signals()
    if isinstance(work, SpawnedWork):
        try:
            work = _receive_work(end)
        except (EOFError, ConnectionResetError):
            return
    else:
        _use_one_thread()
    show_stack_on_signal(stack)
    end.set_inheritable(False)
    channel = Channel(end)
    busy = 0.0
    ahead = lookahead_of(work)
    counted = work if ahead is None else _counting(work)
    for request in _requests(channel, ahead):
        begin = time.perf_counter()
        kind, columns = _answer(counted, request)
        if ahead is not None:
            ahead.done(request)
        del request
        try:
            channel.send(kind, columns, busy=busy + time.perf_counter() - begin)
        except (BrokenPipeError, ConnectionResetError):
            return  # the pool was closed in the meantime
        busy += time.perf_counter() - begin


def _set_signals() -> None:
    # Ctrl-C reaches every process of the terminal, but the consumer alone decides what to do.
    # The signal was blocked when this process was started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # A handler inherited from the parent would not end this process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _requests(channel: Channel, ahead: Lookahead | None) -> Iterator[Request]:
    """Yield the requests of the parent. While one is worked on, rows of the others are fetched.

    No variable refers to a request meanwhile: its columns are memory that the parent needs again.
    """
    waiting: deque[Request] = deque()
    while True:
        while not waiting or (ahead is not None and channel.has_message()):
            if (message := channel.receive()) is None:
                return
            waiting.append(_request(message))
            del message
            if ahead is not None and waiting[-1].batch is None:
                ahead.begin([waiting[-1]])
        yield waiting.popleft()


def _counting(work: Work) -> Work:
    """Return work that also says what was fetched since the last result."""
    last = counted_here()

    def counted(request: Request) -> Result:
        nonlocal last
        result, before = work(request), last
        last = counted_here()
        return replace(result, fetched=last.minus(before))

    return counted


def _answer(work: Work, request: Request) -> tuple[MessageKind, PackedColumns]:
    try:
        return MessageKind.RESULT, pack_result(work(request))
    except BaseException as e:  # raised again in the consumer's process
        return MessageKind.ERROR, pack([[("error", np.frombuffer(describe(e), np.uint8))]])


def _request(message: WorkerMessage) -> Request:
    ((_, positions),), columns = message.sections
    assert isinstance(positions, np.ndarray)
    batch = dict(columns) if message.kind is MessageKind.BATCH else None
    return Request(message.number, message.epoch, positions, batch)


def _use_one_thread() -> None:
    """Make libraries that are already loaded work in the thread that calls them.

    A fork does not copy the threads that such a library started in the parent, and the
    library would wait for them forever. PyTorch's DataLoader does the same.
    """
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)
    for path in _loaded_openmp():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_set_num_threads(1)


def _loaded_openmp() -> set[str]:
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return {found[0] for line in maps if (found := _OPENMP.search(line.rstrip()))}
    return set()


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


def _receive_work(end: socket.socket) -> Work:
    """Wait for the work. Raise EOFError if the parent is gone.

    If the work cannot be unpickled, return work that raises the reason.
    """
    (size,) = _SIZE.unpack(_receive_exactly(end, _SIZE.size))
    pickled = _receive_exactly(end, size)
    try:
        work: Work = pickle.loads(pickled)  # noqa: S301  # from the parent
    except BaseException as e:  # raised again in the consumer's process
        return partial(_cannot_import, e)
    return work


def _cannot_import(cause: BaseException, _: Request) -> Never:
    reason = "".join(traceback.format_exception_only(cause)).strip()
    raise UnpicklableError(
        f"a new process cannot import what the work needs: {reason} (define the function in "
        'a module that can be imported, or use workers="fork:N" or "threads:N")'
    ) from cause


def _receive_exactly(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = end.recv_into(rest)
        if not count:
            raise EOFError("the parent is gone")
        rest = rest[count:]
    return data
