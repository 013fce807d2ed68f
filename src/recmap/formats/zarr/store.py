"""The arrays of a Zarr store. A damaged array does not affect the others."""

from __future__ import annotations

import os
from typing import Any

import zarr

from recmap.errors import DataError
from recmap.files.cpus import thread_count

__all__ = ["Store", "limit_threads"]

_NODES = ("zarr.json", ".zarray", ".zgroup")


def limit_threads() -> None:
    """Limit zarr to as many threads as recmap uses, unless the user set a number.

    By default zarr uses more threads than there are CPUs, and fails if they cannot start.
    """
    if zarr.config.get("threading.max_workers") is None:
        zarr.config.set({"threading.max_workers": thread_count()})


class Store:
    """The attributes of a store, its arrays by path, and the reasons others cannot be opened.

    If the store is a single array, its path is "".
    """

    def __init__(self, path: str) -> None:
        limit_threads()
        self.arrays: dict[str, Any] = {}
        self.broken: dict[str, str] = {}
        try:
            # Use an absolute path: after a change of the working directory, no chunk would be
            # found, and missing chunks read as zeros.
            node = self._open(os.path.abspath(path))
            self.attributes = dict(node.attrs)
        except Exception as e:  # damaged metadata may raise anything
            raise DataError(f"{path}: not a sound Zarr store: {e}", file=path) from e

    def _open(self, path: str) -> Any:
        try:
            node = zarr.open(path, mode="r")
            if isinstance(node, zarr.Array):
                self.arrays = {"": node}
            else:
                members = node.members(max_depth=None)
                self.arrays = {name: a for name, a in members if isinstance(a, zarr.Array)}
        except Exception:
            # The consolidated metadata or the metadata of an array is damaged.
            node = zarr.open(path, mode="r", use_consolidated=False)
            if isinstance(node, zarr.Array):
                raise
            self._walk(path, node, "", {os.path.realpath(path)})
        return node

    def _walk(self, path: str, root: Any, group: str, seen: set[str]) -> None:
        for entry in sorted(os.listdir(os.path.join(path, group))):
            inner = f"{group}/{entry}" if group else entry
            folder = os.path.join(path, inner)
            real = os.path.realpath(folder)  # links may lead in circles
            if real in seen or not any(os.path.exists(os.path.join(folder, n)) for n in _NODES):
                continue
            seen.add(real)
            try:
                node = root[inner]
            except Exception as e:  # damaged metadata may raise anything
                self.broken[inner] = f"cannot be opened: {type(e).__name__}: {e}"
                continue
            if isinstance(node, zarr.Array):
                self.arrays[inner] = node
            else:
                self._walk(path, root, inner, seen)
