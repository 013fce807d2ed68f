"""Work that is the same for every entrant: augment an image, sum or gather a column, hash
a batch.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.timing import Clock, Measure

__all__ = [
    "CROP",
    "SHAPE",
    "augment",
    "batch_hash",
    "copy_all",
    "drop_from_cache",
    "for_some_time",
    "gather_in_batches",
    "hash_weights",
    "resized",
    "sum_in_batches",
]

SHAPE = (128, 128, 3)
CROP = 112
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
# PIL.Image.Resampling.BILINEAR
_BILINEAR = 2
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def augment(image: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Crop an image, perhaps flip it, add noise, and normalise it."""
    top, left = rng.integers(0, SHAPE[0] - CROP + 1, 2)
    part = image[top : top + CROP, left : left + CROP]
    if rng.random() < 0.5:
        part = part[:, ::-1]
    noise = rng.standard_normal(part.shape, np.float32) * np.float32(0.1)
    normal: npt.NDArray[Any] = (np.clip(part + noise, 0, 1) - _MEAN) / _DEVIATION
    return normal


def sum_in_batches(column: Any, batch: int) -> Measure:
    """Sum all rows, batch by batch."""
    total = 0.0
    with Clock() as clock:
        for begin in range(0, len(column), batch):
            total += float(column[begin : begin + batch].sum())
    return Measure(clock.seconds, len(column), total)


def gather_in_batches(column: Any, batch: int) -> Measure:
    """Gather all rows in random order, batch by batch."""
    order = np.random.default_rng(1).permutation(len(column))
    first = 0.0
    with Clock() as clock:
        for begin in range(0, len(column), batch):
            first += float(column[order[begin : begin + batch]][0, 0])
    return Measure(clock.seconds, len(column), first)


def drop_from_cache(path: str) -> None:
    """Drop the pages of a file from memory, so that the next read is from disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def for_some_time(batches: Iterable[npt.NDArray[Any]], seconds: float) -> Measure:
    """Take batches of shuffled rows for so long. Each row begins with its number."""
    numbers = []
    begin = time.perf_counter()
    for batch in batches:
        numbers.append(np.array(batch[:, 0]))
        spent = time.perf_counter() - begin
        if spent > seconds:
            break
    else:
        raise ValueError("the file is too small for so many seconds")
    seen = np.concatenate(numbers)
    if len(np.unique(seen)) < len(seen):
        raise ValueError("a row came twice")
    return Measure(spent, len(seen))


def copy_all(batches: Iterable[npt.NDArray[Any]]) -> int:
    """Copy each batch into the same memory, and return the number of rows."""
    rows, place = 0, np.empty(0)
    for batch in batches:
        if place.dtype != batch.dtype or len(place) < len(batch):
            place = np.empty_like(batch)
        np.copyto(place[: len(batch)], batch)
        rows += len(batch)
    return rows


def random_box(height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Choose a part of an image as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    return 0, 0, height, width


def resized(image: Any, size: int) -> npt.NDArray[Any]:
    """Resize an image of Pillow, antialiased, to a square of float32."""
    small = image.convert("RGB").resize((size, size), _BILINEAR)
    return np.asarray(small).astype(np.float32)


@functools.lru_cache(maxsize=2)
def hash_weights(count: int) -> npt.NDArray[np.int32]:
    """Return a number per value of a batch, to multiply it with."""
    return np.random.default_rng(2).integers(-(1 << 31), 1 << 31, count).astype(np.int32)


def batch_hash(batch: npt.NDArray[Any]) -> int:
    """Return a number of 32 bits that changes if values change or trade places.

    It is the sum of the bits of each value, as a number, times its weight; a GPU adds it up in
    any order.
    """
    flat = np.ascontiguousarray(batch).reshape(-1).view(np.int32)
    return int(np.dot(flat, hash_weights(flat.size))) & 0xFFFFFFFF
