"""Find the objects for a URL, a pattern or a folder, as ``paths.expand`` finds files."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from recmap.errors import AccessDeniedError, PathNotFoundError
from recmap.files.object_store import Folder, ObjectInfo, ObjectStore
from recmap.files.storage import ObjectUrl

__all__ = ["Found", "find_objects"]

_Listing: TypeAlias = Callable[[str], Folder]

# Names of objects beside the data that are not data.
_DESCRIPTION, _TEXT_INDEX = ".recmap.json", ".idx"


class Found(NamedTuple):
    """Data objects, sorted by key, and all objects in the folders that were listed, by key.

    ``beside`` is None if no folder was listed.
    """

    objects: list[ObjectInfo]
    beside: Mapping[str, ObjectInfo] | None = None


def find_objects(store: ObjectStore, url: ObjectUrl) -> Found:
    """Find the data objects of a URL, a pattern or a folder.

    An object that exists is used literally, even if its key looks like a pattern. The objects of
    a pattern or folder do not include hidden ones.
    """
    key = url.key
    denied: AccessDeniedError | None = None
    if key and not key.endswith("/"):
        try:
            found = store.head(key)
        except (AccessDeniedError, PathNotFoundError) as e:
            if url.scheme in ("http", "https"):
                raise
            # Who may list one folder only may not ask for an object that does not exist.
            denied = e if isinstance(e, AccessDeniedError) else None
        else:
            if not _is_companion(store, key):
                return Found([found])
    known: dict[str, Folder] = {}

    def listing(folder: str) -> Folder:
        if folder not in known:
            known[folder] = store.folder(folder)
        return _data(known[folder])

    if glob.has_magic(key):
        parts = [part for part in key.split("/") if part]
        matches = list({each.key: each for each in _walk(listing, "", parts)}.values())
        what = "no object matches"
    else:
        matches = [each for each in listing(key).objects if _name(each)[0] not in "._"]
        what = "no objects in this folder" if key.endswith("/") else "no such object or folder"
    if not matches and denied is not None:
        raise denied
    if not matches:
        raise PathNotFoundError(f"{url.at(key)}: {what}")
    beside = {each.key: each for folder in known.values() for each in folder.objects}
    return Found(sorted(matches, key=lambda each: each.key), beside)


def _data(folder: Folder) -> Folder:
    """Leave out what is beside the data: descriptions, and text indexes of other objects."""
    keys = {each.key for each in folder.objects}
    data = [
        each
        for each in folder.objects
        if not each.key.endswith(_DESCRIPTION)
        and not (each.key.endswith(_TEXT_INDEX) and each.key.removesuffix(_TEXT_INDEX) in keys)
    ]
    return Folder(data, folder.folders)


def _is_companion(store: ObjectStore, key: str) -> bool:
    if not key.endswith(_TEXT_INDEX):
        return key.endswith(_DESCRIPTION)
    try:
        store.head(key.removesuffix(_TEXT_INDEX))
    except PathNotFoundError:
        return False
    return True


def _walk(listing: _Listing, folder: str, parts: Sequence[str]) -> Iterator[ObjectInfo]:
    first, rest = parts[0], parts[1:]
    if first == "**":
        inside = [folder, *_folders_below(listing, folder)]
        for each in inside:
            yield from _walk(listing, each, rest or ["*"])
        return
    if rest and not glob.has_magic(first):
        yield from _walk(listing, _joined(folder, first), rest)
        return
    names = re.compile(fnmatch.translate(first))
    listed = listing(folder)
    if not rest:
        yield from (each for each in listed.objects if _fits(names, first, _name(each)))
        return
    for below in listed.folders:
        if _fits(names, first, below.rpartition("/")[2]):
            yield from _walk(listing, below, rest)


def _folders_below(listing: _Listing, folder: str) -> Iterator[str]:
    for below in listing(folder).folders:
        if not below.rpartition("/")[2].startswith("."):
            yield below
            yield from _folders_below(listing, below)


def _fits(names: re.Pattern[str], part: str, name: str) -> bool:
    hidden = name.startswith(".") and not part.startswith(".")
    return not hidden and names.match(name) is not None


def _name(each: ObjectInfo) -> str:
    return each.key.rpartition("/")[2]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
