"""Read one encoded image into an array of pixels.

libjpeg-turbo decodes ordinary JPEGs. It only warns of damage, and pads what is missing with grey,
so anything unusual goes to Pillow, as do other formats: Pillow gives the claimed size of an image
before it allocates memory, and says why it refuses one. OpenCV allocates up to 2**30
pixels because a header says so, prints errors instead of raising them, and is four times as large.

Whole JPEGs are decoded by simplejpeg. It cannot decode a part of one; the native core can, with the
libjpeg-turbo that comes with Pillow.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import MissingPackageError
from recmap.native import _core
from recmap.pipeline.transforms.image_crop import Box

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_START_OF_IMAGE, _END_OF_IMAGE = b"\xff\xd8\xff", b"\xff\xd9"
_TURBO_FORMATS = {1: "Gray", 3: "RGB", 4: "RGBA"}
_TURBO_COLOURS = ("Gray", "YCbCr", "RGB")
# JPEGs stored as RGB say so in a marker that some decoders ignore.
_COMMON_COLOURS = ("Gray", "YCbCr")
# A block of 64 pixels takes a bit or more, so no whole JPEG claims more pixels than this.
_MOST_PIXELS_PER_BYTE = 512
_BLOCK_SIDE = 8
# Some writers add a few bytes behind the end marker.
_BEHIND_END = 64
# Larger images are not decoded to make a small one.
_MOST_SHRUNK = 16_000_000
_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = (5, 6, 7, 8)
# Pillow's numbers for flip, rotate, transpose and transverse, by orientation.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


@dataclass(frozen=True)
class ImageReader:
    """Reads images as (height, width, channels), in levels of 0 to 255.

    ``size`` is what they will be resized to. With ``fast``, JPEGs at least twice as large are
    read at a half, a quarter or an eighth of their size. ``exif`` rotates them. If ``parts`` are
    resized to that size, ``read`` reads whole images and ``read_part`` what is needed.
    """

    channels: int
    size: tuple[int, int] | None
    exif: bool
    fast: bool
    parts: bool = False

    def check_packages(self) -> None:
        """Raise if a package that decodes images is missing."""
        _pillow()
        _simplejpeg()
        _can_read_parts()

    def read(self, data: bytes) -> npt.NDArray[np.uint8]:
        """Decode an image. Broken ones raise errors of a dozen kinds."""
        pixels = None if self.exif else self._with_turbo(data)
        return self._with_pillow(data) if pixels is None else pixels

    def read_part(
        self, data: bytes, choose: Callable[[int, int], Box]
    ) -> tuple[npt.NDArray[np.uint8], Box]:
        """Decode what ``choose`` picks of an image of some height and width.

        Return pixels, and the box of them that it is. What lies below the box in a JPEG is not
        looked at.
        """
        part = None if self.exif else self._part_with_turbo(data, choose)
        if part is not None:
            return part, (0, 0, *part.shape[:2])
        pixels = self.read(data)
        return pixels, choose(*pixels.shape[:2])

    def _part_with_turbo(
        self, data: bytes, choose: Callable[[int, int], Box]
    ) -> npt.NDArray[np.uint8] | None:
        """Decode a part of an ordinary JPEG; return None if anything is unusual."""
        if not _can_read_parts() or data.find(_END_OF_IMAGE, -_BEHIND_END) < 0:
            return None
        size = _jpeg_size(data)
        if size is None:
            return None
        top, left, height, width = choose(*size)
        by = self._fraction(height, width) if min(size) >= _BLOCK_SIDE else 1
        rows, columns = _shrunk(top, height, size[0], by), _shrunk(left, width, size[1], by)
        part = np.empty((len(rows), len(columns), self.channels), np.uint8)
        sound = _core.decode_jpeg(data, by, (rows.start, columns.start), part)
        return part if sound else None

    def _with_turbo(self, data: bytes) -> npt.NDArray[np.uint8] | None:
        """Decode an ordinary JPEG; return None if anything is unusual."""
        size = _jpeg_size(data)
        if size is None:
            return None
        height, width = self._reduced(*size)
        try:
            pixels: npt.NDArray[np.uint8] = _simplejpeg().decode_jpeg(
                data, _TURBO_FORMATS[self.channels], min_height=height, min_width=width
            )
        except ValueError:
            return None
        return pixels

    def is_sound_jpeg(self, data: bytes) -> bool:
        """Return whether this looks like a whole JPEG, of a kind that every decoder reads."""
        return data.endswith(_END_OF_IMAGE) and _jpeg_size(data, _COMMON_COLOURS) is not None

    def _reduced(self, height: int, width: int) -> tuple[int, int]:
        """Return the size to decode an image at, or (0, 0) to decode all of it."""
        # The sizes of smaller images do not tell fractions apart.
        if self.parts or max(height, width) < _BLOCK_SIDE:
            return 0, 0
        by = self._fraction(height, width)
        return (0, 0) if by == 1 else (-(-height // by), -(-width // by))

    def _fraction(self, height: int, width: int) -> int:
        """Return 8, 4 or 2 if an eighth, a quarter or a half of an image is enough, or 1."""
        if self.size is None or not self.fast:
            return 1
        times = min(height // self.size[0], width // self.size[1])
        return next((n for n in (8, 4, 2) if times >= n), 1)

    def _with_pillow(self, data: bytes) -> npt.NDArray[np.uint8]:
        pillow = _pillow()
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            limit = pillow.MAX_IMAGE_PIXELS
            width, height = image.size
            if limit is not None and width * height > limit:
                raise ValueError(f"{width:,} x {height:,} pixels, more than the {limit:,} allowed")
            mode = _MODES[self.channels]
            turn = image.getexif().get(_ORIENTATION) if self.exif else None
            image.draft("L" if mode == "L" else "RGB", self._draft_size(turn))
            alpha = _bmp_alpha(image, data) if mode == "RGBA" else None
            made = _converted(image, mode)
            if alpha is not None:
                made.putalpha(alpha)
            pixels: npt.NDArray[np.uint8] = np.asarray(_turned(made, turn))
        if not pixels.size:
            raise ValueError("it has no pixels")
        return pixels.reshape(*pixels.shape[:2], self.channels)

    def _draft_size(self, turn: int | None) -> tuple[int, int] | None:
        if self.size is None or not self.fast or self.parts:
            return None
        height, width = self.size
        return (height, width) if turn in _SIDEWAYS else (width, height)  # Pillow's order


def small_png(data: bytes, side: int) -> bytes | None:
    """Return an image as a PNG of at most ``side`` pixels a side.

    Return None if it cannot be decoded, would take too much memory, or there is no Pillow.
    """
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bombs, which are refused here
            with _pillow().open(io.BytesIO(data), formats=_FORMATS) as image:
                turn = image.getexif().get(_ORIENTATION)
                # JPEGs are decoded at a part of their size.
                image.draft("RGB", (side, side))
                if image.size[0] * image.size[1] > _MOST_SHRUNK:
                    return None
                made = _turned(image.convert("RGBA"), turn)
                made.thumbnail((side, side))
                made.save(file, "PNG")
    except Exception:  # broken images raise errors of a dozen kinds
        return None
    return file.getvalue()


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the height and width that an image claims; None if they cannot be told."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bombs, which are not decoded here
            with _pillow().open(io.BytesIO(data), formats=_FORMATS) as image:
                width, height = image.size
    except Exception:  # broken images raise errors of a dozen kinds
        return None
    return height, width


def sample_jpeg() -> bytes:
    """Make a small JPEG of the most common kind."""
    levels = np.arange(64 * 64 * 3, dtype=np.uint32).reshape(64, 64, 3) // 64
    made: bytes = _simplejpeg().encode_jpeg(levels.astype(np.uint8), colorsubsampling="420")
    return made


def _jpeg_size(data: bytes, kinds: tuple[str, ...] = _TURBO_COLOURS) -> tuple[int, int] | None:
    """Return the height and width of a JPEG in such a colour space, if they are plausible."""
    if not data.startswith(_START_OF_IMAGE):
        return None
    try:
        height, width, colours, _ = _simplejpeg().decode_jpeg_header(data)
    except (KeyError, ValueError):  # KeyError: kinds of JPEG that simplejpeg has no name for
        return None
    limit = min(_pillow().MAX_IMAGE_PIXELS or np.inf, _MOST_PIXELS_PER_BYTE * len(data))
    return (height, width) if colours in kinds and height * width <= limit else None


def _shrunk(start: int, length: int, whole: int, by: int) -> range:
    """Return the pixels of a side that is a ``by``-th as long, of ``whole`` pixels before."""
    last = -(-whole // by)
    begin = min(round(start / by), last - 1)
    return range(begin, min(last, max(begin + 1, round((start + length) / by))))


def reason_of(error: Exception) -> str:
    """Say what is wrong with an image that cannot be read."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "not a JPEG, PNG, WebP, GIF or BMP image"
    return f"a broken image: {str(error) or type(error).__name__}"


