"""What crops and mirrored images have to be, by NumPy and Pillow."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Box = tuple[int, int, int, int]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


# The random numbers, drawn by NumPy.


class RowNumbers:
    """The random numbers of a row, as documented: blocks of four by Philox."""

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        key = np.random.SeedSequence([seed, 0, zlib.crc32(b"image")]).generate_state(2, np.uint64)
        made = np.random.Philox(key=key, counter=[0, 0, position, epoch]).random_raw(44)
        self.blocks = (made >> np.uint64(11)).reshape(-1, 4) * 2.0**-53

    def flips(self) -> bool:
        return bool(self.blocks[0][0] < 0.5)

    def resized(self, height: int, width: int, scale: Any = SCALE, ratio: Any = RATIO) -> Box:
        """torchvision.transforms.RandomResizedCrop.get_params."""
        for area, shape, down, across in self.blocks[1:]:
            target = height * width * (scale[0] + area * (scale[1] - scale[0]))
            least, most = math.log(ratio[0]), math.log(ratio[1])
            aspect = math.exp(least + shape * (most - least))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= width and 0 < h <= height:
                return int(down * (height - h + 1)), int(across * (width - w + 1)), h, w
        w, h = width, height
        if width / height < ratio[0]:
            h = min(height, max(1, round(width / ratio[0])))
        elif width / height > ratio[1]:
            w = min(width, max(1, round(height * ratio[1])))
        return (height - h) // 2, (width - w) // 2, h, w

    def window(self, height: int, width: int, size: tuple[int, int]) -> Box:
        h, w = size
        if h > height or w > width:
            by = min(height / h, width / w)
            h, w = min(height, max(1, round(h * by))), min(width, max(1, round(w * by)))
        down, across = self.blocks[1][2:]
        return int(down * (height - h + 1)), int(across * (width - w + 1)), h, w


def middle(height: int, width: int, size: tuple[int, int], part: float = 224 / 256) -> Box:
    by = part * min(height / size[0], width / size[1])
    h, w = (min(have, max(1, round(each * by)))
            for each, have in zip(size, (height, width), strict=True))  # fmt: skip
    return (height - h) // 2, (width - w) // 2, h, w


def expected_box(crop: Any, numbers: RowNumbers, shape: Any, size: tuple[int, int]) -> Box:
    height, width = shape[:2]
    if crop is None:
        return 0, 0, height, width
    if crop == "random":
        return numbers.window(height, width, size)
    if crop == "center":
        return middle(height, width, size)
    if crop == "random_resized":
        return numbers.resized(height, width)
    if "center" in crop:
        return middle(height, width, size, crop["center"])
    return numbers.resized(height, width, crop.get("scale", SCALE), crop.get("ratio", RATIO))


def expected_image(pixels: npt.NDArray[np.uint8], box: Box, size: Any, flip: bool) -> Any:
    """Crop and resize with Pillow: its bilinear filter, antialiased, channel by channel."""
    top, left, height, width = box
    part = pixels[top : top + height, left : left + width]
    if size is not None and part.shape[:2] != tuple(size):
        bands = [Image.fromarray(np.ascontiguousarray(part[..., c])) for c in range(part.shape[2])]
        bilinear = Image.Resampling.BILINEAR
        part = np.stack([np.asarray(band.resize(size[::-1], bilinear)) for band in bands], -1)
    return part[:, ::-1] if flip else part
