"""Verification of whole files of any format."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from recmap.errors import DataError, LeftOutWarning, MemoryLimitError, WorkerDiedError
from recmap.formats.array_sidecar import description_path
from recmap.formats.detect import by_magic, detect, folder_format
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.registry import FORMATS, RECORDS, Format
from recmap.local.local_path import any_remote, located
from recmap.machine.cpus import thread_count
from recmap.machine.forks import forking, keep_inherited
from recmap.machine.mapped import guarded
from recmap.machine.threads import Threads
from recmap.model.arguments import Workers, as_workers
from recmap.model.facts import Skipped
from recmap.model.habits import helpful
from recmap.model.preview import quantity
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.row_sizes import measure
from recmap.model.source import Source
from recmap.native import _core
from recmap.recognise.sniff import sniff
from recmap.store.files_ahead import files_in_turn
from recmap.store.paths import PathsLike, expand, for_each_file
from recmap.tfrecord.framing import ScanProgress

# Bytes read at a time.
_LIMIT = 64 << 20


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
            f"in {files}, {quantity(self.size, 'byte')}"
        )
        if self.unchecked:
            lines.append(
                f"not all of the data has checksums in {len(self.unchecked):,} of {files}: damage "
                "there may go unnoticed"
            )
        return "\n".join(lines)


@helpful
def verify(
    path: PathsLike,
    *,
    workers: int | str | None = None,
    storage: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
) -> Verified:
    """Check whole files, continuing after damage.

    This checks the length and data CRC of every TFRecord record, also in the shards of a TFDS
    folder, and the CRC of every member of a .npz file. HDF5, Zarr, Parquet and Arrow files are read
    from start to end, which checks the checksums they have; a table with nulls is sound. For .npy
    and raw files, only the header and the size are checked. Files without checksums are listed in
    ``unchecked``.

    ``workers`` is how many files to check at a time: ``4`` or ``"threads:4"``, or
    ``"processes:4"``. The default is the number of CPUs. ``storage`` has the options for URLs, as
    in ``rm.open``.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("sound.tfrecord", [b"abc"])
    1
    >>> rm.verify("sound.tfrecord").ok
    True
    """
    given = as_workers("workers", thread_count() if workers is None else workers)
    check_progress(progress)
    files = [shard for file in expand(path, storage) for shard in _shards(file)]
    formats = dict(zip(files, for_each_file(_format, files), strict=True))
    if given.kind == "processes":
        return _verify_in_processes(formats, given.reading(remote=any_remote(files)), progress)
    records = [file for file in files if FORMATS[formats[file]].records]
    others = [file for file in files if not FORMATS[formats[file]].records]
    result = Verified()
    if records:
        result = _verify_records(records, given.count, progress)
    if not others:
        return result
    # Of the others, only the header is read.
    read = [file for file in others if _reads_all(FORMATS[formats[file]])]
    with (
        files_in_turn(read) as reading,
        Threads(min(given.count, len(others)), "recmap-verify") as pool,
    ):
        turns = {file: number for number, file in enumerate(read)}

        def check(file: str) -> Verified:
            with reading(turns[file]) if file in turns else nullcontext():
                return _verify_one(file, formats[file])

        for found in pool.map(check, others):
            result.files += 1
            _add(result, found)
    return result


def _reads_all(format: Format) -> bool:
    """Return whether all of a file is read to check it."""
    return format.verified_by_reading or bool(format.checks or format.checks_groups)


def _shards(file: str) -> list[str]:
    """Return the files of a folder that are checked one by one; anything else stays what it is."""
    if not located(file).is_folder():
        return [file]
    format = folder_format(file)
    return list(format.load(format.parts)(file)) if format.parts else [file]


def _add(result: Verified, found: Verified) -> None:
    result.size += found.size
    result.records += found.records
    result.damage += found.damage
    result.unchecked += found.unchecked


def _verify_in_processes(
    formats: Mapping[str, str], workers: Workers, progress: ProgressOption
) -> Verified:
    """Check files in several processes; each checks one whole file at a time."""
    result = Verified(files=len(formats))
    sizes = {file: located(file).size_below() for file in formats}
    context = multiprocessing.get_context(workers.start_method)
    pool = ProcessPoolExecutor(
        min(workers.count, len(formats)), context, _start_process, (os.getpid(),)
    )
    try:
        with Counter(None, progress, total_bytes=sum(sizes.values())) as counter:
            with forking():
                checks = [pool.submit(_verify_file, *file) for file in formats.items()]
            for file, check in zip(formats, checks, strict=True):
                _add(result, check.result())
                counter.add(0, sizes[file])
            counter.finish()
    except BrokenProcessPool as e:
        raise WorkerDiedError(f"a process that checked files was killed: {e}") from e
    finally:
        pool.shutdown(cancel_futures=True)
    return result


def _start_process(parent: int) -> None:
    keep_inherited()
    _core.end_with_parent(parent)
    # Ctrl-C reaches every process of the terminal, but only the parent should act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _verify_file(file: str, format: str) -> Verified:
    if FORMATS[format].records:
        return _verify_records([file], 1)
    return _verify_one(file, format)


def _format(file: str) -> str:
    # Without a description, a file of any name may hold records.
    folder = located(file).is_folder()
    described = not folder and located(description_path(file)).is_file()
    if not described and not folder and sniff(file) is None and by_magic(file) is None:
        return RECORDS
    format = detect(file)
    return RECORDS if FORMATS[format].header == "never" and not described else format


def _verify_one(file: str, name: str) -> Verified:
    found = Verified(size=located(file).size_below())
    format = FORMATS[name]
    try:
        checker = format.load(format.checks)
        parts = None if checker is None else checker(file)
        if parts is not None:
            for number, (_, wrong) in enumerate(parts):
                if wrong is not None:
                    found.damage.append(_damage(file, number, wrong))
        else:
            found.unchecked.append(file)
        check_groups = format.load(format.checks_groups)
        if check_groups is not None:
            _check_groups(file, check_groups, found)
            return found
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftOutWarning)
            source = open_source([file], None, OpenOptions(format=name))
        if format.verified_by_reading:
            for rows in _read_all(source):
                found.records += rows
        else:
            found.records = len(source)
    except DataError as e:
        if not found.damage:
            found.damage.append(_damage(file, 0, e))
    return found


def _check_groups(file: str, check: Callable[..., Any], found: Verified) -> None:
    row = 0
    for rows, wrong in check(file):
        if wrong is None:
            found.records += rows
        else:
            found.damage.append(_damage(file, row, wrong))
        row += rows


def _damage(file: str, record: int, error: DataError) -> Skipped:
    reason = str(error).removeprefix(f"{file}: ")
    return Skipped(file, error.record or record, error.byte or 0, reason)


def _read_all(source: Source) -> Iterator[int]:
    """Read all rows, and yield how many at a time."""
    row = 0
    while row < len(source):
        try:
            batch = source.read(row, len(source), _LIMIT)
        except MemoryLimitError:
            batch = source.read(row, row + 1)
        rows = max(1, measure(batch)[0])
        yield rows
        row += rows


def _verify_records(
    files: Sequence[str], workers: int, progress: ProgressOption = None
) -> Verified:
    """Check both CRCs of every record of TFRecord files, ``workers`` files at a time.

    The check continues after damage.
    """
    result = Verified()
    pool = Threads(min(workers, len(files)), "recmap-verify")

    def check(number: int) -> Verified:
        with reading(number):
            return _verify_record_file(files[number], scan)

    try:
        with files_in_turn(files) as reading, ScanProgress(files, progress) as scan:
            for found in pool.map(check, range(len(files))):
                result.files += 1
                _add(result, found)
    finally:
        pool.shutdown(cancel_futures=True)
    return result


@guarded
def _verify_record_file(file: str, scan: ScanProgress) -> Verified:
    found = Verified(size=located(file).stat().size)
    for window in scan.windows(file, offsets=False):
        found.records += window.scan.records
        found.damage += window.skipped
    located(file).check_unchanged()
    return found
