"""How many bytes the rows of an Arrow array take once they are decoded, from its offsets alone.

Nothing is decoded: the bytes of some strings or lists follow from the offsets of the first and
of the last of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.model.row_sizes import OFFSET

# Values whose lengths are looked at together.
_BLOCK = 1 << 16


def bytes_before(array: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bytes that the rows before each place take, counted from any one place.

    ``places`` are in ascending order. A file may claim anything: the offsets of damaged arrays
    give wrong sizes, but no error.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return bytes_before(array.storage, places)
    if pa.types.is_struct(kind):
        inside = [array.field(i) for i in range(kind.num_fields)]
        return sum((bytes_before(each, places) for each in inside), np.zeros_like(places))
    if pa.types.is_dictionary(kind):
        return _picked(array, places)
    if pa.types.is_fixed_size_list(kind):
        return bytes_before(array.values, (places + array.offset) * kind.list_size)
    if _is_list(kind):
        ends = _clipped(array, places, len(array.values))
        return OFFSET * places + bytes_before(array.values, ends)
    if _is_string(kind):
        return OFFSET * places + _clipped(array, places, 1 << 62)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return OFFSET * places + _summed(_view_lengths(array), places)
    if _is_list_view(kind):
        # Their values may be anywhere, and are taken to be equally large.
        counts = _summed(np.asarray(array.sizes, np.int64), places)
        whole = bytes_before(array.values, np.array([0, len(array.values)]))
        each = -(-int(whole[1] - whole[0]) // max(1, len(array.values)))
        return OFFSET * places + counts * each
    return places * _width(kind)


def check_offsets(array: Any) -> None:
    """Raise ValueError if offsets descend, so that any rows may be read without the others.

    pyarrow has compared the last of them with what is there, and would check all only together
    with the text.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        check_offsets(array.storage)
    elif pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            check_offsets(array.field(i))
    elif pa.types.is_dictionary(kind):
        check_offsets(array.dictionary)
    elif _is_list(kind) or _is_string(kind):
        offsets = _offsets(array)
        for start in range(0, len(offsets), _BLOCK):
            some = offsets[start : start + _BLOCK + 1]
            if bool((some[1:] < some[:-1]).any()):
                raise ValueError("offsets that descend")
    if _is_list(kind) or _is_list_view(kind) or pa.types.is_fixed_size_list(kind):
        check_offsets(array.values)


def _width(kind: Any) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 1  # nulls


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _is_list_view(kind: Any) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_string(kind: Any) -> bool:
    types = pa.types
    large = types.is_large_string(kind) or types.is_large_binary(kind)
    return bool(large or types.is_string(kind) or types.is_binary(kind))


def _offsets(array: Any) -> npt.NDArray[Any]:
    """Return the offsets of the rows of an array and the end of the last, without a copy."""
    kind, buffer = array.type, array.buffers()[1]
    types = pa.types
    is_large = (
        types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
    dtype = np.dtype(np.int64 if is_large else np.int32)
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]


def _clipped(array: Any, places: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    ends: npt.NDArray[np.int64] = _offsets(array)[places].astype(np.int64)
    return np.maximum.accumulate(np.clip(ends, 0, most))


def _view_lengths(array: Any) -> npt.NDArray[np.int32]:
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
    return views[array.offset : array.offset + len(array), 0]


def _picked(array: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sizes of values that are picked from a dictionary."""
    count = len(array.dictionary)
    ends = bytes_before(array.dictionary, np.arange(count + 1))
    lengths = np.append(np.diff(ends), 0)  # one more, for indices that are null or damaged
    buffer, kind = array.indices.buffers()[1], array.type.index_type.to_pandas_dtype()
    indices = np.frombuffer(buffer, kind)[array.offset : array.offset + len(array)]
    return _summed(indices, places, lengths)


def _summed(
    values: npt.NDArray[Any],
    places: npt.NDArray[np.int64],
    table: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int64]:
    """Add up the values before each place, or what a table says of them, a block at a time."""
    totals = np.zeros(len(places), np.int64)
    first = int(places[0]) if len(places) else 0
    total = 0
    for start in range(first, int(places[-1]) if len(places) else 0, _BLOCK):
        some = values[start : start + _BLOCK]
        if table is not None:
            some = table[np.minimum(some.astype(np.uint64), len(table) - 1).astype(np.int64)]
        sums = np.concatenate([[0], np.cumsum(np.maximum(some, 0), dtype=np.int64)])
        mine = (places >= start) & (places <= start + len(some))
        totals[mine] = total + sums[places[mine] - start]
        total += int(sums[-1])
    return totals
