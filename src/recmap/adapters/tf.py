"""``to_tf``: batches as a ``tf.data.Dataset``; and feature specs for TensorFlow's parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from recmap.adapters.features_and_labels import FeaturesAndLabels, Names
from recmap.adapters.feed import Feed
from recmap.adapters.joined_batches import join_neighbours
from recmap.adapters.tf_tensors import AlignedMemory, TensorColumn, tf
from recmap.errors import OptionError
from recmap.model.field import FieldLike
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.encoder import Parsing, choose_encoding, parsing_of

__all__ = ["feature_spec", "to_tf"]

# Batches that TensorFlow prefetches.
_AHEAD = 2
_LIST_DTYPES = {
    _core.Kind.bytes: tf.string,
    _core.Kind.float: tf.float32,
    _core.Kind.int64: tf.int64,
}


def to_tf(feed: Feed, features: Names, label: Names, ragged: bool) -> Any:
    """Return a ``tf.data.Dataset``. Iterating it iterates the feed.

    The batches come from a single generator. The pipeline already works ahead in its own threads
    or processes, so reading several batches by number at a time would be no faster. Batches that
    are adjacent in memory are passed as one block, because TensorFlow has an overhead for each
    element of a generator.
    """
    sample = feed.sample()
    chosen = FeaturesAndLabels.choose(sample, features, label)
    in_blocks, rows = feed.end_to_end, feed.fixed_batch_size
    columns = [
        _column(feed, name, sample[name], None if in_blocks else rows, ragged)
        for name in chosen.names
    ]

    def tensors(*arrays: Any) -> Any:
        each = iter(arrays)
        return chosen.arrange({column.name: column.tensor(each) for column in columns})

    generator = _array_generator(feed, columns, in_blocks)
    signature = tuple(spec for column in columns for spec in column.specs())
    dataset = tf.data.Dataset.from_generator(generator, output_signature=signature).map(tensors)
    if in_blocks:
        dataset = _cut_blocks(dataset, feed.batch_size, same_size=rows is not None)
    count = None if feed.resumed else _length(feed)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(_AHEAD)


def _column(feed: Feed, name: str, sample: Any, rows: int | None, ragged: bool) -> TensorColumn:
    field = feed.schema.get(name)
    if not feed.batched:
        return TensorColumn.of_rows(name, sample, field)
    return TensorColumn.of_batches(name, sample, field, rows, pad=not ragged)


def _array_generator(feed: Feed, columns: list[TensorColumn], in_blocks: bool) -> Any:
    """Return a generator function that yields a tuple of arrays for each batch or block."""
    memory = AlignedMemory()

    def arrays(batch: dict[str, Any]) -> tuple[npt.NDArray[Any], ...]:
        each = (array for column in columns for array in column.arrays(batch[column.name]))
        return tuple(memory.align(array) for array in each)

    def generate() -> Iterator[tuple[npt.NDArray[Any], ...]]:
        batches = iter(feed)
        # A loop variable would keep each batch alive until the next one is requested.
        yield from map(arrays, join_neighbours(batches) if in_blocks else batches)

    return generate


def _cut_blocks(dataset: Any, size: int, *, same_size: bool) -> Any:
    """Cut each block into its batches by slicing its tensors, without copying."""

    def batches(*block: Any) -> Any:
        whole = tf.data.Dataset.from_tensors(block if len(block) > 1 else block[0])
        # If all batches have the same size, this drops no rows; it makes the shape static.
        return whole.rebatch(size, drop_remainder=same_size)

    return dataset.flat_map(batches)


def _length(feed: Feed) -> int | None:
    try:
        return len(feed)
    except TypeError:  # unknown until all of it has been read
        return None


def feature_spec(
    schema: Mapping[str, FieldLike], encoding: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the features that ``tf.io.parse_example`` needs for records of a schema.

    The records are assumed to be as recmap writes them. If you wrote them with an ``encoding``,
    give the same one here. Fields stored as raw bytes, such as ``uint8`` images, are parsed as
    strings for ``tf.io.decode_raw``.

    >>> import recmap as rm
    >>> rm.tf.feature_spec({"tokens": "int64[*]", "image": "uint8[28,28]"})["image"]
    FixedLenFeature(shape=[], dtype=tf.string, default_value=None)
    """
    given = encoding or {}
    features = {}
    for name, field in Schema(schema).items():
        chosen = choose_encoding(name, field, given.get(name))
        if chosen.in_lists:
            raise OptionError(
                f"field {name!r}: {field} is a feature list, which tf.io.parse_example does not "
                "read; `recmap schema FILE --as tf` prints code that does"
            )
        features[name] = _feature(parsing_of(field, chosen.kind, in_lists=False))
    return features


def _feature(parsing: Parsing) -> Any:
    shape, dtype = list(parsing.shape), _LIST_DTYPES[parsing.kind]
    if parsing.form == "fixed":
        return tf.io.FixedLenFeature(shape, dtype, parsing.default)
    sizes = [tf.io.RaggedFeature.UniformRowLength(axis) for axis in shape]
    return tf.io.RaggedFeature(dtype, partitions=sizes)
