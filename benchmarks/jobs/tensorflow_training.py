"""tf.data feeds a training loop: as answers on the web do it, and tuned."""

from __future__ import annotations

import functools
import glob
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.tasks import CROP, augment
from benchmarks.timing import Clock, Measure, fastest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# TensorFlow has no types. Imported by name, it is Any for every type checker.
tf: Any = importlib.import_module("tensorflow")

__all__ = ["JOBS"]

# The buffer size that questions on the web use.
_SHUFFLE = 10_000
_BUFFER = 8 << 20
# Datasets are tuned on this many batches.
_TRIAL = 32


def train_generator(path: str, batch: int, rows: int, check: bool = False) -> Measure:
    """Read a memmap through a generator and a shuffle buffer, in batches."""
    return _epoch(_generated(path, batch, rows), check)


def train_gather(path: str, batch: int, check: bool = False) -> Measure:
    """Shuffle with a permutation in memory; parallel NumPy calls gather one batch each."""
    return _epoch(_gathered(path, batch), check)


# Datasets live as long as their process, as in training.
@functools.cache
def _generated(path: str, batch: int, rows: int) -> Any:
    values = np.load(path, mmap_mode="r")[:rows]

    def generate() -> Iterator[Any]:
        yield from values

    spec = tf.TensorSpec(values.shape[1:], tf.float32)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    return dataset.shuffle(_SHUFFLE).batch(batch).prefetch(tf.data.AUTOTUNE)


@functools.cache
def _gathered(path: str, batch: int) -> Any:
    values = np.load(path, mmap_mode="r")
    order = np.random.default_rng(1).permutation(len(values))

    def gather(step: Any) -> Any:
        return values[order[step * batch : (step + 1) * batch]]

    def call(step: Any) -> Any:
        rows = tf.numpy_function(gather, [step], tf.float32)
        return tf.ensure_shape(rows, [None, *values.shape[1:]])

    steps = tf.data.Dataset.range(-(-len(values) // batch))
    return steps.map(call, num_parallel_calls=2).prefetch(2)


def _epoch(dataset: Any, check: bool) -> Measure:
    with Clock() as clock:
        got, total = _consume(dataset, check)
    return Measure(clock.seconds, got, total if check else None)


def pad(path: str, batch: int, rows: int, check: bool = False) -> Measure:
    """Parse whole batches in parallel, with the settings that are fastest on this machine."""
    return _padded_pass(_tuned(path, batch)(rows), check)


def pad_shuffled(path: str, batch: int, rows: int, check: bool = False) -> Measure:
    """Do the same with many files, several at a time, through a shuffle buffer."""
    return _padded_pass(_tuned(path, batch, shuffled=True)(rows), check)


@functools.cache
def _tuned(path: str, batch: int, shuffled: bool = False) -> Callable[[int], Any]:
    plans = [
        functools.partial(_padded, path, batch, parser, buffer, parallel, shuffled)
        for parser in (_parse_ragged, _parse_sparse)
        for buffer in (None, _BUFFER)
        for parallel in (None, tf.data.AUTOTUNE)
    ]
    return fastest(plans, lambda plan: _padded_pass(plan(batch * _TRIAL)))


def _padded(
    path: str,
    batch: int,
    parser: Callable[[Any], Any],
    buffer: int | None,
    parallel: int | None,
    shuffled: bool,
    rows: int,
) -> Any:
    if shuffled:
        files = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(path)))
        records = files.interleave(
            functools.partial(tf.data.TFRecordDataset, buffer_size=buffer),
            cycle_length=16,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )
        records = records.shuffle(_SHUFFLE).take(rows)
    else:
        records = tf.data.TFRecordDataset(path, buffer_size=buffer).take(rows)
    batches = records.batch(batch, num_parallel_calls=parallel)
    return batches.map(parser, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _parse_ragged(records: Any) -> Any:
    spec = {"tokens": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)}
    return tf.io.parse_example(records, spec)["tokens"].to_tensor()


def _parse_sparse(records: Any) -> Any:
    spec = {"tokens": tf.io.VarLenFeature(tf.int64)}
    return tf.sparse.to_dense(tf.io.parse_example(records, spec)["tokens"])


def _padded_pass(dataset: Any, check: bool = False) -> Measure:
    with Clock() as clock:
        rows, total = _consume(dataset, check)
    return Measure(clock.seconds, rows, total if check else None)


def augmented(path: str, batch: int) -> Measure:
    """Apply a NumPy function to each row in parallel calls, then batch."""
    rng = np.random.default_rng(0)
    with Clock() as clock:
        values = np.load(path, mmap_mode="r")

        def call(row: Any) -> Any:
            made = tf.numpy_function(lambda i: augment(values[i], rng), [row], tf.float32)
            return tf.ensure_shape(made, [CROP, CROP, 3])

        dataset = tf.data.Dataset.range(len(values)).map(call, num_parallel_calls=2)
        rows, _ = _consume(dataset.batch(batch).prefetch(2), check=False)
    return Measure(clock.seconds, rows)


def images(path: str, batch: int, size: int, antialias: bool, check: bool = False) -> Measure:
    """Parse, decode and resize records in parallel calls, then batch."""

    def decode(record: Any) -> Any:
        spec = {"image": tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_single_example(record, spec)["image"]
        pixels = tf.io.decode_jpeg(encoded, channels=3)
        return tf.image.resize(pixels, [size, size], antialias=antialias)

    with Clock() as clock:
        dataset = tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        rows, total = _consume(dataset.batch(batch).prefetch(tf.data.AUTOTUNE), check)
    return Measure(clock.seconds, rows, total if check else None)


def crops(path: str, batch: int, size: int) -> Measure:
    """Decode a random crop of each image, resize it, and mirror every other one."""
    box = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])

    def decode(record: Any) -> Any:
        spec = {"image": tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_single_example(record, spec)["image"]
        begin, extent, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded),
            box,
            min_object_covered=0,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1),
            max_attempts=10,
        )
        window = tf.concat([begin[:2], extent[:2]], 0)
        pixels = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        pixels = tf.image.random_flip_left_right(tf.image.resize(pixels, [size, size]))
        return tf.cast(pixels, tf.uint8)

    with Clock() as clock:
        dataset = tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        rows, _ = _consume(dataset.batch(batch).prefetch(tf.data.AUTOTUNE), check=False)
    return Measure(clock.seconds, rows)


def _consume(dataset: Any, check: bool) -> tuple[int, float]:
    rows, total = 0, 0.0
    for batch in dataset:
        rows += int(batch.shape[0])
        if check:
            total += float(batch.numpy().sum(dtype=np.float64))
    return rows, total


JOBS = {
    "augmented": augmented,
    "crops": crops,
    "images": images,
    "pad": pad,
    "pad_shuffled": pad_shuffled,
    "train_gather": train_gather,
    "train_generator": train_generator,
}
