"""simplejpeg: JPEGs decoded in threads, cropped and resized by Pillow."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

import recmap as rm
from benchmarks.tasks import random_box
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]


def crops(path: str, batch: int, size: int) -> Measure:
    """Crop every image at random, and mirror every other one."""
    rng = np.random.default_rng(0)
    with Clock() as clock, ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = 0
        for columns in rm.open(path).batch(batch):
            work = [(image, size, rng.spawn(1)[0]) for image in columns["image"]]
            rows += len(np.stack(list(pool.map(_cropped, *zip(*work, strict=True)))))
    return Measure(clock.seconds, rows)


def _cropped(data: bytes, size: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    pixels = simplejpeg.decode_jpeg(data)
    top, left, height, width = random_box(pixels.shape[0], pixels.shape[1], rng)
    part = Image.fromarray(pixels).resize(
        (size, size), Image.Resampling.BILINEAR, (left, top, left + width, top + height)
    )
    made = np.asarray(part)
    return made[:, ::-1] if rng.random() < 0.5 else made


JOBS = {"crops": crops}
