"""The driver's place, which a task takes while it works for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass

from recmap.files.cpus import using_threads
from recmap.files.temporary import Process, acting_for, this_process

__all__ = ["TASK_CPUS", "Home"]

# Processors that a task asks Ray for, and uses.
TASK_CPUS = 1


@dataclass(frozen=True)
class Home:
    """The driver's folder, in which relative paths begin, and its process, to which
    temporary files belong.
    """

    folder: str
    process: Process

    @classmethod
    def here(cls) -> Home:
        return cls(os.getcwd(), this_process())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Has this process act as if it were the driver, with the processors of a task."""
        with ExitStack() as stack:
            stack.enter_context(acting_for(self.process))
            stack.enter_context(using_threads(TASK_CPUS))
            # A node need not have it: then no path is relative, or it is not seen there.
            if os.path.isdir(self.folder):
                stack.enter_context(chdir(self.folder))
            yield
