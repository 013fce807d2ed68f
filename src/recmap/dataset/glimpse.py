"""The first rows of a dataset, for its reprs: as text, and small pictures for notebooks.

A repr must not surprise: it reads a few rows at most, never from a store, and shows fewer or
none where reading them would take long, take memory, or fail.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.machine.mapped import Guard
from recmap.model.media import media_kind
from recmap.model.picture import png_of
from recmap.model.preview import preview
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import measure
from recmap.model.source import Source
from recmap.model.table import Column, Markup, Table, html_table
from recmap.pipeline.transforms.image_reader import small_png

_ROWS = 3
_MOST_BYTES = 16 << 20
# The width of the text, and the least width of a value in it.
_WIDTH = 100
_LEAST = 10
# Images shown of a list of them.
_MOST_IMAGES = 3
# Pixels of a side.
_SIDE = 64
#: Encoded images of up to this many bytes are sent as they are, and scaled by the browser.
LARGE_IMAGE = 128 << 10
# What browsers show. SVG is not among them: it can hold scripts.
_SHOWN = {"JPEG", "PNG", "GIF", "BMP", "WebP"}


def glimpse_text(source: Source) -> str:
    """Return a line for each field, with its type and its first values."""
    rows, more = _shown(source, [preview])
    columns = [Column("", cut="middle", least=20), Column("")]
    columns += [Column("", cut="end", least=_LEAST) for _ in rows]
    texts = [[name, kind, *(row[i] for row in rows)] for i, (name, kind) in _fields(source)]
    lines = Table(columns, texts).lines(_WIDTH)[1:]
    dots = ["..."] if more else []
    return "\n".join("  " + "  ".join([*cells, *dots]).rstrip() for cells in lines)


def glimpse_html(source: Source, title: str) -> str:
    """Return a table with a line for each field, with its type and its first values."""
    rows, more = _shown(source, [thumbnail, preview])
    header = ["column", "type", *(f"row {i}" for i in range(len(rows))), *([""] if more else [])]
    dots = ["..."] if more else []
    texts = [[name, kind, *(row[i] for row in rows), *dots] for i, (name, kind) in _fields(source)]
    return html_table(title, header, texts)


def first_values(source: Source, name: str) -> list[str]:
    """Return the first values of a column as text, and "..." if there are more."""
    rows, more = _shown(source.select([name]), [preview])
    return [row[0] for row in rows] + (["..."] if more else [])


def _fields(source: Source) -> enumerate[tuple[str, str]]:
    return enumerate(source.schema.lines())


def _shown(source: Source, how: Sequence[Any]) -> tuple[list[list[str]], bool]:
    """Return the values of the first rows as text, and whether there are more rows.

    ``how`` has functions that return text, or None to have the next one try.
    """
    facts = source.facts
    if not facts.searched or facts.remote or facts.once or facts.largest_chunk().size > _MOST_BYTES:
        return [], False
    try:
        with warnings.catch_warnings(), Guard():
            warnings.simplefilter("ignore")
            batch = source.read(0, _ROWS + 1, _MOST_BYTES)
            count, _ = measure(batch)
            rows = [
                [
                    next(text for show in how if (text := show(column[i])) is not None)
                    for column in batch.values()
                ]
                for i in range(min(count, _ROWS))
            ]
    except Exception:  # a repr does not fail; reading the rows says what is wrong
        return [], False
    return rows, count > _ROWS


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
            return _tag("image/png", picture[0], f"{value.dtype} array of {shape}")
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
