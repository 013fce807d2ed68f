"""What became of a task, without Ray's wrapping."""

from __future__ import annotations

from typing import Any

from recmap.errors import WorkerDiedError

__all__ = ["result"]


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