def _converted(image: Any, mode: str) -> Any:
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip
        return _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "CMYK":
        image = image.convert("RGB")
    image.load()
    return image if image.mode == mode else image.convert(mode)


def _bmp_alpha(image: Any, data: bytes) -> Any:
    """Return the fourth bytes of the pixels of a BMP, which Pillow ignores.

    Return None if there are none, or if all are 0.
    """
    if image.format != "BMP" or image.mode != "RGB" or len(data) < 34:
        return None
    start, header = struct.unpack_from("<II", data, 10)
    bits, packing = struct.unpack_from("<HI", data, 28)
    if header < 40 or bits != 32 or packing != 0:
        return None
    width, height = image.size
    if start + 4 * width * height > len(data):
        return None  # truncated; decoding will raise
    pixels = np.frombuffer(data, np.uint8, 4 * width * height, start).reshape(height, width, 4)
    alpha = pixels[..., 3]
    if struct.unpack_from("<i", data, 22)[0] > 0:  # stored bottom line first
        alpha = alpha[::-1]
    return _pillow().fromarray(np.ascontiguousarray(alpha)) if alpha.any() else None


def _turned(image: Any, orientation: int | None) -> Any:
    """Rotate or flip an image as its EXIF orientation says."""
    how = None if orientation is None else _TURNS.get(orientation)
    return image if how is None else image.transpose(how)


@lru_cache(maxsize=1)
def _pillow() -> Any:
    try:
        from PIL import Image, WebPImagePlugin  # noqa: F401  # which Pillow loads late
    except ImportError as e:
        raise MissingPackageError("images need Pillow", extra="images") from e
    Image.preinit()  # here, rather than in several threads at once
    return Image


@lru_cache(maxsize=1)
def _can_read_parts() -> bool:
    """Load Pillow's libjpeg-turbo, and return whether it is one that the native core can use."""
    _pillow()
    from PIL import _imaging

    return _core.use_jpeg_of(_imaging.__file__)


@lru_cache(maxsize=1)
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError as e:
        raise MissingPackageError("images need simplejpeg", extra="images") from e
    return simplejpeg
