"""A limit for the memory of processes, with what they have in the page cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Self

__all__ = ["MemoryLimit"]

_GROUPS = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group of Linux that holds at most so many bytes, as a container does.

    It needs root, and raises OSError without. End its processes before it is left.
    """

    def __init__(self, size: int, groups: Path = _GROUPS) -> None:
        old = groups / "memory"
        parent, file = (old, "memory.limit_in_bytes") if old.is_dir() else (groups, "memory.max")
        self._folder = parent / f"recmap-bench-{os.getpid()}"
        self._folder.mkdir()
        try:
            (self._folder / file).write_text(str(size))
        except OSError:
            self._folder.rmdir()
            raise

    def add(self, process: int) -> None:
        """Limit a process, and all that it starts from now on."""
        (self._folder / "cgroup.procs").write_text(str(process))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()
