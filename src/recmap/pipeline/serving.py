"""The life of a worker process."""

from __future__ import annotations

import signal
import socket
import time

import numpy as np

from recmap.pipeline.channel import Channel, Kind, Message
from recmap.pipeline.failures import describe
from recmap.pipeline.messages import Parcel, pack
from recmap.pipeline.pool import Request, Work

__all__ = ["serve"]


def serve(end: socket.socket, work: Work) -> None:
    """Works until the other end of the socket is closed."""
    # Ctrl-C reaches every process of the terminal, but only the consumer decides.
    # It was blocked when this process was started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # A handler of the parent's would not end this process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end.set_inheritable(False)
    channel = Channel(end)
    busy = 0.0
    while (message := channel.receive()) is not None:
        begin = time.perf_counter()
        kind, parcel = _answer(work, message)
        try:
            channel.send(kind, parcel, busy=busy + time.perf_counter() - begin)
        except (BrokenPipeError, ConnectionResetError):
            return  # nobody wants it any more
        busy += time.perf_counter() - begin


def _answer(work: Work, message: Message) -> tuple[Kind, Parcel]:
    try:
        return Kind.RESULT, pack(work(_request(message)).items())
    except BaseException as e:  # raised again in the consumer's process
        return Kind.ERROR, pack([("error", np.frombuffer(describe(e), np.uint8))])


def _request(message: Message) -> Request:
    (_, positions), *columns = message.columns
    assert isinstance(positions, np.ndarray)
    batch = dict(columns) if message.kind is Kind.BATCH else None
    return Request(message.number, message.epoch, positions, batch)
