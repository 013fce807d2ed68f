"""Any value of a dataset as one line of JSON."""

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


def json_text(value: Any) -> str:
    """Return a value as one line of JSON.

    Byte strings become text if they are printable UTF-8, else ``{"base64": ...}``. NaN and the
    infinities become strings, because JSON has no such numbers. A complex number becomes a list
    of two.

    >>> json_text({"a": np.array([1.5, np.nan]), "b": b"text", "c": b"\\x00\\xff"})
    '{"a": [1.5, "NaN"], "b": "text", "c": {"base64": "AP8="}}'
    """
    return json.dumps(_json_plain(value), allow_nan=False)


def _json_plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _json_unusual(value)
        case complex():
            return [_json_plain(value.real), _json_plain(value.imag)]
        case bytes():
            return _json_string(value)
        case np.generic():
            return _json_scalar(value)
        case np.ndarray() if value.ndim == 0:
            return _json_scalar(value[()])
        case Field():
            return str(value)
        case Mapping():
            return {str(name): _json_plain(item) for name, item in value.items()}
        case list() | tuple() | np.ndarray() | Ragged():
            return [_json_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {f.name: _json_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _json_scalar(value: Any) -> Any:
    kind = value.dtype.kind
    if kind in "mM":
        return str(value)
    if value.dtype.type is np.void:
        return _json_string(value.tobytes())
    # item() converts neither long doubles nor extension types such as bfloat16.
    if kind == "c":
        return _json_plain(complex(value))
    return _json_plain(value.item() if kind in "biu" else float(value))


def _json_unusual(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_string(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return text
    return {"base64": base64.b64encode(value).decode()}
