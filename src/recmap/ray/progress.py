"""Collect the progress of all tasks."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["ProgressActor", "TaskProgress", "reported_progress", "start_progress_actor"]

# Seconds between two reports of a task, and seconds to wait for the actor's answer.
_INTERVAL = 0.1
_TIMEOUT = 1.0


class ProgressActor:
    """A Ray actor that stores how many rows and bytes of each shard are done.

    A shard that restarts on another node counts from zero again.
    """

    def __init__(self) -> None:
        self._shards: dict[int, tuple[int, int]] = {}

    def report(self, number: int, rows: int, size: int) -> None:
        self._shards[number] = rows, size

    def shards(self) -> dict[int, tuple[int, int]]:
        return self._shards


def start_progress_actor(ray: Any) -> Any:
    """Start the actor on the driver's node, so that it survives the loss of other nodes."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=True
    )
    actor = ray.remote(ProgressActor)
    return actor.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def reported_progress(ray: Any, actor: Any) -> dict[int, tuple[int, int]]:
    """Return the rows and bytes of each shard that has reported progress."""
    if actor is None:
        return {}
    try:
        shards: dict[int, tuple[int, int]] = ray.get(actor.shards.remote(), timeout=_TIMEOUT)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return {}  # no reason to fail: the actor restarts, and tasks report again
    return shards


class TaskProgress:
    """Counts what a task has done, and reports it regularly to the actor, if there is one."""

    def __init__(self, actor: Any, number: int) -> None:
        self._actor, self._number = actor, number
        self._reported = 0.0
        self.rows = self.size = 0

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        now = time.monotonic()
        if self._actor is not None and now - self._reported >= _INTERVAL:
            self._reported = now
            self._actor.report.remote(self._number, self.rows, self.size)
