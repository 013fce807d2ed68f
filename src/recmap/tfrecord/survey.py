"""Looking at records before rows are handed out: a sample of them to infer a
schema, or all of them to leave out the bad ones or to write an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap._core import Fault, FaultCode
from recmap.errors import DataError, NotExampleError
from recmap.files.machine import thread_count
from recmap.sources import Skipped
from recmap.tfrecord.compressed import CompressedShard
from recmap.tfrecord.example import Codec
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.index import Index
from recmap.tfrecord.infer import Summary
from recmap.tfrecord.plain import PlainShard
from recmap.tfrecord.window import Window

__all__ = ["Shard", "sample", "survey"]

Shard = PlainShard | CompressedShard

# Places in a dataset at which records are sampled.
_SPOTS = 16
# Faults that no other schema would mend.
_BROKEN = {FaultCode.malformed, FaultCode.too_large, FaultCode.data_crc, FaultCode.changed}


def sample(shards: Sequence[Shard], skip: bool) -> Summary:
    """What some records hold, from the beginning and from places all over."""
    summary = Summary()
    step = max(1, len(shards) // _SPOTS)
    chosen = [*shards[::step], shards[-1]] if len(shards) > 1 else shards
    spots = max(1, _SPOTS // len(chosen))
    for shard in chosen:
        try:
            for window in shard.sample(spots, skip):
                _inspect(summary, shard.path, window, skip)
                fault = window.scan.fault
                if fault and window.record == 0 and window.scan.records == 0 and not skip:
                    raise fault_error(fault, shard.path, 0)
        except DataError:
            # A damaged file is reported when its rows are read, or skipped then.
            if not skip:
                raise
    if summary.largest and not summary.features and not skip:
        raise NotExampleError(
            f"{shards[0].path}: the records have no features, so they are no tf.train.Examples "
            "(rm.tfrecord.records(path) reads records that are not)",
            file=shards[0].path,
        )
    return summary


def _inspect(summary: Summary, path: str, window: Window, skip: bool) -> None:
    offsets = window.offsets
    while len(offsets):
        facts = _core.inspect(window.bytes, offsets, True)
        bad = facts.not_example
        if bad is None:
            summary.add(facts, path)
            summary.largest = max(summary.largest, window.scan.max_length)
            return
        if not skip:
            if bad.code != FaultCode.malformed:
                # Damaged data, not another kind of record: reading will say so.
                offsets = np.delete(offsets, bad.row)
                continue
            raise _not_example(path, window, bad)
        offsets = np.delete(offsets, bad.row)


def _not_example(path: str, window: Window, bad: Fault) -> NotExampleError:
    number = "" if window.record is None else f"record {window.record + bad.row:,} "
    return NotExampleError(
        f"{path}: {number}at byte {window.base + bad.offset:,} is not a tf.train.Example "
        "(rm.tfrecord.records(path) reads records that are not)",
        file=path,
        record=None if window.record is None else window.record + bad.row,
        byte=window.base + bad.offset,
    )


def survey(
    shard: Shard,
    codec: Codec,
    summary: Summary | None,
    skip: bool,
    windows: Iterable[Window] | None = None,
) -> tuple[Codec, list[Skipped]]:
    """Checks every record of a file, and has the shard use what was found.

    With ``summary``, the schema was inferred from it, and a record that does not
    fit widens it. Without, such a record is bad. Bad records are left out if
    ``skip``, else raised. ``windows`` are those of the shard, if somebody watches them.
    Returns the codec that fits all others, and what was left out.
    """
    skipped: list[Skipped] = []
    index, bad_rows, seen = Index(), [], 0
    for window in shard.windows(skip) if windows is None else windows:
        good = np.ones(len(window.offsets), dtype=bool)
        codec, faults = _check(shard, window, codec, summary)
        for fault in faults:
            record = (window.record or 0) + fault.row
            if not skip:
                raise fault_error(fault, shard.path, record, codec.schema)
            reason = fault_text(fault, codec.schema)
            skipped.append(Skipped(shard.path, record, window.base + fault.offset, reason))
            good[fault.row] = False
        skipped += window.skipped
        bad_rows += (np.flatnonzero(~good) + seen).tolist()
        seen += len(good)
        if isinstance(shard, PlainShard):
            index.add_good(window.scan, good)
    if isinstance(shard, PlainShard):
        index.complete, index.end = True, shard.size
        shard.use(index)
    elif skip:
        shard.use(np.array(bad_rows, dtype=np.int64), seen - len(bad_rows))
    return codec, skipped


def _check(
    shard: Shard, window: Window, codec: Codec, summary: Summary | None
) -> tuple[Codec, Iterable[Fault]]:
    faults = codec.check(window.bytes, window.offsets, False, thread_count())
    while summary is not None:
        misfits = [fault.row for fault in faults if fault.code not in _BROKEN]
        if not misfits:
            break
        rows: npt.NDArray[np.uint64] = window.offsets[np.array(misfits)]
        summary.add(_core.inspect(window.bytes, rows, False), shard.path)
        codec = Codec(summary.schema(list(codec.schema)), summary.places())
        faults = codec.check(window.bytes, window.offsets, False, thread_count())
    return codec, faults
