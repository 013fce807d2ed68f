"""Columns as TensorFlow's tensors. No other module imports TensorFlow.

A column travels from Python to TensorFlow as plain arrays: a dense one as itself, a ragged
one as its values and the row splits of each ragged axis. In TensorFlow the arrays become one
tensor again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.adapters.native_arrays import as_native, unknown_dtype
from recmap.errors import MissingPackageError, OptionError
from recmap.files.buffer_pool import Buffers
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged

try:
    import tensorflow as tf
except ImportError as e:
    raise MissingPackageError("this needs TensorFlow: pip install recmap[tf]") from e

__all__ = ["AlignedMemory", "TensorColumn", "tf"]

# Where TensorFlow wants memory to begin.
_CACHE_LINE = 64
# Bytes below which a copy by TensorFlow costs less than managing memory for it.
_SMALL = 1 << 16
# Bytes of memory that are kept to be used again.
_SPARE = 1 << 28


@dataclass(frozen=True)
class TensorColumn:
    """A column of batches, or a value of rows, as a dense or a ragged tensor."""

    name: str
    dtype: Any
    #: Of the tensor, or of the values of a ragged one. None is an axis of any length.
    shape: tuple[int | None, ...]
    #: How many axes of the tensor are ragged.
    ragged: int = 0
    #: Rows of every batch of a ragged column, if all have equally many.
    rows: int | None = None
    #: Whether the rows of the column are ragged, and padded for the tensor.
    padded: bool = False

    @classmethod
    def of_rows(cls, name: str, sample: Any, field: Field | None) -> TensorColumn:
        """Describe the values of single rows, as the first rows show them."""
        seen = _Layout.of(name, sample, field)
        # Without an axis of rows, the outermost ragged axis is the length of the value.
        shape = seen.inner if seen.ragged == 0 else (None, *seen.inner)
        return cls(name, seen.dtype, shape, max(0, seen.ragged - 1))

    @classmethod
    def of_batches(
        cls, name: str, sample: Any, field: Field | None, rows: int | None, *, pad: bool
    ) -> TensorColumn:
        """Describe a column of batches of ``rows`` rows, as the first rows show it. With
        ``pad`` a ragged one becomes dense.
        """
        seen = _Layout.of(name, sample, field)
        if not seen.ragged:
            return cls(name, seen.dtype, (rows, *seen.inner))
        if not pad:
            return cls(name, seen.dtype, (None, *seen.inner), seen.ragged, rows)
        if seen.ragged > 1 or seen.strings:
            raise OptionError(
                f"column {name!r}: only rows of numbers are filled up; use ragged=True, or "
                "pad it with map"
            )
        return cls(name, seen.dtype, (rows, None, *seen.inner), padded=True)

    def specs(self) -> list[Any]:
        """Return the specs of the arrays that travel."""
        splits = [tf.TensorSpec((None,), tf.int64)] * self.ragged
        if self.ragged and self.rows is not None:
            splits[0] = tf.TensorSpec((self.rows + 1,), tf.int64)
        return [tf.TensorSpec(self.shape, self.dtype), *splits]

    def arrays(self, value: Any) -> list[npt.NDArray[Any]]:
        """Return the arrays of a column, or of the value of a row."""
        if isinstance(value, bytes):
            return [np.array(value, object)]
        if self.padded:
            value = value.pad()
        splits = []
        for _ in range(self.ragged):
            splits.append(value.offsets - value.offsets[0])
            value = value.flat
        if isinstance(value, Ragged):
            return [_strings(value, self.shape), *splits]
        return [as_native(np.asarray(value)), *splits]

    def tensor(self, arrays: Iterator[Any]) -> Any:
        """Make the tensor, from as many of the arrays that came as belong to it."""
        values = next(arrays)
        splits = [next(arrays) for _ in range(self.ragged)]
        if not splits:
            return values
        return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)


@dataclass(frozen=True)
class _Layout:
    """How a column looks: its ragged axes below the rows, then axes of fixed length."""

    dtype: Any
    ragged: int
    inner: tuple[int | None, ...]
    strings: bool = False

    @classmethod
    def of(cls, name: str, sample: Any, field: Field | None) -> _Layout:
        """Look at a sample. Where the field says more about lengths, it counts."""
        depth, inside = 0, sample
        while isinstance(inside, Ragged) and not inside.is_bytes:
            depth, inside = depth + 1, inside.values
        if not isinstance(inside, Ragged):
            return cls(_tf_dtype(name, inside.dtype), depth, _inner_axes(inside, field, depth))
        if field is not None and depth == len(field.inner):
            # Byte strings along fixed axes come as ragged columns.
            return cls(tf.string, 0, field.inner, strings=True)
        return cls(tf.string, depth, (), strings=True)


def _inner_axes(
    values: npt.NDArray[Any], field: Field | None, depth: int
) -> tuple[int | None, ...]:
    """Return the axes below rows and ragged axes. The field may say that one has any length:
    it does for a column that is padded to the longest row.
    """
    seen = values.shape[1:]
    if field is None or len(field.shape) - depth != len(seen):
        return seen
    declared = field.shape[depth:]
    fits = all(a is None or a == b for a, b in zip(declared, seen, strict=True))
    return declared if fits else seen


def _tf_dtype(name: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "mM":
        return tf.int64
    try:
        return tf.as_dtype(dtype if dtype.kind == "V" else dtype.newbyteorder("="))
    except TypeError as e:
        raise unknown_dtype(name, "TensorFlow", dtype) from e


def _strings(column: Column, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    inside = column
    while isinstance(inside, Ragged) and not inside.is_bytes:
        inside = inside.flat
    assert isinstance(inside, Ragged)
    strings = np.empty(len(inside), object)
    strings[:] = list(inside)
    return strings.reshape([-1 if axis is None else axis for axis in shape])


class AlignedMemory:
    """Memory that TensorFlow uses without a copy, and that is used again.

    A tensor shares the memory of an array that begins on a cache line. TensorFlow copies any
    other into fresh memory while it holds the GIL; a copy into memory that was used before
    takes less than half as long.
    """

    def __init__(self) -> None:
        self._buffers = Buffers(_SMALL, sys.maxsize, _SPARE)

    def align(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the array, or a copy that begins on a cache line if that pays."""
        if array.nbytes < _SMALL or array.dtype.hasobject:
            return array
        if array.flags.c_contiguous and array.ctypes.data % _CACHE_LINE == 0:
            return array
        copy = self._buffers.empty(array.shape, array.dtype)
        np.copyto(copy, array)
        return copy
