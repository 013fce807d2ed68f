"""What became of a task, without Ray's wrapping."""

from __future__ import annotations

import os
import re
from typing import Any

from recmap.errors import RecmapError, WorkerDiedError

__all__ = ["plain", "result"]

# What Ray adds to the message of whatever a task raised.
_ADDED = "\nFailed to apply "


def plain(error: RecmapError, hidden: str, name: str) -> RecmapError:
    """What a task raised, in its own words, with the name that the user knows for files in
    a hidden folder.
    """
    cause = getattr(error, "cause", None)
    found = cause if isinstance(cause, RecmapError) else error
    text = str(found).partition(_ADDED)[0]
    inside = re.escape(hidden + os.sep) + r"[^\s:,;()]*"
    found.args = (re.sub(inside, lambda _: name, text), *found.args[1:])
    return found


def result(ray: Any, task: Any, what: str, retries: int) -> Any:
    """What a task returned. What it raised is raised as it was; of a task that died as
    often as that, ``what`` it was for is said.
    """
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as e:
        if not isinstance(e.cause, Exception):
            raise
        error = e.cause
    except ray.exceptions.RayError as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise WorkerDiedError(
            f"{what}: its Ray task died, {retries + 1} times in a row: {text} (the node may be too "
            "small for it: memory= is for each task)"
        ) from e
    raise error
