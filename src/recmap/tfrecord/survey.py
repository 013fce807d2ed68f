"""Look at records before rows are read.

A sample is enough to infer a schema. Leaving out bad records, or writing an index, takes a
check of all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

import numpy as np

from recmap.errors import DataError, NotExampleError
from recmap.files.cpus import thread_count
from recmap.files.paths import for_each
from recmap.files.read_ahead import MOST_OBJECTS
from recmap.model.facts import Skipped
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.faults import describe_record, fault_error, fault_text
from recmap.tfrecord.index import Index, Offsets
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile, Window
from recmap.tfrecord.schema_inference import Seen, Summary

# What some records hold, and where each of them is.
_Found: TypeAlias = tuple[_core.Facts, Callable[[int], Seen]]

# Places in a dataset from which records are sampled.
_SPOTS = 16
# Faults that no schema can fix.
_BROKEN = {
    _core.FaultCode.malformed,
    _core.FaultCode.no_features,
    _core.FaultCode.too_large,
    _core.FaultCode.data_crc,
    _core.FaultCode.changed,
    _core.FaultCode.wrong_kind,
}
_NOT_EXAMPLE = {_core.FaultCode.malformed, _core.FaultCode.no_features}
# Number of records to widen a schema for before the others are checked again.
_AT_ONCE = 256


def sample(files: Sequence[RecordFile], skip: bool) -> Summary:
    """Summarize records from the beginning of the files and from places spread over them."""
    summary = Summary()
    step = max(1, len(files) // _SPOTS)
    chosen = [files[i] for i in sorted({*range(0, len(files), step), len(files) - 1})]
    spots = max(1, _SPOTS // len(chosen))
    found = for_each(
        lambda file: _sampled(file, spots, skip),
        chosen,
        [file.path for file in chosen],
        MOST_OBJECTS,
    )
    for facts, where in chain.from_iterable(found):
        summary.add(facts, where)
    return summary


def _sampled(file: RecordFile, spots: int, skip: bool) -> list[_Found]:
    """Return what is in a sample of the records of a file."""
    found: list[_Found] = []
    try:
        for window in file.sample(spots, skip):
            found += _inspect(file.path, window, skip)
            fault = window.scan.fault
            if fault and window.record == 0 and window.scan.records == 0 and not skip:
                raise fault_error(fault, file.path, 0)
    except DataError:
        # Reading the rows reports a damaged file, or skips it.
        if not skip:
            raise
    return found


def _inspect(path: str, window: Window, skip: bool) -> list[_Found]:
    offsets = window.offsets
    while len(offsets):
        facts = _core.inspect(window.bytes, offsets, True)
        bad = facts.not_example
        if bad is None:
            return [(facts, partial(_seen_at, path, window, offsets))]
        if not skip and bad.code in _NOT_EXAMPLE:
            raise _not_example(path, window, bad)
        # This is damaged data, not another kind of record. Reading reports it.
        offsets = np.delete(offsets, bad.row)
    return []


def _seen_at(path: str, window: Window, offsets: Offsets, row: int) -> Seen:
    return _seen(path, window, int(offsets[row]))


def _seen(path: str, window: Window, offset: int) -> Seen:
    """Return which record of a window begins at an offset."""
    row = int(np.searchsorted(window.offsets, np.uint64(offset)))
    record = None if window.record is None else window.record + row
    return Seen(path, record, window.base + offset)


def _not_example(path: str, window: Window, bad: _core.Fault) -> NotExampleError:
    seen = _seen(path, window, bad.offset)
    number = "" if seen.record is None else f"record {seen.record:,} "
    length = int.from_bytes(window.bytes[bad.offset : bad.offset + 8], "little")
    data = window.bytes[bad.offset + 12 : bad.offset + 12 + length]
    what = describe_record(data, malformed=bad.code == _core.FaultCode.malformed)
    return NotExampleError(
        f"{path}: {number}at byte {seen.byte:,} is sound, but not a tf.train.Example: "
        f"{what} (rm.tfrecord.records({path!r}) reads the bytes of each record)",
        file=path,
        record=seen.record,
        byte=seen.byte,
    )


def survey(
    file: RecordFile,
    decoder: ExampleDecoder,
    summary: Summary | None,
    skip: bool,
    windows: Iterable[Window] | None = None,
    fixed: Schema | None = None,
) -> tuple[ExampleDecoder, list[Skipped]]:
    """Check every record of a file, and keep the result in the ``file`` object.

    With ``summary``, the schema was inferred from it, except for the ``fixed`` fields. It is
    widened for records that do not fit or have more features. Without ``summary``, a record
    that does not fit is bad. Bad records are left out with ``skip``, and raised otherwise.
    Pass the file's ``windows`` to report progress. Return a decoder that fits all other
    records, and what was left out.
    """
    skipped: list[Skipped] = []
    index, bad_rows, seen = Index(), [], 0
    for window in file.windows(skip) if windows is None else windows:
        good = np.ones(len(window.offsets), dtype=bool)
        decoder, faults = _check(file, window, decoder, summary, fixed or Schema({}))
        for row, fault in faults:
            record = (window.record or 0) + row
            if not skip:
                raise file.error(fault, record, window.base, decoder)
            reason = fault_text(fault, decoder.schema)
            byte, inflated = window.base + fault.offset, not isinstance(file, PlainFile)
            skipped.append(Skipped(file.path, record, byte, reason, inflated))
            good[row] = False
        skipped += window.skipped
        bad_rows += (np.flatnonzero(~good) + seen).tolist()
        seen += len(good)
        if isinstance(file, PlainFile):
            index.add_good(window.scan, good)
    if isinstance(file, PlainFile):
        index.complete, index.end = True, file.size
        file.use(index)
    elif skip and isinstance(file, CompressedFile):
        file.leave_out(np.array(bad_rows, dtype=np.int64), seen - len(bad_rows))
    return decoder, skipped


def _check(
    file: RecordFile,
    window: Window,
    decoder: ExampleDecoder,
    summary: Summary | None,
    fixed: Schema,
) -> tuple[ExampleDecoder, list[tuple[int, _core.Fault]]]:
    """Widen the decoder for the records of a window; return it and the remaining faults."""

    def check() -> Sequence[_core.Fault]:
        return decoder.check(window.bytes, window.offsets, False, thread_count(), where)

    def where(row: int) -> tuple[str, int]:
        return file.path, (window.record or 0) + row

    faults = check()
    if summary is None:
        # Unknown features are reported when the rows are read.
        return decoder, [(f.row, f) for f in faults if f.code != _core.FaultCode.unknown_feature]
    tried: dict[int, _core.Fault | None] = {}
    while True:
        names = list(decoder.schema)
        misfits = [
            fault.row
            for fault in faults
            if fault.code not in _BROKEN
            and fault.row not in tried
            and (fault.column is None or names[fault.column] not in fixed)
        ]
        if not misfits:
            return decoder, [(f.row, tried.get(f.row) or f) for f in faults]
        for row in misfits[:_AT_ONCE]:
            tried[row] = _learn(file.path, window, row, summary)
        more = summary.schema([name for name in summary.features if name not in fixed])
        decoder = ExampleDecoder(
            Schema({**fixed, **more}),
            {**decoder.places, **summary.places()},
            {**summary.kinds(), **decoder.kinds},
            decoder.unknown,
            decoder.described,
            decoder.choice._replace(names=[*fixed, *more]),
        )
        faults = check()


def _learn(path: str, window: Window, row: int, summary: Summary) -> _core.Fault | None:
    """Add a record to the summary, if it is sound and none of its features changes kind.

    If it is not an Example, return its fault.
    """
    offset = window.offsets[row : row + 1]
    facts = _core.inspect(window.bytes, offset, False)
    if facts.not_example is None and summary.fits(facts):
        summary.add(facts, lambda _: _seen(path, window, int(offset[0])))
    return facts.not_example
