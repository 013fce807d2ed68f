"""Short text for values, for tables and reprs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recmap.model.media import media_kind
from recmap.model.ragged import Ragged, has_mask

# How much of a value is shown.
_VALUES = 4
_LETTERS = 32
_BYTES = 4
# A file of weights has hundreds of lengths.
_LISTED = 10


def quantity(count: int, noun: str) -> str:
    """Return a number of things in words.

    >>> quantity(1, "row"), quantity(2000, "row"), quantity(2, "batch")
    ('1 row', '2,000 rows', '2 batches')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def printable(text: str) -> str:
    """Escape control characters. Names and strings come from files, so they are not trusted.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def preview(value: Any) -> str:
    """Return a value as short text: shape and first values of an array, or a preview of a string.

    >>> preview(np.arange(100).reshape(10, 10)), preview(b"hello"), preview(bytes(40))
    ('[10,10] 0 1 2 3 ...', "'hello'", '0x00000000... 40 bytes')
    """
    if isinstance(value, bytes):
        return _bytes_preview(value)
    if isinstance(value, str):
        return _text_preview(value, quantity(len(value), "character"))
    if isinstance(value, Ragged):
        shown = [preview(item) for item in value[:_VALUES]]
        return _listed(f"[{len(value):,}]", shown, len(value), " " if value.is_bytes else "; ")
    array = np.asarray(value)
    if value is None or array.ndim == 0:
        return number(None if value is None else array[()])
    shape = f"[{','.join(map(str, array.shape))}]"
    if has_mask(value):
        return _listed(shape, [preview(item) for item in value[:_VALUES]], len(value), " ")
    return _listed(shape, [number(item) for item in array.flat[:_VALUES]], array.size, " ")


def number(value: Any, digits: int = 6) -> str:
    """Return a number as text, with at most this many significant digits for floats.

    >>> number(1234567), number(0.1 + 0.2), number(None), number(3.14159, 3)
    ('1234567', '0.3', '-', '3.14')
    """
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{float(value):.{digits}g}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return str(value)


def _listed(shape: str, shown: list[str], count: int, between: str) -> str:
    more = ["..."] if count > len(shown) else []
    return f"{shape} {between.join(shown + more)}".rstrip()


def _bytes_preview(value: bytes) -> str:
    size = quantity(len(value), "byte")
    media = media_kind(value)
    if media is not None:
        return f"{media.name}, {size}"
    try:
        text = value[: 4 * _LETTERS].decode()
    except UnicodeDecodeError as e:
        # The slice may have split a character.
        whole = e.start >= 4 * _LETTERS - 4 and len(value) > 4 * _LETTERS
        text = value[: e.start].decode() if whole else "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return _text_preview(text, size)
    return f"0x{value[:_BYTES].hex()}{'...' if len(value) > _BYTES else ''} {size}"


def _text_preview(text: str, size: str) -> str:
    short = printable(text[:_LETTERS])
    return f"'{short}'" if len(text) <= _LETTERS else f"'{short}...' {size}"


def listed(told: Sequence[str]) -> str:
    """Return sentences as one; the first ten if there are more."""
    more = [f"{len(told) - _LISTED:,} more"] if len(told) > _LISTED else []
    return "; ".join([*told[:_LISTED], *more])
