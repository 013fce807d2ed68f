"""Estimate the memory of decoded records without decoding them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recmap.model.field import Field
from recmap.model.row_sizes import OFFSET, RowSizes
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.decoder import split_name

__all__ = ["record_sizes", "size_bound"]

# The fewest bytes of a string or step in a record. In memory, each also takes an offset.
_LEAST_ITEM = 2
# Records with a larger bound are inspected, because the bound is far too high for most.
_LARGE = 1 << 20
_LENGTH_SIZE = 8


def size_bound(schema: Schema) -> tuple[int, int]:
    """Return the memory every record takes, and the most that each of its bytes may add."""
    fixed, each = 0, 0
    for field in schema.values():
        if field.row_bytes is not None:
            fixed += field.row_bytes
        else:
            fixed += OFFSET * (1 + max(field.count, 1))
            each = max(each, _bytes_per_byte(field))
    return fixed, each


def _bytes_per_byte(field: Field) -> int:
    # An integer may take a single byte in a record.
    values = field.dtype.itemsize if field.dtype.kind in "biumM" and not field.is_bytes else 1
    listed = field.ragged > 1 or (field.is_bytes and bool(field.shape))
    return max(values, OFFSET // _LEAST_ITEM if listed else 1)


def record_sizes(
    schema: Schema, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64]
) -> RowSizes:
    """Return an upper bound for the memory of each of the records at these offsets."""
    fixed, each = size_bound(schema)
    if not each or not len(offsets):
        return fixed
    # The frame of a record begins with its length.
    starts = np.ndarray((len(data) - _LENGTH_SIZE + 1,), "<u8", data, strides=(1,))
    lengths = np.minimum(starts[offsets], _core.MAX_MESSAGE_SIZE).astype(np.int64)
    sizes: npt.NDArray[np.int64] = fixed + each * lengths
    for row in np.flatnonzero(sizes > _LARGE):
        seen = _inspected_size(schema, data, offsets[row : row + 1], int(lengths[row]))
        sizes[row] = min(int(sizes[row]), fixed + seen)
    return sizes


def _inspected_size(
    schema: Schema, data: npt.NDArray[np.uint8], offset: npt.NDArray[np.uint64], length: int
) -> int:
    """Return the memory of one record's values, in the fields that are read."""
    if int(offset[0]) + _core.FRAME_SIZE + length > len(data):
        return length  # the record is cut short; reading reports it
    facts: dict[str, list[_core.FeatureFacts]] = {}
    for _, key, feature in _core.inspect(data, offset, False).features:
        facts.setdefault(key, []).append(feature)
    total = 0
    for name, field in schema.items():
        if field.row_bytes is None:
            total += max((_size(field, f) for f in facts.get(split_name(name)[0], ())), default=0)
    return total


def _size(field: Field, feature: _core.FeatureFacts) -> int:
    steps = feature.steps[1] if feature.steps else 1
    values = steps * (feature.values[1] if feature.values else 0)
    if any(kind == _core.Kind.bytes for kind, _ in feature.kinds):
        longest = feature.string_size[1] if feature.string_size else 0
        return values * (longest + OFFSET) + steps * OFFSET
    return values * field.dtype.itemsize + steps * OFFSET
