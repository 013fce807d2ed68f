"""recmap pipelines that feed a training loop, as NumPy batches and through the adapters."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.memory_watch import MemoryWatch
from benchmarks.tasks import augment, copy_all, drop_from_cache, for_some_time
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]


def train(
    path: str,
    batch: int,
    column: str = "data",
    cache: str | None = None,
    alone: bool = False,
    check: bool = False,
) -> Measure:
    """Run an epoch of exactly shuffled batches; ``cache`` is the memory of ``cache()``.

    A column that is ``alone`` is read without the others.
    """
    pipeline = _shuffled(path, batch, cache, column if alone else None)
    with Clock() as clock:
        rows, total = _consume(pipeline, column, check)
    return Measure(clock.seconds, rows, total if check else None)


def shuffle_larger(path: str, batch: int, seconds: float, watch: bool = False) -> Measure:
    """Take shuffled batches of a file that is not cached, for some time."""
    drop_from_cache(path)
    batches = (columns["data"] for columns in rm.open(path).shuffle(seed=1).batch(batch))
    if not watch:
        return for_some_time(batches, seconds)
    with MemoryWatch() as memory:
        run = for_some_time(batches, seconds)
    return replace(run, peak=memory.peak)


def read_larger(path: str, batch: int) -> Measure:
    """Open a file that is not cached, and read all of it in batches."""
    drop_from_cache(path)
    return read_copies(path, batch)


def read_copies(path: str, batch: int, column: str = "data") -> Measure:
    """Open a file and copy all batches, which may be views of the file."""
    with Clock() as clock:
        rows = copy_all(columns[column] for columns in rm.open(path).batches(batch))
    return Measure(clock.seconds, rows)


def convert(source: str, path: str) -> Measure:
    """Convert a file to one that others read."""
    with Clock() as clock:
        report = rm.convert(source, path, progress=False)
    return Measure(clock.seconds, report.rows)


@functools.cache
def _shuffled(path: str, batch: int, cache: str | None, column: str | None) -> rm.Stream:
    ds = rm.open(path) if column is None else rm.open(path, [column])
    if cache is not None:
        ds = ds.cache(memory=cache)
    return ds.shuffle(seed=1).batch(batch)


def pad(path: str, batch: int, column: str | None = None, check: bool = False) -> Measure:
    """Read all sequences in batches, padded to the longest of each; ``column`` opens the file
    as a column of that name.
    """
    with Clock() as clock:
        dataset = rm.open(path if column is None else {column: path})
        rows, total = _consume(dataset.batch(batch, pad="longest"), column or "tokens", check)
    return Measure(clock.seconds, rows, total if check else None)


def pad_again(path: str, batch: int, check: bool = False) -> Measure:
    """Do the same with a file that was opened before, and read once."""
    pipeline = _padded(path, batch)
    with Clock() as clock:
        rows, total = _consume(pipeline, "tokens", check)
    return Measure(clock.seconds, rows, total if check else None)


@functools.cache
def _padded(path: str, batch: int) -> rm.Stream:
    pipeline = rm.open(path).batch(batch, pad="longest")
    _consume(pipeline, "tokens", check=False)
    return pipeline


def pad_shuffled(path: str, batch: int, check: bool = False) -> Measure:
    """Do the same with many files, all rows in random order."""
    with Clock() as clock:
        pipeline = rm.open(path).shuffle(seed=1).batch(batch, pad="longest")
        rows, total = _consume(pipeline, "tokens", check)
    return Measure(clock.seconds, rows, total if check else None)


def augmented(path: str, batch: int, workers: int) -> Measure:
    """Open a file and read all of it in batches of augmented images."""
    with Clock() as clock:
        pipeline = rm.open(path).map(_augmented, workers=workers).batch(batch)
        rows, _ = _consume(pipeline, "image", check=False)
    return Measure(clock.seconds, rows)


def augmented_again(path: str, batch: int, workers: int) -> Measure:
    """Do the same with workers that run already: time the second of two epochs."""
    dataset = rm.open(path)
    batches = iter(dataset.map(_augmented, workers=workers).batch(batch).repeat(2))
    _consume(itertools.islice(batches, -(-len(dataset) // batch)), "image", check=False)
    with Clock() as clock:
        rows, _ = _consume(batches, "image", check=False)
    return Measure(clock.seconds, rows)


def _augmented(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"image": augment(row["data"], rng)}


def make_images(
    path: str, rows: int, width: int, height: int, different: int | None = None
) -> Measure:
    """Make JPEGs like photographs: large shapes, some detail, a little noise.

    With ``different``, the first so many are repeated.
    """
    pillow = importlib.import_module("PIL.Image")
    rng = np.random.default_rng(0)
    with Clock() as clock, rm.TFRecordWriter(path) as writer:
        made = [_photograph(pillow, rng, width, height) for _ in range(different or rows)]
        writer.write({"image": [made[i % len(made)] for i in range(rows)]})
    return Measure(clock.seconds, rows)


def _photograph(pillow: Any, rng: np.random.Generator, width: int, height: int) -> bytes:
    layers = [
        np.asarray(
            pillow.fromarray(rng.integers(0, 256, (n, n, 3), np.uint8)).resize((width, height)),
            np.float32,
        )
        for n in (6, 48)
    ]
    noise = rng.normal(0, 4, layers[0].shape)
    pixels = np.clip(0.7 * layers[0] + 0.3 * layers[1] + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, "JPEG", quality=85)
    return file.getvalue()


def export_images(path: str, folder: str) -> Measure:
    """Write the images of a TFRecord file to files of their own."""
    os.mkdir(folder)
    with Clock() as clock:
        images: Any = rm.open(path)["image"][:]
        for i, image in enumerate(images):
            Path(folder, f"{i:06}.jpg").write_bytes(image)
    return Measure(clock.seconds, len(images))


def images(
    path: str, batch: int, size: int, dtype: str = "float32", check: bool = False
) -> Measure:
    """Read all images in batches, decoded."""
    with Clock() as clock:
        pipeline = rm.open(path).decode_image("image", (size, size), dtype=dtype).batch(batch)
        rows, total = _consume(pipeline, "image", check)
    return Measure(clock.seconds, rows, total if check else None)


def crops(path: str, batch: int, size: int, fast: bool = False) -> Measure:
    """Read a random crop of every image, mirrored at random."""
    options: dict[str, Any] = {"crop": "random_resized", "flip": True, "dtype": "uint8"}
    with Clock() as clock:
        pipeline = rm.open(path).decode_image("image", size, fast=fast, **options).batch(batch)
        rows, _ = _consume(pipeline, "image", check=False)
    return Measure(clock.seconds, rows)


def crops_of_arrays(path: str, batch: int, layout: str) -> Measure:
    """Run an epoch of random crops of images that are arrays, mirrored at random."""
    pipeline = _cropped(path, batch, layout)
    with Clock() as clock:
        rows, _ = _consume(pipeline, "data", check=False)
    return Measure(clock.seconds, rows)


@functools.cache
def _cropped(path: str, batch: int, layout: Any) -> rm.Stream:
    options: dict[str, Any] = {"crop": "random", "flip": True, "dtype": "uint8"}
    shuffled = rm.open(path).shuffle(seed=1)
    return shuffled.decode_image("data", 224, layout=layout, **options).batch(batch)


def _consume(batches: Iterable[dict[str, Any]], name: str, check: bool) -> tuple[int, float]:
    rows, total = 0, 0.0
    for batch in batches:
        rows += len(batch[name])
        if check:
            total += float(batch[name].sum(dtype=np.float64))
    return rows, total


def plain_iterator(path: str, batch: int) -> Measure:
    """Run an epoch of NumPy batches."""
    return _epoch(path, batch, iter)


def to_torch(path: str, batch: int) -> Measure:
    """Run an epoch of PyTorch tensors."""
    return _epoch(path, batch, lambda pipeline: pipeline.to_torch())


def to_tf(path: str, batch: int) -> Measure:
    """Run an epoch of TensorFlow tensors."""
    return _epoch(path, batch, lambda pipeline: pipeline.to_tf())


def _epoch(path: str, batch: int, adapt: Callable[[Any], Iterable[dict[str, Any]]]) -> Measure:
    """Run one epoch. Datasets are made before the clock starts, as in training."""
    batches, rows = adapt(rm.open(path).shuffle(seed=1).batch(batch)), 0
    with Clock() as clock:
        for columns in batches:
            rows += columns["data"].shape[0]
    return Measure(clock.seconds, rows)


JOBS = {
    "augmented": augmented,
    "augmented_again": augmented_again,
    "crops": crops,
    "crops_of_arrays": crops_of_arrays,
    "export_images": export_images,
    "images": images,
    "make_images": make_images,
    "pad": pad,
    "pad_again": pad_again,
    "pad_shuffled": pad_shuffled,
    "plain_iterator": plain_iterator,
    "shuffle_larger": shuffle_larger,
    "read_larger": read_larger,
    "read_copies": read_copies,
    "convert": convert,
    "to_tf": to_tf,
    "to_torch": to_torch,
    "train": train,
}
