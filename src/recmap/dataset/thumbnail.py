"""Small pictures of values for notebooks."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.preview import image_kind, preview
from recmap.model.table import Markup

__all__ = ["thumbnail"]

# Pixels of a side. Larger arrays are thinned out, larger encoded images are scaled by the browser.
_SIDE = 64
# Encoded images above this many bytes are not sent to the browser.
_MOST_BYTES = 128 << 10
# The least height and width of an array that is taken for an image.
_LEAST_SIDE = 8
# What browsers show. SVG is not among them: it can hold scripts.
_SHOWN = {"JPEG", "PNG", "GIF", "BMP", "WebP"}
# The colour types of PNG, by the number of channels.
_COLOURS = {1: 0, 3: 2, 4: 6}


def thumbnail(value: Any) -> Markup | None:
    """Return a value as an HTML image if it is one: an encoded image, or an array of uint8."""
    if isinstance(value, bytes):
        kind = image_kind(value)
        if kind not in _SHOWN or len(value) > _MOST_BYTES:
            return None
        return _tag(kind.lower(), value, preview(value))
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        pixels = _pixels(value)
        if pixels is not None:
            shape = " × ".join(map(str, value.shape))  # noqa: RUF001  # a sign, not a letter
            return _tag("png", _png(pixels), f"uint8 array of {shape}")
    return None


def _tag(kind: str, data: bytes, title: str) -> Markup:
    from html import escape

    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    size = f"max-width:{_SIDE}px;max-height:{_SIDE}px"
    return Markup(f'<img src="{source}" style="{size}" title="{escape(title)}">')


def _pixels(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8] | None:
    """Return height, width and channels of an array that looks like an image, thinned out."""
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    elif array.ndim == 3 and array.shape[2] not in _COLOURS and array.shape[0] in _COLOURS:
        array = array.transpose(1, 2, 0)  # channels first
    if array.ndim != 3 or array.shape[2] not in _COLOURS or min(array.shape[:2]) < _LEAST_SIDE:
        return None
    step = -(-max(array.shape[:2]) // _SIDE)
    return np.ascontiguousarray(array[::step, ::step])


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    # Each line begins with its filter: none.
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
