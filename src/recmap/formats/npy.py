"""The source for NumPy .npy files."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, StaleIndexWarning
from recmap.files.array_sidecar import load_description
from recmap.files.mapped import MappedFile
from recmap.formats.column_readers import array_columns
from recmap.formats.column_source import ColumnsSource
from recmap.formats.npy_header import MAX_HEADER, parse_header

__all__ = ["DEFAULT_NAME", "open_npy"]

# The name of a column that has none in the file.
DEFAULT_NAME = "data"


def open_npy(path: str) -> ColumnsSource:
    """Map the array of a .npy file; a structured array gives one column per field."""
    file = MappedFile(path)
    header = parse_header(file.bytes[:MAX_HEADER].tobytes(), path)
    if header.refusal:
        raise DataError(f"{path}: {header.refusal}", file=path)
    array = file.array(header.size, header.shape, header.dtype, "F" if header.fortran else "C")
    name, array = _described(path, array)
    columns = array_columns(name, array, file)
    return ColumnsSource(
        "npy",
        [path],
        columns,
        reopen=partial(open_npy, path),
        mapped=file,
        reference=partial(_open_with_numpy, path),
    )


def _open_with_numpy(path: str) -> ColumnsSource:
    """Open the same array with NumPy's own memory map."""
    load = partial(np.load, mmap_mode="r", allow_pickle=False, max_header_size=MAX_HEADER)
    array = load(path) if os.path.getsize(path) else None
    if array is None or not array.size:
        return open_npy(path)  # NumPy cannot map empty arrays
    name, array = _described(path, np.asarray(array))
    return ColumnsSource("npy", [path], array_columns(name, array))


def _described(path: str, array: npt.NDArray[Any]) -> tuple[str, npt.NDArray[Any]]:
    """Return the name and the array that the sidecar describes.

    NumPy's header has no name, and stores bfloat16 and similar types only as opaque bytes.
    """
    described = load_description(path) if array.dtype.names is None else None
    if described is None or len(described.schema) != 1:
        return DEFAULT_NAME, array
    why = described.mismatch(path)
    if why:
        warnings.warn(
            f"{described.path} was not used: {why}; remove it if it belongs to an older file",
            StaleIndexWarning,
            stacklevel=2,
        )
        return DEFAULT_NAME, array
    ((name, field),) = described.schema.items()
    if array.dtype.kind == "V" and array.dtype.itemsize == field.dtype.itemsize:
        array = array.view(field.dtype)
    same = field.is_bytes if array.dtype.kind in "SU" else field.dtype == array.dtype
    fits = same and field.shape == array.shape[1:]
    return name if fits else DEFAULT_NAME, array
