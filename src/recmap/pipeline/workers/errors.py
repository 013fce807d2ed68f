"""What goes wrong in workers, as the consumer sees it: exceptions, deaths and stalls.

Where a worker is stuck, a warning shows: a thread's stack is read directly. A worker process
writes its own stack to a socket when it receives a signal: the handler does not need the
interpreter, which may hang in native code.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from recmap import errors
from recmap.errors import MapError, RecmapError, StalledWorkersWarning, WorkerDiedError
from recmap.warn import frame_of, warn

_KINDS: dict[str, type[RecmapError]] = {
    name: kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), RecmapError)
}
if TYPE_CHECKING:
    from socket import socket
# Seconds without an answer before the first warning. The wait doubles after each one.
PATIENCE = 60.0
# Seconds to wait for the first chunk of a process's stack, and for each chunk after it.
_FIRST_CHUNK, _NEXT_CHUNK = 3.0, 0.2
# A signal that programs do not use. By default it ends a process, so it is sent only to
# processes that have announced that they handle it.
_SIGNAL = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_READY = b"\n"
_FRAME = re.compile(r'\s+File "(?P<file>.*)", line ')
_WORKER_LOOP = os.path.join("recmap", "pipeline", "workers", "worker_main.py")


def map_error(error: BaseException) -> MapError:
    """Return the error the consumer gets for an exception that is not recmap's own."""
    # str(error) may itself raise.
    text = "".join(traceback.format_exception_only(error)).strip()
    return MapError(text, cause_type=type(error).__name__)


def describe(error: BaseException) -> bytes:
    """Encode an exception as bytes. The traceback starts below the frame that caught it."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, below)
    known = error if isinstance(error, RecmapError) else map_error(error)
    description = {
        # A user's subclass becomes the recmap class it derives from.
        "kind": next(k.__name__ for k in type(known).__mro__ if k.__name__ in _KINDS),
        "message": str(known),
        "attributes": {name: _plain(value) for name, value in vars(known).items()},
        "traceback": "".join(lines).rstrip(),
    }
    return json.dumps(description, default=str).encode()


def rebuild(data: bytes, worker: str) -> RecmapError:
    """Rebuild a described exception, with the worker's traceback as a note."""
    description = json.loads(data)
    error = _KINDS[description["kind"]](description["message"])
    # Notes are an attribute too, like file and record.
    vars(error).update(description["attributes"])
    error.add_note(f"\nIn {worker}:\n{description['traceback']}")
    return error


def death_error(
    worker: str, code: int | None, *, working: bool, started: bool = True, spawned: bool = False
) -> WorkerDiedError:
    """Return the error for a worker that died; ``code`` is its exit code, if known.

    If it has not ``started``, a ``spawned`` worker was still importing the main module.
    """
    if spawned and not started and code == 1:
        # Python refuses to start processes while it imports the main module in another.
        how = "ended with exit code 1"
        advice = (
            "it imports the main program, which may start workers only under "
            'if __name__ == "__main__": (the terminal shows what happened)'
        )
    elif code is None:
        how, advice = "closed its connection", "does the function close files it did not open?"
    elif code >= 0:
        how, advice = f"ended with exit code {code}", "it may have said why on the terminal"
    else:
        # Some signals have no name.
        name = {int(known): known.name for known in signal.Signals}.get(-code, "unnamed")
        how = f"was killed by signal {-code} ({name})"
        advice = "native code the function calls may have crashed; try it with workers=0"
        if code == -signal.SIGKILL:
            advice = "memory may have run out; use fewer workers or smaller batches"
    doing = "while it worked" if working else "while it waited for work"
    if not started:
        doing = "while it started"
    return WorkerDiedError(f"{worker} {how} {doing}: {advice}", exitcode=code)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


class StallTimer:
    """Warns if no worker answers for a long time. ``where`` says what each of them is doing."""

    def __init__(self, where: Callable[[], str], advice: str) -> None:
        self._where, self._advice = where, advice
        self.reset()

    def reset(self) -> None:
        """Note that a worker has answered."""
        self._since, self._limit = time.monotonic(), PATIENCE

    def check(self) -> None:
        """Warn if the time is up, and wait twice as long before the next warning."""
        waited = time.monotonic() - self._since
        if waited < self._limit:
            return
        self._limit *= 2
        warn(
            f"no worker has answered for {waited:,.0f} seconds; still waiting. Where they are "
            f"(most recent call first):\n{self._where()}\n{self._advice}",
            StalledWorkersWarning,
        )


def thread_stack(thread: int | None) -> str:
    """Format the stack of a thread of this process."""
    frame = frame_of(thread)
    frames = [] if frame is None else traceback.extract_stack(frame)
    lines = [f'    File "{f.filename}", line {f.lineno} in {f.name}' for f in reversed(frames)]
    return "\n".join(lines)


class ProcessStack:
    """The stack of a worker process, as its parent reads it."""

    def __init__(self, end: socket) -> None:
        end.setblocking(False)
        self._end = end
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether the process has got as far as its loop, and can answer."""
        self._ready = self._ready or _READY in self._read(0, 0)
        return self._ready

    def request(self, process: int) -> None:
        """Ask the process for its stack, if it is ready to answer."""
        if self.ready:
            with suppress(ProcessLookupError):
                os.kill(process, _SIGNAL)

    def read(self) -> str:
        """Return the stack that the process wrote."""
        if not self._ready:
            return "  has not started to work: it may still be importing what the function needs"
        shown = self._read(_FIRST_CHUNK, _NEXT_CHUNK).decode(errors="replace")
        lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
        return _without_worker_loop(lines) or "  does not answer: it may have been stopped"

    def _read(self, first: float, then: float) -> bytes:
        poll, data, seconds = select.poll(), b"", first
        poll.register(self._end, select.POLLIN)
        while poll.poll(seconds * 1000):
            chunk = self._end.recv(1 << 16)
            if not chunk:
                break
            data, seconds = data + chunk, then
        return data

    def abandon(self) -> None:
        """Close this process's copy of the socket."""
        self._end.close()


def show_stack_on_signal(end: socket) -> None:
    """Make this process write its stack to ``end`` on the signal, and announce that it will."""
    faulthandler.register(_SIGNAL, file=end.fileno(), all_threads=True)
    with suppress(BrokenPipeError):  # the parent is gone
        end.sendall(_READY)


def _without_worker_loop(lines: list[str]) -> str:
    """Drop the frames below the work, which are the same in every stack."""
    kept, in_loop = [], False
    for line in lines:
        frame = _FRAME.match(line)
        in_loop = frame is not None and (in_loop or frame["file"].endswith(_WORKER_LOOP))
        if not in_loop:
            kept.append(f"  {line}")
    return "\n".join(kept)
