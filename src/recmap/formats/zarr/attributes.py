"""What a Zarr store we wrote says of its columns, in the attributes of its group.

``{"recmap": {"columns": [{"name": "x", "path": "x", "field": "float32[10]"}]}}``: their
order, their names where a folder cannot have them, and their types where Zarr has no
such type: those values are stored as unsigned integers, or as bytes on one more axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldTextError
from recmap.formats.row_columns import Rows
from recmap.model.schema import Field

__all__ = ["Mark", "marks", "read_marks", "restored", "stored", "stored_as"]

_KEY = "recmap"
_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
_UINTS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


@dataclass(frozen=True)
class Mark:
    """Where a column is, and what it is."""

    name: str
    path: str
    field: Field


def marks(columns: Sequence[Mark]) -> dict[str, Any]:
    """The attributes of a group."""
    listed = [
        {"name": m.name, "path": m.path, "field": str(Field(m.field.dtype, m.field.shape))}
        for m in columns
    ]
    return {_KEY: {"columns": listed}}


def read_marks(path: str, attributes: Mapping[str, Any]) -> list[Mark]:
    """The columns that the attributes tell; none if the store is not ours."""
    if _KEY not in attributes:
        return []
    try:
        return [
            Mark(str(c["name"]), str(c["path"]), Field.parse(str(c["field"])))
            for c in attributes[_KEY]["columns"]
        ]
    except (FieldTextError, KeyError, TypeError) as e:
        raise DataError(
            f"{path}: its attribute {_KEY!r} cannot be read ({e!r}); remove it to read the arrays "
            "as they are",
            file=path,
        ) from e


def stored_as(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype that stands for one in a store, and the axis it needs more."""
    known = dtype.kind in "biu" or (dtype.kind in "fc" and dtype.name in _FLOATS)
    dated = dtype.kind in "mM" and np.datetime_data(dtype)[0] != "generic"
    if known or dated:
        return _native(dtype), ()
    if dtype.itemsize in _UINTS:
        return np.dtype(_UINTS[dtype.itemsize]), ()
    return np.dtype(np.uint8), (dtype.itemsize,)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # bfloat16 and its kin have no other order.
    return dtype if dtype.kind == "V" else dtype.newbyteorder("=")


def stored(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values as they are stored."""
    dtype, more = stored_as(values.dtype)
    native = np.ascontiguousarray(values, _native(values.dtype))
    if native.dtype == dtype:
        return native
    return native.reshape(-1).view(dtype).reshape(*values.shape, *more)


def restored(rows: Rows, told: Field) -> Rows:
    """Rows as they were before they were stored, if they are what is stored for ``told``."""
    dtype, more = stored_as(told.dtype)
    if (rows.dtype, rows.shape[1:]) != (dtype, (*told.inner, *more)):
        return rows
    return rows if rows.dtype == told.dtype and not more else _Restored(rows, told)


class _Restored:
    def __init__(self, rows: Rows, told: Field) -> None:
        self._rows = rows
        self.dtype, self.shape = told.dtype, (rows.shape[0], *told.inner)
        self.chunk_rows, self.note, self.band_bytes = rows.chunk_rows, rows.note, rows.band_bytes

    def keep(self, bands: int | None) -> None:
        self._rows.keep(bands)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self._restored(self._rows.read(start, stop))

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._restored(self._rows.gather(rows))

    def _restored(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        native = _native(self.dtype)
        if values.dtype != native:
            flat = np.ascontiguousarray(values).reshape(-1)
            values = flat.view(native).reshape(len(values), *self.shape[1:])
        return values.astype(self.dtype, copy=False)
