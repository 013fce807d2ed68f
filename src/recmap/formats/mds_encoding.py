"""The encodings of Mosaic Streaming: how the bytes of a value become a column."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recmap.errors import DataError
from recmap.model.batch import RowArray
from recmap.model.coerce import empty_column
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.text import stored_strings

_SCALARS = {
    "int": "int64",
    **{
        name: name
        for name in (
            *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
            *("float16", "float32", "float64"),
        )
    },
}
_STRINGS = {
    **dict.fromkeys(("bytes", "jpeg", "png"), "bytes"),
    # Numbers of any length are the digits that are stored.
    **dict.fromkeys(("str", "json", "str_int", "str_float", "str_decimal"), "text"),
}
_REFUSED = {
    "pkl": "holds pickles, which recmap never loads, because they can run any code",
    "pil": "holds pixels of PIL with sizes of their own; write them as png or jpeg",
}
# The numbers of dtypes and of the dtypes of shapes, in arrays that tell them.
_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPES = ("<u1", "<u2", "<u4", "<u8")


@dataclass(frozen=True)
class MdsColumn:
    """A column of an index. ``field`` is None if only its values tell their type.

    ``dtype`` and ``shape`` are those of arrays, if the index has them.
    """

    name: str
    size: int | None
    field: Field | None = None
    refusal: str = ""
    #: Whether values are arrays, and what the index tells of them.
    array: bool = False
    dtype: str | None = None

    @classmethod
    def listed(cls, shard: Mapping[str, Any]) -> list[MdsColumn]:
        """Return the columns that the index lists for a shard."""
        lists = [shard[f"column_{what}"] for what in ("names", "encodings", "sizes")]
        if len({len(each) for each in lists}) != 1 or len(set(lists[0])) != len(lists[0]):
            raise ValueError("its column_names, column_encodings and column_sizes do not match")
        return [cls._of(*each) for each in zip(*lists, strict=True)]

    @classmethod
    def _of(cls, name: str, encoding: str, size: int | None) -> MdsColumn:
        column = cls._encoded(name, encoding)
        if column.refusal:
            fits = size is None or (type(size) is int and 0 < size < 2**32)
        else:
            fits = size == column.size and type(size) is type(column.size)
        if not fits:
            raise ValueError(f"column {name!r} is {encoding}, but has the size {size!r}")
        return replace(column, size=size)

    @classmethod
    def _encoded(cls, name: str, encoding: str) -> MdsColumn:
        kind, _, details = encoding.partition(":")
        if encoding in _SCALARS:
            field = Field(np.dtype(_SCALARS[encoding]).newbyteorder("<"))
            return cls(name, field.dtype.itemsize, field)
        if encoding in _STRINGS:
            return cls(name, None, Field(_STRINGS[encoding]))
        if kind != "ndarray":
            return cls(name, None, refusal=_REFUSED.get(encoding) or f"is {encoding}")
        dtype, _, shape = details.partition(":")
        if dtype and dtype not in _DTYPES.values():
            raise ValueError(f"column {name!r} is {encoding}")
        if not shape:
            return cls(name, None, None, array=True, dtype=dtype or None)
        axes = tuple(int(axis) for axis in shape.split(","))
        size = math.prod(axes) * np.dtype(dtype).itemsize
        if not dtype or any(axis < 1 for axis in axes) or size >= 2**32:
            raise ValueError(f"column {name!r} is {encoding}")
        return cls(name, size, Field(np.dtype(dtype).newbyteorder("<"), axes))

    def like(self, value: bytes) -> MdsColumn:
        """Return the column with the type of an array that is in it."""
        dtype, shape, _ = self._parsed(value)
        return replace(self, field=Field(dtype, (None, *shape[1:])))

    def decode(self, strings: Ragged, path: str, rows: RowArray) -> Column:
        """Return the values of rows, given their bytes. ``rows`` are their numbers, for errors."""
        assert self.field is not None
        if self.field.is_bytes:
            return stored_strings(path, self.name, self.field, strings, rows)
        flat = np.ascontiguousarray(strings.flat).view(np.uint8)
        if self.size is not None:
            return flat.view(self.field.dtype).reshape(len(rows), *self.field.inner)
        inner = self.field.shape[1:]
        values, lengths = [], []
        for row, string in zip(rows.tolist(), strings.tolist(), strict=True):
            try:
                dtype, shape, found = self._parsed(string)
                if dtype != self.field.dtype or shape[1:] != inner:
                    raise ValueError(f"an array of {dtype}{list(shape)}, unlike the first")
            except ValueError as e:
                raise DataError(
                    f"{path}: column {self.name!r}, row {row:,}: {e}; it is {self.field}. Choose "
                    "other columns, columns=[...]",
                    file=path,
                    record=row,
                    field=self.name,
                ) from e
            values.append(found)
            lengths.append(shape[0])
        if not values:
            return empty_column(self.field)
        return Ragged(
            np.concatenate(values), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        )

    def _parsed(self, value: bytes) -> tuple[np.dtype[Any], tuple[int, ...], Any]:
        """Return dtype, shape and values of an array that tells its shape, and perhaps its dtype.

        Raise a ValueError if it is not one.
        """
        at, name = 0, self.dtype
        if name is None:
            name, at = _DTYPES.get(value[0] if value else -1), 1
        if name is None or len(value) <= at:
            raise ValueError("not an array")
        dtype, kind = np.dtype(name).newbyteorder("<"), np.dtype(_SHAPES[value[at] & 3])
        axes, at = value[at] >> 2, at + 1
        end = at + axes * kind.itemsize
        shape = tuple(np.frombuffer(value[at:end], kind).tolist())
        size = math.prod(shape) * dtype.itemsize
        if len(shape) != axes or not axes or 0 in shape or len(value) - end != size:
            raise ValueError(f"{len(value) - end:,} bytes for an array of {dtype}{list(shape)}")
        return dtype, shape, np.frombuffer(value, dtype, -1, end).reshape(shape)
