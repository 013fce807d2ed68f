"""SPDL: images decoded and resized in the threads of its pipeline."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks import resized
from benchmarks.timing import Clock, Measure

# Imported by name, because they have no types.
spdl: Any = importlib.import_module("spdl.pipeline")
pillow: Any = importlib.import_module("PIL.Image")

__all__ = ["JOBS"]


def decoders(folder: str) -> Measure:
    """Decode one file with SPDL's own decoder; ``rows`` is 0 if it cannot.

    It is a package for some machines, and loads the FFmpeg of the system.
    """
    first = str(min(Path(folder).glob("*.jpg")))
    try:
        _load_with_ffmpeg([first], 8)
    except (ImportError, RuntimeError):
        return Measure(0, 0)
    return Measure(0, 1)


def images(folder: str, batch: int, size: int, ffmpeg: bool, check: bool = False) -> Measure:
    """Decode and resize files, a batch in each thread."""
    load = _load_with_ffmpeg if ffmpeg else _load_with_pillow
    rows, total = 0, 0.0
    with Clock() as clock:
        pipeline = _pipeline(folder, batch, size, load)
        with pipeline.auto_stop():
            for values in pipeline:
                rows += len(values)
                if check:
                    total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


def _pipeline(folder: str, batch: int, size: int, load: Callable[[list[str], int], Any]) -> Any:
    threads = os.cpu_count() or 1
    files = sorted(str(file) for file in Path(folder).glob("*.jpg"))
    builder = spdl.PipelineBuilder().add_source(files).aggregate(batch)
    builder = builder.pipe(lambda some: load(some, size), concurrency=threads)
    return builder.add_sink(threads).build(num_threads=threads)


def _load_with_ffmpeg(files: list[str], size: int) -> Any:
    decoder: Any = importlib.import_module("spdl.io")
    # Without a filter of our own, images keep their proportions and get black edges.
    stretched = decoder.get_video_filter_desc(
        scale_width=size, scale_height=size, scale_algo="bilinear", scale_mode=None, pix_fmt="rgb24"
    )
    buffer = decoder.load_image_batch(files, width=None, height=None, filter_desc=stretched)
    return decoder.to_numpy(buffer).astype(np.float32)


def _load_with_pillow(files: list[str], size: int) -> Any:
    encoded = [Path(file).read_bytes() for file in files]
    return np.stack([resized(pillow.open(io.BytesIO(image)), size) for image in encoded])


JOBS = {"decoders": decoders, "images": images}
