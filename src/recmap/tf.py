"""rm.tf: what TensorFlow's own parser needs. TensorFlow is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.model.field import FieldLike

__all__ = ["feature_spec"]


def feature_spec(
    schema: Mapping[str, FieldLike], encoding: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the features of ``tf.io.parse_example`` for records that recmap writes.

    ``encoding`` is the one that the records were written with, if any. Fields that are stored
    as raw bytes, such as images of ``uint8``, come as strings for ``tf.io.decode_raw``.

    >>> import recmap as rm
    >>> rm.tf.feature_spec({"tokens": "int64[*]", "image": "uint8[28,28]"})["image"]
    FixedLenFeature(shape=[], dtype=tf.string, default_value=None)
    """
    from recmap.adapters import tf

    return tf.feature_spec(schema, encoding)
