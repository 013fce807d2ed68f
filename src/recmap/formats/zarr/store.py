"""The arrays of a Zarr store, each opened on its own: one that is damaged costs no other."""

from __future__ import annotations

import os
from typing import Any

import zarr

from recmap.errors import DataError
from recmap.files.cpus import thread_count

__all__ = ["Store", "limit_threads"]

_NODES = ("zarr.json", ".zarray", ".zgroup")


def limit_threads() -> None:
    """Has zarr start as many threads as recmap may: by itself it takes more than there are
    processors, and fails where they cannot start. What the user has set stays.
    """
    if zarr.config.get("threading.max_workers") is None:
        zarr.config.set({"threading.max_workers": thread_count()})


class Store:
    """What a store holds: its attributes, its arrays by their paths ("" for a store that
    is one), and why others cannot be opened.
    """

    def __init__(self, path: str) -> None:
        limit_threads()
        self.arrays: dict[str, Any] = {}
        self.broken: dict[str, str] = {}
        try:
            # Chunks that are not found read as zeros: the store must not move with the
            # working directory.
            node = self._open(os.path.abspath(path))
            self.attributes = dict(node.attrs)
        except Exception as e:  # whatever is in the metadata, or is not
            raise DataError(f"{path}: not a sound Zarr store: {e}", file=path) from e

    def _open(self, path: str) -> Any:
        try:
            node = zarr.open(path, mode="r")
            if isinstance(node, zarr.Array):
                self.arrays = {"": node}
            else:
                members = node.members(max_depth=None)
                self.arrays = {at: a for at, a in members if isinstance(a, zarr.Array)}
        except Exception:
            # All metadata in one place, or in any order: who knows which is damaged.
            node = zarr.open(path, mode="r", use_consolidated=False)
            if isinstance(node, zarr.Array):
                raise
            self._walk(path, node, "", {os.path.realpath(path)})
        return node

    def _walk(self, path: str, root: Any, at: str, seen: set[str]) -> None:
        for entry in sorted(os.listdir(os.path.join(path, at))):
            inner = f"{at}/{entry}" if at else entry
            folder = os.path.join(path, inner)
            there = os.path.realpath(folder)  # links may lead in circles
            if there in seen or not any(os.path.exists(os.path.join(folder, n)) for n in _NODES):
                continue
            seen.add(there)
            try:
                node = root[inner]
            except Exception as e:  # whatever is in the metadata, or is not
                self.broken[inner] = f"cannot be opened: {type(e).__name__}: {e}"
                continue
            if isinstance(node, zarr.Array):
                self.arrays[inner] = node
            else:
                self._walk(path, root, inner, seen)
