"""Types of pandas and polars in Parquet and Arrow files, so that a frame comes back as it was.

They are noted as JSON in the metadata of a file, with the fields of the columns. Like every note,
they are not trusted: one that cannot be read is ignored, and so is one that does not fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recmap.model.description import decode_field, encode_field, json_object
from recmap.model.facts import NotedType, TableType

KEY = b"recmap.table"
# More categories are not noted.
_MOST_CATEGORIES = 10_000


def encode_types(types: Mapping[str, TableType]) -> dict[str, Any]:
    """Return the types that can be noted, as JSON has them."""
    noted = {name: (each.field, _noted(each.dtype)) for name, each in types.items()}
    return {
        name: [encode_field(field.without_nulls()), *note]
        for name, (field, note) in noted.items()
        if note is not None
    }


def _noted(dtype: Any) -> NotedType | None:
    """Return what is noted about a type; None if it cannot be, or need not be."""
    if isinstance(dtype, NotedType):
        return dtype
    if isinstance(dtype, type):
        return NotedType("pandas", dtype.__name__)
    package = type(dtype).__module__.partition(".")[0]
    if package == "polars":
        zone = [dtype.time_unit, dtype.time_zone] if hasattr(dtype, "time_zone") else []
        categories = _plain(dtype.categories) if hasattr(dtype, "categories") else []
        enum = type(dtype).__name__ == "Enum"
        return NotedType(package, type(dtype).__name__, categories if enum else zone)
    if package not in ("pandas", "numpy"):
        return None
    if not hasattr(dtype, "categories"):
        return NotedType("pandas", str(dtype))
    categories = _plain(dtype.categories)
    plain = all(isinstance(each, str | int | float) for each in categories)
    if not plain or len(categories) > _MOST_CATEGORIES:
        return None
    return NotedType("pandas", "category", categories, bool(dtype.ordered))


def _plain(values: Any) -> list[Any]:
    return [each.item() if hasattr(each, "item") else each for each in values]


def table_metadata(types: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    """Return the metadata of a file with these types."""
    return {KEY: json.dumps(types).encode()} if types else {}


def decode_types(metadata: Mapping[bytes, bytes] | None) -> dict[str, TableType]:
    """Return the types that a file notes; none if the note cannot be read."""
    try:
        content = json_object((metadata or {}).get(KEY, b"{}"))
        return {name: _decoded(*note) for name, note in content.items()}
    except (TypeError, ValueError):
        return {}


def _decoded(
    field: Any, library: Any, text: Any, values: Any = (), ordered: Any = False
) -> TableType:
    plain = isinstance(values, list) and all(
        isinstance(each, str | int | float | None) for each in values
    )
    if not (isinstance(library, str) and isinstance(text, str) and plain):
        raise ValueError("not a type")
    return TableType(decode_field(field), NotedType(library, text, values, ordered is True))
