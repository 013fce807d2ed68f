"""A typical augmentation: a NumPy function of one image, the same for all entrants."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CROP", "SHAPE", "augment"]

SHAPE = (128, 128, 3)
CROP = 112
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
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
