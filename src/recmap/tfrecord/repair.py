"""Copy the sound records of damaged files to a new file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, DataError, OptionError
from recmap.local.local_path import check_all_unchanged, located, refuse_existing
from recmap.local.output import OutputStream, choose_compression
from recmap.local.temporary import remove_leftovers
from recmap.machine.mapped import Guard
from recmap.model.arguments import check_flag
from recmap.model.facts import Skipped
from recmap.model.habits import helpful
from recmap.model.preview import quantity
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.store.paths import PathLike, PathsLike, as_path, expand
from recmap.tfrecord.embedded_schema import (
    check_claims,
    description,
    read_description,
)
from recmap.tfrecord.framing import ScanProgress, open_record_file
from recmap.tfrecord.record_file import Window
from recmap.tfrecord.sidecar import sidecar_path

# Bytes passed to the writer at a time.
_WRITE_SIZE = 4 << 20
_FOOTER_SIZE = _core.FRAME_SIZE - _core.HEADER_SIZE


@dataclass
class Repaired:
    """What a repair kept and left out."""

    path: str
    size: int = 0
    records: int = 0
    damage: list[Skipped] = field(default_factory=list)

    def __str__(self) -> str:
        records, size = quantity(self.records, "sound record"), quantity(self.size, "byte")
        kept = f"{records} in {self.path}, {size}"
        if not self.damage:
            return f"{kept}; no damage was found"
        places = "1 place" if len(self.damage) == 1 else f"{len(self.damage):,} places"
        return f"{kept}; damage at {places} was left out"


@helpful
def repair(
    src: PathsLike,
    dst: PathLike,
    *,
    overwrite: bool = False,
    durable: bool = True,
    storage: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
) -> Repaired:
    """Copy the records with matching CRCs to a new file, byte for byte, and report the damage.

    Records may contain anything. Several files become one. It is compressed if its name ends
    with ``.gz`` or ``.zlib``, and appears once it is complete. If the first record is damaged
    but its description of the columns is intact, the first sound record gets the description.
    ``storage`` has the options for the URLs in ``src``, as in ``rm.open``.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("damaged.tfrecord", [b"one", b"two", b"three"])
    3
    >>> with open("damaged.tfrecord", "r+b") as file:
    ...     _ = file.seek(12), file.write(b"0")
    >>> done = rm.repair("damaged.tfrecord", "sound.tfrecord")
    >>> done.records, done.damage[0].record, done.damage[0].byte
    (2, 0, 0)
    >>> list(rm.tfrecord.records("sound.tfrecord"))
    [b'two', b'three']
    """
    files, target = expand(src, storage), as_path(dst, "dst")
    if os.path.isdir(target):
        raise OptionError(f"{target} is a folder: give the name of the new file")
    own = located(target).identity() if os.path.exists(target) else None
    if own is not None and any(located(file).identity() == own for file in files):
        raise OptionError(f"{target} is the file to be repaired: write to another one")
    refuse_existing(target, check_flag("overwrite", overwrite))
    check_flag("durable", durable)
    check_progress(progress)
    remove_leftovers(os.path.dirname(target), os.path.basename(target).__eq__)
    done = Repaired(target)
    with located(target).create(durable=durable) as output:
        stream = output.stream(choose_compression(target, None))
        with ScanProgress(files, progress) as scan:
            _copy_files(files, scan, stream, done)
        if done.damage and not done.records:
            raise CorruptRecordError(
                f"{files[0]}: it has no sound record, so nothing was written; the first damage: "
                f"{done.damage[0]}",
                file=files[0],
            )
        check_all_unchanged(files)
        output.finish()
        # An index left by an older file of this name does not belong to the new one.
        if os.path.exists(sidecar_path(target)):
            os.unlink(sidecar_path(target))
    done.size = os.path.getsize(target)
    return done


def _copy_files(
    files: Sequence[str], scan: ScanProgress, output: OutputStream, done: Repaired
) -> None:
    for file in files:
        with Guard(file):
            for window in scan.windows(file):
                if done.records == 0 and len(window.offsets):
                    _copy_first(window, files[0], output)
                else:
                    _copy(window, output)
                done.records += len(window.offsets)
                done.damage += window.skipped


def _copy_first(window: Window, file: str, output: OutputStream) -> None:
    """Write the first sound records.

    If the damaged record before them described the columns, the very first gets that
    description.
    """
    begin, second = int(window.offsets[0]), window.scan.end
    if len(window.offsets) > 1:
        second = int(window.offsets[1])
    record = window.bytes[begin + _core.HEADER_SIZE : second - _FOOTER_SIZE]
    lost = open_record_file(file, verify=False).first_record()
    described = None if lost is None else _description(lost[_core.HEADER_SIZE :], file)
    if described is None or not _can_carry(record, described[0], file):
        _copy(window, output)
        return
    schema, table_note = described
    lead = np.frombuffer(description(schema, 0, table_note), np.uint8)
    output.write(_core.frame([np.concatenate([lead, record])]))
    _copy(window, output, second)


def _description(
    record: npt.NDArray[np.uint8], file: str
) -> tuple[Schema, Mapping[str, Any]] | None:
    try:
        return read_description(record, file)
    except DataError:
        return None


def _can_carry(record: npt.NDArray[np.uint8], schema: Schema, file: str) -> bool:
    """Return whether a record has the columns of a schema, but no description yet."""
    try:
        if read_description(record, file) is not None:
            return False
        check_claims(schema, np.frombuffer(_core.frame([record]), np.uint8), "", file)
    except DataError:
        return False
    return len(record) > 0


def _copy(window: Window, output: OutputStream, begin: int | None = None) -> None:
    """Write the records and their framing from ``begin``. They are stored end to end."""
    if not len(window.offsets):
        return
    begin, end = int(window.offsets[0]) if begin is None else begin, window.scan.end
    for start in range(begin, end, _WRITE_SIZE):
        output.write(window.bytes[start : min(start + _WRITE_SIZE, end)])
