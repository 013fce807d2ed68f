"""Columns as bytes in a slot: a JSON header, then the arrays, each 64-byte aligned.

The header is a list of sections, each a list of names and columns. An array is
``[dtype, shape, offset]``, with the offset counted from the first array; a ragged column is
``{"values": column, "offsets": array}``. Columns with nulls have a ``"mask"``, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.model.fetching import FetchCounts
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, has_mask, masked, null_mask
from recmap.pipeline.workers.pool import Result

# A cache line. Frameworks use memory without copying only if it starts on one.
_ALIGN = 64
_USER_DEFINED = 2  # dtype.isbuiltin of bfloat16 and the like


class PackedColumns(NamedTuple):
    """Columns ready to be copied into a slot."""

    header: bytes
    size: int
    arrays: list[tuple[int, npt.NDArray[Any]]]

    def write(self, memory: npt.NDArray[np.uint8]) -> None:
        """Copy the header and the arrays into a slot."""
        begin = len(self.header)
        memory[:begin] = np.frombuffer(self.header, np.uint8)
        for offset, array in self.arrays:
            place = _SlotArray(array.dtype, array.shape, offset)
            place.view(memory, _aligned(begin))[...] = array


Section: TypeAlias = list[tuple[str, Column]]


def pack(sections: Iterable[Iterable[tuple[str, Column]]]) -> PackedColumns:
    """Lay out sections of columns, one array after another, without copying anything yet."""
    arrays: list[tuple[int, npt.NDArray[Any]]] = []
    header = _header(
        tuple(
            tuple((name, _add(arrays, name, column)) for name, column in section)
            for section in sections
        )
    )
    return PackedColumns(header, _aligned(len(header)) + _end(arrays), arrays)


def _add(arrays: list[tuple[int, npt.NDArray[Any]]], name: str, column: Column) -> _Place:
    if isinstance(column, Ragged):
        # Send only its own rows: the values may be those of a whole file.
        offsets = column.offsets - column.offsets[0]
        values, places = _add(arrays, name, column.flat), _add_array(arrays, offsets)
        mask = None if column.mask is None else _add_array(arrays, column.mask)
        return _SlotColumn(values, places, mask)
    if not isinstance(column, np.ndarray):
        raise ColumnError(
            f"column {name!r}: a column is an array or a Ragged, not {type(column).__name__}"
        )
    if column.dtype.hasobject:
        raise ColumnError(
            f"column {name!r}: a column of Python objects cannot be shared between processes; "
            "return numbers, or Ragged.from_rows() or Ragged.from_bytes() of the rows"
        )
    if not has_mask(column):
        return _add_array(arrays, column)
    values = _add_array(arrays, np.asarray(column))
    return _SlotColumn(values, mask=_add_array(arrays, null_mask(column)))


def _add_array(arrays: list[tuple[int, npt.NDArray[Any]]], array: npt.NDArray[Any]) -> _SlotArray:
    offset = _end(arrays)
    arrays.append((offset, array))
    return _SlotArray(array.dtype, array.shape, offset)


def _end(arrays: list[tuple[int, npt.NDArray[Any]]]) -> int:
    """Return where the next array begins."""
    return _aligned(arrays[-1][0] + arrays[-1][1].nbytes) if arrays else 0


def unpack(memory: npt.NDArray[np.uint8], header: int) -> list[Section]:
    """Return packed sections as views of ``memory``; ``header`` is the length of the header."""
    begin = _aligned(header)
    return [
        [(name, place.view(memory, begin)) for name, place in section]
        for section in _places(memory[:header].tobytes())
    ]


def pack_result(result: Result) -> PackedColumns:
    """Pack a result: a section about the rows, then one for each batch."""
    about: Section = [("seconds", np.array(result.seconds, np.float64))]
    about += [("reached", each) for each in result.reached]
    about += [] if result.kept is None else [("kept", result.kept)]
    about += [] if result.fetched is None else [("fetched", np.array(result.fetched, np.float64))]
    return pack([about, *(batch.items() for batch in result.batches)])


def unpack_result(sections: list[Section]) -> Result:
    """Return the result that was packed into these sections."""
    about, *batches = sections
    arrays = [(name, column) for name, column in about if isinstance(column, np.ndarray)]
    kept = [array for name, array in arrays if name == "kept"]
    reached = [array for name, array in arrays if name == "reached"]
    seconds: list[float] = arrays[0][1].tolist()
    fetched = [_fetched(array.tolist()) for name, array in arrays if name == "fetched"]
    return Result(
        [dict(batch) for batch in batches],
        kept[0] if kept else None,
        reached,
        seconds,
        fetched[0] if fetched else None,
    )


def _fetched(values: list[float]) -> FetchCounts:
    requests, fetched, used, cache_hits, waited = values
    return FetchCounts(int(requests), int(fetched), int(used), int(cache_hits), waited)


def copied(column: Column) -> Column:
    """Copy a column into its own memory."""
    if isinstance(column, Ragged):
        mask = None if column.mask is None else column.mask.copy()
        return Ragged(copied(column.values), column.offsets.copy(), mask)
    return column.copy()


class _SlotArray(NamedTuple):
    """Where an array is in a slot."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    def view(self, memory: npt.NDArray[np.uint8], begin: int) -> npt.NDArray[Any]:
        return np.ndarray(self.shape, self.dtype, memory, begin + self.offset)

    def to_json(self) -> Any:
        return [_dtype_to_json(self.dtype), self.shape, self.offset]


