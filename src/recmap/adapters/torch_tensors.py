"""Columns as PyTorch's tensors, in the memory they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import MissingPackageError, OptionError
from recmap.model.ragged import Ragged

try:
    import torch
except ImportError as e:
    raise MissingPackageError("to_torch() needs PyTorch: pip install recmap[torch]") from e

__all__ = ["Parts", "RaggedAs", "as_tensors", "split_rows", "torch"]

RaggedAs: TypeAlias = Literal["nested", "list", "parts"]


class Parts(NamedTuple):
    """A ragged column: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Any
    offsets: Any


def as_tensors(columns: Mapping[str, Any], ragged: RaggedAs) -> dict[str, Any]:
    """The columns of a batch, or the values of a row. Byte strings stay ``bytes``."""
    # Nested tensors can be added and compared if they have their offsets in common.
    common: list[tuple[npt.NDArray[np.int64], Any]] = []
    return {name: _converted(name, value, ragged, common) for name, value in columns.items()}


def split_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A batch of numpy's as rows of tensors: views of one tensor for each column."""
    rows = [
        list(column) if isinstance(column, Ragged) and column.is_bytes else _rows(name, column)
        for name, column in columns.items()
    ]
    return [dict(zip(columns, values, strict=True)) for values in zip(*rows, strict=True)]


def _rows(name: str, column: Any) -> Any:
    if not isinstance(column, Ragged):
        return _tensor(name, column).unbind()
    return _converted(name, column, "list", [])


def _converted(
    name: str, value: Any, ragged: RaggedAs, common: list[tuple[npt.NDArray[np.int64], Any]]
) -> Any:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Ragged):
        return _tensor(name, value)
    if value.is_bytes:
        return list(value)
    flat = value.flat
    if isinstance(flat, Ragged):  # several ragged axes, for which PyTorch has no tensor
        return [_converted(name, row, ragged, []) for row in value]
    values = _tensor(name, flat)
    if ragged == "list":
        return list(torch.split(values, value.lengths.tolist()))
    offsets = _offsets(value.offsets - value.offsets[0], common)
    if ragged == "parts":
        return Parts(values, offsets)
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _offsets(
    offsets: npt.NDArray[np.int64], common: list[tuple[npt.NDArray[np.int64], Any]]
) -> Any:
    for known, tensor in common:
        if np.array_equal(known, offsets):
            return tensor
    common.append((offsets, torch.from_numpy(offsets)))
    return common[-1][1]


def _tensor(name: str, value: Any) -> Any:
    dtype = value.dtype
    if dtype.kind in "mM":  # PyTorch has no dates: they stay the integers they are
        return torch.from_numpy(_plain(value.astype(np.int64)))
    try:
        if dtype.kind == "V":
            # bfloat16 and its kin, which numpy knows by their size only.
            bits = _plain(np.asarray(value)).view(f"i{dtype.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, dtype.name))
        return torch.from_numpy(_plain(value))
    except (AttributeError, TypeError) as e:
        raise OptionError(
            f"column {name!r}: PyTorch has no type {dtype}; cast it with map, or leave it out "
            "with select"
        ) from e


def _plain(array: Any) -> npt.NDArray[Any]:
    """As PyTorch can look at it: copied only if it is not."""
    if array.flags.carray and array.dtype.isnative:  # as most are; the rest takes a while
        return np.asarray(array)
    dtype = array.dtype if array.dtype.kind == "V" else array.dtype.newbyteorder("=")
    return np.require(array, dtype, ["A", "C", "W"])
