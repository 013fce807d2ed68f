"""Looking at records before rows are handed out: a sample of them to infer a
schema, or all of them to leave out the bad ones or to write an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from recmap.errors import DataError, NotExampleError
from recmap.files.cpus import thread_count
from recmap.model.schema import Schema
from recmap.model.source import Skipped
from recmap.native import _core
from recmap.tfrecord.compressed_file import CompressedShard
from recmap.tfrecord.decoder import Codec
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.foreign_records import foreign_text
from recmap.tfrecord.index import Index, Offsets
from recmap.tfrecord.plain_file import PlainShard
from recmap.tfrecord.record_window import Window
from recmap.tfrecord.schema_inference import Seen, Summary

__all__ = ["Shard", "sample", "survey"]

Shard = PlainShard | CompressedShard

# Places in a dataset at which records are sampled.
_SPOTS = 16
# Faults that no other schema would mend.
_BROKEN = {
    _core.FaultCode.malformed,
    _core.FaultCode.no_features,
    _core.FaultCode.too_large,
    _core.FaultCode.data_crc,
    _core.FaultCode.changed,
    _core.FaultCode.wrong_kind,
}
_NOT_EXAMPLE = {_core.FaultCode.malformed, _core.FaultCode.no_features}
# Records a schema is widened for, before the others are looked at again.
_AT_ONCE = 256


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
    return summary


def _inspect(summary: Summary, path: str, window: Window, skip: bool) -> None:
    offsets = window.offsets
    while len(offsets):
        facts = _core.inspect(window.bytes, offsets, True)
        bad = facts.not_example
        if bad is None:
            summary.add(facts, partial(_seen_at, path, window, offsets))
            return
        if not skip and bad.code in _NOT_EXAMPLE:
            raise _not_example(path, window, bad)
        # Damaged data, not another kind of record: reading will say so.
        offsets = np.delete(offsets, bad.row)


def _seen_at(path: str, window: Window, offsets: Offsets, row: int) -> Seen:
    return _seen(path, window, int(offsets[row]))


def _seen(path: str, window: Window, offset: int) -> Seen:
    """The record of a window that begins at an offset."""
    row = int(np.searchsorted(window.offsets, np.uint64(offset)))
    record = None if window.record is None else window.record + row
    return Seen(path, record, window.base + offset)


def _not_example(path: str, window: Window, bad: _core.Fault) -> NotExampleError:
    seen = _seen(path, window, bad.offset)
    number = "" if seen.record is None else f"record {seen.record:,} "
    length = int.from_bytes(window.bytes[bad.offset : bad.offset + 8], "little")
    data = window.bytes[bad.offset + 12 : bad.offset + 12 + length]
    return NotExampleError(
        f"{path}: {number}at byte {seen.byte:,} is sound, but not a tf.train.Example: "
        f"{foreign_text(data)} (rm.tfrecord.records({path!r}) reads the bytes of each record)",
        file=path,
        record=seen.record,
        byte=seen.byte,
    )


def survey(
    shard: Shard,
    codec: Codec,
    summary: Summary | None,
    skip: bool,
    windows: Iterable[Window] | None = None,
    fixed: Schema | None = None,
) -> tuple[Codec, list[Skipped]]:
    """Checks every record of a file, and has the shard use what was found.

    With ``summary``, the schema was inferred from it, except for ``fixed`` fields, and a
    record that does not fit or has more features widens it. Without, a record that does
    not fit is bad. Bad records are left out if ``skip``, else raised. ``windows`` are
    those of the shard, if somebody watches them. Returns the codec that fits all others,
    and what was left out.
    """
    skipped: list[Skipped] = []
    index, bad_rows, seen = Index(), [], 0
    for window in shard.windows(skip) if windows is None else windows:
        good = np.ones(len(window.offsets), dtype=bool)
        codec, faults = _check(shard, window, codec, summary, fixed or Schema({}))
        for row, fault in faults:
            record = (window.record or 0) + row
            if not skip:
                if isinstance(shard, CompressedShard):
                    raise shard.error(fault, record, window.base, codec)
                raise codec.error(fault, shard.path, record)
            reason = fault_text(fault, codec.schema)
            skipped.append(Skipped(shard.path, record, window.base + fault.offset, reason))
            good[row] = False
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
    shard: Shard, window: Window, codec: Codec, summary: Summary | None, fixed: Schema
) -> tuple[Codec, list[tuple[int, _core.Fault]]]:
    """The codec, widened for the records of a window, and the rows that it does not fit."""

    def check() -> Sequence[_core.Fault]:
        return codec.check(window.bytes, window.offsets, False, thread_count(), where)

    def where(row: int) -> tuple[str, int]:
        return shard.path, (window.record or 0) + row

    faults = check()
    if summary is None:
        # Whoever reads the rows hears of unknown features.
        return codec, [(f.row, f) for f in faults if f.code != _core.FaultCode.unknown_feature]
    tried: dict[int, _core.Fault | None] = {}
    while True:
        names = list(codec.schema)
        misfits = [
            fault.row
            for fault in faults
            if fault.code not in _BROKEN
            and fault.row not in tried
            and (fault.column is None or names[fault.column] not in fixed)
        ]
        if not misfits:
            return codec, [(f.row, tried.get(f.row) or f) for f in faults]
        for row in misfits[:_AT_ONCE]:
            tried[row] = _learn(shard.path, window, row, summary)
        more = summary.schema([name for name in summary.features if name not in fixed])
        codec = Codec(
            Schema({**fixed, **more}),
            {**codec.places, **summary.places()},
            {**summary.kinds(), **codec.kinds},
            codec.unknown,
            codec.described,
            codec.opened._replace(names=[*fixed, *more]),
        )
        faults = check()


def _learn(path: str, window: Window, row: int, summary: Summary) -> _core.Fault | None:
    """Adds what a record holds to the summary, if it is sound and no feature changes its
    kind in it. Why it is no Example, if it is none.
    """
    offset = window.offsets[row : row + 1]
    facts = _core.inspect(window.bytes, offset, False)
    if facts.not_example is None and summary.fits(facts):
        summary.add(facts, lambda _: _seen(path, window, int(offset[0])))
    return facts.not_example
