"""Which files of a conversion are finished: lists beside its manifest."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from threading import Lock
from typing import Any
from uuid import uuid4

from recmap.files.atomic_write import read_whole
from recmap.files.temporary import remove

__all__ = ["Notes", "state_of"]

_MAX_SIZE = 256 << 20


def state_of(path: str) -> list[int]:
    """Size and time of a file: one that has others is another file."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


class Notes:
    """The number, size and time of each finished file.

    Everybody who adds to them, here or in another process, has a list of his own: on
    storage that machines share, two cannot append to one file.
    """

    def __init__(self, manifest: str) -> None:
        self._manifest = manifest
        self._folder, name = os.path.split(manifest)
        self._name = f".{name}.done"
        self._own = os.path.join(self._folder, f"{self._name}-{uuid4().hex[:12]}")
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Notes, (self._manifest,)

    def add(self, number: int, temporary: str) -> None:
        """Notes that a file is finished, before it gets its name: it keeps size and time."""
        line = json.dumps([number, *state_of(temporary)])
        with self._lock, open(self._own, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def all(self) -> list[Any]:
        """What all lists say. They may have been cut, or be anything."""
        lines: list[str] = []
        for path in self._lists():
            with suppress(ValueError):
                lines += read_whole(path, _MAX_SIZE).splitlines()
        return [_parsed(line) for line in lines]

    def forget(self) -> None:
        """Removes the lists."""
        for path in self._lists():
            remove(path)

    def _lists(self) -> list[str]:
        if not os.path.isdir(self._folder or "."):
            return []
        own = re.compile(rf"{re.escape(self._name)}-[0-9a-f]{{12}}")
        names = [name for name in os.listdir(self._folder or ".") if own.fullmatch(name)]
        return [os.path.join(self._folder, name) for name in names]


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None  # cut while it was written, or not ours
