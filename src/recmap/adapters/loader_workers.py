"""What a stream knows of the loader that reads it: its workers, its states, and Accelerate."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from recmap.errors import OptionError


class LoaderWorkers(NamedTuple):
    """The worker processes of a loader, in one of its iterations."""

    #: The process that started them.
    parent: int
    size: int
    #: The seed that they have in common. Two loaders have the same one if the user chose it.
    seed: int
    #: The number of the first worker among the processes that ``parent`` has started.
    first: int
    #: How many iterations these processes have begun before.
    before: int

    def are_those(self, others: LoaderWorkers) -> bool:
        """Return whether both are the same workers in the same iteration.

        A worker finds ``first`` from its own number. That may be too large if the parent starts
        another process at the same time, but by less than another loader's.
        """
        near = abs(self.first - others.first) < self.size
        return near and self._replace(first=0) == others._replace(first=0)


def checked_state(state: Any) -> dict[str, Any]:
    """Refuse what is not a state of a stream."""
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        raise OptionError("load_state_dict: give what state_dict() of such a stream has returned")
    for name in ("workers", "epoch"):
        if type(state.get(name, 0)) is not int or state.get(name, 0) < 0:
            raise OptionError(f"load_state_dict: a damaged state: {name!r} is {state[name]!r}")
    return {"workers": 0, **state}


def check_workers(state: Mapping[str, Any], workers: int) -> None:
    saved = state["workers"]
    if saved != workers:
        raise OptionError(
            f"load_state_dict: saved with num_workers={saved}, but this loader has {workers}; "
            "each worker has a state of its own, so continue with the same number"
        )


def refuse_second_division(caller: Mapping[str, Any]) -> None:
    """Raise if the caller is Accelerate, which divides the rows of a rank among all ranks again.

    It passes on the epoch to all that it has prepared. Nothing else about it can be seen here.
    """
    if caller.get("__name__") != "accelerate.data_loader":
        return
    if caller["PartialState"]().num_processes > 1:
        raise OptionError(
            "shard() and accelerator.prepare() both divide the rows among the ranks, so most "
            "would never be read; leave out shard(), or do not prepare this loader"
        )


def own_workers(info: Any, iterations: int) -> LoaderWorkers:
    """Return the workers that this process is one of, after it has begun some iterations."""
    parent = multiprocessing.parent_process()
    # Processes are numbered in the order in which they are started: Process-1, Process-2:5.
    number = re.search(r"\d+$", multiprocessing.current_process().name)
    return LoaderWorkers(
        parent=0 if parent is None or parent.pid is None else parent.pid,
        size=info.num_workers,
        seed=info.seed - info.id,
        first=int(number[0] if number else 0) - info.id,
        before=iterations,
    )
