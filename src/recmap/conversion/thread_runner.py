"""Write the shards of a conversion in threads of this process."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, wait

from recmap.conversion.plan import Shard
from recmap.conversion.shard_writer import ShardWriter
from recmap.files import threads
from recmap.model.progress import Counter

__all__ = ["ThreadRunner"]


class ThreadRunner:
    """Runs as many threads as the budget allows, each of which writes one shard at a time."""

    def run(self, writer: ShardWriter, shards: list[Shard], counter: Counter) -> None:
        """Write these shards."""
        stop = threading.Event()
        with threads.Threads(writer.budget.workers, "recmap-convert") as pool:
            futures = [pool.submit(writer.write, s, counter.add, stop.is_set) for s in shards]
            try:
                _wait(futures)
            except BaseException:
                stop.set()
                for future in futures:
                    future.cancel()
                raise

    def explain(self, files: int) -> str:
        """Return an empty string: the budget already explains the threads."""
        del files
        return ""


def _wait(futures: list[Future[None]]) -> None:
    pending = set(futures)
    while pending:
        # Wait briefly, to notice an interrupt.
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
