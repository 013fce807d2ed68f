"""Look at records before rows are read, and infer a schema from their features.

A sample is enough to infer a schema. Leaving out bad records, or writing an index, takes a
check of all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from recmap.errors import DataError, FieldMismatchError, Message, NotExampleError, Option
from recmap.machine.cpus import thread_count
from recmap.model.facts import Skipped
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.store.paths import for_each
from recmap.store.read_ahead import MOST_OBJECTS
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.embedded_schema import LISTS
from recmap.tfrecord.faults import KIND_NAMES, describe_record, fault_error, fault_text
from recmap.tfrecord.index import Index, Offsets
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile, Window

_DTYPES = {_core.Kind.bytes: "bytes", _core.Kind.float: "float32", _core.Kind.int64: "int64"}

# What some records hold, and where each of them is.
_Sampled: TypeAlias = "tuple[_core.Facts, Callable[[int], Seen]]"

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


class Seen(NamedTuple):
    """The record in which something was seen. Its number may be unknown."""

    file: str
    record: int | None
    byte: int

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.file}, the record at byte {self.byte:,}"
        return f"{self.file}, record {self.record:,}"


@dataclass
class FeatureSummary:
    """One feature, over all records seen."""

    in_lists: bool
    rows: int = 0
    kinds: dict[_core.Kind, Seen] = field(
        default_factory=dict
    )  # with the record where each was first seen
    values: tuple[int, int] | None = None
    string_size: tuple[int, int] | None = None
    string_size_bits: int = 0

    def add(self, facts: _core.FeatureFacts, where: Callable[[int], Seen]) -> None:
        self.rows += facts.rows
        for kind, row in facts.kinds:
            if kind not in self.kinds:
                self.kinds[kind] = where(row)
        self.values = _wider(self.values, facts.values)
        self.string_size = _wider(self.string_size, facts.string_size)
        self.string_size_bits |= facts.string_size_bits

    def hint(self) -> str | None:
        """Suggest what the raw bytes might be."""
        if not self.string_size or self.string_size[1] == 0:
            return None
        low, high = self.string_size
        width = next((w for w in (8, 4) if self.string_size_bits % w == 0), None)
        # Four bytes are more often a word, such as "jpeg", than a lone float32.
        if width is None or high == 4:
            return None
        if low == high:
            texts = [f"float32[{low // 4}]"] + ([f"float64[{low // 8}]"] if width == 8 else [])
        else:
            texts = ["float32[*]"] + (["float64[*]"] if width == 8 else [])
        size = f"{low:,} bytes" if low == high else f"{low:,} to {high:,} bytes"
        return f"{size}, always a multiple of {width}: perhaps {' or '.join(texts)}"

    def describe(self) -> str:
        """Describe what the feature contains."""
        lists = "/".join(KIND_NAMES[kind.value] for kind in self.kinds) or "no kind set"
        text = f"feature list of {lists}" if self.in_lists else lists
        if self.values:
            low, high = self.values
            text += f", {low:,} values" if low == high else f", {low:,} to {high:,} values"
        if self.string_size:
            low, high = self.string_size
            text += f" of {low:,} bytes" if low == high else f" of {low:,} to {high:,} bytes"
        return text


@dataclass
class Summary:
    """All features over all records seen, by the name of the field that reads them."""

    rows: int = 0
    features: dict[str, FeatureSummary] = field(default_factory=dict)

    def add(self, facts: _core.Facts, where: Callable[[int], Seen]) -> None:
        """Add what was found in some records. ``where`` identifies each record."""
        self.rows += facts.rows
        for in_lists, key, feature in facts.features:
            name = self._name(in_lists, key)
            self.features.setdefault(name, FeatureSummary(in_lists)).add(feature, where)

    def _name(self, in_lists: bool, key: str) -> str:
        """Return the name of the field that reads a feature.

        If both maps of a record have the key, the one in the feature lists gets a prefix.
        """
        known = self.features.get(key)
        if in_lists:
            return LISTS + key if known is not None and not known.in_lists else key
        if known is not None and known.in_lists:
            self.features[LISTS + key] = self.features.pop(key)
        return key

    def fits(self, facts: _core.Facts) -> bool:
        """Return whether each feature has only one kind, the same as before."""
        for in_lists, key, feature in facts.features:
            known = self.features.get(self._name(in_lists, key))
            kinds = {kind for kind, _ in feature.kinds} | set(known.kinds if known else ())
            if len(kinds) > 1:
                return False
        return True

    def kinds(self) -> dict[str, _core.Kind]:
        """Return the kind of list that holds each field."""
        return {n: next(iter(f.kinds)) for n, f in self.features.items() if len(f.kinds) == 1}

    def encoding(self) -> dict[str, str]:
        """Return how each field is stored, as an index writes it."""
        steps = {name: "feature_list/" * f.in_lists for name, f in self.features.items()}
        return {name: steps[name] + KIND_NAMES[kind.value] for name, kind in self.kinds().items()}

    def places(self) -> dict[str, _core.Place]:
        """Return which of a record's two maps holds each field."""
        return {
            name: _core.Place.lists if feature.in_lists else _core.Place.features
            for name, feature in self.features.items()
        }

    def schema(self, names: Iterable[str] | None = None) -> Schema:
        """Return the narrowest fields that can hold what was seen."""
        wanted = self.features if names is None else list(names)
        fields = {}
        for name in wanted:
            feature = self.features[name]
            if feature.kinds:
                others = [other for other in self.features if other != name]
                fields[name] = _infer(name, feature, self.rows, others)
        return Schema(fields)

    def describe(self) -> str:
        """Describe in one line what the records contain."""
        parts = [f"{name!r} ({feature.describe()})" for name, feature in self.features.items()]
        return "; ".join(parts) or "no features"


