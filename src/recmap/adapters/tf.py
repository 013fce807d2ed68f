"""``to_tf``: batches as a ``tf.data.Dataset``; and feature specs for TensorFlow's parser.

A column is passed to TensorFlow as plain arrays: a dense column as one array, a ragged column as
its values and the row splits of each ragged axis. TensorFlow then rebuilds the tensor from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.adapters.columns import FeaturesAndLabels, Names, as_native, unknown_dtype
from recmap.adapters.feed import Feed
from recmap.errors import MissingPackageError, OptionError
from recmap.machine.memory import empty
from recmap.model.field import Field, FieldLike
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Schema
from recmap.model.text import as_strings_of
from recmap.native import _core
from recmap.tfrecord.encoder import Parsing, choose_encoding, parsing_of

try:
    import tensorflow as tf
except ImportError as e:
    raise MissingPackageError("this needs TensorFlow", extra="tf") from e

__all__ = ["aligned", "feature_spec", "tf", "to_tf"]

# After shard(), tf.distribute must not divide the rows among its workers a second time.
_NOT_DIVIDED_AGAIN = tf.data.Options()
_NOT_DIVIDED_AGAIN.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF
)
# Batches that TensorFlow prefetches.
_AHEAD = 2
# Alignment in bytes that lets TensorFlow share memory.
_CACHE_LINE = 64
# Below this many bytes, letting TensorFlow copy is cheaper than managing memory.
_SMALL = 1 << 16
_BYTES = Field("bytes")
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
    chosen = FeaturesAndLabels.choose(sample, features, label, mask=feed.mask)
    in_blocks, rows = feed.end_to_end, feed.fixed_batch_size
    columns = [
        _column(feed, name, sample[name], None if in_blocks else rows, pad=not ragged)
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
    count = None
    if not feed.resumed:
        with suppress(TypeError):  # the length may be unknown until all of it has been read
            count = len(feed)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    if feed.world is not None:
        dataset = dataset.with_options(_NOT_DIVIDED_AGAIN)
    return dataset.prefetch(_AHEAD)


def _column(feed: Feed, name: str, sample: Any, rows: int | None, pad: bool) -> _TensorColumn:
    """Describe a column of batches of ``rows`` rows, or the values of single rows, by a sample.

    With ``pad``, a ragged column of batches becomes dense.
    """
    dtype, ragged, inner, strings = _layout(name, sample, feed.schema.get(name))
    if not feed.batched:
        # There is no row axis, so the outermost ragged axis is the length of the value.
        shape = (None, *inner) if ragged else inner
        return _TensorColumn(name, dtype, shape, max(0, ragged - 1))
    if not ragged:
        return _TensorColumn(name, dtype, (rows, *inner))
    if not pad:
        return _TensorColumn(name, dtype, (None, *inner), ragged, rows)
    if ragged > 1 or strings:
        raise OptionError(
            f"column {name!r}: only rows of numbers are filled up; use ragged=True, or "
            "pad it with map"
        )
    return _TensorColumn(name, dtype, (rows, None, *inner), padded=True)


def _array_generator(feed: Feed, columns: list[_TensorColumn], in_blocks: bool) -> Any:
    """Return a generator function that yields a tuple of arrays for each batch or block."""

    def arrays(batch: dict[str, Any]) -> tuple[npt.NDArray[Any], ...]:
        each = (array for column in columns for array in column.arrays(batch[column.name]))
        return tuple(aligned(array) for array in each)

    def generate() -> Iterator[tuple[npt.NDArray[Any], ...]]:
        feed.warn_if_unsharded()
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


@dataclass(frozen=True)
class _TensorColumn:
    """How to pass a column of batches, or a value of rows, as a dense or ragged tensor."""

    name: str
    dtype: Any
    #: Shape of the tensor, or of the values of a ragged one. None is an axis of any length.
    shape: tuple[int | None, ...]
    #: Number of ragged axes of the tensor.
    ragged: int = 0
    #: Rows per batch of a ragged column, if all batches have the same number.
    rows: int | None = None
    #: Whether the column is ragged and gets padded to a dense tensor.
    padded: bool = False

    def specs(self) -> list[Any]:
        """Return the specs of the arrays that ``arrays`` returns."""
        splits = [tf.TensorSpec((None,), tf.int64)] * self.ragged
        if self.ragged and self.rows is not None:
            splits[0] = tf.TensorSpec((self.rows + 1,), tf.int64)
        return [tf.TensorSpec(self.shape, self.dtype), *splits]

    def arrays(self, value: Any) -> list[npt.NDArray[Any]]:
        """Return the arrays that represent a column, or the value of a row."""
        if isinstance(value, bytes | str):
            return [np.array(value if isinstance(value, bytes) else value.encode(), object)]
        if self.padded:
            value = value.pad()
        splits = []
        for _ in range(self.ragged):
            splits.append(value.offsets - value.offsets[0])
            value = value.flat
        if isinstance(value, Ragged):
            return [_strings(value, self.shape), *splits]
        return [as_native(self.name, np.asarray(value)), *splits]

    def tensor(self, arrays: Iterator[Any]) -> Any:
        """Make the tensor from the next arrays, taking as many as it needs."""
        values = next(arrays)
        splits = [next(arrays) for _ in range(self.ragged)]
        if not splits:
            return values
        return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)


def _layout(
    name: str, sample: Any, field: Field | None
) -> tuple[Any, int, tuple[int | None, ...], bool]:
    """Return the dtype of a column, its ragged axes below the rows, and the axes of fixed length.

    They are those of a sample, and of the field where it says more. The last value says whether
    the column holds strings.
    """
    depth, inside = 0, sample
    while isinstance(inside, Ragged) and not inside.is_bytes:
        depth, inside = depth + 1, inside.values
    if not isinstance(inside, Ragged):
        return _tf_dtype(name, inside.dtype), depth, _inner_axes(inside, field, depth), False
    if field is not None and depth == len(field.inner):
        # Byte strings along fixed axes are stored as ragged columns.
        return tf.string, 0, field.inner, True
    return tf.string, depth, (), True


def _inner_axes(
    values: npt.NDArray[Any], field: Field | None, depth: int
) -> tuple[int | None, ...]:
    """Return the axes below the rows and the ragged axes.

    If the field fits, its axes are used: a column padded to the longest row has an axis of any
    length, which a sample cannot show.
    """
    seen = values.shape[1:]
    if field is None or len(field.shape) - depth != len(seen):
        return seen
    declared = field.shape[depth:]
    fits = all(a is None or a == b for a, b in zip(declared, seen, strict=True))
    return declared if fits else seen


def _tf_dtype(name: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "mM":
        return tf.int64
    try:
        return tf.as_dtype(dtype if dtype.kind == "V" else dtype.newbyteorder("="))
    except TypeError as e:
        raise unknown_dtype(name, "TensorFlow", dtype) from e


def _strings(column: Column, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    inside = column
    while isinstance(inside, Ragged) and not inside.is_bytes:
        inside = inside.flat
    assert isinstance(inside, Ragged)
    strings = np.empty(len(inside), object)
    strings[:] = list(as_strings_of(_BYTES, inside))  # what TensorFlow would make of text
    return strings.reshape([-1 if axis is None else axis for axis in shape])


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array, or a copy that begins on a cache line if that is faster.

    A tensor shares the memory of an array that begins on a cache line. TensorFlow copies any
    other array into fresh memory while holding the GIL; copying into reused memory takes less
    than half as long.
    """
    if array.nbytes < _SMALL or array.dtype.hasobject:
        return array
    if array.flags.c_contiguous and array.ctypes.data % _CACHE_LINE == 0:
        return array
    copy = empty(array.shape, array.dtype, smallest=_SMALL)
    np.copyto(copy, array)
    return copy


