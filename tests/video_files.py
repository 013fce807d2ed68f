"""Videos whose frames tell their number, written with the encoder of TorchCodec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

#: Frames are 64 x 64; numbers are stored in blocks that survive compression.
SIDE, BLOCK = 64, 16


def pictures(count: int, first: int = 0) -> Any:
    """Return frames whose 16 blocks are the bits of their numbers, black or white."""
    numbers = np.arange(first, first + count)
    bits = (numbers[:, None] >> np.arange(16)) & 1
    blocks = np.where(bits, 235, 20).astype(np.uint8).reshape(count, 4, 4)
    image = blocks.repeat(BLOCK, axis=1).repeat(BLOCK, axis=2)
    return np.repeat(image[..., None], 3, axis=3)


def numbers_in(frames: Any) -> list[int]:
    """Return the numbers of frames, of any size."""
    side = frames.shape[-3] // 4
    middle = frames[:, side // 2 :: side, side // 2 :: side, 1].reshape(len(frames), 16) > 128
    return [int(row @ (1 << np.arange(16))) for row in middle]


def video(count: int, first: int = 0, rate: int = 10, kind: str = "mp4") -> bytes:
    """Return a video of such frames; the test is left out without FFmpeg."""
    torch = pytest.importorskip("torch")
    try:
        from torchcodec.encoders import VideoEncoder
    except (ImportError, OSError, RuntimeError):
        pytest.skip("FFmpeg's shared libraries were not found (on Debian: ffmpeg)")
    frames = torch.from_numpy(pictures(count, first)).permute(0, 3, 1, 2).contiguous()
    encoder = VideoEncoder(frames, frame_rate=rate)
    encoded = encoder.to_tensor(format=kind, extra_options={"g": "4"})
    return bytes(encoded.numpy())
