"""Imports what operations need, before their processes are forked. It must start no thread."""

from __future__ import annotations

import gc
import pkgutil
from importlib import import_module

import h5py  # noqa: F401
import obstore.exceptions
import obstore.store
import pyarrow.parquet
import zarr  # noqa: F401

import hostile.faults.operations  # noqa: F401

__all__: list[str] = []

for package in ("files", "tfrecord", "formats", "conversion", "dataset"):
    path = import_module(f"recmap.{package}").__path__
    for module in pkgutil.walk_packages(path, f"recmap.{package}."):
        import_module(module.name)
gc.freeze()  # so that collections in the processes are quick
