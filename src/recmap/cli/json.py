"""Convert values to JSON."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recmap.model.field import Field
from recmap.model.ragged import Ragged

__all__ = ["json_text"]


def json_text(value: Any) -> str:
    """Return a value as one line of JSON.

    Byte strings become text if they are printable UTF-8, else ``{"base64": ...}``. NaN and the
    infinities become strings, because JSON has no such numbers. A complex number becomes a list
    of two.

    >>> json_text({"a": np.array([1.5, np.nan]), "b": b"text", "c": b"\\x00\\xff"})
    '{"a": [1.5, "NaN"], "b": "text", "c": {"base64": "AP8="}}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _unusual(value)
        case complex():
            return [_plain(value.real), _plain(value.imag)]
        case bytes():
            return _string(value)
        case np.generic():
            return _scalar(value)
        case np.ndarray() if value.ndim == 0:
            return _scalar(value[()])
        case Field():
            return str(value)
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | np.ndarray() | Ragged():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _scalar(value: Any) -> Any:
    if value.dtype.kind in "mM":
        return str(value)
    # item() does not convert extension types such as bfloat16 to Python floats.
    return _plain(value.item() if value.dtype.kind in "biufc" else float(value))


def _unusual(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _string(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return text
    return {"base64": base64.b64encode(value).decode()}
