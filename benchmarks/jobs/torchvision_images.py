"""torchvision: JPEGs decoded and cropped in threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

import recmap as rm
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]


def crops(path: str, batch: int, size: int) -> Measure:
    """Crop every image at random, and mirror every other one."""
    torch.set_num_threads(1)  # threads of our own take whole images
    change = v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()])

    def cropped(data: bytes) -> torch.Tensor:
        pixels = decode_jpeg(torch.from_numpy(np.frombuffer(data, np.uint8)), ImageReadMode.RGB)
        made: torch.Tensor = change(pixels)
        return made

    with Clock() as clock, ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = 0
        for columns in rm.open(path).batch(batch):
            rows += len(torch.stack(list(pool.map(cropped, columns["image"]))))
    return Measure(clock.seconds, rows)


JOBS = {"crops": crops}
