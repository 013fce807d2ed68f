"""Checking whole files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from recmap.errors import OptionError
from recmap.files.machine import thread_count
from recmap.files.paths import PathsLike, expand
from recmap.files.threads import Threads
from recmap.sources import Skipped
from recmap.tfrecord.tally import SizeWatcher, Tally

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


def verify(
    path: PathsLike, *, workers: int | None = None, progress: SizeWatcher | None = None
) -> Verified:
    """Checks the length and data CRC of every record, going on behind damage.

    ``workers`` files are checked at a time, as many as there are processors if it is
    not given.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("sound.tfrecord", [b"abc"])
    1
    >>> rm.verify("sound.tfrecord").ok
    True
    """
    if workers is not None and workers < 1:
        raise OptionError("workers must be 1 or more")
    files = expand(path)
    tally = Tally(files, progress)
    result = Verified()
    pool = Threads(min(workers or thread_count(), len(files)), "recmap-verify")
    try:
        for found in pool.map(lambda file: _verify_one(file, tally), files):
            result.files += 1
            result.size += found.size
            result.records += found.records
            result.damage += found.damage
    finally:
        # After an error or an interrupt nobody wants the rest.
        tally.stop()
        pool.shutdown(cancel_futures=True)
    return result


def _verify_one(file: str, tally: Tally) -> Verified:
    found = Verified(size=os.path.getsize(file))
    for window in tally.windows(file):
        found.records += len(window.offsets)
        found.damage += window.skipped
    return found
