"""Why a dataset cannot be a column, whatever its type is."""

from __future__ import annotations

import os
from typing import Any

from recmap.formats.hdf5.file import Hdf5File
from recmap.formats.hdf5.filters import filter_names, filters_of, how_to_get
from recmap.formats.hdf5.library import h5py

__all__ = ["refusal"]


def refusal(file: Hdf5File, dataset: Any) -> str:
    """The reason; "" if there is none. h5py may be called."""
    if h5py.h5f.get_name(dataset.id) != h5py.h5f.get_name(file.root.id):
        other = h5py.h5f.get_name(dataset.id).decode("utf-8", "replace")
        return f"it lies in another file, {other}; open that one"
    if dataset.shape is None:
        return "it holds nothing"
    if dataset.shape == ():
        return "it is a single value"
    if "MATLAB_empty" in dataset.attrs:
        return "it is empty, and its values are only the shape that MATLAB gives it"
    storage = dataset.id.get_create_plist()
    missing = [f for f in filters_of(storage) if not h5py.h5z.filter_avail(f[0])]
    if missing:
        how = dict.fromkeys(how_to_get(number) for number, *_ in missing)
        names = filter_names(missing).removeprefix("filter ")
        return f"its filter {names} is missing; {'. '.join(how)}"
    return _lost_values(storage) if dataset.size else ""


def _lost_values(storage: Any) -> str:
    if "HDF5_EXTFILE_PREFIX" in os.environ:  # the library looks for them elsewhere
        return ""
    for i in range(storage.get_external_count()):
        file = os.fsdecode(storage.get_external(i)[0])
        if not os.path.exists(file):
            return f"its values lie in the file {file}, which is not there"
    return ""
