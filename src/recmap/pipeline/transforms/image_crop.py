"""Which part of an image to keep, and whether to mirror it: the same for a row on any worker.

The random numbers of a row depend only on the seed, the epoch and its position, like those of
``map``. They are drawn in the native core, where a batch of small images is not kept waiting.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.arguments import as_list, check_flag
from recmap.model.batch import Positions
from recmap.native import _core

Box: TypeAlias = tuple[int, int, int, int]
"""Top, left, height and width."""
Crop: TypeAlias = Literal["random_resized", "random", "center"] | Mapping[str, Any]

_SCALE, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
_CENTER = 224 / 256
_CHOICES = (
    "'random_resized', 'random', 'center', {'scale': (0.08, 1), 'ratio': (3/4, 4/3)} or "
    "{'center': 0.875}"
)


@dataclass(frozen=True)
class ImageCrop:
    """What ``crop=`` and ``flip=`` ask for. ``size`` is what the parts are resized to.

    ``kind`` is None for whole images. ``branch`` numbers the pipelines that are joined to one.
    """

    kind: Literal["random_resized", "random", "center"] | None
    size: tuple[int, int] | None
    flip: bool
    seed: int
    scale: tuple[float, float] = _SCALE
    ratio: tuple[float, float] = _RATIO
    center: float = _CENTER
    branch: int = 0

    @classmethod
    def parse(
        cls, crop: Crop | None, flip: bool, size: tuple[int, int] | None, seed: int
    ) -> ImageCrop:
        """Check the options of a user."""
        check_flag("flip", flip)
        if crop is not None and size is None:
            raise OptionError("crop=... with size=None: a crop needs a size, such as size=224")
        if crop is None:
            return cls(None, size, flip, seed)
        if isinstance(crop, Mapping):
            return cls._of_numbers(crop, flip, size, seed)
        for kind in ("random_resized", "random", "center"):
            if crop == kind:
                return cls(kind, size, flip, seed)
        raise OptionError(f"crop={crop!r}: use {_CHOICES}")

    @classmethod
    def _of_numbers(
        cls, crop: Mapping[str, Any], flip: bool, size: tuple[int, int] | None, seed: int
    ) -> ImageCrop:
        if set(crop) == {"center"}:
            return cls("center", size, flip, seed, center=_number("center", crop["center"], 1))
        if not crop or not set(crop) <= {"scale", "ratio"}:
            raise OptionError(f"crop={dict(crop)!r}: use {_CHOICES}")
        scale = _pair("scale", crop.get("scale", _SCALE), 1)
        ratio = _pair("ratio", crop.get("ratio", _RATIO), 1 << 20)
        return cls("random_resized", size, flip, seed, scale, ratio)

    @property
    def is_random(self) -> bool:
        """Whether it makes something else of a row in another epoch."""
        return self.flip or self.kind in ("random_resized", "random")

    @property
    def given(self) -> str | dict[str, Any] | None:
        """The crop as a user writes it, with nothing but what is needed."""
        if self.kind == "center" and self.center != _CENTER:
            return {"center": self.center}
        if self.kind == "random_resized" and (self.scale, self.ratio) != (_SCALE, _RATIO):
            return {"scale": self.scale, "ratio": self.ratio}
        return self.kind

    def reseeded(self, by: int) -> Self:
        """Return it for another branch of a pipeline, with other random numbers."""
        return replace(self, branch=self.branch + by)

    @cached_property
    def _key(self) -> tuple[int, int]:
        entropy = [self.seed, self.branch, zlib.crc32(b"image")]
        first, second = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        return int(first), int(second)

    def boxes(
        self, positions: Positions, epoch: int, height: int, width: int
    ) -> npt.NDArray[np.int64]:
        """Return the box of each row, of images of one size."""
        if self.kind == "random_resized":
            return _core.random_boxes(
                self._key, epoch, positions, height, width, self.scale, self.ratio
            )
        box = self._fixed(height, width)
        if self.kind == "random":
            return _core.random_windows(self._key, epoch, positions, height, width, *box[2:])
        return np.tile(np.array(box, np.int64), (len(positions), 1))

    def flips(self, positions: Positions, epoch: int) -> npt.NDArray[np.uint8] | None:
        """Return which rows to mirror; None if none are."""
        return _core.random_flips(self._key, epoch, positions) if self.flip else None

    def _fixed(self, height: int, width: int) -> Box:
        """Return the box in the middle."""
        if self.kind is None:
            return 0, 0, height, width
        assert self.size is not None
        tall, wide = self.size
        if self.kind == "center" or tall > height or wide > width:
            # The largest box of the same ratio.
            part = self.center if self.kind == "center" else 1.0
            by = part * min(height / tall, width / wide)
            tall = min(height, max(1, round(tall * by)))
            wide = min(width, max(1, round(wide * by)))
        return (height - tall) // 2, (width - wide) // 2, tall, wide


@dataclass(frozen=True)
class RowCrops:
    """The crops of some rows. ``epoch`` is that of all of them, or of each."""

    crop: ImageCrop
    positions: Positions
    epoch: int | npt.NDArray[np.int64]

    def box(self, row: int, height: int, width: int) -> Box:
        """Return the box of one row."""
        epoch = int(self.epoch[row]) if isinstance(self.epoch, np.ndarray) else self.epoch
        where = self.positions[row : row + 1]
        top, left, tall, wide = self.crop.boxes(where, epoch, height, width)[0].tolist()
        return top, left, tall, wide

    def boxes(self, height: int, width: int) -> npt.NDArray[np.int64]:
        """Return the boxes of all rows."""
        return self._drawn(partial(self.crop.boxes, height=height, width=width))

    @cached_property
    def flips(self) -> npt.NDArray[np.uint8] | None:
        """Which rows to mirror; None if none are."""
        return self._drawn(self.crop.flips) if self.crop.flip else None

    def _drawn(self, draw: Callable[[Positions, int], Any]) -> npt.NDArray[Any]:
        """Return what ``draw`` gives for the positions of an epoch, for each row in its epoch."""
        if not isinstance(self.epoch, np.ndarray):
            return np.asarray(draw(self.positions, self.epoch))
        epochs, which = np.unique(self.epoch, return_inverse=True)
        drawn = np.stack([draw(self.positions, epoch) for epoch in epochs.tolist()])
        return np.asarray(drawn[which, np.arange(len(which))])


def _pair(name: str, value: Any, most: float) -> tuple[float, float]:
    numbers = [_number(name, each, most) for each in as_list(name, value, "(0.5, 1.0)")]
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise OptionError(f"crop: {name}={value!r}: give the least and the most")
    return numbers[0], numbers[1]


def _number(name: str, value: Any, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= most:
        raise OptionError(f"crop: {name}={value!r}: numbers are above 0, up to {most}")
    return number
