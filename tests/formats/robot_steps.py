"""Steps of episodes, as robots record them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import recmap as rm

__all__ = ["FPS", "LENGTHS", "STEPS", "TASKS", "TOP", "WRIST", "columns", "encoded", "pixels_of"]

Image = pytest.importorskip("PIL.Image")

LENGTHS, FPS = (5, 1, 9, 3), 10
TASKS = ("pick the cube", "räum auf", "pick the cube", "stop")
TOP, WRIST = "observation/images/top", "observation/images/wrist"
STEPS = sum(LENGTHS)


def encoded(pixels: Any, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def columns(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """Return steps of episodes as RLDS has them."""
    rng = np.random.default_rng(1)
    count = sum(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    pixels = rng.integers(0, 256, (count, 8, 12, 3), "uint8")
    return {
        "episode": episode,
        "step": np.concatenate([np.arange(n) for n in lengths]),
        "observation/state": rng.random((count, 3)).astype("float32"),
        TOP: rm.Ragged.from_bytes([encoded(each) for each in pixels]),
        WRIST: rm.Ragged.from_bytes([encoded(each, "JPEG") for each in pixels[:, :4, :4]]),
        "action": rng.random((count, 2)),
        "grid": rng.integers(-9, 9, (count, 2, 3)),
        "reward": rng.random(count).astype("float32"),
        "is_terminal": rng.integers(0, 2, count).astype(bool),
        "note": rm.Ragged.from_text([f"n{'ü' * (i % 3)}" for i in range(count)]),
        "language_instruction": rm.Ragged.from_text([TASKS[i % len(TASKS)] for i in episode]),
    }


def pixels_of(data: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(data)))
