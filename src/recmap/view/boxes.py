"""Find the columns that hold boxes, and the boxes of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.casting import as_floats
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema

# What the four numbers of a box may be. Nothing in a file tells, so the page lets people choose.
ORDERS = ("xmin ymin xmax ymax", "ymin xmin ymax xmax", "x y width height")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_NAMES = ("bbox", "bboxes", "box", "boxes")
_MOST = 100


@dataclass(frozen=True)
class BoxColumns:
    """Four columns, one for each corner, or one column of four numbers."""

    names: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        """Whether the names say which number is which."""
        return len(self.names) == 4


def box_columns(schema: Schema) -> list[BoxColumns]:
    """Return the columns of boxes.

    >>> [each.names for each in box_columns(Schema({"objects/bbox": "float32[*, 4]"}))]
    [('objects/bbox',)]
    """
    found = []
    for name, field in schema.items():
        head, last = name[: -len(_split(name))], _split(name)
        if last.lower() == "xmin":
            upper = last != "xmin"
            names = tuple(head + (c.upper() if upper else c) for c in _CORNERS)
            if all(each in schema and not schema[each].is_bytes for each in names):
                found.append(BoxColumns(names))
        elif last.lower() in _NAMES and field.shape[-1:] == (4,) and field.dtype.kind in "iuf":
            found.append(BoxColumns((name,)))
    return found


def _split(name: str) -> str:
    """Return the last part of a name: image/object/bbox/xmin, object.xmin, box_xmin."""
    for mark in "/._":
        name = name.rpartition(mark)[2]
    return name


def boxes_on(
    values: Mapping[str, Any], columns: BoxColumns, order: str
) -> tuple[list[list[float]], bool] | None:
    """Return the boxes of a row as left, top, right, bottom, and whether they are from 0 to 1."""
    arrays = [_floats(values.get(name)) for name in columns.names]
    if any(array is None for array in arrays):
        return None
    if columns.ordered:
        if len({array.size for array in arrays if array is not None}) != 1:
            return None
        boxes = np.stack([array.reshape(-1) for array in arrays if array is not None], -1)
    else:
        assert arrays[0] is not None
        boxes = arrays[0].reshape(-1, 4)
    boxes = boxes[:_MOST]
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    if not columns.ordered:
        boxes = _ordered(boxes, order)
    fractions = bool(boxes.size) and bool((boxes >= 0).all()) and bool((boxes <= 1).all())
    return boxes.tolist(), fractions


def _ordered(boxes: npt.NDArray[np.float64], order: str) -> npt.NDArray[np.float64]:
    if order == ORDERS[1]:
        return boxes[:, [1, 0, 3, 2]]
    if order == ORDERS[2]:
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    return boxes


def _floats(value: Any) -> npt.NDArray[np.float64] | None:
    if value is None or isinstance(value, bytes | str | Ragged):
        return None
    return as_floats(np.asarray(value))


def image_for(columns: BoxColumns, images: Sequence[str]) -> str | None:
    """Return the image that boxes are drawn on: the one whose name is most like theirs."""
    box = columns.names[0]

    def alike(name: str) -> int:
        return next(
            (i for i, pair in enumerate(zip(name, box, strict=False)) if len({*pair}) > 1), 0
        )

    return max(images, key=alike, default=None)
