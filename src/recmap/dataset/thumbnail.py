"""Small pictures of values for notebooks and reports."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.media import media_kind
from recmap.model.picture import png_of
from recmap.model.preview import preview
from recmap.model.ragged import Ragged
from recmap.model.table import Markup
from recmap.pipeline.transforms.image_reader import small_png

# Images shown of a list of them.
_MOST_IMAGES = 3
# Pixels of a side.
_SIDE = 64
#: Encoded images of up to this many bytes are sent as they are, and scaled by the browser.
LARGE_IMAGE = 128 << 10
# What browsers show. SVG is not among them: it can hold scripts.
_SHOWN = {"JPEG", "PNG", "GIF", "BMP", "WebP"}


def thumbnail(value: Any) -> Markup | None:
    """Return a value as an HTML image if it is one: an encoded image, or an array of pixels.

    Of a list or stack of images, the first ones are shown. Large encoded images are made smaller
    by Pillow. Without it they are not shown.
    """
    if isinstance(value, Ragged) or (isinstance(value, np.ndarray) and value.ndim == 4):
        return _first_ones(value)
    if isinstance(value, bytes):
        kind = media_kind(value)
        if kind is None or kind.name not in _SHOWN:
            return None
        if len(value) <= LARGE_IMAGE:
            return _tag(kind.type, value, preview(value))
        small = small_png(value, _SIDE)
        return None if small is None else _tag("image/png", small, preview(value))
    if isinstance(value, np.ndarray):
        picture = png_of(value, _SIDE)
        if picture is not None:
            shape = " × ".join(map(str, value.shape))  # noqa: RUF001  # a sign, not a letter
            return _tag("image/png", picture.png, f"{value.dtype} array of {shape}")
    return None


def _first_ones(items: Ragged | npt.NDArray[Any]) -> Markup | None:
    images = [thumbnail(item) for item in items[:_MOST_IMAGES]]
    shown = [image for image in images if image is not None]
    if not shown or len(shown) < len(images):
        return None
    return Markup(" ".join([f"[{len(items):,}]", *shown, *["..."] * (len(items) > len(shown))]))


def _tag(kind: str, data: bytes, title: str) -> Markup:
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    size = f"max-width:{_SIDE}px;max-height:{_SIDE}px"
    return Markup(f'<img src="{source}" style="{size}" title="{escape(title)}">')
