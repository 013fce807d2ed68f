"""Verify whole files of any format."""

from __future__ import annotations

import os
import warnings

from recmap.errors import DataError, LeftOutWarning, MemoryLimitError
from recmap.files.array_sidecar import description_path
from recmap.files.cpus import thread_count
from recmap.files.paths import PathsLike, expand, size_on_disk
from recmap.files.sniff import sniff
from recmap.files.threads import Threads
from recmap.formats.detect import detect
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.registry import FORMATS
from recmap.model.arguments import as_whole
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.row_sizes import measure
from recmap.model.source import Skipped, Source
from recmap.tfrecord.verify import Verified, verify_records

__all__ = ["verify"]

# Bytes read at a time.
_LIMIT = 64 << 20


def verify(
    path: PathsLike, *, workers: int | None = None, progress: ProgressOption = None
) -> Verified:
    """Check whole files, going on behind damage: the length and data CRC of every TFRecord
    record, the CRC of every member of a .npz file. HDF5 and Zarr are read from beginning to
    end, with the checksums that their filters have; of .npy and raw files the header and the
    size are checked. Files that have no checksums are listed in ``unchecked``.

    ``workers`` files are checked at a time, as many as there are processors if it is
    not given.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("sound.tfrecord", [b"abc"])
    1
    >>> rm.verify("sound.tfrecord").ok
    True
    """
    workers = None if workers is None else as_whole("workers", workers, 1)
    check_progress(progress)
    files = expand(path)
    formats = {file: _format(file) for file in files}
    records = [file for file in files if formats[file] == "tfrecord"]
    others = [file for file in files if formats[file] != "tfrecord"]
    result = verify_records(records, workers=workers, progress=progress) if records else Verified()
    if not others:
        return result
    with Threads(min(workers or thread_count(), len(others)), "recmap-verify") as pool:
        for found in pool.map(lambda file: _verify_one(file, formats[file]), others):
            result.files += 1
            result.size += found.size
            result.records += found.records
            result.damage += found.damage
            result.unchecked += found.unchecked
    return result


def _format(file: str) -> str:
    # Without a description, bytes of any name may be records.
    described = os.path.exists(description_path(file))
    if not described and not os.path.isdir(file) and sniff(file) is None:
        return "tfrecord"
    format = detect(file)
    return "tfrecord" if format == "raw" and not described else format


def _verify_one(file: str, format: str) -> Verified:
    found = Verified(size=size_on_disk(file))
    try:
        checker = FORMATS[format].checker()
        if checker is not None:
            for number, (_, wrong) in enumerate(checker(file)):
                if wrong is not None:
                    found.damage.append(_damage(file, number, wrong))
        else:
            found.unchecked.append(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftOutWarning)
            source = open_source([file], None, OpenOptions(format=format))
        found.records = len(source)
        if FORMATS[format].verified_by_reading:
            _read_all(source)
    except DataError as e:
        if not found.damage:
            found.damage.append(_damage(file, 0, e))
    return found


def _damage(file: str, record: int, error: DataError) -> Skipped:
    reason = str(error).removeprefix(f"{file}: ")
    return Skipped(file, error.record or record, error.byte or 0, reason)


def _read_all(source: Source) -> None:
    row = 0
    while row < len(source):
        try:
            batch = source.read(row, len(source), _LIMIT)
        except MemoryLimitError:
            batch = source.read(row, row + 1)
        row += max(1, measure(batch)[0])
