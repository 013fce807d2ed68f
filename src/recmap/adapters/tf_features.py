"""What TensorFlow's own parser needs to know of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.adapters.tf_library import tf
from recmap.errors import OptionError
from recmap.model.schema import FieldLike, Schema
from recmap.native import _core
from recmap.tfrecord.encoder import choose_encoding
from recmap.tfrecord.parse_spec import Parsing, parsing_of

__all__ = ["feature_spec"]

_LISTS = {_core.Kind.bytes: tf.string, _core.Kind.float: tf.float32, _core.Kind.int64: tf.int64}


def feature_spec(
    schema: Mapping[str, FieldLike], encoding: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The features of ``tf.io.parse_example`` for records of a schema, as recmap writes
    them; ``encoding`` as a writer takes it, for records that hold some fields otherwise.

    Fields that are stored as raw bytes, such as images of ``uint8``, come as strings
    for ``tf.io.decode_raw``.

    >>> import recmap as rm
    >>> rm.tf.feature_spec({"tokens": "int64[*]", "image": "uint8[28,28]"})["image"]
    FixedLenFeature(shape=[], dtype=tf.string, default_value=None)
    """
    asked = encoding or {}
    features = {}
    for name, field in Schema(schema).items():
        chosen = choose_encoding(name, field, asked.get(name))
        if chosen.in_lists:
            raise OptionError(
                f"field {name!r}: {field} is a feature list, which tf.io.parse_example does not "
                "read; `recmap schema FILE --as tf` prints code that does"
            )
        features[name] = _feature(parsing_of(field, chosen.kind, in_lists=False))
    return features


def _feature(parsing: Parsing) -> Any:
    shape, dtype = list(parsing.shape), _LISTS[parsing.kind]
    if parsing.form == "fixed":
        return tf.io.FixedLenFeature(shape, dtype, parsing.default)
    sizes = [tf.io.RaggedFeature.UniformRowLength(axis) for axis in shape]
    return tf.io.RaggedFeature(dtype, partitions=sizes)
