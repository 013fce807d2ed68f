"""Make PNG images of arrays."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.casting import as_floats

# Smaller arrays are matrices rather than pictures.
_LEAST_PIXELS = 8
_CHANNELS = (1, 3, 4)
# The colour types of PNG, by the number of channels.
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}


def is_picture(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return whether arrays of this type are shown as pictures.

    >>> is_picture(np.dtype("uint8"), (28, 28, 1)), is_picture(np.dtype("int64"), (28, 28))
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


def png_of(array: npt.NDArray[Any], most: int) -> tuple[bytes, str] | None:
    """Return an array of pixels as a PNG, and what was done; None if it is not shown as a picture.

    Larger ones are thinned out to ``most`` pixels a side. Floats are scaled, and the note says how.
    """
    if not is_picture(array.dtype, array.shape):
        return None
    if array.ndim == 3 and not _channels_last(array.shape):
        array = np.moveaxis(array, 0, 2)
    note = "x".join(map(str, array.shape))
    step = -(-max(array.shape[:2]) // most)
    if step > 1:
        array = array[::step, ::step]
        note += f", at 1/{step} of its size"
    if array.dtype != np.uint8:
        array, scaled = _as_bytes(array)
        note += f", {scaled}"
    return encode_png(array), note


@np.errstate(all="ignore")  # pixels may be any bits
def _as_bytes(array: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], str]:
    """Scale floats to bytes, from 0 to 1 or 0 to 255 if they are within, else from least to most.

    >>> _as_bytes(np.array([0.0, 1.0]))
    (array([  0, 255], dtype=uint8), '0 to 1')
    """
    floats = as_floats(array)
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


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return pixels, (height, width) or (height, width, channels), as a PNG."""
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
