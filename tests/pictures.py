"""Pictures to encode and decode."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["LOSSLESS", "detailed", "encoded", "picture"]

LOSSLESS: dict[str, dict[str, Any]] = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True}}


def picture(height: int = 48, width: int = 64, channels: int = 3) -> npt.NDArray[np.uint8]:
    """Make a smooth picture, which lossy encodings and resizing change little."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = [np.sin(3 * x + k) + np.cos(4 * y - k) for k in range(channels)]
    made = ((np.stack(waves, -1) + 2) * 63).astype(np.uint8)
    return made[..., 0] if channels == 1 else made


def encoded(pixels: Any, format: str, **options: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, format, **LOSSLESS.get(format, {}) | options)
    return file.getvalue()


def detailed(height: int, width: int, channels: int = 3) -> npt.NDArray[np.uint8]:
    """Make a picture with sharp edges and noise, which reveal a poor filter."""
    rng = np.random.default_rng(height * width)
    shape = (height // 8 + 1, width // 8 + 1, channels)
    tiles = np.kron(rng.integers(0, 256, shape), np.ones((8, 8, 1)))[:height, :width]
    noise = rng.integers(0, 256, (height, width, channels))
    return np.where(noise[..., :1] < 128, tiles, noise).astype(np.uint8)
