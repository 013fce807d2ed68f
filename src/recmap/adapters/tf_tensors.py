"""Columns as TensorFlow's tensors: flat arrays on the way, tensors at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.adapters.tf_library import tf
from recmap.errors import OptionError
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Field

__all__ = ["TensorColumn"]


@dataclass(frozen=True)
class TensorColumn:
    """A column of batches, or a value of rows: a dense tensor, or a ragged one, which
    travels as its values and the ends of its rows, the outer ones first.
    """

    name: str
    dtype: Any
    #: Of the tensor, or of the values of a ragged one; None is any length.
    shape: tuple[int | None, ...]
    #: Ragged axes of the tensor.
    ragged: int = 0
    #: Ragged axes of the array that are to be filled up.
    padded: bool = False

    @classmethod
    def like(
        cls, name: str, sample: Any, field: Field | None, batched: bool, ragged: bool
    ) -> TensorColumn:
        """A column as the first rows show it; what the field says of lengths goes before."""
        depth, inside = 0, sample
        while isinstance(inside, Ragged) and not inside.is_bytes:
            depth, inside = depth + 1, inside.values
        strings = isinstance(inside, Ragged)
        fixed = field is not None and strings and depth == len(field.inner)
        below = () if strings else _below(inside, field, depth)
        if fixed:  # strings along fixed axes come as ragged columns
            assert field is not None
            depth, below = 0, field.inner
        dtype = tf.string if strings else _dtype(name, inside.dtype)
        if not batched:
            # A row has no axis of rows: the outermost ragged one is its own length.
            shape = below if depth == 0 else (None, *below)
            return cls(name, dtype, shape, max(0, depth - 1))
        if depth and not ragged:
            if depth > 1 or strings:
                raise OptionError(
                    f"column {name!r}: only rows of numbers are filled up; use ragged=True, or "
                    "pad it with map"
                )
            return cls(name, dtype, (None, None, *below), 0, padded=True)
        return cls(name, dtype, (None, *below), depth)

    def specs(self) -> list[Any]:
        """Of the arrays that travel."""
        ends = [tf.TensorSpec((None,), tf.int64)] * self.ragged
        return [tf.TensorSpec(self.shape, self.dtype), *ends]

    def arrays(self, value: Any) -> list[npt.NDArray[Any]]:
        """A column, or a value of a row, as arrays of those specs."""
        if isinstance(value, bytes):
            return [np.array(value, object)]
        if self.padded:
            value = value.pad()
        ends = []
        for _ in range(self.ragged):
            ends.append(value.offsets - value.offsets[0])
            value = value.flat
        if not isinstance(value, Ragged):
            return [_native(np.asarray(value)), *ends]
        return [_strings(value, self.shape), *ends]

    def tensor(self, parts: Iterator[Any]) -> Any:
        """The tensor of its arrays, taken from all that came."""
        values = next(parts)
        ends = [next(parts) for _ in range(self.ragged)]
        if not ends:
            return values
        return tf.RaggedTensor.from_nested_row_splits(values, ends, validate=False)


def _below(values: npt.NDArray[Any], field: Field | None, depth: int) -> tuple[int | None, ...]:
    """The axes below rows and ragged ones. A field may say that one is of any length:
    of a column that is padded to the longest.
    """
    seen = values.shape[1:]
    if field is None or len(field.shape) - depth != len(seen):
        return seen
    said = field.shape[depth:]
    fits = all(a is None or a == b for a, b in zip(said, seen, strict=True))
    return said if fits else seen


def _dtype(name: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "mM":
        return tf.int64
    try:
        return tf.as_dtype(dtype if dtype.kind == "V" else dtype.newbyteorder("="))
    except TypeError as e:
        raise OptionError(
            f"column {name!r}: TensorFlow has no type {dtype}; cast it with map, or leave it out "
            "with select"
        ) from e


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "mM":  # TensorFlow has no dates: they stay the integers they are
        return array.astype(np.int64)
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _strings(column: Column, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    inside = column
    while isinstance(inside, Ragged) and not inside.is_bytes:
        inside = inside.flat
    assert isinstance(inside, Ragged)
    strings = np.empty(len(inside), object)
    strings[:] = list(inside)
    return strings.reshape([-1 if axis is None else axis for axis in shape])
