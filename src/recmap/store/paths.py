"""Find the files for a path, a pattern, a folder or a list."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, TypeVar

from recmap.errors import OptionError, OptionTypeError, PathNotFoundError
from recmap.local.local_path import any_remote, located, working_folder
from recmap.local.location import Location
from recmap.machine.threads import Threads
from recmap.model.arguments import is_iterable
from recmap.store.object_path import object_path
from recmap.store.object_store import ObjectStore
from recmap.store.storage import SCHEMES, Storage, is_url, local_path, refuse_flattened_url

PathLike: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
PathsLike: TypeAlias = "PathLike | Iterable[PathLike] | HasFiles"

# Kinds of dtypes that are not text.
_NUMBERS = "biufcmMV"
_SPAN = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")
_BRACES = re.compile(r"\{(\d{1,18}\.\.\d{1,18}|[^{},]*(?:,[^{},]*)+)\}")
# More files than any folder should hold.
MOST_SHARDS = 1_000_000
# Objects looked at a time.
_AT_ONCE = 64

_S = TypeVar("_S")
_T = TypeVar("_T")


class HasFiles(Protocol):
    """A dataset that is open."""

    @property
    def files(self) -> list[str]: ...


def as_location(
    path: Any,
    name: str = "path",
    storage: Storage | None = None,
    stores: dict[str, ObjectStore] | None = None,
) -> Location:
    """Return the location of a path, as ``as_path`` takes it, or of a URL of a store.

    That keeps the ``storage`` options. ``name`` is the option it came from, and ``stores`` are
    shared with other paths.
    """
    if isinstance(path, Location):
        return path
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    if is_url(text) and text.partition("://")[0].lower() in SCHEMES:
        return object_path(text, storage, stores)
    return located(as_path(path, name))


def as_output(path: Any, format: str | None, name: str, storage: Storage | None) -> Location:
    """Return the location of an output.

    ``Path("out/")`` has lost its slash. So if nothing says the format, a ``Path`` without a suffix
    is a folder, too.
    """
    found = as_location(path, name, storage)
    is_folder = isinstance(path, PurePath) and not path.suffix and format is None
    return found.child("") if is_folder and found.name else found


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


def is_path(value: Any) -> bool:
    """Return whether this is a path, and not an object or a list."""
    return isinstance(value, str | bytes | os.PathLike)


def as_paths(paths: Any, storage: Storage | None = None) -> Location | list[Location]:
    """Return a path or pattern, or a list of them, as locations."""
    if isinstance(paths, str | bytes | os.PathLike):
        if isinstance(paths, str) and not isinstance(paths, Location) and "{" in paths:
            names = [paths] if os.path.lexists(paths) else expand_braces(paths)
            if names != [paths]:
                return as_paths(names, storage)
        return as_location(paths, storage=storage)
    if type(paths).__module__.startswith("recmap.dataset."):
        return as_paths(_files_of(paths), storage)
    if _is_data_in_memory(paths):
        raise OptionTypeError(
            f"give a path, not {type(paths).__name__}; rm.open(x) opens what is in memory, and "
            "rm.open(x).save(path) writes it to a file"
        )
    if not is_iterable(paths) or hasattr(paths, "read"):
        return located(as_path(paths))  # raises
    stores: dict[str, ObjectStore] = {}
    return [as_location(path, storage=storage, stores=stores) for path in paths]


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern lists, in order; others are returned as they are.

    Patterns that list names are ``x-{0000..0099}.tar`` or ``{train,val}.npy``.

    >>> expand_braces("x-{08..10}.tar")
    ['x-08.tar', 'x-09.tar', 'x-10.tar']
    >>> expand_braces("{a,b}/x.npy"), expand_braces("x{}.npy")
    (['a/x.npy', 'b/x.npy'], ['x{}.npy'])
    """
    found = [""]
    end = 0
    for group in _BRACES.finditer(pattern):
        before = pattern[end : group.start()]
        choices = _choices(group[0])
        if len(found) * len(choices) > MOST_SHARDS:
            raise OptionError(f"{pattern}: a pattern of more than {MOST_SHARDS:,} names")
        found = [f"{name}{before}{choice}" for name in found for choice in choices]
        end = group.end()
    return [name + pattern[end:] for name in found]


def _choices(group: str) -> list[str]:
    numbers = _SPAN.fullmatch(group)
    if numbers is None:
        return group[1:-1].split(",")
    first, last = numbers[1], numbers[2]
    low, high = int(first), int(last)
    if abs(high - low) >= MOST_SHARDS:
        raise OptionError(f"{group}: a pattern of more than {MOST_SHARDS:,} names")
    # A zero at the beginning says that all names have one length.
    padded = any(len(text) > 1 and text[0] == "0" for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if low <= high else -1
    return [f"{number:0{width}d}" for number in range(low, high + step, step)]


def _files_of(dataset: Any) -> list[str]:
    """Return the files of a dataset that is open."""
    files: list[str] = getattr(dataset, "files", [])
    if not files:
        raise OptionTypeError("the dataset is in memory: give a path, or save it first")
    return files


def _is_data_in_memory(x: Any) -> bool:
    """Return whether iterating an object would give columns or rows, not paths."""
    if hasattr(x, "__array__") or hasattr(x, "__arrow_c_stream__"):
        return hasattr(x, "columns") or getattr(getattr(x, "dtype", None), "kind", "O") in _NUMBERS
    return isinstance(x, Mapping)


def given_paths(paths: Any, storage: Storage | None = None) -> Location | list[Location]:
    """Return what ``as_paths`` does. What was found before is looked up again.

    This is for what a user gives, such as the files of another dataset.
    """
    given = as_paths(paths, storage)
    return given.anew() if isinstance(given, Location) else [path.anew() for path in given]


def expand(paths: PathsLike, storage: Mapping[str, Any] | None = None) -> list[Location]:
    """Return the files. Those of a pattern or folder are sorted by name, without hidden ones.

    A path that exists is used literally, even if it looks like a pattern. What was found before
    stays as it was then. ``storage`` has the options for URLs.
    """
    given = as_paths(paths, None if storage is None else Storage(storage))
    if isinstance(given, Location):
        return list(given.expand())
    # A store is asked for each object of a list.
    files = list(chain.from_iterable(for_each(lambda path: path.expand(), given, given)))
    if not files:
        raise PathNotFoundError("the list of paths is empty")
    return files


def absolute(paths: PathsLike) -> PathsLike:
    """Make the paths or patterns absolute, for a process in another folder."""
    given = as_paths(paths)
    return given.absolute() if isinstance(given, Location) else [path.absolute() for path in given]


def for_each_file(function: Callable[[Location], _T], paths: Sequence[str]) -> list[_T]:
    """Return what a function returns for each file; of objects, it is called for many at once."""
    files = list(map(located, paths))
    return for_each(function, files, files)


def for_each(
    function: Callable[[_S], _T], items: Sequence[_S], paths: Sequence[str], most: int = _AT_ONCE
) -> list[_T]:
    """Return what a function returns for each item; if ``paths`` are objects, many at once."""
    if len(items) < 2 or not any_remote(paths):
        return [function(item) for item in items]
    pool = Threads(min(len(items), most), "recmap-open")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the others need not begin


def shard_names(stem: str, suffix: str, count: int) -> list[str]:
    """Return the names of the shards of one output.

    >>> shard_names("train", ".npy", 2)
    ['train-00000-of-00002.npy', 'train-00001-of-00002.npy']
    """
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for i in range(count)]
