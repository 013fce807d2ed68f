"""The files of a conversion, written by threads of this process."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, wait

from recmap.conversion.plan import Shard
from recmap.conversion.shard_writer import Job
from recmap.files import threads
from recmap.model.progress import Counter

__all__ = ["Threads"]


class Threads:
    """A few threads, as many as the budget allows, each a file at a time."""

    def run(self, job: Job, shards: list[Shard], counter: Counter) -> None:
        """Writes these files."""
        stop = threading.Event()
        with threads.Threads(job.budget.workers, "recmap-convert") as pool:
            futures = [pool.submit(job.write, s, counter.add, stop.is_set) for s in shards]
            try:
                _wait(futures)
            except BaseException:
                stop.set()
                for future in futures:
                    future.cancel()
                raise

    def explain(self, files: int) -> str:
        """Nothing: the budget says it all."""
        del files
        return ""


def _wait(futures: list[Future[None]]) -> None:
    pending = set(futures)
    while pending:
        # Short waits, so that an interrupt is heard.
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
