"""Text and byte strings: view one as the other."""

from __future__ import annotations

import numpy as np

from recmap.errors import ColumnError
from recmap.model.field import Field
from recmap.model.ragged import BYTE, TEXT_BYTE, Ragged
from recmap.native import _core


def as_strings_of(field: Field, column: Ragged) -> Ragged:
    """View strings as the text or the bytes that a field says they are, at any depth.

    Text is not checked; ``first_not_text`` does that.

    >>> from recmap.model.field import TEXT
    >>> as_strings_of(Field(TEXT), Ragged.from_bytes([b"caf\\xc3\\xa9"]))[0]
    'café'
    """
    if isinstance(column.values, Ragged):
        inside = as_strings_of(field, column.values)
        return column if inside is column.values else Ragged(inside, column.offsets)
    dtype = TEXT_BYTE if field.is_text else BYTE
    if column.values.dtype == dtype:
        return column
    return Ragged(column.values.view(dtype), column.offsets)


def first_not_text(column: Ragged) -> int | None:
    """Return the first row with a string that is not UTF-8, or None.

    >>> first_not_text(Ragged.from_bytes([b"fine", b"\\xff"]))
    1
    """
    offsets, inside = column.offsets - column.offsets[0], column.flat
    if isinstance(inside, Ragged):
        item = first_not_text(inside)
        return None if item is None else int(np.searchsorted(offsets, item, side="right")) - 1
    try:
        row = _core.first_invalid_utf8(np.ascontiguousarray(inside).view(np.uint8), offsets)
    except ValueError:
        raise ColumnError("the offsets of a Ragged must ascend and end inside its values") from None
    return None if row < 0 else row
