"""Tell whether a folder has all files of an output: by the manifests in it, and by their names.

While a conversion writes several files, and after it was killed, the manifest beside them says
that it is not complete. Files that are added to a folder (``append=True``) have a manifest of
their own, and do not count before that is complete. Other programs number the files they write:
``train-00003-of-00016``.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from recmap.errors import MissingShardsWarning, UnfinishedOutputError
from recmap.local.location import Location
from recmap.warn import warn

FOLDER_MANIFEST = "_manifest.json"
_MANIFEST = re.compile(r"_manifest\.json|\..+\.manifest\.json")
_APPENDED = re.compile(r"(.*_append[0-9]{5,})(?:-[0-9]{5,}-of-[0-9]{5,})?(\..+)")
_APPENDED_MANIFEST = re.compile(r"\.(.*_append[0-9]{5,}\..+)\.manifest\.json")
_NUMBERED = re.compile(r"(?<![0-9])([0-9]{1,9})[-_]of[-_]([0-9]{1,9})(?![0-9])")
# Missing files are counted up to this number of shards. A larger one is not a number of files.
_MOST_SHARDS = 1_000_000

# Returns the content of a small file in the folder, by its name; None if it is gone.
_Read = Callable[[str], bytes | None]
_File = TypeVar("_File", bound=Location)


def refuse_unfinished(
    folder: str, names: Iterable[str], read: _Read, chosen: Iterable[str] | None = None
) -> set[str]:
    """Raise if a conversion that writes the files of a folder has not finished.

    ``names`` are those of all files in it, hidden ones included. Those to be read are ``chosen``,
    by default all. Return the names of files that do not count yet, because what appends them
    has not finished.
    """
    every = set(names)
    added = _unfinished_appends(every, read)
    found = _unfinished(every, read, every - added if chosen is None else set(chosen))
    if found is not None:
        manifest, files = found
        raise UnfinishedOutputError(
            f"{folder}: its conversion is not finished, says {manifest}: files may be "
            "missing, or left over from an older one. Run the same conversion again to complete "
            "it, or wait if it is running; to read the files that are there, open "
            f"{_joined(folder, _pattern(files))!r}",
            file=str(folder),
        )
    return added


def appended_outputs(names: Iterable[str]) -> list[str]:
    """Return what was appended to a folder, given the names of its files, in order.

    >>> appended_outputs(["x.npy", ".data_append00001.npy.manifest.json"])
    ['data_append00001.npy']
    """
    found = filter(None, map(_APPENDED_MANIFEST.fullmatch, names))
    return sorted((match[1] for match in found), key=lambda name: (len(name), name))


def appended_manifest(name: str) -> str | None:
    """Return the name of the manifest of an appended file; None if the file is not one.

    >>> appended_manifest("data_append00001-00003-of-00016.npy")
    '.data_append00001.npy.manifest.json'
    """
    match = _APPENDED.fullmatch(name)
    return None if match is None else f".{match[1]}{match[2]}.manifest.json"


def _unfinished_appends(names: set[str], read: _Read) -> set[str]:
    """Return the files that are to be added to a folder, but not all of them are there."""
    found: set[str] = set()
    for name in filter(_APPENDED_MANIFEST.fullmatch, names):
        content = _parsed(read(name))
        if content.get("complete") is not True:
            found |= {*_listed(content.get("files")), *_listed(content.get("replaces"))}
    return found


def _warn_of_unfinished(
    folder: str, names: Iterable[str], read: _Read, chosen: Sequence[str]
) -> bool:
    """Warn of what ``refuse_unfinished`` refuses, and return whether there is anything."""
    found = _unfinished(set(names), read, set(chosen))
    if found is None:
        return False
    _warn(
        f"{_joined(folder, found[0])}: the conversion that writes these files is not "
        "finished; some may be missing, or left over from an older one"
    )
    return True


def warn_of_incomplete(files: Sequence[_File], names: Callable[[_File], Iterable[str]]) -> None:
    """Warn if a pattern finds some files of an output while others do not exist.

    ``names`` returns those of all files beside one.
    """
    folders: dict[str, list[_File]] = {}
    for file in files:
        folders.setdefault(os.path.dirname(file), []).append(file)
    for folder, those in folders.items():
        chosen, there = [os.path.basename(file) for file in those], list(names(those[0]))

        def read(name: str, first: _File = those[0]) -> bytes | None:
            return first.sibling(name).content()

        if not _warn_of_unfinished(folder, there, read, chosen):
            warn_of_missing(folder, there, chosen)


def warn_of_missing(folder: str, names: Iterable[str], chosen: Sequence[str]) -> None:
    """Warn if files of an output are missing. ``chosen`` are the names of those that are read."""
    for missing, count in _missing(chosen, set(names)):
        more = "1 is" if len(missing) == 1 else f"{len(missing):,} are"
        _warn(
            f"{_joined(folder, missing[0])}: no such file; the names of the others say that "
            f"there are {count:,} shards, of which {more} missing"
        )


def _warn(text: str) -> None:
    warn(text, MissingShardsWarning)


def _joined(folder: str, name: str) -> str:
    return os.path.join(str(folder), name)


def _pattern(files: Sequence[str]) -> str:
    return _NUMBERED.sub("*", files[0], count=1).replace("-*", "*") if files else "*"


def _unfinished(names: set[str], read: _Read, chosen: set[str]) -> tuple[str, list[str]] | None:
    """Return a manifest that is not complete, and the names of the files that it lists."""
    for name in sorted(filter(_MANIFEST.fullmatch, names)):
        content = _parsed(read(name))
        if content.get("recmap") != 1 or content.get("complete") is not False:
            continue
        files, old = _listed(content.get("files")), _listed(content.get("replaces"))
        # A single file appears when it is complete.
        alone = name != FOLDER_MANIFEST and len(files) == 1 and set(old) <= set(files)
        if not alone and (name == FOLDER_MANIFEST or chosen & {*files, *old}):
            return name, [*files, *old]
    return None


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(data) if data is not None else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _listed(entries: Any) -> list[str]:
    every = entries if isinstance(entries, list) else []
    names = [entry.get("file") for entry in every if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str)]


def _missing(chosen: Sequence[str], names: set[str]) -> list[tuple[list[str], int]]:
    """Return the names of missing shards, and how many there should be, for each set of them."""
    present, found = _numbered({*names, *chosen}), []
    for key in sorted(_numbered(chosen)):
        members, count = present[key], key[-1]
        first = 1 if count in members else 0
        lost = [i for i in range(first, count + first) if i not in members]
        if lost:
            found.append(([_renumbered(members, i) for i in lost], count))
    return found


def _numbered(names: Iterable[str]) -> dict[tuple[str, str, int], dict[int, str]]:
    """Return the shards of each set by their numbers."""
    sets: dict[tuple[str, str, int], dict[int, str]] = defaultdict(dict)
    for name in names:
        match = _NUMBERED.search(name)
        if match is not None and int(match[1]) <= int(match[2]) <= _MOST_SHARDS:
            # What follows may differ, such as a digest.
            key = name[: match.start()], os.path.splitext(name[match.end() :])[1], int(match[2])
            sets[key][int(match[1])] = name
    return sets


def _renumbered(members: dict[int, str], number: int) -> str:
    """Return the name of another shard of the same set."""
    name = members[min(members)]
    match = _NUMBERED.search(name)
    assert match is not None
    return f"{name[: match.start()]}{number:0{len(match[1])}d}{name[match.end(1) :]}"
