"""Convert columns to tensors that share their memory. No other module imports PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.adapters.native_arrays import unknown_dtype
from recmap.errors import MissingPackageError
from recmap.model.ragged import Ragged

try:
    import torch
except ImportError as e:
    raise MissingPackageError("to_torch() needs PyTorch: pip install recmap[torch]") from e

__all__ = ["Parts", "RaggedAs", "as_tensors", "split_rows", "torch"]

RaggedAs: TypeAlias = Literal["nested", "list", "parts"]
_Offsets: TypeAlias = npt.NDArray[np.int64]


class Parts(NamedTuple):
    """A ragged column: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Any
    offsets: Any


def as_tensors(columns: Mapping[str, Any], ragged: RaggedAs) -> dict[str, Any]:
    """Convert the columns of a batch, or the values of a row. Byte strings stay ``bytes``."""
    # PyTorch can add and compare nested tensors only if they share one tensor of offsets.
    shared: list[tuple[_Offsets, Any]] = []
    return {name: _convert(name, value, ragged, shared) for name, value in columns.items()}


def split_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a batch into rows of tensors, which are views of one tensor per column."""
    rows = [_rows(name, column) for name, column in columns.items()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*rows, strict=True)]


def _rows(name: str, column: Any) -> Any:
    if isinstance(column, Ragged):
        return _convert(name, column, "list", [])
    return _tensor(name, column).unbind()


def _convert(name: str, value: Any, ragged: RaggedAs, shared: list[tuple[_Offsets, Any]]) -> Any:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Ragged):
        return _tensor(name, value)
    if value.is_bytes:
        return list(value)
    flat = value.flat
    if isinstance(flat, Ragged):  # PyTorch has no tensor with several ragged axes
        return [_convert(name, row, ragged, []) for row in value]
    values = _tensor(name, flat)
    if ragged == "list":
        return list(torch.split(values, value.lengths.tolist()))
    offsets = _shared_offsets(value.offsets - value.offsets[0], shared)
    if ragged == "parts":
        return Parts(values, offsets)
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _shared_offsets(offsets: _Offsets, shared: list[tuple[_Offsets, Any]]) -> Any:
    for known, tensor in shared:
        if np.array_equal(known, offsets):
            return tensor
    shared.append((offsets, torch.from_numpy(offsets)))
    return shared[-1][1]


def _tensor(name: str, value: Any) -> Any:
    dtype = value.dtype
    if dtype.kind in "mM":  # PyTorch has no dates: they become integers
        return torch.from_numpy(_sharable(value.astype(np.int64)))
    try:
        if dtype.kind == "V":
            # bfloat16 and similar: PyTorch has them, but from_numpy() does not accept them.
            bits = _sharable(np.asarray(value)).view(f"i{dtype.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, dtype.name))
        return torch.from_numpy(_sharable(value))
    except (AttributeError, TypeError) as e:
        raise unknown_dtype(name, "PyTorch", dtype) from e


def _sharable(array: Any) -> npt.NDArray[Any]:
    """Return an array that PyTorch can share memory with, copying only if necessary."""
    if array.flags.carray and array.dtype.isnative:  # most arrays are, and np.require is slow
        return np.asarray(array)
    dtype = array.dtype if array.dtype.kind == "V" else array.dtype.newbyteorder("=")
    return np.require(array, dtype, ["A", "C", "W"])
