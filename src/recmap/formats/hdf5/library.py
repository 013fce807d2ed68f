"""h5py, which may not be installed. No other file imports it."""

from __future__ import annotations

from recmap.errors import MissingPackageError

try:
    import h5py
except ImportError as e:
    raise MissingPackageError("HDF5 files need h5py: pip install recmap[hdf5]") from e

__all__ = ["h5py"]
