"""The types of Arrow columns, with what is known of their nulls.

Nearly all columns are declared nullable, and few hold nulls. What is known of the data makes the
type exact, so that a column without nulls is not nullable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from recmap.model.arrow_readers import null_bits
from recmap.native import _core


@dataclass(frozen=True)
class KnownKind:
    """The type of a column that is nullable only if some of its values are, or may well be."""

    format: bytes
    name: bytes
    metadata: list[tuple[bytes, bytes]]
    nullable: bool
    children: list[KnownKind]
    dictionary: KnownKind | None


ArrowKind: TypeAlias = "_core.ArrowType | KnownKind"


def exact(kind: _core.ArrowType) -> KnownKind:
    """Return a type that says where nulls are, as one that is known to do so."""
    children = [exact(child) for child in kind.children]
    dictionary = None if kind.dictionary is None else exact(kind.dictionary)
    return KnownKind(kind.format, kind.name, kind.metadata, kind.nullable, children, dictionary)


def seen(kind: _core.ArrowType, arrays: Sequence[_core.ArrowArray]) -> KnownKind:
    """Return the type of these arrays, with nulls only where there are some."""
    children = [
        seen(child, [array.child(number) for array in arrays if number < array.n_children])
        for number, child in enumerate(kind.children)
    ]
    fixed = kind.format.startswith(b"+w:") and [child.format for child in children] != [b"n"]
    if fixed and not any(_has_null_items(array, _size(kind)) for array in arrays):
        children = [replace(child, nullable=False) for child in children]
    dictionary = None
    if kind.dictionary is not None:
        values = [array.dictionary for array in arrays]
        dictionary = seen(kind.dictionary, [each for each in values if each is not None])
    nullable = kind.format == b"n" or any(map(_has_nulls, arrays))
    nullable = nullable or (dictionary is not None and dictionary.nullable)
    return KnownKind(kind.format, kind.name, kind.metadata, nullable, children, dictionary)


def _has_nulls(array: _core.ArrowArray) -> bool:
    # -1: they have not been counted.
    return array.null_count != 0 and (array.null_count > 0 or array.has_buffer(0))


def _size(kind: _core.ArrowType) -> int:
    """Return the items of each list of a fixed size; 0 if the type is damaged, as others say."""
    size = kind.format.removeprefix(b"+w:")
    return int(size) if size.isdigit() else 0


def _has_null_items(array: _core.ArrowArray, size: int) -> bool:
    """Return whether an item of a list of a fixed size is null, though the list is not."""
    items, first = array.child(0), array.offset * size
    # An array that was sliced may end before its items do.
    if not _has_nulls(items) or first + array.length * size > items.length:
        return False
    absent = null_bits(items, first, first + array.length * size)
    missing = null_bits(array, 0, array.length)
    if absent is None or missing is None:
        return absent is not None
    return bool((absent & ~np.repeat(missing, size)).any())
