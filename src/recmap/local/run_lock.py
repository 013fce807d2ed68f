"""The run lock: a file next to the output that marks a running conversion."""

from __future__ import annotations

import os
from datetime import datetime

from recmap.errors import OutputExistsError
from recmap.local.atomic_write import writing
from recmap.local.temporary import remove


class RunLock:
    """A file that exists while a conversion runs.

    Tasks on other machines stop when it disappears. If it is missing, the conversion itself
    concludes that another one has taken over the output.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: When it was acquired, by the clock of the store; None on disk.
        self.since: datetime | None = None
        self._held = False
        self._lost = False

    def acquire(self) -> None:
        """Create the file, and its folder if necessary."""
        folder = os.path.dirname(self.path) or "."
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
            with open(self.path, "w", encoding="utf-8"):
                self._held = True

    def stop(self) -> None:
        """Tell tasks on other machines to stop, before the lock is released."""
        self.release()

    def release(self) -> None:
        """Remove the file, without changing ``lost``."""
        self._lost = self.lost
        self._held = False
        remove(self.path)

    @property
    def exists(self) -> bool:
        """Whether the conversion is still running, here or on another machine."""
        return os.path.exists(self.path)

    @property
    def lost(self) -> bool:
        """Whether another conversion removed the file while this one held it."""
        return self._lost or (self._held and not self.exists)

    def taken_over(self, output: str) -> OutputExistsError:
        """Return the error for a conversion that lost its lock."""
        return OutputExistsError(
            f"{output} was not finished: another conversion to the same place has taken over and "
            f"removed {self.path}; wait for that one, or stop it and run this one again"
        )
