"""What the page shows of a value: small, plain data, images and sound.

Whatever is long is shortened here. Raw bytes can be tried as other types.
"""

from __future__ import annotations

import math
import re
import shlex
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.casting import as_floats
from recmap.model.field import Field
from recmap.model.media import media_kind
from recmap.model.picture import is_picture, png_of
from recmap.model.ragged import Ragged, has_mask

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
# Pictures of arrays are thinned out to this many pixels a side.
_MOST_PIXELS = 2048
# Sound of at most this many samples is sent: a minute and a half at 44.1 kHz.
_MOST_SAMPLES = 4_000_000
# Browsers do not show it.
_NOT_SHOWN = "image/tiff"
DTYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "bool",
    ">u2", ">i2", ">i4", ">i8", ">f4", ">f8",
)  # fmt: skip
# What TensorFlow's decode_raw reads.
_IN_TF = {"uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"}


def cell_of(name: str, value: Any, labels: Mapping[str, Sequence[str]] | None = None) -> Cell:
    """Return what a cell of the grid shows.

    ``kind`` is number, text, bytes, image, audio, numbers or list.

    >>> cell_of("x", np.float32(0.5)), cell_of("s", b"ab")
    ({'kind': 'number', 'text': '0.5'}, {'kind': 'text', 'text': 'ab', 'size': 2})
    """
    value = _plain(value)
    if value is None:
        return {"kind": "number", "text": "null"}
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
    if value is None:
        return cell_of(name, value)
    if isinstance(value, bytes | str):
        found = _string(value, _MORE_LETTERS, _BYTES)
        if isinstance(value, bytes):
            found["hex"] = hex_dump(value[:_MORE_BYTES])
        return found
    items = _items(value)
    if items is not None and (isinstance(items, Ragged) or has_mask(items) or _is_void(items)):
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
    if value is None:
        return None
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
    if isinstance(value, np.ndarray) and value.ndim and (has_mask(value) or _is_void(value)):
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
    text = number_text(value)
    rounded = array.dtype.kind == "f" and array.dtype.type(text) != value and not np.isnan(value)
    found: Cell = {"kind": "number", "text": f"{text}…" if rounded else text}
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


class Media(NamedTuple):
    """What a browser shows or plays: a content type, a name for people, and the bytes."""

    type: str
    name: str
    data: bytes
    note: str = ""

    @property
    def is_image(self) -> bool:
        return self.type.startswith("image/")


def sniffed(data: bytes) -> Media | None:
    """Return the image or sound that a byte string holds, or None.

    >>> sniffed(b"GIF89a...").type, sniffed(b"BMW"), sniffed(b"text")
    ('image/gif', None, None)
    """
    kind = media_kind(data)
    if kind is not None:
        return None if kind.type == _NOT_SHOWN else Media(kind.type, kind.name, data)
    start = data[:256].lstrip().lower()
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return Media("image/svg+xml", "SVG", data)
    return None


def image_of(array: npt.NDArray[Any], most: int = _MOST_PIXELS) -> Media | None:
    """Return an array of pixels as an image, or None if it is not shown as one."""
    picture = png_of(array, most)
    return None if picture is None else Media("image/png", "array", *picture)


def sound_of(array: npt.NDArray[Any], rate: int) -> Media | None:
    """Return one-dimensional samples as a WAV, or None if they cannot be samples."""
    if array.ndim != 1 or not array.size or array.dtype.kind not in "fi":
        return None
    samples = array[:_MOST_SAMPLES]
    note = f"{rate:,} Hz" if len(samples) == len(array) else f"{rate:,} Hz, the beginning"
    if array.dtype.kind == "f":
        loudest = float(np.nan_to_num(np.abs(as_floats(samples))).max())
        scale = 32767 if loudest <= 1 else 32767 / loudest
        samples = np.nan_to_num(as_floats(samples) * scale)
    elif int(samples.min()) < -32768 or int(samples.max()) > 32767:
        return None
    data = samples.clip(-32768, 32767).astype("<i2").tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2,
        2, 16, b"data", len(data),
    )  # fmt: skip
    return Media("audio/wav", "samples", head + data, note)


