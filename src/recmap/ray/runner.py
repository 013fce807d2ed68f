"""The files of a conversion, written by tasks of a Ray cluster.

What a task does is what a thread does: the engine's Job, which is sent to it. Here is
only who does which file, and what happens when somebody dies.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recmap.conversion.cleanup import clear_temporary
from recmap.conversion.plan import Shard
from recmap.conversion.shard_writer import Job
from recmap.errors import OptionError, PathNotFoundError, SlowOrderWarning
from recmap.model.byte_size import size_text
from recmap.model.progress import Counter
from recmap.model.source import Source
from recmap.ray.cluster import check_visible, output_folder, working_nodes
from recmap.ray.errors import result
from recmap.ray.library import connect
from recmap.ray.parallel_index import find_records
from recmap.ray.progress import Teller, start_tally, told
from recmap.ray.working_folder import TASK_CPUS, Home

__all__ = ["Tasks", "on_cluster"]

# Times a file is begun anew after a worker or a node died.
_RETRIES = 5
# Tasks that wait or run at a time, unless the user wants fewer.
_IN_FLIGHT = 1000
# Seconds that tasks have to end and clean up. One that takes longer cannot give its file
# a name any more.
_PATIENCE = 30.0


@contextmanager
def on_cluster(
    address: str | None, source: Source, dst: str, workers: int | None
) -> Iterator[Tasks]:
    """A cluster that sees the files of a source and the place of the output, and has found
    the records of the source. No more than so many ``workers`` are used.
    """
    if source.known_rows() is None and not source.files:
        raise OptionError(
            "rows that come one by one are only here, not on a cluster; save them to a file first"
        )
    if workers is not None and workers < 1:
        raise OptionError("workers must be 1 or more")
    home = Home.here()
    with connect(address) as ray, output_folder(dst):
        check_visible(ray, home, source.files, dst)
        find_records(ray, home, source)
        yield Tasks(ray, home, source, workers)


class Tasks:
    """A task for each file."""

    def __init__(self, ray: Any, home: Home, source: Source, workers: int | None) -> None:
        self._ray, self._home = ray, home
        self._limit = workers or _IN_FLIGHT
        self._compressed = list(source.compressed_files)

    def explain(self, files: int) -> str:
        """How much of the cluster the files can use."""
        nodes = working_nodes(self._ray)
        cpus = sum(node.cpus for node in nodes)
        text = f"; a Ray task for each file, on {len(nodes):,} nodes with {cpus:g} processors"
        if files < cpus:
            text += f": shards={int(cpus)} or more would use all of them"
        return text

    def run(self, job: Job, shards: list[Shard], counter: Counter) -> None:
        """Writes these files."""
        self._check_memory(job.budget.memory)
        if len(self._compressed) < len(shards) and self._compressed:
            warnings.warn(
                f"{self._compressed[0]}: a compressed file cannot be split, so that each of "
                "several tasks inflates it from its beginning; write as many files as are read, "
                "or decompress it first",
                SlowOrderWarning,
                stacklevel=5,
            )
        running: dict[Any, Shard] = {}
        try:
            self._run(job, deque(shards), running, counter)
        except BaseException:
            self._stop(job, list(running))
            raise
        finally:
            # Of tasks that died: those that failed left nothing. What is there after somebody
            # has taken over is his.
            if not job.mark.lost:
                clear_temporary([shard.path for shard in shards], self._home.process)

    def _run(
        self, job: Job, waiting: deque[Shard], running: dict[Any, Shard], counter: Counter
    ) -> None:
        ray = self._ray
        # As bytes: it opens files when it is loaded, and that is for the task to do.
        sent = ray.put(pickle.dumps(job))
        tally = start_tally(ray) if counter.watched else None
        write = ray.remote(_write).options(
            num_cpus=TASK_CPUS,
            memory=job.budget.memory,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )
        done: dict[int, tuple[int, int]] = {}
        while waiting or running:
            while waiting and len(running) < self._limit:
                shard = waiting.popleft()
                running[write.remote(sent, shard, self._home, tally)] = shard
            # Short waits, so that an interrupt is heard.
            ready, _ = ray.wait(list(running), timeout=0.2)
            for ref in ready:
                shard = running.pop(ref)
                done[shard.number] = result(ray, ref, shard.path, _RETRIES)
            files = {**told(ray, tally), **done}.values()
            counter.reach(sum(rows for rows, _ in files), sum(size for _, size in files))

    def _stop(self, job: Job, tasks: list[Any]) -> None:
        """Has the tasks end at their next step, or when they are about to begin. They are not
        cancelled by Ray, which may take this process down if one of them ends meanwhile.
        """
        job.mark.release()
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=_PATIENCE)

    def _check_memory(self, memory: int) -> None:
        """Ray would wait for ever for a node that is large enough."""
        nodes = working_nodes(self._ray)
        most = max((node.memory for node in nodes), default=0)
        if not nodes:
            raise OptionError("no node of the Ray cluster has a processor for a task")
        if most < memory:
            raise OptionError(
                f"memory={size_text(memory)} is for each task, but no node of the cluster has more "
                f"than {size_text(most)}"
            )


def _write(job: bytes, shard: Shard, home: Home, tally: Any) -> tuple[int, int]:
    """In a task: writes a file; its rows and bytes."""
    node = os.uname().nodename
    try:
        with home.entered():
            return _write_at_home(pickle.loads(job), shard, home, tally, node)  # noqa: S301 - our own
    except Exception as e:
        e.add_note(f"In a Ray task on {node}.")
        raise


def _write_at_home(job: Job, shard: Shard, home: Home, tally: Any, node: str) -> tuple[int, int]:
    if not job.mark.there:
        folder = os.path.abspath(os.path.dirname(job.mark.path))
        raise PathNotFoundError(
            f"{folder}: node {node} does not see the driver's files there; use storage "
            "that all nodes see under the same path"
        )
    # What an attempt before this one left when it died.
    clear_temporary([shard.path], home.process)
    teller = Teller(tally, shard.number)
    job.write(shard, teller.add, lambda: not job.mark.there)
    return teller.rows, teller.size
