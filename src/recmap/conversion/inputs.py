"""The files that a conversion reads, which must stay the same until it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recmap.errors import FileChangedError, ObjectChangedError
from recmap.files.local_path import located

# The files of all shards together that are looked at again before a shard is published.
_MOST_CHECKS = 100_000


@dataclass(frozen=True)
class Inputs:
    """Input files, and the path, size and time of each, or the version of an object.

    ``each_shard`` tells whether to check all of them before every shard, besides at the end.
    """

    files: tuple[str, ...]
    states: tuple[list[Any], ...]
    each_shard: bool

    @classmethod
    def of(cls, files: Sequence[str], shards: int) -> Inputs:
        """Look at the files as they are now; raise if they are not what was opened."""
        for file in files:
            located(file).check_unchanged()
        few = len(files) * shards <= _MOST_CHECKS and not any(
            located(file).is_folder() for file in files
        )
        return cls(tuple(files), tuple(map(_state, files)), shards == 1 or few)

    def check_before_shard(self) -> None:
        """Raise if the rows of a shard, which is about to appear, may be those of two versions."""
        if self.each_shard:
            self.check()

    def check(self) -> None:
        """Raise if a file has changed since the conversion began."""
        for file, before in zip(self.files, self.states, strict=True):
            try:
                now = before if _is_pinned(file) else _state(file)
                located(file).check_unchanged()
            except (FileChangedError, FileNotFoundError):
                now = []
            if now != before:
                raise _changed(file)


def _changed(file: str) -> FileChangedError | ObjectChangedError:
    text = (
        f"{file}: changed while it was converted, so the output would mix rows of two "
        "versions; convert it again"
    )
    if located(file).remote:
        return ObjectChangedError(text, url=str(file))
    return FileChangedError(text, file=str(file))


def _is_pinned(file: str) -> bool:
    """Return whether reading the file raises if it has changed, or looking at it is enough."""
    return located(file).pinned


def _state(path: str) -> list[Any]:
    file = located(path).absolute()
    found = file.stat_below()
    return [str(file), found.size, found.version]
