"""Infer a schema from the features of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recmap.errors import FieldMismatchError, Message, Option
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.decoder import LISTS
from recmap.tfrecord.faults import KIND_NAMES

_DTYPES = {_core.Kind.bytes: "bytes", _core.Kind.float: "float32", _core.Kind.int64: "int64"}


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
    first = found[0]
    if all(field == first for field in found):
        if len(found) == len(fields) or first.fill is not None or first.ragged:
            return first
    elif any(field.fill is not None or field.dtype != first.dtype for field in found):
        return None
    shapes = {(None, *field.shape[1:]) for field in found}
    return Field(first.dtype, shapes.pop()) if len(shapes) == 1 else None
