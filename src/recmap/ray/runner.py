"""Write the shards of a conversion in tasks on a Ray cluster.

A task does the same as a thread in a local conversion: it gets the conversion's ShardWriter and
writes one shard. This module submits the tasks and handles those that die.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recmap.conversion.cleanup import clear_temporary
from recmap.conversion.plan import Shard
from recmap.conversion.shard_writer import ShardWriter
from recmap.errors import Message, Option, OptionError, PathNotFoundError, SlowOrderWarning
from recmap.local.local_path import located
from recmap.model.arguments import size_text
from recmap.model.progress import Counter
from recmap.model.source import Source
from recmap.ray.cluster import (
    TASK_CPUS,
    Driver,
    check_visible,
    connected,
    output_folder,
    task_result,
    working_nodes,
)
from recmap.ray.parallel_index import find_records
from recmap.warn import warn

# How often to start a shard again after a worker or node died.
_RETRIES = 5
# How many tasks are submitted at a time, unless the user asks for fewer.
_IN_FLIGHT = 1000
# Seconds for tasks to stop and clean up. A slower task can no longer rename its file.
_STOP_TIMEOUT = 30.0
# Seconds between two progress reports of a task, and seconds to wait for the actor's answer.
_REPORT_INTERVAL = 0.1
_REPORT_TIMEOUT = 1.0


@contextmanager
def on_cluster(
    address: str | None, source: Source, dst: str, workers: int | None
) -> Iterator[RayRunner]:
    """Yield a runner on a cluster that sees the source files and the output folder.

    The source is indexed first. At most ``workers`` tasks run at a time.
    """
    if source.facts.once:
        raise OptionError(
            "rows that can be read only once are on this machine only, not on a cluster; save them "
            "to a file first"
        )
    located(dst).refuse_unwritable()
    driver = Driver.here()
    with connected(address) as ray, output_folder(dst):
        check_visible(ray, driver, source.facts.files, dst)
        find_records(ray, driver, source)
        yield RayRunner(ray, driver, source, workers)


class RayRunner:
    """Writes each shard in its own task."""

    processes = 1  # the memory is that of each task
    threads: int | None = 1
    in_this_process = on_this_machine = False

    def __init__(self, ray: Any, driver: Driver, source: Source, workers: int | None) -> None:
        self._ray, self._driver = ray, driver
        self._limit = workers or _IN_FLIGHT
        self._compressed = list(source.facts.compressed_files)

    def explain(self, files: int) -> str:
        """Describe how much of the cluster this many files can use."""
        nodes = working_nodes(self._ray)
        cpus = sum(node.cpus for node in nodes)
        text = f"; a Ray task for each file, on {len(nodes):,} nodes with {cpus:g} CPUs"
        if files >= cpus:
            return text
        return Message(text, ": ", Option("shards", int(cpus)), " or more would use all of them")

    def run(self, writer: ShardWriter, shards: list[Shard], counter: Counter) -> None:
        """Write the shards."""
        self._check_memory(writer.budget.memory)
        if len(self._compressed) < len(shards) and self._compressed:
            warn(
                f"{self._compressed[0]}: a compressed file cannot be split, so each of several "
                "tasks inflates it from the beginning; write as many files as are read, or "
                "decompress it first",
                SlowOrderWarning,
            )
        running: dict[Any, Shard] = {}
        try:
            self._run_tasks(writer, deque(shards), running, counter)
        except BaseException:
            self._stop(writer, list(running))
            raise
        finally:
            # Tasks that fail clean up; tasks that die leave files. If another conversion has
            # taken over, the files are no longer ours to remove.
            if not writer.lock.lost:
                clear_temporary([shard.path for shard in shards], self._driver.process)

    def _run_tasks(
        self,
        writer: ShardWriter,
        waiting: deque[Shard],
        running: dict[Any, Shard],
        counter: Counter,
    ) -> None:
        ray = self._ray
        # Pickled here, because unpickling opens files, which only the task should do.
        # Functions of a script or a notebook are sent as code.
        sent = ray.put(ray.cloudpickle.dumps(writer))
        actor = _start_progress_actor(ray) if counter.watched else None
        write = ray.remote(_write_shard).options(
            num_cpus=TASK_CPUS,
            memory=writer.budget.memory,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )
        done: dict[int, tuple[int, int]] = {}
        while waiting or running:
            while waiting and len(running) < self._limit:
                shard = waiting.popleft()
                running[write.remote(sent, shard, self._driver, actor)] = shard
            # Wait briefly, so that an interrupt is noticed.
            ready, _ = ray.wait(list(running), timeout=0.2)
            for ref in ready:
                shard = running.pop(ref)
                done[shard.number] = task_result(ray, ref, shard.path, _RETRIES)
            written = {**_reported_progress(ray, actor), **done}.values()
            counter.reach(sum(rows for rows, _ in written), sum(size for _, size in written))

    def _stop(self, writer: ShardWriter, tasks: list[Any]) -> None:
        """Make the tasks stop after their current slab, or before they begin.

        This does not use ``ray.cancel``, which can crash this process if a task ends meanwhile.
        """
        writer.lock.stop()
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=_STOP_TIMEOUT)

    def _check_memory(self, memory: int) -> None:
        """Raise if no node has enough memory. Ray itself would wait for one forever."""
        nodes = working_nodes(self._ray)
        most = max((node.memory for node in nodes), default=0)
        if not nodes:
            raise OptionError("no node of the Ray cluster has a CPU for a task")
        if most < memory:
            raise OptionError(
                Message(
                    Option("memory", size_text(memory).replace(" ", "")),
                    " is for each task, but no node of the cluster has more than "
                    f"{size_text(most)}",
                )
            )


def _write_shard(pickled: bytes, shard: Shard, driver: Driver, actor: Any) -> tuple[int, int]:
    """Write a shard and return its number of rows and bytes. Runs in a task."""
    node = os.uname().nodename
    try:
        with driver.impersonated():
            writer: ShardWriter = pickle.loads(pickled)  # noqa: S301 - our own
            if not writer.lock.exists:
                raise PathNotFoundError(_not_seen(writer.lock.path, node))
            # An earlier attempt that died may have left files.
            clear_temporary([shard.path], driver.process)
            progress = _TaskProgress(actor, shard.number)
            writer.write(shard, progress.add, lambda: not writer.lock.exists)
            return progress.rows, progress.size
    except Exception as e:
        e.add_note(f"In a Ray task on {node}.")
        raise


def _not_seen(path: str, node: str) -> str:
    if located(path).remote:
        return (
            f"{path}: node {node} does not see this object of the driver; give the options of the "
            "store, with its endpoint, as storage={...}"
        )
    return (
        f"{os.path.abspath(os.path.dirname(path))}: node {node} does not see the driver's files "
        "there; use storage that all nodes see under the same path"
    )


class _ProgressActor:
    """A Ray actor that stores how many rows and bytes of each shard are done.

    A shard that restarts on another node counts from zero again.
    """

    def __init__(self) -> None:
        self._shards: dict[int, tuple[int, int]] = {}

    def report(self, number: int, rows: int, size: int) -> None:
        self._shards[number] = rows, size

    def shards(self) -> dict[int, tuple[int, int]]:
        return self._shards


def _start_progress_actor(ray: Any) -> Any:
    """Start the actor on the driver's node, so that it survives the loss of other nodes."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=True
    )
    actor = ray.remote(_ProgressActor)
    return actor.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def _reported_progress(ray: Any, actor: Any) -> dict[int, tuple[int, int]]:
    """Return the rows and bytes of each shard that has reported progress."""
    if actor is None:
        return {}
    try:
        shards: dict[int, tuple[int, int]] = ray.get(actor.shards.remote(), timeout=_REPORT_TIMEOUT)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return {}  # no reason to fail: the actor restarts, and tasks report again
    return shards


class _TaskProgress:
    """Counts what a task has done, and reports it regularly to the actor, if there is one."""

    def __init__(self, actor: Any, number: int) -> None:
        self._actor, self._number = actor, number
        self._reported = 0.0
        self.rows = self.size = 0

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        now = time.monotonic()
        if self._actor is not None and now - self._reported >= _REPORT_INTERVAL:
            self._reported = now
            self._actor.report.remote(self._number, self.rows, self.size)
