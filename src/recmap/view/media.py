"""Images and sound that the page shows: as they are stored, or made from arrays."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.model.casting import as_floats
from recmap.model.media import media_kind
from recmap.model.picture import png_of

# Pictures of arrays are thinned out to this many pixels a side.
_MOST_PIXELS = 2048
# Sound of at most this many samples is sent: a minute and a half at 44.1 kHz.
_MOST_SAMPLES = 4_000_000
# Browsers do not show it.
_NOT_SHOWN = "image/tiff"


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
    return None if picture is None else Media("image/png", "array", picture.png, picture.note)


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