def _infer(name: str, feature: FeatureSummary, rows: int, others: list[str]) -> Field:
    if len(feature.kinds) > 1:
        seen = " and ".join(f"{KIND_NAMES[k.value]} ({w})" for k, w in feature.kinds.items())
        last = list(feature.kinds.values())[-1]
        raise FieldMismatchError(
            Message(
                f"feature {name!r} changes its kind: {seen} (read the others with ",
                Option("fields", others),
                ", or the raw records with rm.tfrecord.records)",
            ),
            file=last.file,
            record=last.record,
            byte=last.byte,
            field=name,
        )
    dtype = _DTYPES[next(iter(feature.kinds))]
    low, high = feature.values or (0, 0)
    fixed = low == high and low > 0
    if feature.in_lists:
        # Feature lists are sequences, even if all those seen have the same length.
        inner: tuple[int | None, ...] = () if fixed and low == 1 else (low if fixed else None,)
        return Field(dtype, (None, *inner))
    if not fixed or feature.rows != rows:
        return Field(dtype, (None,))
    return Field(dtype, () if low == 1 else (low,))


def _wider(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def join_schemas(schemas: Sequence[Schema]) -> Schema | None:
    """Return a schema that can read the rows of all of these, or None if none can.

    A field becomes ragged if some schemas lack it, or if its first axis differs.
    """
    names = dict.fromkeys(name for schema in schemas for name in schema)
    fields = {}
    for name in names:
        field = _join([schema.get(name) for schema in schemas])
        if field is None:
            return None
        fields[name] = field
    return Schema(fields)


def _join(fields: Sequence[Field | None]) -> Field | None:
    found = [field for field in fields if field is not None]
    nullable = any(field.nullable for field in found)
    if nullable and any(field.fill is not None for field in found):
        return None
    found = [replace(field, nullable=nullable) for field in found]
    first = found[0]
    if all(field == first for field in found):
        if len(found) == len(fields) or first.fill is not None or first.ragged or nullable:
            return first
    elif any(field.fill is not None or field.dtype != first.dtype for field in found):
        return None
    shapes = {(None, *field.shape[1:]) for field in found}
    return replace(first, shape=shapes.pop()) if len(shapes) == 1 else None


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


def _sampled(file: RecordFile, spots: int, skip: bool) -> list[_Sampled]:
    """Return what is in a sample of the records of a file."""
    found: list[_Sampled] = []
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


def _inspect(path: str, window: Window, skip: bool) -> list[_Sampled]:
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
        file.index = index
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
