"""The files a user means by a path, a pattern, a folder or a list."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import TypeAlias

from recmap.errors import PathNotFoundError

__all__ = ["PathLike", "PathsLike", "absolute", "expand", "is_store", "shard_names"]

PathLike: TypeAlias = "str | os.PathLike[str]"
PathsLike: TypeAlias = "PathLike | Iterable[PathLike]"

# A file of one of these names makes a folder a Zarr store, of version 3 or 2.
_STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
# What lies beside data, and is none.
_DESCRIPTION, _TEXT_INDEX = ".recmap.json", ".idx"


def expand(paths: PathsLike) -> list[str]:
    """The files, those of a pattern or folder sorted by name, hidden ones left out.

    A path that exists is taken as it is, even if it looks like a pattern.
    """
    if isinstance(paths, str | os.PathLike):
        return _expand_one(os.fspath(paths))
    files = [file for path in paths for file in _expand_one(os.fspath(path))]
    if not files:
        raise PathNotFoundError("the list of paths is empty")
    return files


def absolute(paths: PathsLike) -> PathsLike:
    """The same paths or patterns, for a process that works in another folder."""
    if isinstance(paths, str | os.PathLike):
        return os.path.abspath(paths)
    return [os.path.abspath(path) for path in paths]


def _expand_one(path: str) -> list[str]:
    if _is_data(path):
        return [path]
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path) if name[0] not in "._"]
        files = sorted(file for file in found if _is_data(file))
        if not files:
            raise PathNotFoundError(f"{path}: {_no_files(path)}")
        return files
    matches = sorted(file for file in glob.glob(path, recursive=True) if _is_data(file))
    if not matches:
        what = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise PathNotFoundError(f"{path}: {what} (looked in {os.getcwd()})")
    return matches


def _no_files(path: str) -> str:
    """Why a folder holds no data."""
    inside = sorted(name for name in os.listdir(path) if name[0] not in "._")
    folders = [name for name in inside if os.path.isdir(os.path.join(path, name))]
    if path.rstrip("/").endswith(".zarr"):
        return f"not a Zarr store: there is none of {', '.join(_STORE_MARKS)} in this folder"
    if folders:
        named = ", ".join(folders[:5]) + (", ..." if len(folders) > 5 else "")
        return f"only folders in this folder: {named}; open one of them, or a pattern such as " + (
            repr(os.path.join(path, "**", "*.tfrecord"))
        )
    return "an empty folder" if not os.listdir(path) else "no data files in this folder"


def shard_names(stem: str, suffix: str, count: int) -> list[str]:
    """The names of files that belong together.

    >>> shard_names("train", ".npy", 2)
    ['train-00000-of-00002.npy', 'train-00001-of-00002.npy']
    """
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for i in range(count)]


def is_store(path: str) -> bool:
    """Whether a folder is a Zarr store."""
    return any(os.path.exists(os.path.join(path, name)) for name in _STORE_MARKS)


def _is_data(path: str) -> bool:
    if os.path.isdir(path):
        return is_store(path)
    indexed = path.removesuffix(_TEXT_INDEX)
    beside = path.endswith(_DESCRIPTION) or (indexed != path and os.path.exists(indexed))
    return os.path.isfile(path) and not beside
