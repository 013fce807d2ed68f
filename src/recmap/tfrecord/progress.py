"""How far a pass over whole files is."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from typing import Self

from recmap.model.progress import Counter, ProgressOption
from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.record_window import Window
from recmap.tfrecord.survey import Shard

__all__ = ["Tally"]


class Tally:
    """Hands out the windows of files, perhaps to several threads, and counts their bytes.

    Use it as a context manager: it ends the passes of all threads, and the line of a bar.
    """

    def __init__(self, files: Sequence[str], progress: ProgressOption) -> None:
        total = sum(os.path.getsize(file) for file in files)
        self._counter = Counter(None, progress, total_bytes=total, every=0.0)
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True  # after an error or an interrupt nobody wants the rest
        if kind is None:
            self._counter.finish()
        self._counter.close()

    def windows(self, file: str) -> Iterator[Window]:
        """All records of a file whose CRCs hold, and between them the damage."""
        return self.of(open_shard(file, verify=True), skip=True)

    def of(self, shard: Shard, skip: bool) -> Generator[Window, None, None]:
        """The windows of a file that is open."""
        counted = 0
        try:
            for window in shard.windows(skip):
                if self._stopped:
                    return
                yield window
                self._counter.add(0, window.passed - counted)
                counted = window.passed
        except GeneratorExit:
            self._counter.add(0, -counted)  # it is looked at anew, or by nobody
            raise
        self._counter.add(0, os.path.getsize(shard.path) - counted)
