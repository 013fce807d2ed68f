"""Values and numbers as short text."""

from __future__ import annotations

from typing import Any

import numpy as np

from recmap.cli.wording import printable
from recmap.model.ragged import Ragged

__all__ = ["cell", "number"]

_VALUES = 4
_LETTERS = 32
_DIGITS = 8  # of bytes, in hexadecimal

_IMAGES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)


def cell(value: Any) -> str:
    """A value of a row: arrays as their shape and first values, bytes as what they may be.

    >>> cell(np.arange(100).reshape(10, 10)), cell(b"hello"), cell(bytes(40))
    ('[10,10] 0 1 2 3 ...', "'hello'", '0x00000000... 40 bytes')
    """
    if isinstance(value, bytes):
        return _string(value)
    if isinstance(value, Ragged):
        shown = [cell(item) for item in value[:_VALUES]]
        return _listed(f"[{len(value):,}]", shown, len(value), " " if value.is_bytes else "; ")
    array = np.asarray(value)
    if array.ndim == 0:
        return number(array[()])
    shape = f"[{','.join(map(str, array.shape))}]"
    return _listed(shape, [number(item) for item in array.flat[:_VALUES]], array.size, " ")


def number(value: Any) -> str:
    """A number, with as many digits as people want to see.

    >>> number(1234567), number(0.1 + 0.2), number(None)
    ('1234567', '0.3', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return str(value)


def _listed(shape: str, shown: list[str], count: int, between: str) -> str:
    more = ["..."] if count > len(shown) else []
    return f"{shape} {between.join(shown + more)}".rstrip()


def _string(value: bytes) -> str:
    size = f"{len(value):,} bytes"
    for magic, name in _IMAGES:
        if value.startswith(magic) and len(value) > len(magic):
            return f"{name}, {size}"
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return f"WebP, {size}"
    try:
        text = value[: 4 * _LETTERS].decode()
    except UnicodeDecodeError as e:
        # The cut may have gone through a letter.
        whole = e.start >= 4 * _LETTERS - 4 and len(value) > 4 * _LETTERS
        text = value[: e.start].decode() if whole else "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        short = printable(text[:_LETTERS])
        return f"'{short}'" if len(text) <= _LETTERS else f"'{short}...' {size}"
    return f"0x{value[: _DIGITS // 2].hex()}... {size}"
