"""Turn values into what the page shows: small, plain data. Whatever is long is shortened here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.casting import as_floats
from recmap.model.picture import is_picture
from recmap.model.ragged import Ragged
from recmap.view.media import Media, image_of, sniffed, sound_of

Cell = dict[str, Any]

# How much of a value a cell shows, and how much the pane.
_LETTERS, _MORE_LETTERS = 240, 100_000
_BYTES, _MORE_BYTES = 24, 4096
_POINTS, _MORE_POINTS = 64, 640
_ITEMS, _MORE_ITEMS = 4, 500
_NUMBERS, _MORE_NUMBERS = 6, 4096
# Sparklines look at this many values.
_LOOKED_AT = 1 << 16
_SOUNDS = re.compile(r"(^|[/_.\-])(audio|speech|sound|wav|waveform)([/_.\-]|$)", re.IGNORECASE)
_RATES = re.compile(r"(.*/)?(sample_?rate|sampling_?rate)(_hz)?", re.IGNORECASE)
# Assumed if no column tells.
_RATE = 16_000
_LEAST_RATE, _MOST_RATE = 1_000, 192_000


def cell_of(name: str, value: Any, labels: Mapping[str, Sequence[str]] | None = None) -> Cell:
    """Return what a cell of the grid shows.

    ``kind`` is number, text, bytes, image, audio, numbers or list.

    >>> cell_of("x", np.float32(0.5)), cell_of("s", b"ab")
    ({'kind': 'number', 'text': '0.5'}, {'kind': 'text', 'text': 'ab', 'size': 2})
    """
    value = _plain(value)
    if isinstance(value, bytes | str):
        return _string(value, _LETTERS, _BYTES)
    items = _items(value)
    if items is not None:
        return _list(items, _ITEMS)
    array = np.asarray(value)
    if array.ndim == 0:
        return _number(name, array, labels or {})
    if is_picture(array.dtype, array.shape):
        return {"kind": "image", "type": "array", "shape": list(array.shape)}
    if _is_sound(name, array):
        return {"kind": "audio", "type": "samples", **_numbers(array, _NUMBERS, _POINTS)}
    return {"kind": "numbers", **_numbers(array, _NUMBERS, _POINTS)}


def detail_of(name: str, value: Any, labels: Mapping[str, Sequence[str]] | None = None) -> Cell:
    """Return what the pane shows of a value: as a cell, but much more of it."""
    value = _plain(value)
    if isinstance(value, bytes | str):
        found = _string(value, _MORE_LETTERS, _BYTES)
        if isinstance(value, bytes):
            found["hex"] = hex_dump(value[:_MORE_BYTES])
        return found
    items = _items(value)
    if items is not None and (isinstance(items, Ragged) or _is_void(items)):
        return _list(items, _MORE_ITEMS)
    array = np.asarray(value)
    if array.ndim == 0:
        return {**_number(name, array, labels or {}), "exact": _exact(array[()])}
    numbers = _numbers(array, _MORE_NUMBERS, _MORE_POINTS)
    found = {**cell_of(name, value), **numbers, "dtype": str(array.dtype)}
    return found if items is None else {**found, **_list(items, _MORE_ITEMS)}


def media_of(name: str, value: Any, rate: int = _RATE, item: Sequence[int] = ()) -> Media | None:
    """Return the image or sound that a value, or an item of it, is shown as, or None."""
    for number in item:
        items = _items(value)
        if items is None or not 0 <= number < len(items):
            return None
        value = items[number]
    value = _plain(value)
    if isinstance(value, bytes):
        return sniffed(value)
    if isinstance(value, str):
        return sniffed(value[:512].encode()) and sniffed(value.encode())
    if isinstance(value, Ragged) or _is_void(np.asarray(value)):
        return None
    array = np.asarray(value)
    if is_picture(array.dtype, array.shape):
        return image_of(array)
    return sound_of(array, rate) if _is_sound(name, array) else None


def told_rate(values: Mapping[str, Any]) -> int | None:
    """Return the sample rate that a column of the row tells.

    >>> told_rate({"audio": np.zeros(9), "audio/sample_rate": np.int64(8000)})
    8000
    """
    for name, value in values.items():
        if _RATES.fullmatch(name) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf":
            rate = float(value)
            return int(rate) if _LEAST_RATE <= rate <= _MOST_RATE else None
    return None


def _plain(value: Any) -> Any:
    """Return bytes of a fixed size as a byte string, and anything else unchanged."""
    return value.tobytes() if isinstance(value, np.void) else value


def _is_void(array: npt.NDArray[Any]) -> bool:
    return array.dtype.type is np.void


def _items(value: Any) -> Ragged | npt.NDArray[Any] | None:
    """Return what is shown item by item: lists of strings or arrays, and stacks of pictures."""
    if isinstance(value, Ragged):
        return value
    if isinstance(value, np.ndarray) and value.ndim and _is_void(value):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 4:
        return value if is_picture(value.dtype, value.shape[1:]) else None
    return None


def _list(items: Ragged | npt.NDArray[Any], most: int) -> Cell:
    shown = [cell_of("", item) for item in items[:most]]
    return {"kind": "list", "items": shown, "size": len(items)}


def _string(value: bytes | str, letters: int, some: int) -> Cell:
    found = sniffed(value if isinstance(value, bytes) else value[:512].encode())
    if found is not None:
        kind = "image" if found.is_image else "audio"
        return {"kind": kind, "type": found.name, "size": len(value)}
    text = text_of(value, letters)
    if text is None:
        assert isinstance(value, bytes)
        return {"kind": "bytes", "text": value[:some].hex(" "), "size": len(value)}
    return {"kind": "text", "text": text, "size": len(value)}


def text_of(value: bytes | str, letters: int) -> str | None:
    """Return the beginning of a string as text, or None if the bytes are not text.

    >>> text_of("größe".encode(), 3), text_of(b"\\x00\\x01", 9)
    ('grö', None)
    """
    if isinstance(value, str):
        return value[:letters]
    some = value[: 4 * letters]
    try:
        text = some.decode()
    except UnicodeDecodeError as e:
        # The slice may have split a character.
        if e.start < len(some) - 3 or len(value) <= len(some):
            return None
        text = some[: e.start].decode()
    if any(c < " " and c not in "\n\r\t" for c in text):
        return None
    return text[:letters]


def _number(name: str, array: npt.NDArray[Any], labels: Mapping[str, Sequence[str]]) -> Cell:
    value = array[()]
    found: Cell = {"kind": "number", "text": number_text(value)}
    names = labels.get(name, ())
    if array.dtype.kind in "iu" and 0 <= int(value) < len(names):
        found["label"] = names[int(value)][:_LETTERS]
    return found


def number_text(value: Any) -> str:
    """Return a number as short text.

    Integers are exact: JavaScript would round large ones.
    """
    array = np.asarray(value)
    match array.dtype.kind:
        case "b":
            return "true" if array else "false"
        case "i" | "u" | "m" | "M":
            return str(array[()])
        case "c":
            number = complex(array[()])
            return f"{number.real:.6g}{number.imag:+.6g}j"
        case _:
            return f"{float(array[()]):.6g}"  # bfloat16 and others have a kind of their own


def _exact(value: Any) -> str:
    kind = np.asarray(value).dtype.kind
    return str(value) if kind in "biumMfc" else repr(float(value))


def _numbers(array: npt.NDArray[Any], shown: int, points: int) -> Cell:
    head = array.flat[:_LOOKED_AT]
    found: Cell = {
        "shape": list(array.shape),
        "size": int(array.size),
        "text": " ".join(map(number_text, head[:shown])) + (" ..." if array.size > shown else ""),
    }
    if head.dtype.kind not in "cmM" and head.size > 1:
        floats = as_floats(head)
        found["points"] = _points(floats, points)
        finite = floats[np.isfinite(floats)]
        if finite.size:
            found["min"], found["max"] = number_text(finite.min()), number_text(finite.max())
        if array.size > head.size:
            found["drawn"] = int(head.size)
    return found


def _points(values: npt.NDArray[np.float64], count: int) -> list[float | None]:
    """Return the points of a line: all values, or the least and greatest of each stretch."""
    if len(values) > count:
        stretches = np.array_split(values, count // 2)
        values = np.array([f(part) for part in stretches for f in (np.fmin.reduce, np.fmax.reduce)])
    return [float(value) if math.isfinite(value) else None for value in values]


def _is_sound(name: str, array: npt.NDArray[Any]) -> bool:
    """Return whether a vector is plainly audio: samples of a column that is called so."""
    if array.ndim != 1 or array.size < 256 or not _SOUNDS.search(name):
        return False
    return array.dtype.kind == "f" or array.dtype in (np.int16, np.int32, np.int64)


def hex_dump(data: bytes, start: int = 0) -> list[list[str]]:
    """Return lines of offset, bytes in hexadecimal, and printable characters.

    >>> hex_dump(b"ab\\x00")
    [['00000000', '61 62 00', 'ab.']]
    """
    return [
        [
            f"{start + i:08x}",
            data[i : i + 16].hex(" "),
            "".join(chr(b) if 32 <= b < 127 else "." for b in data[i : i + 16]),
        ]
        for i in range(0, len(data), 16)
    ]
