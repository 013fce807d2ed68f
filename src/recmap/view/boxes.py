"""Boxes: which columns hold them, and where they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.casting import as_floats
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema

# What the four numbers of a box may be. Nothing in a file tells, so the page lets people choose.
BOX_ORDERS = ("xmin ymin xmax ymax", "ymin xmin ymax xmax", "x y width height")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_BOX_NAMES = ("bbox", "bboxes", "box", "boxes")
_MOST_BOXES = 100


# The columns of some boxes: four, one for each corner, or one of four numbers.
BoxColumns: TypeAlias = tuple[str, ...]
# Boxes as left, top, right, bottom, and whether these are fractions of the image, or else pixels.
Boxes: TypeAlias = tuple[list[list[float]], bool]


def boxes_on_images(
    every: Sequence[BoxColumns], values: Mapping[str, Any], images: Sequence[str], order: str
) -> dict[str, list[Boxes]]:
    """Return the boxes of a row by the image they are drawn on."""
    drawn: dict[str, list[Boxes]] = {}
    for columns in every:
        image = _image_for(columns, images)
        found = None if image is None else _boxes_of(values, columns, order)
        if image is not None and found is not None:
            drawn.setdefault(image, []).append(found)
    return drawn


def usual_order(format: str) -> str:
    """Return what the four numbers of a box are, as far as the format tells."""
    return BOX_ORDERS[1] if format == "TFDS" else BOX_ORDERS[0]


def box_columns(schema: Schema) -> list[BoxColumns]:
    """Return the columns of boxes.

    >>> box_columns(Schema({"objects/bbox": "float32[*, 4]"}))
    [('objects/bbox',)]
    """
    found: list[BoxColumns] = []
    for name, field in schema.items():
        last = _last_part(name)
        if last.lower() == "xmin":
            upper = last != "xmin"
            names = tuple(name[: -len(last)] + (c.upper() if upper else c) for c in _CORNERS)
            if all(each in schema and not schema[each].is_bytes for each in names):
                found.append(names)
        elif last.lower() in _BOX_NAMES and field.shape[-1:] == (4,) and field.dtype.kind in "iuf":
            found.append((name,))
    return found


def _last_part(name: str) -> str:
    """Return the last part of a name: image/object/bbox/xmin, object.xmin, box_xmin."""
    for mark in "/._":
        name = name.rpartition(mark)[2]
    return name


def _boxes_of(values: Mapping[str, Any], columns: BoxColumns, order: str) -> Boxes | None:
    arrays = [_floats(values.get(name)) for name in columns]
    if any(array is None for array in arrays):
        return None
    if len(columns) == 4:
        if len({array.size for array in arrays if array is not None}) != 1:
            return None
        boxes = np.stack([array.reshape(-1) for array in arrays if array is not None], -1)
    else:
        assert arrays[0] is not None
        boxes = arrays[0].reshape(-1, 4)
    boxes = boxes[:_MOST_BOXES]
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    if len(columns) == 1:
        boxes = _ordered(boxes, order)
    fractions = bool(boxes.size) and bool((boxes >= 0).all()) and bool((boxes <= 1).all())
    return (boxes.tolist(), fractions) if boxes.size else None


def _ordered(boxes: npt.NDArray[np.float64], order: str) -> npt.NDArray[np.float64]:
    if order == BOX_ORDERS[1]:
        return boxes[:, [1, 0, 3, 2]]
    if order == BOX_ORDERS[2]:
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    return boxes


def _floats(value: Any) -> npt.NDArray[np.float64] | None:
    if value is None or isinstance(value, bytes | str | Ragged):
        return None
    return as_floats(np.asarray(value))


def _image_for(columns: BoxColumns, images: Sequence[str]) -> str | None:
    """Return the image that boxes are drawn on: the one whose name is most like theirs."""

    def alike(name: str) -> int:
        return next(
            (i for i, pair in enumerate(zip(name, columns[0], strict=False)) if len({*pair}) > 1), 0
        )

    return max(images, key=alike, default=None)
