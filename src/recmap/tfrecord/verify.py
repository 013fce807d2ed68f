"""Check whole files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recmap.files.cpus import thread_count
from recmap.files.files_ahead import files_in_turn
from recmap.files.local_path import located
from recmap.files.mapped import guarded
from recmap.files.threads import Threads
from recmap.model.facts import Skipped
from recmap.model.preview import quantity
from recmap.model.progress import ProgressOption
from recmap.tfrecord.framing import ScanProgress


@dataclass
class Verified:
    """What a check found: sound records or rows, damage, and files without checksums.

    If a file's format has no checksums, only its structure was checked.
    """

    files: int = 0
    size: int = 0
    records: int = 0
    damage: list[Skipped] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.damage

    def __str__(self) -> str:
        files = quantity(self.files, "file")
        lines = [str(damage) for damage in self.damage]
        lines.append(
            f"{quantity(self.records, 'sound record')}, {len(self.damage):,} damaged, "
            f"in {files} of {quantity(self.size, 'byte')}"
        )
        if self.unchecked:
            lines.append(
                f"not all of the data has checksums in {len(self.unchecked):,} of {files}: damage "
                "there may go unnoticed"
            )
        return "\n".join(lines)


def verify_records(
    files: Sequence[str], *, workers: int | None = None, progress: ProgressOption = None
) -> Verified:
    """Check both CRCs of every record of TFRecord files, ``workers`` files at a time.

    The check continues after damage.
    """
    result = Verified()
    at_once = min(workers or thread_count(), len(files))
    pool = Threads(at_once, "recmap-verify")

    def check(number: int) -> Verified:
        with reading(number):
            return _verify_one(files[number], scan)

    try:
        with files_in_turn(files) as reading, ScanProgress(files, progress) as scan:
            for found in pool.map(check, range(len(files))):
                result.files += 1
                result.size += found.size
                result.records += found.records
                result.damage += found.damage
    finally:
        pool.shutdown(cancel_futures=True)
    return result


@guarded
def _verify_one(file: str, scan: ScanProgress) -> Verified:
    found = Verified(size=located(file).stat().size)
    for window in scan.windows(file, offsets=False):
        found.records += window.scan.records
        found.damage += window.skipped
    located(file).check_unchanged()
    return found
