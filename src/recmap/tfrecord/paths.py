"""The files a user means by a path, a pattern, a folder or a list."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import TypeAlias

from recmap.errors import PathNotFoundError

__all__ = ["PathLike", "PathsLike", "expand"]

PathLike: TypeAlias = "str | os.PathLike[str]"
PathsLike: TypeAlias = "PathLike | Iterable[PathLike]"


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


def _expand_one(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path) if name[0] not in "._"]
        files = sorted(file for file in found if os.path.isfile(file))
        if not files:
            raise PathNotFoundError(f"{path}: no files in this folder")
        return files
    matches = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not matches:
        what = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise PathNotFoundError(f"{path}: {what} (looked in {os.getcwd()})")
    return matches
