"""Find the objects for a URL, a pattern or a folder, as ``paths.expand`` finds files."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from recmap.errors import AccessDeniedError, PathNotFoundError
from recmap.local.file_state import (
    DESCRIPTION,
    LEROBOT_FILE,
    STORE_FILES,
    TEXT_INDEX,
    ZARR_FILES,
    is_indexed,
    is_store_of,
    mosaic_index,
)
from recmap.machine.threads import Threads
from recmap.store.object_store import Folder, ObjectInfo, ObjectStore
from recmap.store.storage import ObjectUrl

_Listing: TypeAlias = Callable[[str], Folder]

# Folders listed at a time.
_AT_ONCE = 32


class FoundObjects(NamedTuple):
    """Data objects, sorted by key, and all objects in the folders that were listed, by key.

    ``beside`` is None if no folder was listed. ``stores`` are the keys of folders that are
    opened as a whole, such as Zarr stores.
    """

    objects: list[ObjectInfo]
    beside: Mapping[str, ObjectInfo] | None = None
    stores: Sequence[str] = ()


def find_objects(store: ObjectStore, url: ObjectUrl) -> FoundObjects:
    """Find the data objects of a URL, a pattern or a folder.

    An object that exists is used literally, even if its key looks like a pattern. The objects of
    a pattern or folder do not include hidden ones.
    """
    key = url.key
    if not store.listed and key.endswith(("/", ".zarr")) and _answers_as_store(store, key):
        return FoundObjects([], None, [key.rstrip("/")])
    denied: AccessDeniedError | None = None
    if key and not key.endswith("/"):
        try:
            found = store.head(key)
        except (AccessDeniedError, PathNotFoundError) as e:
            if not store.listed:
                if _answers_as_store(store, key):
                    return FoundObjects([], None, [key])
                raise
            # Who may list one folder only may not ask for an object that does not exist.
            denied = e if isinstance(e, AccessDeniedError) else None
        else:
            if not _is_companion(store, key):
                return FoundObjects([found])
    known: dict[str, Folder] = {}

    def listing(folder: str) -> Folder:
        if folder not in known:
            known[folder] = store.folder(folder)
        return _data(known[folder])

    if glob.has_magic(key):
        parts = [part for part in key.split("/") if part]
        found_all = set(_walk(listing, "", parts))  # "**/**" finds an object several times
        matches = [each for each in found_all if not isinstance(each, str)]
        folders = sorted(each for each in found_all if isinstance(each, str))
        names: Sequence[str] = STORE_FILES
        what = "no object matches"
    else:
        listed = listing(key)
        if _is_store(listed) or _is_lerobot(listed, listing):
            return FoundObjects([], None, [key.rstrip("/")])
        if key.rstrip("/").endswith(".zarr") and (listed.objects or listed.folders):
            # The arrays of half a store are not stores to be read one after the other.
            raise PathNotFoundError(
                f"{url.at(key)}: not a Zarr store: this folder has none of "
                f"{', '.join(ZARR_FILES)}; if a conversion is writing it, wait; if that was "
                "killed, run it again"
            )
        there = {each.key for each in listed.objects}
        index = mosaic_index({_name(name) for name in there})
        matches = [
            each
            for each in listed.objects
            if _name(each.key)[0] not in "._"
            and not is_indexed(each.key, there)
            and (index is None or _name(each.key) == index)
        ]
        folders = [each for each in listed.folders if _name(each)[0] not in "._"]
        # Folders of TFDS are not taken together: they are versions of the same data.
        names = ZARR_FILES
        what = "no objects in this folder" if key.endswith("/") else "no such object or folder"
    # Beside data, only the names tell: there may be many folders, and each costs a listing.
    likely = [f for f in folders if not matches or f.endswith(".zarr")]
    stores = _stores_among(store, likely, names)
    if not matches and not stores and denied is not None:
        raise denied
    if not matches and not stores:
        raise PathNotFoundError(f"{url.at(key)}: {what}")
    beside = {each.key: each for folder in known.values() for each in folder.objects}
    return FoundObjects(sorted(matches, key=lambda each: each.key), beside, stores)


def _is_store(folder: Folder, names: Sequence[str] = STORE_FILES) -> bool:
    return is_store_of({_name(each.key) for each in folder.objects}, names)


def _is_lerobot(folder: Folder, listing: _Listing) -> bool:
    """Return whether what tells of a LeRobot dataset is in a folder below this one."""
    below, _, name = LEROBOT_FILE.partition("/")
    inside = [each for each in folder.folders if _name(each) == below]
    return any(_name(each.key) == name for meta in inside for each in listing(meta).objects)


def _stores_among(store: ObjectStore, folders: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the folders that are opened as a whole. This lists each of them."""
    if not folders:
        return []
    with Threads(min(_AT_ONCE, len(folders)), "recmap-list") as threads:
        listed = threads.map(store.folder, folders)
        return [name for name, each in zip(folders, listed, strict=True) if _is_store(each, names)]


def _answers_as_store(store: ObjectStore, key: str) -> bool:
    """Return whether a folder that cannot be listed is opened as a whole."""
    for name in STORE_FILES:
        try:
            store.head(_joined(key.rstrip("/"), name))
        except (AccessDeniedError, PathNotFoundError):
            continue
        return True
    return False


def _data(folder: Folder) -> Folder:
    """Leave out what is beside the data: descriptions, and text indexes of other objects."""
    keys = {each.key for each in folder.objects}
    data = [
        each
        for each in folder.objects
        if not each.key.endswith(DESCRIPTION)
        and not (each.key.endswith(TEXT_INDEX) and each.key.removesuffix(TEXT_INDEX) in keys)
    ]
    return Folder(data, folder.folders)


def _is_companion(store: ObjectStore, key: str) -> bool:
    if not key.endswith(TEXT_INDEX):
        return key.endswith(DESCRIPTION)
    try:
        store.head(key.removesuffix(TEXT_INDEX))
    except PathNotFoundError:
        return False
    return True


def _walk(listing: _Listing, folder: str, parts: Sequence[str]) -> Iterator[ObjectInfo | str]:
    """Yield the objects that match a pattern, and the keys of the folders that do."""
    first, rest = parts[0], parts[1:]
    if first == "**":
        for each in [folder, *_folders_below(listing, folder)]:
            yield from _walk(listing, each, rest or ["*"])
        return
    if rest and not glob.has_magic(first):
        yield from _walk(listing, _joined(folder, first), rest)
        return
    names = re.compile(fnmatch.translate(first))
    listed = listing(folder)
    if not rest:
        yield from (each for each in listed.objects if _fits(names, first, _name(each.key)))
    for below in listed.folders:
        if _fits(names, first, _name(below)):
            yield from _walk(listing, below, rest) if rest else [below]


def _folders_below(listing: _Listing, folder: str) -> Iterator[str]:
    for below in listing(folder).folders:
        if not _name(below).startswith("."):
            yield below
            yield from _folders_below(listing, below)


def _fits(names: re.Pattern[str], part: str, name: str) -> bool:
    hidden = name.startswith(".") and not part.startswith(".")
    return not hidden and names.match(name) is not None


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
