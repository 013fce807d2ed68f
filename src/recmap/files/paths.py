"""Find the files for a path, a pattern, a folder or a list."""

from __future__ import annotations

import glob
import os
import reprlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from recmap.errors import OptionError, OptionTypeError, PathNotFoundError
from recmap.files.find_objects import (
    STORE_FILES,
    TFDS_FILE,
    TFDS_INFO,
    ZARR_FILES,
    is_store_of,
)
from recmap.files.object_path import ObjectPath, object_path
from recmap.files.object_store import ObjectStore
from recmap.files.open_file import is_folder
from recmap.files.storage import Storage
from recmap.files.urls import SCHEMES, is_url, local_path, refuse_flattened_url
from recmap.model.arguments import is_iterable

__all__ = [
    "MOST_SHARDS",
    "PathLike",
    "PathsLike",
    "absolute",
    "absolute_path",
    "as_location",
    "as_path",
    "as_paths",
    "expand",
    "given_paths",
    "is_store",
    "lone_path",
    "shard_names",
    "size_on_disk",
    "working_folder",
]

PathLike: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
PathsLike: TypeAlias = "PathLike | Iterable[PathLike]"

# Kinds of dtypes that are not text.
_NUMBERS = "biufcmMV"
# More files than any folder should hold.
MOST_SHARDS = 1_000_000
# Suffixes of files next to the data that are not data.
_DESCRIPTION, _TEXT_INDEX = ".recmap.json", ".idx"


def as_location(
    path: Any,
    name: str = "path",
    storage: Storage | None = None,
    stores: dict[str, ObjectStore] | None = None,
) -> str:
    """Return a path as ``as_path`` does, and a URL of a store as an ``ObjectPath``.

    That keeps the ``storage`` options. ``name`` is the option it came from, and ``stores`` are
    shared with other paths.
    """
    if isinstance(path, ObjectPath):
        return path
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    if is_url(text) and text.partition("://")[0].lower() in SCHEMES:
        return object_path(text, storage, stores)
    return as_path(path, name)


