"""A schema from what records hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recmap._core import Facts, FeatureFacts, Kind, Place
from recmap.errors import FieldMismatchError
from recmap.tfrecord.example import LISTS
from recmap.tfrecord.faults import KIND_NAMES
from recmap.types import Field, Schema

__all__ = ["FeatureSummary", "Summary"]

_DTYPES = {Kind.bytes: "bytes", Kind.float: "float32", Kind.int64: "int64"}


@dataclass
class FeatureSummary:
    """One feature over all records seen."""

    in_lists: bool
    rows: int = 0
    kinds: dict[Kind, str] = field(default_factory=dict)  # and where each was first seen
    values: tuple[int, int] | None = None
    string_size: tuple[int, int] | None = None
    string_size_bits: int = 0

    def add(self, facts: FeatureFacts, where: str) -> None:
        self.rows += facts.rows
        for kind, row in facts.kinds:
            self.kinds.setdefault(kind, f"{where}, sampled record {row:,}")
        self.values = _wider(self.values, facts.values)
        self.string_size = _wider(self.string_size, facts.string_size)
        self.string_size_bits |= facts.string_size_bits

    def hint(self) -> str | None:
        """What raw bytes might be, as a suggestion."""
        if not self.string_size or self.string_size[1] == 0:
            return None
        low, high = self.string_size
        width = next((w for w in (8, 4) if self.string_size_bits % w == 0), None)
        if width is None:
            return None
        if low == high:
            texts = [f"float32[{low // 4}]"] + ([f"float64[{low // 8}]"] if width == 8 else [])
        else:
            texts = ["float32[*]"] + (["float64[*]"] if width == 8 else [])
        size = f"{low:,} bytes" if low == high else f"{low:,} to {high:,} bytes"
        return f"{size}, always a multiple of {width}: perhaps {' or '.join(texts)}"

    def describe(self) -> str:
        """What the feature holds, for an error that has to say it."""
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
    largest: int = 0  # record, in bytes
    features: dict[str, FeatureSummary] = field(default_factory=dict)

    def add(self, facts: Facts, where: str) -> None:
        """Adds what was found in some records of a file."""
        self.rows += facts.rows
        names = {key for in_lists, key, _ in facts.features if not in_lists}
        names |= {name for name, feature in self.features.items() if not feature.in_lists}
        for in_lists, key, feature in facts.features:
            name = LISTS + key if in_lists and key in names else key
            self.features.setdefault(name, FeatureSummary(in_lists)).add(feature, where)

    def places(self) -> dict[str, Place]:
        """Which of a record's two maps holds each field."""
        return {
            name: Place.lists if feature.in_lists else Place.features
            for name, feature in self.features.items()
        }

    def schema(self, names: Iterable[str] | None = None) -> Schema:
        """The narrowest fields that hold what was seen."""
        wanted = self.features if names is None else list(names)
        fields = {}
        for name in wanted:
            feature = self.features[name]
            if feature.kinds:
                fields[name] = _infer(name, feature, self.rows)
        return Schema(fields)

    def describe(self) -> str:
        """What the records hold, in one line."""
        parts = [f"{name!r} ({feature.describe()})" for name, feature in self.features.items()]
        return "; ".join(parts) or "no features"


def _infer(name: str, feature: FeatureSummary, rows: int) -> Field:
    if len(feature.kinds) > 1:
        seen = " and ".join(f"{KIND_NAMES[k.value]} ({w})" for k, w in feature.kinds.items())
        raise FieldMismatchError(
            f"feature {name!r} changes its kind: {seen} (leave it out with fields=[...], or read "
            "the records with rm.tfrecord.records)",
            field=name,
        )
    dtype = _DTYPES[next(iter(feature.kinds))]
    low, high = feature.values or (0, 0)
    fixed = low == high and low > 0
    if feature.in_lists:
        # Lists are sequences: that those seen have one length means nothing.
        inner: tuple[int | None, ...] = () if fixed and low == 1 else (low if fixed else None,)
        return Field(dtype, (None, *inner))
    if not fixed or feature.rows != rows:
        return Field(dtype, (None,))
    return Field(dtype, () if low == 1 else (low,))


def _wider(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])
