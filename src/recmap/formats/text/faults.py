"""What is wrong with a row of text, in words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from recmap.errors import DataError, Message, Option
from recmap.formats.text.text_file import Bytes, PlainText, TextFile
from recmap.model.field import Field
from recmap.model.preview import quantity
from recmap.native import _core

# Bytes of a value that an error shows.
_SHOWN = 40
_Code = _core.TextFaultCode
_WRONG = {
    _Code.quote: "a quote inside a field: quote the whole field, and double the quotes in it",
    _Code.unclosed: "ends within a quoted field, a string, a list or an object",
    _Code.not_number: "{value} is not a number",
    _Code.not_whole: "{value} is not an integer",
    _Code.out_of_range: "{value} is out of range",
    _Code.inexact: "{value} would be rounded",
    _Code.not_bool: "{value} is not true or false",
    _Code.not_text: "{value} is not text",
    _Code.not_list: "{value} is not a list",
    _Code.not_utf8_text: "{value} is not UTF-8",
    _Code.not_object: "{value} is not an object",
    _Code.not_json: "not valid JSON at {value}",
    _Code.escape: "an escape that is not a character",
    _Code.duplicate: "the key {value} is there twice",
    _Code.unknown_key: "the key {value} is not in the first rows",
    _Code.too_deep: "lists and objects nested more than 500 deep",
    _Code.null: "no value",
}
# What another type of the column may help against.
_TYPES = {
    _Code.not_number: "text",
    _Code.not_whole: "float64",
    _Code.out_of_range: "float64",
    _Code.inexact: "text",
    _Code.not_bool: "text",
    _Code.not_utf8_text: "bytes",
}
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf(inity)?)", re.IGNORECASE)
_COMMENTS = "the first line begins with #; remove it if it is a comment, and others like it"


def found_value(text: Bytes, fault: _core.TextFault) -> bytes:
    """Return the value that does not fit, or the text there if it is not a value."""
    value = text[fault.begin : fault.end].tobytes()
    instead = text[fault.begin : fault.begin + _SHOWN + 1].tobytes()
    return value or instead.partition(b"\n")[0]


def damaged_row(
    text: TextFile,
    fault: _core.TextFault,
    row: int,
    byte: int,
    value: bytes,
    column: tuple[str, Field] | None,
    columns: int,
) -> DataError:
    """Make the error for a row. ``byte`` is where the ``value`` is that does not fit."""
    code = fault.code
    if code == _Code.few_fields:
        what = f"{quantity(fault.found, 'field')}, but there are {columns:,} columns"
    elif code == _Code.many_fields:
        what = f"more fields than the {quantity(columns, 'column')}"
    else:
        shown = value.strip(b'"') if code in (_Code.duplicate, _Code.unknown_key) else value
        what = _WRONG[code].format(value=_shown(shown))
    name = None
    hint: tuple[Any, ...] = ()
    if column is not None:
        name, field = column
        what = f"column {name!r} is {field}: {what}"
        hint = _hint(code, name, field, value)
    elif code == _Code.unknown_key:
        given = {value.strip(b'"').decode("utf-8", "replace"): "float64?", ...: None}
        hint = ("give its type, as in ", Option("fields", given))
    elif _begins_with_comment(text):
        hint = (_COMMENTS,)
    place = f"{text.path}: row {row:,}{_line(text, byte)}, byte {byte:,}: "
    return DataError(
        Message(place + what, hint=hint), file=text.path, record=row, byte=byte, field=name
    )


def _hint(code: Any, name: str, field: Field, value: bytes) -> tuple[Any, ...]:
    if code == _Code.null:
        wanted = str(Field(field.dtype, field.shape, None, True, bool(field.ragged)))
        return "read it as null, ", Option("fields", {name: wanted, ...: None})
    if code not in _TYPES or field.shape:
        return ()
    wanted = "float64" if value == b"-0" else _TYPES[code]
    if field.dtype.kind == "f" and wanted == "float64":
        wanted = "text"
    if code == _Code.not_number and _NOT_FINITE.fullmatch(value):
        wanted = "float64"  # which takes them once it is given
    wanted += "?" if field.nullable else ""
    return "give the column another type, ", Option("fields", {name: wanted, ...: None})


def misplaced(text: TextFile, fault: Any, row: int, byte: int) -> DataError:
    """Make the error for a text whose rows cannot be told apart; None is the end of the file."""
    if fault is None:
        what = "a quoted field does not end"
    elif fault == _core.RowFault.quote:
        what = (
            f"{_WRONG[_Code.quote]}; with quotes written in any other way, nobody can tell "
            "where rows end"
        )
    else:
        what = "a carriage return without a line feed, outside of quotes; turn it into a line feed"
    row = max(row, 0)
    place = f"{text.path}: row {row:,}{_line(text, byte)}, byte {byte:,}: "
    return DataError(
        Message(place + what, hint=(_COMMENTS,) if _begins_with_comment(text) else ()),
        file=text.path,
        record=row,
        byte=byte,
    )


def _begins_with_comment(text: TextFile) -> bool:
    if not isinstance(text, PlainText) or not text.mapped.whole:
        return False
    return text.mapped.bytes[text.begin : text.begin + 1].tobytes() == b"#"


def _line(text: TextFile, byte: int) -> str:
    """Say in which line of the file a byte is, if that takes no requests to a store."""
    if not isinstance(text, PlainText) or not text.mapped.whole:
        return ""
    before = text.mapped.bytes[:byte]
    line = 1 + sum(
        int(np.count_nonzero(before[at : at + (1 << 24)] == 10))
        for at in range(0, len(before), 1 << 24)
    )
    return f", line {line:,}"


def _shown(value: bytes) -> str:
    text = value[:_SHOWN].decode("utf-8", "backslashreplace")
    return repr(text) + ("..." if len(value) > _SHOWN else "")
