"""h5py, which may not be installed. No other file imports it."""

from __future__ import annotations

from typing import Any

from recmap.errors import MissingPackageError

try:
    import h5py
except ImportError as e:
    raise MissingPackageError("HDF5 files need h5py: pip install recmap[hdf5]") from e

__all__ = ["h5py", "keep_little"]

_KEPT_SIZE = 2 << 20


def keep_little(file: Any) -> None:
    """Has the library keep few of the lists it has read or written. It would keep 32 MB
    of them, and more with every long one.
    """
    config = file.id.get_mdc_config()
    config.max_size = _KEPT_SIZE
    config.flash_incr_mode = 0
    file.id.set_mdc_config(config)
