"""What a row gets where its feature is missing: a fill value, or null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recmap.errors import FieldTextError, OptionError
from recmap.model.field import Field


def check_fill(name: str, field: Field) -> None:
    """Refuse a fill value that would fill nothing."""
    if field.ragged and field.fill is not None:
        raise FieldTextError(f"column {name!r}: {field}: a missing ragged row is empty, not filled")


def refuse_null_items(name: str, field: Field) -> None:
    """Refuse a field whose lists may hold nulls: those of records hold none."""
    if field.null_items:
        raise OptionError(
            f"field {name!r}: {field}: the lists of TFRecord files hold no nulls; write "
            f"{str(replace(field, null_items=False))!r}"
        )


def fill_bytes(field: Field) -> bytes | None:
    """Return the bytes of a row of fill values, or of those below a mask; None if there are none.

    Dates that are missing are NaT.
    """
    if field.fill is None:
        return _under_mask(field) if field.nullable and not field.ragged else None
    row = field.fill_row()
    return row if isinstance(row, bytes) else row.tobytes()


def _under_mask(field: Field) -> bytes:
    if field.is_bytes:
        return b""
    dates = field.dtype.kind in "mM"
    zero = np.array("NaT", field.dtype) if dates else np.zeros((), field.dtype)
    return np.full(field.inner, zero, field.dtype).tobytes()
