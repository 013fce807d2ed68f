"""What lies in the folder of a Zarr store, and whether recmap put it there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from recmap.errors import FieldTextError, OutputExistsError
from recmap.files.atomic_write import read_whole
from recmap.formats.ragged_layout import VALUES, levels_of
from recmap.model.schema import Field

__all__ = ["not_ours", "refuse_foreign"]

_GROUP_FILES = {"zarr.json", ".zgroup", ".zattrs", ".zmetadata"}
_ARRAY_FILES = {"zarr.json", ".zarray", ".zattrs"}
# Chunks are files, or folders of files, named by numbers; those of version 3 lie in "c".
_CHUNK = re.compile(r"\d+(\.\d+)*")
# The attribute of a group that recmap wrote.
_KEY = "recmap"
_MAX_SIZE = 256 << 20


def refuse_foreign(path: str) -> None:
    """Raise if a folder that is to be replaced holds what recmap did not write."""
    if not os.path.isdir(path):
        return
    found = not_ours(path)
    if found:
        raise OutputExistsError(
            f"{path} is not replaced: overwrite=True deletes a folder only if recmap wrote all "
            f"that is in it, and {found} is not recmap's. Move it away, or write elsewhere"
        )


def not_ours(path: str) -> str:
    """Name the first thing in a folder that is not part of a store recmap wrote; "" if
    there is none.
    """
    if not os.listdir(path):
        return ""
    attributes = _attributes(path)
    arrays = _arrays(attributes)
    if not arrays:
        return path
    if set(attributes) != {_KEY}:
        return f"the attribute {min(set(attributes) - {_KEY})!r} of {path}"
    groups = {
        "/".join(parts[:i]) for a in arrays if (parts := a.split("/")) for i in range(len(parts))
    }
    for folder, folders, files in os.walk(path):
        at = "" if folder == path else os.path.relpath(folder, path).replace(os.sep, "/")
        notes = _attributes(folder) if at and (at in groups or at in arrays) else {}
        if notes:
            return f"the attribute {min(notes)!r} of {folder}"
        for name in sorted([*files, *folders]):
            inner = f"{at}/{name}" if at else name
            whole = os.path.join(folder, name)
            known = _is_known(at, name, inner, name in folders, groups, arrays)
            if os.path.islink(whole) or not known:
                return whole
    return ""


def _is_known(
    at: str, name: str, inner: str, is_folder: bool, groups: set[str], arrays: set[str]
) -> bool:
    if at in groups:
        return (inner in groups or inner in arrays) if is_folder else name in _GROUP_FILES
    if at in arrays:
        top = name == "c" and is_folder
        return top or _CHUNK.fullmatch(name) is not None or (not is_folder and name in _ARRAY_FILES)
    return _CHUNK.fullmatch(name) is not None  # deeper in the chunks of an array


def _arrays(attributes: Mapping[str, Any]) -> set[str]:
    """The paths of the arrays that recmap says it wrote; none if it does not."""
    arrays: set[str] = set()
    try:
        for column in attributes[_KEY]["columns"]:
            path, keys = str(column["path"]), levels_of(Field.parse(str(column["field"])))
            arrays |= {f"{path}/{key}" for key in (VALUES, *keys)} if keys else {path}
    except (FieldTextError, KeyError, TypeError):
        return set()
    return arrays


def _attributes(path: str) -> Mapping[str, Any]:
    for name, key in (("zarr.json", "attributes"), (".zattrs", None)):
        try:
            content = json.loads(read_whole(os.path.join(path, name), _MAX_SIZE))
        except (OSError, ValueError, RecursionError):
            continue
        found = content.get(key) if key and isinstance(content, dict) else content
        if isinstance(found, dict):
            return found
    return {}
