"""Find the files for a path, a pattern, a folder or a list."""

from __future__ import annotations

import glob
import os
import reprlib
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from recmap.errors import (
    AccessDeniedError,
    OptionError,
    OptionTypeError,
    PathNotFoundError,
    StoreError,
)
from recmap.files.find_objects import is_store_of
from recmap.files.found_path import (
    STORE_FILES,
    TFDS_FILE,
    TFDS_INFO,
    ZARR_FILES,
    FoundPath,
    check_unchanged,
    found_path,
)
from recmap.files.object_path import ObjectPath, object_path
from recmap.files.object_store import ObjectStore
from recmap.files.open_file import beside, is_folder, open_file
from recmap.files.storage import Storage
from recmap.files.urls import SCHEMES, is_url, local_path, refuse_flattened_url
from recmap.files.whole_output import refuse_unfinished, warn_of_missing, warn_of_unfinished
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
    "names_inside",
    "plain_path",
    "read_beside",
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
            f"{name}={text!r}: the working directory was removed; change to another one, "
            "or give an absolute path"
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
    """Return what ``as_paths`` does. What was found before is looked up again.

    This is for what a user gives, such as the files of another dataset.
    """
    located = as_paths(paths, storage)
    return _anew(located) if isinstance(located, str) else list(map(_anew, located))


def _anew(path: str) -> str:
    return path.anew() if isinstance(path, ObjectPath) else plain_path(path)


def plain_path(path: str) -> str:
    """Return a path for a user, which does not remember which file was there."""
    return path if isinstance(path, ObjectPath) else str(path)


def expand(paths: PathsLike, storage: Mapping[str, Any] | None = None) -> list[str]:
    """Return the files. Those of a pattern or folder are sorted by name, without hidden ones.

    A path that exists is used literally, even if it looks like a pattern. What was found before
    stays as it was then. ``storage`` has the options for URLs.
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
    if isinstance(path, FoundPath):
        return path.absolute()
    return path if isinstance(path, ObjectPath) else os.path.abspath(path)


def lone_path(path: str) -> str:
    """Make a path absolute, to be sent to another process by itself.

    The path of an object leaves behind what is known about the others in its folder.
    """
    return path.alone() if isinstance(path, ObjectPath) else absolute_path(path)


def _expand_one(path: str) -> list[str]:
    if isinstance(path, ObjectPath):
        return _expand_objects(path)
    if isinstance(path, FoundPath):
        check_unchanged(path)
        return [path]
    if (data := _data(path)) is not None:
        return [data]
    if os.path.isdir(path):
        if path.rstrip(os.sep).endswith(".zarr"):
            # The arrays of half a store are not stores to be read one after the other.
            raise PathNotFoundError(f"{path}: {_no_files(path)}")
        names = os.listdir(path)
        refuse_unfinished(path, names, partial(read_beside, os.path.join(path, "")))
        found = [os.path.join(path, name) for name in names if name[0] not in "._"]
        # Folders of TFDS are not taken together: they are versions of the same data.
        files = sorted(data for file in found if (data := _data(file, ZARR_FILES)) is not None)
        if not files:
            raise PathNotFoundError(f"{path}: {_no_files(path)}")
        warn_of_missing(path, names, list(map(os.path.basename, files)))
        return files
    # A set, because "**/**" finds a file several times.
    every = set(glob.glob(path, recursive=True))
    matches = sorted(data for file in every if (data := _data(file)) is not None)
    if not matches:
        what = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise PathNotFoundError(
            f"{path}: {what} (looked in {working_folder() or 'a folder that was removed'})"
        )
    _warn_of_missing(matches, lambda file: os.listdir(os.path.dirname(file) or "."))
    return matches


def _expand_objects(path: ObjectPath) -> list[str]:
    objects, listed = path.found_objects()
    folders: dict[str, list[str]] = {}
    for key in listed or ():
        folders.setdefault(os.path.dirname(key), []).append(os.path.basename(key))
    if listed is not None and glob.has_magic(path.key):
        _warn_of_missing(
            [path.at(each.key.rstrip("/")) for each in objects],
            lambda file: folders.get(os.path.dirname(file.key), ()),
        )
    elif listed is not None:
        names = folders.get(path.key.strip("/"), [])
        refuse_unfinished(path, names, partial(read_beside, path.inside("x")))
        warn_of_missing(path, names, [each.name for each in objects])
    return [*objects]


_Path = TypeVar("_Path", bound=str)


def _warn_of_missing(files: Sequence[_Path], names: Callable[[_Path], Iterable[str]]) -> None:
    """Warn if a pattern finds some files of an output while others do not exist.

    ``names`` returns those of all files beside one.
    """
    folders: dict[str, list[_Path]] = {}
    for file in files:
        folders.setdefault(os.path.dirname(file), []).append(file)
    for folder, those in folders.items():
        chosen, there = [os.path.basename(file) for file in those], list(names(those[0]))
        if not warn_of_unfinished(folder, there, partial(read_beside, those[0]), chosen):
            warn_of_missing(folder, there, chosen)


def names_inside(folder: str) -> list[str]:
    """Return the names of all files in a folder; none if it is in a store that lists nothing."""
    if not isinstance(folder, ObjectPath):
        return os.listdir(folder)
    if not folder.store.listed:
        return []
    return [each.key.rpartition("/")[2] for each in folder.store.folder(folder.key).objects]


def read_beside(file: str, name: str) -> bytes | None:
    """Return the content of another file in the folder of a file; None if it cannot be read."""
    other = beside(file, name)
    try:
        with open_file(other.anew() if isinstance(other, ObjectPath) else other) as opened:
            return opened.pread(opened.size, 0)
    except OSError as e:
        if isinstance(e, StoreError) and not isinstance(e, AccessDeniedError):
            raise
        return None


def _no_files(path: str) -> str:
    """Explain why a folder has no data."""
    inside = sorted(name for name in os.listdir(path) if name[0] not in "._")
    folders = [name for name in inside if os.path.isdir(os.path.join(path, name))]
    if path.rstrip("/").endswith(".zarr"):
        return (
            f"not a Zarr store: this folder has none of {', '.join(ZARR_FILES)}; if a program is "
            "writing it, wait; if that was killed, run it again"
        )
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


def _data(path: str, names: Sequence[str] = STORE_FILES) -> str | None:
    """Return the path of a data file, which remembers the file; None if it is something else."""
    try:
        status = os.stat(path)  # only once: there may be many files on a slow disk
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return found_path(path, status) if is_store(path, names) else None
    indexed = path.removesuffix(_TEXT_INDEX)
    beside = path.endswith(_DESCRIPTION) or (indexed != path and os.path.exists(indexed))
    data = stat.S_ISREG(status.st_mode) and not beside
    return found_path(path, status) if data else None