class _SlotColumn(NamedTuple):
    """Where a ragged column is in a slot, or one with nulls."""

    values: _Place
    offsets: _SlotArray | None = None
    mask: _SlotArray | None = None

    def view(self, memory: npt.NDArray[np.uint8], begin: int) -> Column:
        values = self.values.view(memory, begin)
        mask = None if self.mask is None else self.mask.view(memory, begin)
        if self.offsets is not None:
            return Ragged(values, self.offsets.view(memory, begin), mask)
        assert isinstance(values, np.ndarray)
        assert mask is not None
        return masked(values, mask)

    def to_json(self) -> Any:
        parts = self._asdict().items()
        return {name: place.to_json() for name, place in parts if place is not None}


_Place: TypeAlias = "_SlotArray | _SlotColumn"


# Most batches of a pipeline have the same columns and shapes as the previous one.
@lru_cache(maxsize=64)
def _header(sections: tuple[tuple[tuple[str, _Place], ...], ...]) -> bytes:
    return json.dumps(
        [[(name, place.to_json()) for name, place in section] for section in sections]
    ).encode()


@lru_cache(maxsize=64)
def _places(header: bytes) -> list[list[tuple[str, _Place]]]:
    return [[(name, _place(spec)) for name, spec in section] for section in json.loads(header)]


def _place(spec: Any) -> _Place:
    if isinstance(spec, dict):
        parts: dict[str, Any] = {name: _place(each) for name, each in spec.items()}
        return _SlotColumn(**parts)
    dtype, shape, offset = spec
    return _SlotArray(_dtype(dtype), tuple(shape), offset)


def _dtype_to_json(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_dtype_to_json(base), shape]
    if dtype.names is not None and dtype.fields is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        return {
            "names": dtype.names,
            "formats": [_dtype_to_json(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
        }
    # The dtype.str of a user-defined type gives only its size.
    return dtype.name if dtype.isbuiltin == _USER_DEFINED else dtype.str


def _dtype(spec: Any) -> np.dtype[Any]:
    if isinstance(spec, list):
        return np.dtype((_dtype(spec[0]), tuple(spec[1])))
    if isinstance(spec, dict):
        fields: Any = {**spec, "formats": [_dtype(field) for field in spec["formats"]]}
        made: np.dtype[Any] = np.dtype(fields)
        return made
    try:
        return np.dtype(str(spec))
    except TypeError:
        return Field(str(spec)).dtype  # the package of this type is not imported here yet


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
