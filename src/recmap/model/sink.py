"""Sink: writes rows. Every format that recmap writes has one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Sink"]


class Sink(ABC):
    """Writes rows to a file, which gets its final name on commit."""

    @abstractmethod
    def write(self, batch: Mapping[str, Any]) -> None:
        """Append the rows of a batch: a dict of columns of equal length."""

    @abstractmethod
    def finish(self) -> str:
        """Write the remaining data, and return the temporary name of the file.

        It is empty if the file has none, because it is being sent to a store.
        """

    @abstractmethod
    def commit(self) -> None:
        """Finish if necessary, and give the file its final name."""

    @abstractmethod
    def abort(self) -> None:
        """Remove everything that was written."""

    def records_written(self) -> tuple[str, int] | None:
        """Return the temporary file and the size of the complete records in it, in bytes.

        Return None if the file cannot be checked record by record while it is written.
        """
        return None

    def watch_records(self, watcher: Callable[[npt.NDArray[np.uint8]], None]) -> bool:
        """Call ``watcher`` with the bytes of whole records before they are sent to a store.

        Return False if this sink does not send records.
        """
        del watcher
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()
