"""Errors of workers as the consumer sees them: exceptions in the work, and dead workers."""

from __future__ import annotations

import json
import signal
import traceback

import numpy as np

from recmap import errors
from recmap.errors import MapError, RecmapError, WorkerDiedError

_KINDS: dict[str, type[RecmapError]] = {
    name: kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), RecmapError)
}


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
            "it imports the main program, which must start workers only under "
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
