"""Warn at the line of the program that called recmap."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import FrameType

_HERE = os.path.dirname(__file__) + os.sep
# Modules of Python that call recmap on behalf of recmap.
_BETWEEN = {"concurrent", "contextlib", "functools", "threading", "weakref"}


def warn(message: Warning | str, category: type[Warning] = UserWarning) -> None:
    """Warn like ``warnings.warn``, at the innermost line that is not part of recmap.

    In a thread of recmap there is no such line; the warning is then at the line that the main
    thread has reached.
    """
    frame = _outside(sys._getframe(1)) or _outside(_main_frame()) or sys._getframe(1)  # noqa: SLF001
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


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
