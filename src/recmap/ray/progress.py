"""How far all tasks are together."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Tally", "Teller", "start_tally", "told"]

# A task tells no more often.
_SECONDS = 0.1
_PATIENCE = 1.0


class Tally:
    """An actor that knows the rows and bytes of each file so far. A file that is begun
    anew on another node is counted anew.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[int, int]] = {}

    def tell(self, number: int, rows: int, size: int) -> None:
        self._files[number] = rows, size

    def files(self) -> dict[int, tuple[int, int]]:
        return self._files


def start_tally(ray: Any) -> Any:
    """The actor, beside the driver: it is not lost with another node."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=True
    )
    actor = ray.remote(Tally)
    return actor.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def told(ray: Any, tally: Any) -> dict[int, tuple[int, int]]:
    """The rows and bytes of each file so far, as far as they are known."""
    if tally is None:
        return {}
    try:
        files: dict[int, tuple[int, int]] = ray.get(tally.files.remote(), timeout=_PATIENCE)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return {}  # it is started anew, and told all again: no reason to fail
    return files


class Teller:
    """Counts what a task has done, and tells the tally now and then, if there is one."""

    def __init__(self, tally: Any, number: int) -> None:
        self._tally, self._number = tally, number
        self._told = 0.0
        self.rows = self.size = 0

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        now = time.monotonic()
        if self._tally is not None and now - self._told >= _SECONDS:
            self._told = now
            self._tally.tell.remote(self._number, self.rows, self.size)
