"""The description of its columns that recmap writes into a file, or next to it.

Most formats cannot tell all types apart: text from bytes, complex numbers from pairs, rows of no
values from nothing. So a file says what its columns are, as text that people can read:
``{"x": "float32[10]"}``. Where it says so depends on the format: in its first record, its index,
its metadata or attributes, or a file next to it.

A description is never trusted. Anybody may have written it, and other programs may keep it though
they change the columns. So decoding one takes little memory and raises nothing but ValueError, and
no description changes a value: one that does not fit what is stored is an error, or is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recmap.errors import OptionError, StaleIndexWarning
from recmap.model.field import Field
from recmap.model.preview import listed
from recmap.model.schema import Schema
from recmap.warn import warn

# No real field is described by more, and no real row of fill values has more items.
_MAX_TEXT = 1 << 16
_MAX_FILLED = 1 << 20


class Description:
    """The columns of a file, and the texts that describe them, by name.

    >>> Description(Schema({"x": "float32[10]", "n": "int64 = 0"})).texts
    {'x': 'float32[10]', 'n': 'int64 = 0'}
    """

    def __init__(self, schema: Schema, *, fills: bool = True) -> None:
        """Without ``fills``, leave out fill values: all rows of the file have values."""
        self.schema = schema
        self.texts = {name: encode_field(field, fills=fills) for name, field in schema.items()}

    @classmethod
    def decode(cls, texts: Any) -> Description:
        """Decode untrusted texts; raise ValueError if they are invalid.

        >>> Description.decode({"x": "float32[10]"}).schema
        Schema(x: float32[10])
        """
        if not isinstance(texts, dict) or not all(isinstance(name, str) for name in texts):
            raise ValueError("it does not say what the fields are")
        return cls(Schema({name: decode_field(text) for name, text in texts.items()}))


def encode_field(field: Field, *, fills: bool = False) -> str:
    """Return the text of a field, with its fill value if that can be written as text."""
    bare = str(replace(field, fill=None))
    if not fills or field.fill is None:
        return bare
    text = str(field)
    try:
        return text if Field.parse(text) == field else bare
    except OptionError:  # such as some byte strings
        return bare


def decode_field(text: Any) -> Field:
    """Make a field from an untrusted text; raise ValueError if it is invalid."""
    if not isinstance(text, str) or len(text) >= _MAX_TEXT:
        raise ValueError("a field that is not text")
    try:
        base, fill, _ = text.partition(" = ")
        # A fill takes as much memory as a row.
        if fill and Field.parse(base).count > _MAX_FILLED:
            raise ValueError("a filled field that is too large")
        return Field.parse(text)
    except (OptionError, OverflowError, SyntaxError, MemoryError) as e:
        raise ValueError(str(e)) from None


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse an untrusted JSON object; raise ValueError if it is invalid."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # of the text
    return content


def misfit(name: str, noted: Field, found: object) -> str:
    """Say that a column is not what the file notes of it."""
    return f"{name!r} is {noted}, but it holds {found}"


def warn_of_notes(path: str, misfits: Sequence[str]) -> None:
    """Warn that what a file notes of its columns does not fit them, and is ignored."""
    if misfits:
        warn(
            f"{path}: the note of its columns says {listed(misfits)}: another program has changed "
            "the file, and the note is ignored",
            StaleIndexWarning,
        )
