"""Describe fields for TensorFlow's parser, as data to print or to turn into a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from recmap.model.field import Field
from recmap.native import _core

__all__ = ["Parsing", "parsing_of"]


@dataclass(frozen=True)
class Parsing:
    """One feature of a parsing spec.

    It is ``fixed`` (FixedLenFeature), ``ragged`` (RaggedFeature) or ``steps`` of a feature list
    (FixedLenSequenceFeature). ``shape`` is the shape below the ragged axis or the steps.
    ``raw`` values are one byte string, which must be decoded.
    """

    form: Literal["fixed", "ragged", "steps"]
    kind: _core.Kind
    shape: tuple[int, ...]
    default: Any = None
    raw: bool = False


def parsing_of(field: Field, kind: _core.Kind, in_lists: bool) -> Parsing:
    """Return how to parse a field stored in lists of this kind."""
    raw = kind == _core.Kind.bytes and not field.is_bytes
    if in_lists and (field.ragged < 2 or raw):
        below = field.inner if field.ragged else field.inner[1:]
        return Parsing("steps", kind, () if raw else below, raw=raw)
    if raw:
        return Parsing("fixed", kind, (), b"" if field.ragged else _raw_fill(field), raw)
    if field.ragged == 0:
        return Parsing("fixed", kind, field.inner, _fill(field, kind))
    return Parsing("ragged", kind, field.inner)


def _raw_fill(field: Field) -> bytes | None:
    if field.fill is None:
        return None
    row = field.fill_row()
    return row if isinstance(row, bytes) else row.tobytes()


def _fill(field: Field, kind: _core.Kind) -> Any:
    fill = field.fill
    if fill is None:
        return None
    if kind == _core.Kind.int64:
        fill = int(fill)
    return [fill] * field.count if field.shape else fill
