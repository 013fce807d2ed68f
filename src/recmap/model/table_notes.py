"""Types of pandas, polars and pyarrow in files, so that a frame comes back as it was.

They are noted as JSON next to the description of a file, with the fields of the columns. Like every
note, they are not trusted: one that cannot be read is ignored, and so is one that does not fit.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from recmap.model.description import decode_field, encode_field, json_object
from recmap.model.facts import IndexLevel, NotedType, SourceFacts, TableType
from recmap.model.field import Field

_Column = TypeVar("_Column", bound=Sized)

KEY = b"recmap.table"
# More categories are not noted.
_MOST_CATEGORIES = 10_000
# Begins the note of a type of polars whose values are lists; that of the items follows.
POLARS_LIST = "List:"
# Types of pyarrow that fields do not tell.
_SPECIAL = re.compile(r"decimal|dictionary|tz=|time32|time64")
# Types of pyarrow whose values are those of a larger one, which fields are exported as.
_LAYOUTS = ("string", "binary")


def encode_types(types: Mapping[str, TableType]) -> dict[str, Any]:
    """Return the types that can be noted, as JSON has them."""
    noted = {name: (each, _noted(each.dtype)) for name, each in types.items()}
    # A level without a note would be read as a column.
    plain = NotedType("pandas", "object")
    noted |= {n: (each, note or plain) for n, (each, note) in noted.items() if each.level}
    return {
        name: [encode_field(each.field.without_nulls()), *note, each.level]
        for name, (each, note) in noted.items()
        if note is not None
    }


def table_note(types: Mapping[str, TableType]) -> dict[str, Any]:
    """Return the note for files that are not tables: what descriptions of columns do not say.

    How pyarrow lays out texts and lists is not noted.
    """
    return encode_types({name: each for name, each in types.items() if not _is_usual(each)})


def _is_usual(type: TableType) -> bool:
    """Return whether values of a field have that type anyway, or one that holds the same."""
    dtype, field = type.dtype, type.field
    text = dtype.text if isinstance(dtype, NotedType) else getattr(dtype, "__name__", str(dtype))
    package = dtype.package if isinstance(dtype, NotedType) else _package(dtype)
    if type.level is not None:
        return False
    if package == "pyarrow":
        lists = text.startswith(("list<", "large_list<"))
        return text in _LAYOUTS or (lists and not special_items(text))
    if text == "list":
        return field.ragged > 0
    if field.is_bytes:
        return text == ("str" if field.is_text else "object")
    plain = field.dtype.kind in "biuf" and not field.shape and not field.has_nulls
    return plain and text == field.dtype.name


def special_items(text: str) -> bool:
    """Return whether lists of this type of pyarrow have items whose type fields do not tell.

    >>> special_items("list<item: decimal128(9, 2)>"), special_items("list<item: int32>")
    (True, False)
    """
    return _SPECIAL.search(text) is not None


def decimals_as_text(facts: SourceFacts, name: str, field: Field) -> bool:
    """Return whether a column of text holds decimal numbers, which are not ordered as text is.

    What functions return is taken for text.
    """
    known = facts.table_types.get(name)
    if known is None or not (field.is_text and known.fits(field)) or facts.calls_user_code:
        return False
    return is_decimal(known)


def is_decimal(type: TableType) -> bool:
    """Return whether a column holds decimal numbers in a table of another library."""
    dtype = type.dtype
    text = dtype.text if isinstance(dtype, NotedType) else getattr(dtype, "__name__", str(dtype))
    return text.lower().startswith("decimal")


def innermost(dtype: Any) -> Any:
    """Return the type of the items of a type of polars, if its values are lists."""
    while type(dtype).__name__ == "List":
        dtype = dtype.inner
    return dtype


def _package(dtype: Any) -> str:
    if hasattr(dtype, "storage_type"):  # the class of an extension type may be anyone's
        return "pyarrow"
    return type(dtype).__module__.partition(".")[0]


def _noted(dtype: Any) -> NotedType | None:
    """Return what is noted about a type; None if it cannot be, or need not be."""
    if isinstance(dtype, NotedType):
        return dtype
    if isinstance(dtype, type):
        return NotedType("pandas", dtype.__name__)
    package = _package(dtype)
    if package == "polars":
        if type(dtype).__name__ == "List":
            inner = _noted(dtype.inner)
            return None if inner is None else inner._replace(text=POLARS_LIST + inner.text)
        zone = [dtype.time_unit, dtype.time_zone] if hasattr(dtype, "time_zone") else []
        categories = _plain(dtype.categories) if hasattr(dtype, "categories") else []
        if hasattr(dtype, "scale"):
            return NotedType(package, "Decimal", [dtype.precision, dtype.scale])
        enum = type(dtype).__name__ == "Enum"
        return NotedType(package, type(dtype).__name__, categories if enum else zone)
    if package == "pyarrow":
        return _of_arrow(dtype)
    if hasattr(dtype, "pyarrow_dtype"):
        noted = _of_arrow(dtype.pyarrow_dtype)
        return noted._replace(package="pandas", text=f"arrow:{noted.text}")
    if package not in ("pandas", "numpy"):
        return None
    if not hasattr(dtype, "categories"):
        return NotedType("pandas", str(dtype))
    categories = _plain(dtype.categories)
    plain = all(isinstance(each, str | int | float) for each in categories)
    if not plain or len(categories) > _MOST_CATEGORIES:
        return None
    return NotedType("pandas", "category", categories, bool(dtype.ordered))


def _of_arrow(dtype: Any) -> NotedType:
    """Return what is noted of a type of pyarrow: its name, or an Arrow schema with it."""
    pa = sys.modules["pyarrow"]
    text = str(dtype)
    try:
        if pa.type_for_alias(text) == dtype:
            return NotedType("pyarrow", text)
    except ValueError:
        pass
    schema = pa.schema([("x", dtype)]).serialize().to_pybytes()
    return NotedType("pyarrow", text, [base64.b64encode(schema).decode()])


def _plain(values: Any) -> list[Any]:
    return [each.item() if hasattr(each, "item") else each for each in values]


def table_metadata(types: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    """Return the metadata of a file with these types."""
    return {KEY: json.dumps(types).encode()} if types else {}


def decode_types(metadata: Mapping[bytes, bytes] | None) -> dict[str, TableType]:
    """Return the types in the metadata of a file; none if the note cannot be read."""
    return decode_note((metadata or {}).get(KEY, b"{}"))


def decode_note(note: Any) -> dict[str, TableType]:
    """Return the types in a note, which may be JSON text; none if it cannot be read."""
    try:
        content = json_object(note) if isinstance(note, str | bytes) else note
        return {name: _decoded(*each) for name, each in dict(content).items()}
    except (TypeError, ValueError):
        return {}


def stored_types(
    own: Mapping[str, Any], metadata: Mapping[bytes, bytes] | None, fields: Mapping[str, Field]
) -> dict[str, TableType]:
    """Return the types of the columns of an Arrow schema, and those that its metadata notes.

    ``own`` is what ``arrow_types`` tells of it. The null type does not say what a column is that
    other files have with values.
    """
    types = {
        name: TableType(fields[name].without_nulls(), each)
        for name, each in own.items()
        if name in fields and not (str(each) == "null" and fields[name].dtype != np.bool_)
    }
    return _pandas_types(metadata, fields) | types | decode_types(metadata)


def _pandas_types(
    metadata: Mapping[bytes, bytes] | None, fields: Mapping[str, Field]
) -> dict[str, TableType]:
    """Return the types of columns that pandas notes in a file, if they hold what is stored.

    Programs that change columns may leave the note as it was. The index stays a column: whoever
    wrote the file may want it as one.
    """
    found = {}
    try:
        content = json_object((metadata or {}).get(b"pandas", b"{}"))
        for told in content.get("columns", ()):
            name, text, meant = told["field_name"], told["numpy_type"], told["pandas_type"]
            if name in fields and _is_of_pandas(fields[name], str(text), meant):
                found[name] = TableType(fields[name].without_nulls(), NotedType("pandas", text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return found


def _is_of_pandas(field: Field, text: str, meant: str) -> bool:
    """Return whether a type of pandas has exactly the values of a field, and may have nulls."""
    if field.shape or field.is_bytes or meant == "categorical":
        return False
    if meant == "date":
        return text == "object" and field.dtype == "M8[D]"
    if text.startswith("period["):
        return field.dtype == np.int64
    plain = text.removesuffix("[pyarrow]").lower()
    if plain in ("bool", "boolean"):
        return field.dtype == np.bool_ and text != "bool"
    numbers = plain.startswith(("int", "uint", "float")) and text != plain
    return field.dtype.name == plain and (numbers or plain.startswith("float"))


def index_columns(types: Mapping[str, TableType], names: Collection[str]) -> list[str]:
    """Return those of the columns that are the index of a DataFrame; none if one is missing."""
    levels = [name for name, each in types.items() if each.level is not None]
    return levels if all(name in names for name in levels) else []


def and_index(
    names: Sequence[str] | None, types: Mapping[str, TableType], found: Collection[str]
) -> list[str] | None:
    """Return the names to read: those of columns that are asked for, and of the index."""
    if names is None:
        return None
    return list(dict.fromkeys([*names, *index_columns(types, found)]))


def divided(
    columns: Mapping[str, _Column], types: Mapping[str, TableType], names: Sequence[str] | None
) -> tuple[dict[str, _Column], tuple[Mapping[str, TableType], Mapping[str, _Column]]]:
    """Take the index away from the columns, unless ``names`` asks for it.

    Return the rest, and what columns were in the table that was saved, with its index.
    """
    index = {name: columns[name] for name in index_columns(types, columns)}
    rest = {name: column for name, column in columns.items() if name not in index}
    asked = {name: column for name, column in index.items() if name in (names or ())}
    lengths = {len(column) for column in columns.values()}
    if index and rest and not asked and len(lengths) == 1:
        return rest, (types, index)
    shown = dict(columns) if names is None else {**rest, **asked}
    return shown, (types, {})


def _decoded(
    field: Any,
    library: Any,
    text: Any,
    values: Any = (),
    ordered: Any = False,
    level: Any = None,
) -> TableType:
    plain = isinstance(values, list) and all(
        isinstance(each, str | int | float | None) for each in values
    )
    if not (isinstance(library, str) and isinstance(text, str) and plain):
        raise ValueError("not a type")
    noted = NotedType(library, text, values, ordered is True)
    return TableType(decode_field(field), noted, None if level is None else _level(*level))


def _level(name: Any, step: Any, freq: Any) -> IndexLevel:
    sound = (
        isinstance(name, str | int | float | None)
        and (step is None or (type(step) is int and step))
        and isinstance(freq, str | None)
    )
    if not sound:
        raise ValueError("not a level of an index")
    return IndexLevel(name, step, freq)


def arrow_types(schema: Any) -> dict[str, Any]:
    """Return the types of an Arrow schema that the fields of columns do not tell.

    pyarrow raises a ValueError if a name, or that of a time zone, is not UTF-8.
    """
    found = {field.name: field.type for field in schema if not _is_plain(field.type)}
    return found | dict(_decimal_members("", schema))


def _decimal_members(above: str, fields: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the decimals in structs, which become columns of their own."""
    types = sys.modules["pyarrow"].types
    for field in fields:
        if types.is_struct(field.type):
            yield from _decimal_members(f"{above}{field.name}/", field.type)
        elif above and types.is_decimal(field.type):
            yield above + field.name, field.type


def _is_plain(type: Any) -> bool:
    """Return whether the field of a column says all of its type in pyarrow, as it is exported."""
    types = sys.modules["pyarrow"].types
    if types.is_large_list(type):
        return _is_plain(type.value_type)
    plain = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_large_string,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_date32,
        types.is_duration,
        types.is_struct,  # which becomes several columns
        types.is_map,
    )
    zoneless = types.is_timestamp(type) and type.tz is None
    return zoneless or any(is_of_kind(type) for is_of_kind in plain)
