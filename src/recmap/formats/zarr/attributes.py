"""The attribute that recmap writes to the group of a Zarr store.

``{"recmap": {"columns": [{"name": "x", "path": "x", "field": "float32[10]"}]}}`` holds the
order of the columns, names that a folder cannot have, and types that Zarr does not have
(``source`` describes how their values are stored). It also shows that recmap wrote the folder.
``"table"`` beside ``"columns"`` has the types of columns that come from a DataFrame.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recmap.errors import DataError, OutputExistsError
from recmap.formats.ragged_layout import VALUES, levels_of
from recmap.local.local_path import located
from recmap.model.description import decode_field, encode_field, json_object
from recmap.model.facts import TableType
from recmap.model.field import Field
from recmap.model.table_notes import decode_note

_KEY = "recmap"
_GROUP_FILES = {"zarr.json", ".zgroup", ".zattrs", ".zmetadata"}
_ARRAY_FILES = {"zarr.json", ".zarray", ".zattrs"}
# Chunks are files, or folders of files, with numbers as names; version 3 puts them in "c".
_CHUNK = re.compile(r"\d+(\.\d+)*")
_MAX_SIZE = 256 << 20


@dataclass(frozen=True)
class ZarrColumn:
    """The name, the path in the store and the field of a column."""

    name: str
    path: str
    field: Field


def column_attributes(
    columns: Sequence[ZarrColumn], table_note: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the attributes of a group with these columns."""
    listed = [{"name": c.name, "path": c.path, "field": encode_field(c.field)} for c in columns]
    return {_KEY: {"columns": listed, **({"table": dict(table_note)} if table_note else {})}}


def read_table_types(attributes: Mapping[str, Any]) -> dict[str, TableType]:
    """Return what columns were in the table that was saved, as far as the attributes say."""
    noted = attributes.get(_KEY)
    return decode_note(noted.get("table", {})) if isinstance(noted, Mapping) else {}


def read_columns(path: str, attributes: Mapping[str, Any]) -> list[ZarrColumn]:
    """Return the columns listed in the attributes; none if recmap did not write the store."""
    if _KEY not in attributes:
        return []
    try:
        return [
            ZarrColumn(str(c["name"]), str(c["path"]), decode_field(c["field"]))
            for c in attributes[_KEY]["columns"]
        ]
    except (KeyError, TypeError, ValueError) as e:
        raise DataError(
            f"{path}: its attribute {_KEY!r} cannot be read ({e!r}); remove it to read the arrays "
            "as they are",
            file=path,
        ) from e


def refuse_foreign(path: str) -> None:
    """Raise if a folder to be replaced holds anything that recmap did not write."""
    if not os.path.isdir(path):
        return
    found = not_ours(path)
    if found:
        raise OutputExistsError(
            f"{path} is not replaced: overwrite=True deletes a folder only if recmap wrote "
            f"everything in it, and it did not write {found}. Move it away, or write elsewhere"
        )


def not_ours(path: str) -> str:
    """Name the first thing in a folder that is not part of a store written by recmap.

    Return "" if there is none.
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
        "/".join(names[:i]) for a in arrays if (names := a.split("/")) for i in range(len(names))
    }
    for folder, folders, files in os.walk(path):
        at = "" if folder == path else os.path.relpath(folder, path).replace(os.sep, "/")
        added = _attributes(folder) if at and (at in groups or at in arrays) else {}
        if added:
            return f"the attribute {min(added)!r} of {folder}"
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
    """Return the paths of the arrays listed in the attribute; none without a valid one."""
    arrays: set[str] = set()
    try:
        for column in attributes[_KEY]["columns"]:
            path, keys = str(column["path"]), levels_of(decode_field(column["field"]))
            arrays |= {f"{path}/{key}" for key in (VALUES, *keys)} if keys else {path}
    except (KeyError, TypeError, ValueError):
        return set()
    return arrays


def _attributes(path: str) -> Mapping[str, Any]:
    for name, key in (("zarr.json", "attributes"), (".zattrs", None)):
        try:
            content = json_object(located(os.path.join(path, name)).text(_MAX_SIZE))
        except (OSError, ValueError):
            continue
        found = content.get(key) if key else content
        if isinstance(found, dict):
            return found
    return {}
