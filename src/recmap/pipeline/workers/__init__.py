"""Pools of workers that do the work of a pipeline: the caller, threads or processes."""

from __future__ import annotations

from recmap.model.arguments import Workers
from recmap.pipeline.workers.pool import Pool, SerialPool, ThreadPool, Work

__all__ = ["open_pool"]


def open_pool(work: Work, workers: Workers, ahead: int = 0) -> Pool:
    """Open a pool that does ``work``. Close it after use.

    ``ahead`` is how many requests are made in advance.
    """
    if workers.kind == "serial":
        return SerialPool(work)
    if workers.kind == "threads":
        return ThreadPool(work, workers.count)
    # Imported late: it needs sockets and signals, which most programs do not use.
    from recmap.pipeline.workers.processes import ProcessPool

    return ProcessPool(work, workers.count, workers.start_method, ahead)
