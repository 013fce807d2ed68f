"""Warn at the line of the program that called recmap."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from types import FrameType

_HERE = os.path.dirname(__file__) + os.sep
_LOOKING = threading.Lock()
os.register_at_fork(
    before=_LOOKING.acquire,
    after_in_parent=_LOOKING.release,
    after_in_child=_LOOKING.release,
)
# Modules of Python that call recmap on behalf of recmap.
_BETWEEN = {"concurrent", "contextlib", "functools", "threading", "weakref"}


def warn(message: Warning | str, category: type[Warning] = UserWarning) -> None:
    """Warn like ``warnings.warn``, at the innermost line that is not part of recmap.

    In a thread of recmap there is no such line; the warning is then at the line that the main
    thread has reached.
    """
    here = sys._getframe(1)  # noqa: SLF001
    frame = _outside(here) or _outside(frame_of(threading.main_thread().ident)) or here
    named = frame.f_globals
    warnings.warn_explicit(
        message,
        type(message) if isinstance(message, Warning) else category,
        frame.f_code.co_filename,
        frame.f_lineno,
        named.get("__name__", "<string>"),
        named.setdefault("__warningregistry__", {}),
    )


def _outside(frame: FrameType | None) -> FrameType | None:
    while frame is not None and (
        frame.f_code.co_filename.startswith(_HERE)
        or frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN
    ):
        frame = frame.f_back
    return frame


def frame_of(thread: int | None) -> FrameType | None:
    """Return the frame that a thread of this process has reached."""
    with _LOOKING:
        collecting = gc.isenabled()
        # Before 3.11.8, Python holds a lock meanwhile, for which other threads wait with that of
        # the interpreter: a collection, which may let them run, would never end.
        gc.disable()
        try:
            return sys._current_frames().get(thread or 0)  # noqa: SLF001 - there is no other way
        finally:
            if collecting:
                gc.enable()
