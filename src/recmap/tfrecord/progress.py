"""Scan whole files and report progress."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from typing import Self

from recmap.model.progress import Counter, ProgressOption
from recmap.tfrecord.framing import open_record_file
from recmap.tfrecord.record_file import RecordFile, Window

__all__ = ["ScanProgress"]


class ScanProgress:
    """Yields the windows of files to one or more threads, and reports the bytes read.

    Use it as a context manager: leaving it stops the scans of all threads and ends the line
    of a progress bar.
    """

    def __init__(self, files: Sequence[str], progress: ProgressOption) -> None:
        total = sum(os.path.getsize(file) for file in files)
        self._counter = Counter(None, progress, total_bytes=total, every=0.0)
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True  # after an error, the other threads can stop
        if kind is None:
            self._counter.finish()
        self._counter.close()

    def windows(self, file: str) -> Iterator[Window]:
        """Yield all records of a file with matching CRCs, and the damage between them."""
        return self.of(open_record_file(file, verify=True), skip=True)

    def of(self, file: RecordFile, skip: bool) -> Generator[Window, None, None]:
        """Yield the windows of an open file."""
        counted = 0
        try:
            for window in file.windows(skip):
                if self._stopped:
                    return
                yield window
                self._counter.add(0, window.passed - counted)
                counted = window.passed
        except GeneratorExit:
            self._counter.add(0, -counted)  # the file is scanned again, or not at all
            raise
        self._counter.add(0, os.path.getsize(file.path) - counted)
