"""The stacks of worker processes, for when they do not answer."""

from __future__ import annotations

import faulthandler
import os
import re
import select
import signal
import socket
from contextlib import suppress

from recmap.pipeline.workers.channel import close_in_forks

__all__ = ["Stacks", "show_stack_when_asked"]

# Seconds a worker has to begin to show its stack, and between two parts of it.
_BEGIN, _NEXT = 3.0, 0.2
# One that programs leave alone. Its default is to end a process, so that it is sent only
# to those who have said that they expect it.
_SIGNAL = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_READY = b"\n"
_FRAME = re.compile(r'\s+File "(?P<file>.*)", line ')
_OURS = os.path.join("recmap", "pipeline", "serving.py")


class Stacks:
    """What the parent knows of the stack of one worker process."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._ready = False
        close_in_forks(self)

    def ask(self, process: int) -> None:
        """Asks a process to show its stack."""
        self._ready = self._ready or _READY in self._read(0, 0)
        if self._ready:
            with suppress(ProcessLookupError):
                os.kill(process, _SIGNAL)

    def answer(self) -> str:
        """What came of it."""
        if not self._ready:
            return "  has not begun to work: it may still import what the function needs"
        shown = self._read(_BEGIN, _NEXT).decode(errors="replace")
        lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
        return _shortened(lines) or "  does not answer: it may be stopped"

    def _read(self, begin: float, then: float) -> bytes:
        poll, data, seconds = select.poll(), b"", begin
        poll.register(self._end, select.POLLIN)
        while poll.poll(seconds * 1000):
            part = self._end.recv(1 << 16)
            if not part:
                break
            data, seconds = data + part, then
        return data

    def abandon(self) -> None:
        self._end.close()

    close = abandon


def show_stack_when_asked(end: socket.socket) -> None:
    """Has this process write its stack to the other end when it gets the signal. The
    handler does not wait for Python, which may hang in native code.
    """
    faulthandler.register(_SIGNAL, file=end.fileno(), all_threads=True)
    with suppress(BrokenPipeError):  # nobody wants to know any more
        end.sendall(_READY)


def _shortened(lines: list[str]) -> str:
    """Without the frames of the loop that calls the function, which are always there."""
    kept, ours = [], False
    for line in lines:
        frame = _FRAME.match(line)
        ours = frame is not None and (ours or frame["file"].endswith(_OURS))
        if not ours:
            kept.append(f"  {line}")
    return "\n".join(kept)
