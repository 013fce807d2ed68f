"""Text and byte strings: view one as the other, and check that text is UTF-8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recmap.errors import ColumnError, FieldMismatchError, Message, Option
from recmap.model.batch import RowNumbers
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
        return column if inside is column.values else Ragged(inside, column.offsets, column.mask)
    dtype = TEXT_BYTE if field.is_text else BYTE
    if column.values.dtype == dtype:
        return column
    return Ragged(column.values.view(dtype), column.offsets, column.mask)


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


def is_string_type(old: Field, new: Field) -> bool:
    """Return whether two fields differ only in that one is text and the other bytes."""
    strings = old.is_bytes and new.is_bytes and old.is_text != new.is_text
    return strings and old.shape == new.shape and new.fill is None


def checked_strings(field: Field, column: Ragged, refuse: Callable[[int], Exception]) -> Ragged:
    """View strings as the text or the bytes that a field says they are.

    If bytes become text and a row is not UTF-8, raise what ``refuse`` makes of its number.
    """
    strings = as_strings_of(field, column)
    if field.is_text and strings is not column:
        row = first_not_text(column)
        if row is not None:
            raise refuse(row)
    return strings


def stored_strings(file: str, name: str, field: Field, column: Ragged, rows: RowNumbers) -> Ragged:
    """View strings of a file as the text or the bytes that a field says they are.

    The error for a row that is not UTF-8 names the file, unless ``file`` is "".
    """

    def refuse(row: int) -> FieldMismatchError:
        where = f"{file}: " if file else ""
        as_bytes = Option("fields", {name: str(field.as_bytes()), ...: None})
        return FieldMismatchError(
            Message(
                f"{where}row {rows[row]:,}: column {name!r} is {field}, but the row is not UTF-8",
                hint=("read the bytes as they are, ", as_bytes),
            ),
            file=file or None,
            record=int(rows[row]),
            field=name,
        )

    return checked_strings(field, column, refuse)
