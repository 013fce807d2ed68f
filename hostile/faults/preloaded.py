"""Imports what operations need, before their processes are forked. It must start no thread."""

from __future__ import annotations

import gc
import pkgutil
from importlib import import_module

__all__: list[str] = []

for name in ("h5py", "obstore.exceptions", "obstore.store", "pyarrow.parquet", "zarr"):
    import_module(name)
for package in ("recognise", "store", "tfrecord", "formats", "conversion", "dataset"):
    path = import_module(f"recmap.{package}").__path__
    for module in pkgutil.walk_packages(path, f"recmap.{package}."):
        import_module(module.name)
import_module("hostile.faults.operations")
gc.freeze()  # so that collections in the processes are quick
