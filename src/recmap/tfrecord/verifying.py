"""Checking whole files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from recmap.files.paths import PathsLike, expand
from recmap.sources import Skipped
from recmap.tfrecord.framing import open_shard

__all__ = ["Verified", "verify"]


@dataclass
class Verified:
    """What checking found: sound records, and the damage."""

    files: int = 0
    size: int = 0
    records: int = 0
    damage: list[Skipped] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage


def verify(path: PathsLike) -> Verified:
    """Checks the length and data CRC of every record, going on behind damage.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("sound.tfrecord", [b"abc"])
    1
    >>> rm.verify("sound.tfrecord").ok
    True
    """
    result = Verified()
    for file in expand(path):
        result.files += 1
        result.size += os.path.getsize(file)
        for window in open_shard(file, verify=True).windows(skip=True):
            result.records += len(window.offsets)
            result.damage += window.skipped
    return result
