"""Images and audio: tell them from their first bytes, and make PNG and WAV from arrays."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Media", "image_of", "is_image_shape", "sniffed", "sound_of"]

# Pictures of arrays are thinned out to this many pixels a side.
_MOST_PIXELS = 2048
# Smaller arrays are matrices rather than pictures.
_LEAST_PIXELS = 8
_CHANNELS = (1, 3, 4)
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
# Sound of at most this many samples is sent: a minute and a half at 44.1 kHz.
_MOST_SAMPLES = 4_000_000

_MAGIC = (
    (b"\xff\xd8\xff", "image/jpeg", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "image/png", "PNG"),
    (b"GIF87a", "image/gif", "GIF"),
    (b"GIF89a", "image/gif", "GIF"),
    (b"fLaC", "audio/flac", "FLAC"),
    (b"ID3", "audio/mpeg", "MP3"),
    (b"OggS", "audio/ogg", "Ogg"),
)


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
    for magic, kind, name in _MAGIC:
        if data.startswith(magic) and len(data) > len(magic):
            return Media(kind, name, data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Media("image/webp", "WebP", data)
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return Media("audio/wav", "WAV", data)
    # Two letters, or two bytes, are too few to tell: check the size and the header that follow.
    if data[:2] == b"BM" and len(data) > 26 and _size_of_bmp(data) <= len(data):
        return Media("image/bmp", "BMP", data)
    if data[:2] in (b"\xff\xfb", b"\xff\xf3") and len(data) > 64:
        return Media("audio/mpeg", "MP3", data)
    start = data[:256].lstrip().lower()
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return Media("image/svg+xml", "SVG", data)
    return None


def _size_of_bmp(data: bytes) -> int:
    size, header = struct.unpack_from("<I", data, 2)[0], struct.unpack_from("<I", data, 14)[0]
    return int(size) if header in (12, 40, 52, 56, 64, 108, 124) and size > 26 else len(data) + 1


def is_image_shape(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return whether arrays of this type are shown as pictures.

    >>> is_image_shape(np.dtype("uint8"), (28, 28, 1)), is_image_shape(np.dtype("int64"), (28, 28))
    (True, False)
    """
    if dtype == np.uint8 and len(shape) == 2:
        return min(shape) >= _LEAST_PIXELS
    if len(shape) != 3 or (dtype != np.uint8 and dtype.kind != "f"):
        return False
    return _channels_last(shape) or _channels_first(shape)


def _channels_last(shape: tuple[int, ...]) -> bool:
    return shape[2] in _CHANNELS and min(shape[:2]) >= _LEAST_PIXELS


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] in (1, 3) and min(shape[1:]) >= _LEAST_PIXELS


def image_of(array: npt.NDArray[Any], most: int = _MOST_PIXELS) -> Media | None:
    """Return an array of pixels as a PNG, or None if it is not shown as a picture.

    Large pictures are thinned out. Floats are scaled, and the note says how.
    """
    if not is_image_shape(array.dtype, array.shape):
        return None
    if array.ndim == 3 and not _channels_last(array.shape):
        array = np.moveaxis(array, 0, 2)
    note = "x".join(map(str, array.shape))
    step = -(-max(array.shape[:2]) // most)
    if step > 1:
        array = array[::step, ::step]
        note += f", every {step}th pixel"
    if array.dtype != np.uint8:
        array, scaled = _as_bytes(array)
        note += f", {scaled}"
    return Media("image/png", "array", _png(array), note)


def _as_bytes(array: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], str]:
    """Scale floats to bytes, from 0 to 1 or 0 to 255 if they are within, else from least to most.

    >>> _as_bytes(np.array([0.0, 1.0]))
    (array([  0, 255], dtype=uint8), '0 to 1')
    """
    floats = array.astype(np.float64)
    finite = floats[np.isfinite(floats)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high, note = 0.0, 1.0, "0 to 1"
    elif low >= 0 and 1 < high <= 255:
        low, high, note = 0.0, 255.0, "0 to 255"
    else:
        note = f"scaled from {low:.3g} to {high:.3g}"
    # Halved, because the full range of float64 overflows.
    half = (high / 2 - low / 2) or 1.0
    scaled = (floats / 2 - low / 2) / half * 255
    return np.nan_to_num(scaled, nan=0, posinf=255, neginf=0).clip(0, 255).astype(np.uint8), note


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter, none
    lines[:, 1:] = np.ascontiguousarray(pixels).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def sound_of(array: npt.NDArray[Any], rate: int) -> Media | None:
    """Return one-dimensional samples as a WAV, or None if they cannot be samples."""
    if array.ndim != 1 or not array.size or array.dtype.kind not in "fi":
        return None
    samples = array[:_MOST_SAMPLES]
    note = f"{rate:,} Hz" if len(samples) == len(array) else f"{rate:,} Hz, the beginning"
    if array.dtype.kind == "f":
        loudest = float(np.nan_to_num(np.abs(samples.astype(np.float64))).max())
        scale = 32767 if loudest <= 1 else 32767 / loudest
        samples = np.nan_to_num(samples.astype(np.float64) * scale)
    elif int(samples.min()) < -32768 or int(samples.max()) > 32767:
        return None
    data = samples.clip(-32768, 32767).astype("<i2").tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2,
        2, 16, b"data", len(data),
    )  # fmt: skip
    return Media("audio/wav", "samples", head + data, note)
