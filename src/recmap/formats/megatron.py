"""Token files of Megatron-LM: ``x.idx`` says where the sequences in ``x.bin`` lie."""

from __future__ import annotations

import os
import struct
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import ArrayColumn
from recmap.formats.column_source import ColumnsSource
from recmap.formats.ragged_layout import OFFSETS, join
from recmap.local.local_path import located

MAGIC = b"MMIDIDX\0\0"
# Version, dtype, number of sequences, number of documents and one.
_HEADER = struct.Struct("<QBQQ")
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32",
    8: "uint16",
}  # fmt: skip
# Bytes of the index for each sequence: its length, and where it begins.
_LENGTH, _POINTER = 4, 8


def open_megatron(path: str) -> ColumnsSource:
    """Map the sequences of an index: their tokens, and the number of the document of each."""
    dtype, lengths, edges = _read_index(path)
    tokens = os.path.splitext(path)[0] + ".bin"
    file = located(tokens).map()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    if int(offsets[-1]) * dtype.itemsize != file.size:
        raise DataError(
            f"{tokens}: {file.size:,} bytes, but {path} tells of {int(offsets[-1]):,} tokens of "
            f"{dtype}",
            file=tokens,
        )
    values = ArrayColumn(file.array(0, (int(offsets[-1]),), dtype), file)
    rows = np.arange(len(lengths))
    columns = {
        "tokens": join(path, "tokens", values, {OFFSETS: ArrayColumn(offsets)}, False, None),
        "document": ArrayColumn(np.searchsorted(edges, rows, side="right") - 1),
    }
    again = partial(open_megatron, path)
    return ColumnsSource("megatron", [path, tokens], columns, reopen=again, mapped=file)


def _read_index(
    path: str,
) -> tuple[np.dtype[Any], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the dtype of tokens, the lengths of sequences, and where documents begin."""

    def fail(why: str) -> DataError:
        return DataError(f"{path}: not an index of Megatron-LM: {why}", file=path)

    with located(path).open() as file:
        start = len(MAGIC) + _HEADER.size
        head = file.pread(start, 0)
        if len(head) < start or not head.startswith(MAGIC):
            raise fail("it does not begin with MMIDIDX")
        version, code, sequences, documents = _HEADER.unpack_from(head, len(MAGIC))
        if version != 1 or code not in _DTYPES:
            raise fail(f"version {version}, dtype {code}")
        dtype = np.dtype(_DTYPES[code]).newbyteorder("<")
        size = located(path).stat().size
        whole = start + sequences * (_LENGTH + _POINTER) + documents * _POINTER
        if size not in (whole, whole + sequences):  # some have a mode of each sequence, too
            raise fail(f"{size:,} bytes, but {sequences:,} sequences take {whole:,}")
        content = file.pread(whole - start, start)
    lengths = np.frombuffer(content, "<i4", sequences)
    pointers = np.frombuffer(content, "<i8", sequences, sequences * _LENGTH)
    edges = np.frombuffer(content, "<i8", documents, sequences * (_LENGTH + _POINTER))
    ends = np.cumsum(lengths, dtype=np.int64) * dtype.itemsize
    if (
        bool((lengths < 0).any())
        or not np.array_equal(pointers[1:], ends[:-1])
        or pointers[:1].any()
    ):
        raise fail("its sequences do not follow each other")
    ordered = bool((np.diff(edges) >= 0).all())
    if not documents or edges[0] != 0 or edges[-1] != sequences or not ordered:
        raise fail("its documents do not end with its sequences")
    return dtype, lengths, edges[:-1]
