"""Try types and shapes on raw bytes, and write the code that reads them so."""

from __future__ import annotations

import math
import shlex
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.field import Field

DTYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "bool",
    ">u2", ">i2", ">i4", ">i8", ">f4", ">f8",
)  # fmt: skip
# What TensorFlow's decode_raw reads.
_IN_TF = {"uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"}


def as_array(data: bytes, dtype: str, shape: str) -> npt.NDArray[Any]:
    """Return bytes as an array, if they are exactly as many as type and shape need.

    >>> as_array(bytes(8), "int16", "2,2")
    array([[0, 0],
           [0, 0]], dtype=int16)
    """
    if dtype not in DTYPES:
        raise OptionError(f"{dtype!r} is not one of {', '.join(DTYPES)}")
    kind = np.dtype(dtype)
    try:
        axes = tuple(int(axis) for axis in shape.replace("x", ",").split(",") if axis.strip())
    except ValueError:
        raise OptionError(f"shape {shape!r}: write numbers, such as 28,28") from None
    if any(axis < 0 for axis in axes) or len(axes) > 8:
        raise OptionError(f"shape {shape!r}: up to 8 axes, none below 0")
    needed = math.prod(axes) * kind.itemsize
    if needed != len(data):
        raise OptionError(
            f"{dtype} of shape {shape or '()'} needs {needed:,} bytes, but there are {len(data):,}"
        )
    return np.frombuffer(data, kind).reshape(axes)


def shapes(size: int) -> dict[str, list[str]]:
    """Return the shapes to offer for each dtype that divides a size.

    >>> shapes(3072)["uint8"]
    ['3072', '32,32,3', '3,32,32', '1536,2', '768,4']
    """
    found = {}
    for dtype in DTYPES:
        count, rest = divmod(size, np.dtype(dtype).itemsize)
        if not rest:
            found[dtype] = _shapes(count)
    return found


def _shapes(count: int) -> list[str]:
    offered = [str(count)]
    for channels in (1, 3, 4):
        side = math.isqrt(count // channels)
        if side > 1 and side * side * channels == count:
            offered += [f"{side},{side}"] if channels == 1 else [f"{side},{side},{channels}"]
            offered += [f"{channels},{side},{side}"] if channels == 3 else []
    offered += [f"{count // n},{n}" for n in (2, 4) if count % n == 0 and count > n]
    return offered


def code(
    path: str, column: str, row: int, array: npt.NDArray[Any], *, records: bool
) -> dict[str, str]:
    """Return the code that reads a column with this type, by name.

    Only the features of records can be given a type when they are opened.
    """
    dtype = array.dtype.str if array.dtype.byteorder == ">" else array.dtype.name
    if not records:
        cast = f"np.frombuffer(ds[{row}][{column!r}], {dtype!r}).reshape({array.shape})"
        return {
            "Python": f"import numpy as np\nimport recmap as rm\n\nds = rm.open({path!r})\n{cast}"
        }
    field = str(Field(array.dtype, array.shape))
    found = {
        "Python": f"import recmap as rm\n\nds = rm.open({path!r}, "
        f"fields={{{column!r}: {field!r}, ...: None}})",
    }
    if array.dtype.name in _IN_TF:
        order = ", little_endian=False" if array.dtype.byteorder == ">" else ""
        found["tf.data"] = (
            "import tensorflow as tf\n\n\ndef parse(record):\n"
            f"    features = {{{column!r}: tf.io.FixedLenFeature([], tf.string)}}\n"
            f"    data = tf.io.parse_single_example(record, features)[{column!r}]\n"
            f"    values = tf.io.decode_raw(data, tf.{array.dtype.name}{order})\n"
            f"    return tf.reshape(values, {list(array.shape)})\n\n\n"
            f"dataset = tf.data.TFRecordDataset({path!r}).map(parse)"
        )
    typed = shlex.quote(f"{column}={field}")
    found["recmap convert"] = f"recmap convert {shlex.quote(path)} out/ --field {typed} --field ..."
    return found
