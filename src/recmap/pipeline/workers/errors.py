"""Exceptions of the work and deaths of workers, as the consumer gets them."""

from __future__ import annotations

import json
import signal
import traceback

import numpy as np

from recmap import errors
from recmap.errors import MapError, RecmapError, WorkerDiedError

__all__ = ["death", "describe", "map_error", "rebuild"]

_KINDS: dict[str, type[RecmapError]] = {
    name: kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), RecmapError)
}


def map_error(error: BaseException) -> MapError:
    """What the consumer is told of an exception that is not recmap's."""
    # Not str(error), which may itself raise.
    text = "".join(traceback.format_exception_only(error)).strip()
    return MapError(text, cause_type=type(error).__name__)


def describe(error: BaseException) -> bytes:
    """An exception as bytes; its traceback begins below the frame that caught it."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, below)
    told = error if isinstance(error, RecmapError) else map_error(error)
    made = {
        # A subclass from elsewhere is told as the class of recmap's it comes from.
        "kind": next(k.__name__ for k in type(told).__mro__ if k.__name__ in _KINDS),
        "message": str(told),
        "where": {name: _plain(value) for name, value in vars(told).items()},
        "traceback": "".join(lines).rstrip(),
    }
    return json.dumps(made, default=str).encode()


def rebuild(data: bytes, worker: str) -> RecmapError:
    """The exception that was described, with the traceback of the worker as a note."""
    made = json.loads(data)
    error = _KINDS[made["kind"]](made["message"])
    # The notes, too: they are an attribute like file and record.
    vars(error).update(made["where"])
    error.add_note(f"\nIn {worker}:\n{made['traceback']}")
    return error


def death(worker: str, code: int | None, *, working: bool) -> WorkerDiedError:
    """What an exit code says, as far as it is known."""
    if code is None:
        how, advice = "closed its connection", "does the function close files it did not open?"
    elif code >= 0:
        how, advice = f"ended with exit code {code}", "it may have said why on the terminal"
    else:
        # Not all signals have a name.
        name = {int(known): known.name for known in signal.Signals}.get(-code, "unnamed")
        how = f"was killed by signal {-code} ({name})"
        advice = "native code the function calls may have crashed; try it with workers=0"
        if code == -signal.SIGKILL:
            advice = "memory may have run out; use fewer workers or smaller batches"
    doing = "while it worked" if working else "while it waited for work"
    return WorkerDiedError(f"{worker} {how} {doing}: {advice}", exitcode=code)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
