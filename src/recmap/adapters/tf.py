"""Pipelines as TensorFlow's datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from recmap.adapters.features_and_labels import Names, as_pairs
from recmap.adapters.feed import Feed
from recmap.adapters.joined_batches import joined
from recmap.adapters.tf_buffers import Aligned
from recmap.adapters.tf_features import feature_spec
from recmap.adapters.tf_library import tf
from recmap.adapters.tf_tensors import TensorColumn

__all__ = ["feature_spec", "to_tf"]

# Batches that TensorFlow takes before they are asked for.
_AHEAD = 2


def to_tf(feed: Feed, features: Names, label: Names, ragged: bool) -> Any:
    """A ``tf.data.Dataset``. Iterating it is iterating the feed.

    Batches come from a generator: the pipeline works ahead in threads or processes of
    its own, so that calls by number, several at a time, were no faster. What TensorFlow
    takes for an element of a generator, it takes for a block of batches where it can.
    """
    sample = feed.sample()
    pairs = as_pairs(sample, features, label)
    columns = [
        TensorColumn.like(name, sample[name], feed.schema.get(name), feed.batched, ragged)
        for name in pairs.names
    ]
    aligned, in_blocks = Aligned(), feed.end_to_end

    def arrays() -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
        batches = iter(feed)
        # No loop, whose names would keep a batch until the next is asked for.
        yield from map(flat, joined(batches) if in_blocks else batches)

    def flat(values: dict[str, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        parts = (part for column in columns for part in column.arrays(values[column.name]))
        return tuple(aligned.of(part) for part in parts)

    def tensors(*given: Any) -> Any:
        parts = iter(given)
        return pairs.of({column.name: column.tensor(parts) for column in columns})

    signature = tuple(spec for column in columns for spec in column.specs())
    dataset = tf.data.Dataset.from_generator(arrays, output_signature=signature).map(tensors)
    if in_blocks:
        size = feed.batch_size
        dataset = dataset.flat_map(lambda *parts: _cut(parts if len(parts) > 1 else parts[0], size))
    count = None if feed.resumed else _count(feed)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(_AHEAD)


def _cut(block: Any, size: int) -> Any:
    """The batches of a block: slices of its tensors, that copy nothing."""
    return tf.data.Dataset.from_tensors(block).rebatch(size)


def _count(feed: Feed) -> int | None:
    try:
        return len(feed)
    except TypeError:  # nobody knows
        return None
