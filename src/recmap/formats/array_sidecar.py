"""The JSON file next to an array file that describes its columns.

People and programs can write ``data.bin.recmap.json``:
``{"recmap": 1, "fields": {"x": "float32[10]"}}``. A row is its fields, end to end.
Descriptions written by recmap also have the size of the data and a checksum of samples. So
the description of an old file is not mistaken for that of the file that replaced it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recmap.errors import IndexFileError, RecmapError, StoreError
from recmap.local.file_state import DESCRIPTION
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.model.description import Description, json_object
from recmap.model.schema import Schema

# A description has a few lines. A larger file is something else.
_MAX_SIZE = 1 << 20
# Number of samples for the checksum, and the bytes of each.
_SAMPLES, _SAMPLE_SIZE = 16, 4096


@dataclass(frozen=True)
class ArraySidecar:
    """The fields of a row, and the size and checksum of the data if the file has them."""

    path: str
    schema: Schema
    size: int | None = None
    crc32: int | None = None

    @property
    def bound(self) -> bool:
        """Whether it identifies the data it belongs to."""
        return self.size is not None and self.crc32 is not None

    def mismatch(self, data: str) -> str:
        """Return why this cannot be the description of a file; "" if it can."""
        size = located(data).stat().size
        if self.size is not None and size != self.size:
            return f"it describes a file of {self.size:,} bytes, but {data} has {size:,}"
        if self.crc32 is not None and _sampled_crc32(data) != self.crc32:
            return f"{data} has changed since it was written"
        return ""


def description_path(path: str) -> Location:
    """Return the path of the description of a file."""
    return located(path).sibling(os.path.basename(path) + DESCRIPTION)


def described_name(name: str) -> str:
    """Return the name of the file that a description describes, and any other name as it is."""
    return name.removesuffix(DESCRIPTION)


def load_description(path: str) -> ArraySidecar | None:
    """Load the description of a file, if there is one."""
    name = description_path(path)
    if not located(name).is_file():
        return None
    try:
        content = json_object(located(name).text(_MAX_SIZE))
        if content.get("recmap") != 1:
            raise ValueError("not a description of version 1")
        schema = Description.decode(content.get("fields")).schema
        if not schema:
            raise ValueError("it names no fields")
        return ArraySidecar(name, schema, _number(content, "size"), _number(content, "crc32"))
    except (OSError, ValueError, RecmapError) as e:
        raise IndexFileError(
            f"{name}: cannot be read ({e}); remove it, or give dtype and shape", file=name
        ) from e


def is_description(name: str) -> bool:
    """Return whether a file is a description, not something else with such a name."""
    try:
        return json_object(located(name).text(_MAX_SIZE)).get("recmap") == 1
    except StoreError:
        raise
    except (OSError, ValueError):
        return False


def remove_description(path: str) -> None:
    """Remove the description of a file, if there is one."""
    if is_description(description_path(path)):
        description_path(path).remove()


def save_description(path: str, schema: Schema, data: str) -> None:
    """Write the description of a file. ``data`` is where the file is now: its temporary name, or
    that of the finished object.
    """
    content = {
        "recmap": 1,
        "fields": Description(schema).texts,
        "size": located(data).stat().size,
        "crc32": _sampled_crc32(data),
    }
    description_path(path).write_whole((json.dumps(content, indent=1) + "\n").encode())


def _number(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def _sampled_crc32(path: str) -> int:
    """Compute the checksum of samples spread over a file."""
    with located(path).open() as file:
        last = max(file.size - _SAMPLE_SIZE, 0)
        places = [(_SAMPLE_SIZE, last * i // (_SAMPLES - 1)) for i in range(_SAMPLES)]
        crc = 0
        for sample in file.pread_many(places):
            crc = zlib.crc32(sample, crc)
        return crc