def as_array(data: bytes, dtype: str, shape: str) -> npt.NDArray[Any]:
    """Return bytes as an array, if they are exactly as many as type and shape need.

    >>> as_array(bytes(8), "int16", "2,2")
    array([[0, 0],
           [0, 0]], dtype=int16)
    """
    if dtype not in DTYPES:
        raise OptionError(f"{dtype!r} is not one of {', '.join(DTYPES)}")
    kind = np.dtype(dtype)
    try:
        axes = tuple(int(axis) for axis in shape.replace("x", ",").split(",") if axis.strip())
    except ValueError:
        raise OptionError(f"shape {shape!r}: write numbers, such as 28,28") from None
    if any(axis < 0 for axis in axes) or len(axes) > 8:
        raise OptionError(f"shape {shape!r}: up to 8 axes, none below 0")
    needed = math.prod(axes) * kind.itemsize
    if needed != len(data):
        raise OptionError(
            f"{dtype} of shape {shape or '()'} needs {needed:,} bytes, but there are {len(data):,}"
        )
    return np.frombuffer(data, kind).reshape(axes)


def shapes(size: int) -> dict[str, list[str]]:
    """Return the shapes to offer for each dtype that divides a size.

    >>> shapes(3072)["uint8"]
    ['3072', '32,32,3', '3,32,32', '1536,2', '768,4']
    """
    found = {}
    for dtype in DTYPES:
        count, rest = divmod(size, np.dtype(dtype).itemsize)
        if not rest:
            found[dtype] = _shapes(count)
    return found


def _shapes(count: int) -> list[str]:
    offered = [str(count)]
    for channels in (1, 3, 4):
        side = math.isqrt(count // channels)
        if side > 1 and side * side * channels == count:
            offered += [f"{side},{side}"] if channels == 1 else [f"{side},{side},{channels}"]
            offered += [f"{channels},{side},{side}"] if channels == 3 else []
    offered += [f"{count // n},{n}" for n in (2, 4) if count % n == 0 and count > n]
    return offered


def code(
    path: str, column: str, row: int, array: npt.NDArray[Any], *, records: bool
) -> dict[str, str]:
    """Return the code that reads a column with this type, by name.

    Only the features of records can be given a type when they are opened.
    """
    dtype = array.dtype.str if array.dtype.byteorder == ">" else array.dtype.name
    if not records:
        cast = f"np.frombuffer(ds[{row}][{column!r}], {dtype!r}).reshape({array.shape})"
        return {
            "Python": f"import numpy as np\nimport recmap as rm\n\nds = rm.open({path!r})\n{cast}"
        }
    field = str(Field(array.dtype, array.shape))
    found = {
        "Python": f"import recmap as rm\n\nds = rm.open({path!r}, "
        f"columns={{{column!r}: {field!r}, ...: None}})",
    }
    if array.dtype.name in _IN_TF:
        order = ", little_endian=False" if array.dtype.byteorder == ">" else ""
        found["tf.data"] = (
            "import tensorflow as tf\n\n\ndef parse(record):\n"
            f"    features = {{{column!r}: tf.io.FixedLenFeature([], tf.string)}}\n"
            f"    data = tf.io.parse_single_example(record, features)[{column!r}]\n"
            f"    values = tf.io.decode_raw(data, tf.{array.dtype.name}{order})\n"
            f"    return tf.reshape(values, {list(array.shape)})\n\n\n"
            f"dataset = tf.data.TFRecordDataset({path!r}).map(parse)"
        )
    typed = shlex.quote(f"{column}={field}")
    found["recmap convert"] = (
        f"recmap convert {shlex.quote(path)} out/ --column {typed} --column ..."
    )
    return found
