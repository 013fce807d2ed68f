"""A small file beside the data that says what bytes without a header are.

``data.bin.recmap.json`` is made for people and programs alike:
``{"recmap": 1, "fields": {"x": "float32[10]"}}``. Rows are the fields end to end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from recmap.errors import IndexFileError, RecmapError
from recmap.files.small import write_whole
from recmap.types import Schema

__all__ = [
    "description_path",
    "is_description",
    "load_description",
    "remove_description",
    "save_description",
]

_SUFFIX = ".recmap.json"
# A description is a few lines; more is not one.
_MAX_SIZE = 1 << 20


def description_path(path: str) -> str:
    """Where the description of a file is."""
    return path + _SUFFIX


def load_description(path: str) -> Schema | None:
    """What the description of a file says, if there is one."""
    name = description_path(path)
    if not os.path.exists(name):
        return None
    try:
        with open(name, encoding="utf-8") as file:
            content = json.loads(file.read(_MAX_SIZE))
        if not isinstance(content, Mapping) or content.get("recmap") != 1:
            raise ValueError("not a description of version 1")
        return Schema({str(key): str(text) for key, text in content["fields"].items()})
    except (AttributeError, KeyError, RecursionError, ValueError, RecmapError) as e:
        raise IndexFileError(
            f"{name}: cannot be read ({e}); remove it, or give dtype and shape", file=name
        ) from e


def is_description(name: str) -> bool:
    """Whether a file is a description, and nothing else that has the name of one."""
    try:
        with open(name, encoding="utf-8") as file:
            content = json.loads(file.read(_MAX_SIZE))
    except (OSError, RecursionError, ValueError):
        return False
    return isinstance(content, Mapping) and content.get("recmap") == 1


def remove_description(path: str) -> None:
    """Removes the description of a file, if there is one."""
    if is_description(description_path(path)):
        os.unlink(description_path(path))


def save_description(path: str, schema: Schema) -> None:
    """Writes the description of a file, whole or not at all."""
    content = {"recmap": 1, "fields": {name: str(field) for name, field in schema.items()}}
    write_whole(description_path(path), json.dumps(content, indent=1) + "\n")