def join_neighbours(batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield runs of batches that are adjacent slices of the same arrays as one block, uncopied.

    A block is yielded as soon as its arrays end, so no batch waits for one that is still to be
    read. Other batches are yielded unchanged.
    """
    block: _ArraySpan | None = None
    for batch in batches:
        span = _find_span(batch)
        if block is not None and span is not None and block.continues_with(span):
            block = replace(block, stop=span.stop)
        else:
            if block is not None:
                yield block.rows()
            block = span
        if span is None:
            yield batch
        elif span.at_end:
            assert block is not None
            yield block.rows()
            block = None
    if block is not None:
        yield block.rows()


@dataclass(frozen=True)
class _ArraySpan:
    """Rows ``start`` to ``stop`` of arrays. Each array comes with the shape of one row."""

    arrays: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]]
    start: int
    stop: int

    @property
    def at_end(self) -> bool:
        """Whether the arrays end with this span."""
        return all(a.size == self.stop * math.prod(row) for a, row in self.arrays.values())

    def continues_with(self, other: _ArraySpan) -> bool:
        same_arrays = all(
            name in self.arrays and self.arrays[name][0] is array
            for name, (array, _) in other.arrays.items()
        )
        return same_arrays and other.start == self.stop

    def rows(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self._slice(array, row) for name, (array, row) in self.arrays.items()}

    def _slice(self, array: npt.NDArray[Any], row: tuple[int, ...]) -> npt.NDArray[Any]:
        items = math.prod(row)
        flat = array.reshape(-1)[self.start * items : self.stop * items]
        return flat.reshape(self.stop - self.start, *row)


def _find_span(batch: dict[str, Any]) -> _ArraySpan | None:
    """Find the span of a batch, if all its columns are the same rows of larger arrays."""
    arrays = {}
    spans = set()
    for name, column in batch.items():
        whole = column.base if isinstance(column, np.ndarray) else None
        if not isinstance(whole, np.ndarray) or not _is_slice(column, whole):
            return None
        start, rest = divmod(column.ctypes.data - whole.ctypes.data, column.strides[0])
        if rest:
            return None
        arrays[name] = whole, column.shape[1:]
        spans.add((start, start + len(column)))
    if len(spans) != 1:
        return None
    return _ArraySpan(arrays, *spans.pop())


def _is_slice(column: npt.NDArray[Any], whole: npt.NDArray[Any]) -> bool:
    contiguous = column.flags.c_contiguous and whole.flags.c_contiguous
    return contiguous and column.dtype == whole.dtype and column.size > 0


def feature_spec(
    schema: Mapping[str, FieldLike], encoding: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the features that ``tf.io.parse_example`` needs for records of a schema.

    The records are assumed to be as recmap writes them. If you wrote them with an ``encoding``,
    give the same one here. Fields stored as raw bytes, such as ``uint8`` images, are parsed as
    strings for ``tf.io.decode_raw``.
    """
    given = encoding or {}
    features = {}
    for name, field in Schema(schema).items():
        chosen = choose_encoding(name, field, given.get(name))
        if field.nullable:
            raise OptionError(
                f"field {name!r}: {field}: TensorFlow has no nulls; say what it reads where the "
                f"feature is missing, such as {_without_nulls(field)!r}"
            )
        if chosen.in_lists:
            raise OptionError(
                f"column {name!r}: {field} is a feature list, which tf.io.parse_example does not "
                "read; `recmap schema FILE --as tf` prints code that does"
            )
        features[name] = _feature(parsing_of(field, chosen.kind, in_lists=False))
    return features


def _without_nulls(field: Field) -> str:
    plain = field.without_nulls()
    return str(plain if field.ragged or field.is_bytes else replace(plain, fill=0))


def _feature(parsing: Parsing) -> Any:
    shape, dtype = list(parsing.shape), _LIST_DTYPES[parsing.kind]
    if parsing.form == "fixed":
        return tf.io.FixedLenFeature(shape, dtype, parsing.default)
    sizes = [tf.io.RaggedFeature.UniformRowLength(axis) for axis in shape]
    return tf.io.RaggedFeature(dtype, partitions=sizes)