def as_path(path: Any, name: str = "path") -> str:
    """Return a local path as text, with ``~`` expanded. ``name`` is the option it came from.

    A ``file://`` URL is a path, too. Other URLs are refused.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        file = " (a file object has one, its .name)" if hasattr(path, "fileno") else ""
        raise OptionTypeError(
            f"{name}={reprlib.repr(path)}: give a path as text, bytes or pathlib.Path{file}, not "
            f"{type(path).__name__}"
        )
    text = os.fsdecode(path)
    if not text:
        raise PathNotFoundError(f"{name}='': an empty path names no file")
    if "\0" in text:
        raise OptionError(f"{name}={text!r}: a path cannot hold a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as e:
        raise OptionError(f"{name}={text!r}: not the name of a file: {e}") from None
    if is_url(text):
        # Otherwise an output would go to a new folder called "s3:".
        return local_path(text, name)
    if isinstance(path, os.PathLike):
        refuse_flattened_url(text, name)
    # A file may really be called "~".
    if text[:1] == "~" and not os.path.lexists(text):
        text = os.path.expanduser(text)
    if not os.path.isabs(text) and working_folder() is None:
        raise PathNotFoundError(
            f"{name}={text!r}: the working directory was removed, so that no relative path leads "
            "anywhere; change to another, or give an absolute path"
        )
    return text


def working_folder() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def as_paths(paths: Any, storage: Storage | None = None) -> str | list[str]:
    """Return a path or pattern, or a list of them, as text."""
    if isinstance(paths, str | bytes | os.PathLike):
        return as_location(paths, storage=storage)
    if _is_data_in_memory(paths):
        raise OptionTypeError(
            f"give a path, not {type(paths).__name__}; rm.open(x) opens what is in memory, and "
            "rm.open(x).save(path) writes it to a file"
        )
    if not is_iterable(paths) or hasattr(paths, "read"):
        return as_path(paths)  # raises
    stores: dict[str, ObjectStore] = {}
    return [as_location(path, storage=storage, stores=stores) for path in paths]


def _is_data_in_memory(x: Any) -> bool:
    """Return whether iterating an object would give columns or rows, not paths."""
    if hasattr(x, "__array__") or hasattr(x, "__arrow_c_stream__"):
        return hasattr(x, "columns") or getattr(getattr(x, "dtype", None), "kind", "O") in _NUMBERS
    return isinstance(x, Mapping)


def given_paths(paths: Any, storage: Storage | None = None) -> str | list[str]:
    """Return what ``as_paths`` does. Objects are looked up again, even if they were found before.

    This is for what a user gives, such as the files of another dataset.
    """
    located = as_paths(paths, storage)
    return _anew(located) if isinstance(located, str) else list(map(_anew, located))


def _anew(path: str) -> str:
    return path.anew() if isinstance(path, ObjectPath) else path


def expand(paths: PathsLike, storage: Mapping[str, Any] | None = None) -> list[str]:
    """Return the files. Those of a pattern or folder are sorted by name, without hidden ones.

    A path that exists is used literally, even if it looks like a pattern. Objects that were found
    before stay as they were then. ``storage`` has the options for URLs.
    """
    given = as_paths(paths, None if storage is None else Storage(storage))
    if isinstance(given, str):
        return _expand_one(given)
    files = [file for path in given for file in _expand_one(path)]
    if not files:
        raise PathNotFoundError("the list of paths is empty")
    return files


def absolute(paths: PathsLike) -> PathsLike:
    """Make the paths or patterns absolute, for a process in another folder."""
    given = as_paths(paths)
    return absolute_path(given) if isinstance(given, str) else list(map(absolute_path, given))


def absolute_path(path: str) -> str:
    """Make a path absolute, for a process in another folder. URLs are already."""
    return path if isinstance(path, ObjectPath) else os.path.abspath(path)


def lone_path(path: str) -> str:
    """Make a path absolute, to be sent to another process by itself.

    The path of an object leaves behind what is known about the others in its folder.
    """
    return path.alone() if isinstance(path, ObjectPath) else os.path.abspath(path)


def _expand_one(path: str) -> list[str]:
    if isinstance(path, ObjectPath):
        return [*path.objects()]
    if _is_data(path):
        return [path]
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path) if name[0] not in "._"]
        # Folders of TFDS are not taken together: they are versions of the same data.
        files = sorted(file for file in found if _is_data(file, ZARR_FILES))
        if not files:
            raise PathNotFoundError(f"{path}: {_no_files(path)}")
        return files
    # A set, because "**/**" finds a file several times.
    matches = sorted(file for file in set(glob.glob(path, recursive=True)) if _is_data(file))
    if not matches:
        what = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise PathNotFoundError(
            f"{path}: {what} (looked in {working_folder() or 'a folder that was removed'})"
        )
    return matches


def _no_files(path: str) -> str:
    """Explain why a folder has no data."""
    inside = sorted(name for name in os.listdir(path) if name[0] not in "._")
    folders = [name for name in inside if os.path.isdir(os.path.join(path, name))]
    if path.rstrip("/").endswith(".zarr"):
        return f"not a Zarr store: there is none of {', '.join(ZARR_FILES)} in this folder"
    if folders:
        named = ", ".join(folders[:5]) + (", ..." if len(folders) > 5 else "")
        return f"only folders in this folder: {named}; open one of them, or a pattern such as " + (
            repr(os.path.join(path, "**", "*.parquet" if "=" in folders[0] else "*.tfrecord"))
        )
    return "an empty folder" if not os.listdir(path) else "no data files in this folder"


def shard_names(stem: str, suffix: str, count: int) -> list[str]:
    """Return the names of the shards of one output.

    >>> shard_names("train", ".npy", 2)
    ['train-00000-of-00002.npy', 'train-00001-of-00002.npy']
    """
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for i in range(count)]


def size_on_disk(path: str) -> int:
    """Return the size in bytes of a file, or of all files in a folder."""
    if isinstance(path, ObjectPath):
        return path.size_below if is_folder(path) else path.info.size
    if not os.path.isdir(path):
        return os.path.getsize(path)
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(map(os.path.getsize, inside))


def is_store(path: str, names: Sequence[str] = STORE_FILES) -> bool:
    """Return whether a folder is opened as a whole, as ``is_store_of`` tells."""
    if any(os.path.exists(os.path.join(path, name)) for name in names):
        return True
    # Listing a folder may take long, so look for the file that old versions of TFDS wrote first.
    old = TFDS_FILE in names and os.path.exists(os.path.join(path, TFDS_INFO))
    return old and is_store_of(os.listdir(path), names)


def _is_data(path: str, names: Sequence[str] = STORE_FILES) -> bool:
    try:
        mode = os.stat(path).st_mode  # only once: there may be many files on a slow disk
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(mode):
        return is_store(path, names)
    indexed = path.removesuffix(_TEXT_INDEX)
    beside = path.endswith(_DESCRIPTION) or (indexed != path and os.path.exists(indexed))
    return stat.S_ISREG(mode) and not beside
