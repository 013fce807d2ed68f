"""``decode_image``: turn a column of encoded images into pixels, on all CPUs.

Pillow does the decoding: it gives the claimed size of an image before it allocates memory, and
says why it refuses one. OpenCV is faster for images that are shrunk only a little, but it
allocates up to 2**30 pixels because a header says so, prints errors instead of raising them,
does not antialias, and is four times as large.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    ColumnError,
    ImageError,
    MissingPackageError,
    OptionError,
    OptionTypeError,
)
from recmap.files.cpus import pool_size, thread_count
from recmap.files.threads import Threads
from recmap.model.arguments import as_dtype, as_list, as_whole, check_choice, check_flag
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform

__all__ = ["DecodeImages", "ImageDecoder"]

BadImages: TypeAlias = Literal["raise", "skip", "zero"]

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MOST_SIDE = 1 << 20
_DTYPES = ("uint8", "float16", "float32", "float64")
_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = (5, 6, 7, 8)
# Pillow's numbers for flip, rotate, transpose and transverse, by orientation.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


@dataclass(frozen=True)
class DecodeImages(Transform):
    """Decodes a column of images."""

    decoder: ImageDecoder
    skips_bad: bool

    @property
    def name(self) -> str:
        return "decode_image"

    @property
    def drops(self) -> bool:
        return self.skips_bad

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        column = self.decoder.column
        if schema[column] != Field("bytes"):
            raise OptionError(f"decode_image: {column!r} is {schema[column]}, not bytes")
        return self, Schema({**schema, column: self.decoder.field})

    def apply(self, block: Block) -> Block:
        strings = block.batch[self.decoder.column]
        assert isinstance(strings, Ragged)
        try:
            pixels, good = self.decoder.decode(strings)
        except ImageError as e:
            if e.row is None:
                raise
            error = ImageError(f"{block.origin(e.row)}: {e}")
            error.row = e.row
            raise error from e
        made = replace(block, batch={**block.batch, self.decoder.column: pixels})
        return made.where(good) if self.drops else made

    def describe(self) -> list[Any]:
        return ["decode_image", self.decoder.column, str(self.decoder.field)]


class ImageDecoder:
    """Decodes JPEG, PNG, WebP, BMP and the first frame of GIF into one column.

    ``size`` is (height, width). None keeps the sizes of the images, which may differ: the
    column is then ragged, rows of lines of pixels.

    Resizing is bilinear and antialiased, in whole levels of 0 to 255. Each level is within 1
    of ``tf.image.resize(..., antialias=True)`` on the whole image, channel by channel, alpha
    included. JPEGs are decoded with libjpeg's accurate transform, which TensorFlow calls
    ``dct_method="INTEGER_ACCURATE"`` and does not use by default. ``fast=True`` decodes JPEGs
    at least twice as large as ``size`` at a half, a quarter or an eighth of their size, which
    is faster and differs by several levels where there is fine detail.

    ``channels`` is 1 (grey), 3 (RGB) or 4 (RGBA). Images of any kind are converted: alpha is
    dropped or made opaque, palettes are looked up, CMYK becomes RGB, and the upper 8 of 16
    bits are kept. The fourth byte of 32-bit BMP pixels is their alpha, unless it is 0
    throughout. Images are read as they are stored; ``exif=True`` rotates them as their EXIF
    data says.

    Values are 0 to 255, or divided by 255 with ``scale="0-1"``. An image that is broken, or
    larger than Pillow's ``Image.MAX_IMAGE_PIXELS``, is an error (``errors="raise"``), is
    marked bad (``"skip"``), or is marked bad and left black (``"zero"``).

    At most ``threads`` CPUs work at a time; None uses all.
    """

    def __init__(
        self,
        column: str,
        size: tuple[int, int] | None = (256, 256),
        channels: int = 3,
        dtype: npt.DTypeLike = "float32",
        scale: Literal["0-1"] | None = None,
        errors: BadImages = "raise",
        threads: int | None = None,
        *,
        exif: bool = False,
        fast: bool = False,
    ) -> None:
        self.column = column
        self._size = _checked_size(size)
        self._dtype = as_dtype("dtype", dtype)
        if not isinstance(column, str):
            raise OptionTypeError(f"column={column!r}: give the name of the column of images")
        if as_whole("channels", channels) not in _MODES:
            raise OptionError(f"channels={channels}: it is 1 (grey), 3 (RGB) or 4 (RGBA)")
        if self._dtype.name not in _DTYPES:
            raise OptionError(f"dtype={self._dtype}: it is one of {', '.join(_DTYPES)}")
        check_choice("scale", scale, ("0-1", None))
        if scale is not None and self._dtype == np.uint8:
            raise OptionError("scale='0-1' needs a floating-point dtype, not uint8")
        check_choice("errors", errors, get_args(BadImages))
        threads = None if threads is None else as_whole("threads", threads, 1)
        for name, flag in {"exif": exif, "fast": fast}.items():
            check_flag(name, flag)
        self._channels, self._scale, self._errors = channels, scale, errors
        self._threads = threads
        self._exif, self._fast = exif, fast
        _pillow()

    @property
    def field(self) -> Field:
        """The field of decoded images; height and width are ragged if images keep their size."""
        return Field(self._dtype, (*(self._size or (None, None)), self._channels))

    def decode(self, strings: Ragged) -> tuple[Column, npt.NDArray[np.bool_]]:
        """Decode the images of a batch, (rows, height, width, channels), and tell which are
        good. If images keep their sizes, a bad one is empty.
        """
        if not strings.is_bytes:
            raise ColumnError(f"field {self.column!r}: images are byte strings, not {strings!r}")
        if self._size is None:
            return self._decode_unsized(strings)
        # Bad images stay zero; pages that are never written take no memory.
        out = np.zeros((len(strings), *self._size, self._channels), self._dtype)

        def put(row: int, pixels: npt.NDArray[np.uint8]) -> None:
            self._store(pixels, out[row])

        return out, self._decode_all(strings, put)

    def _decode_unsized(self, strings: Ragged) -> tuple[Ragged, npt.NDArray[np.bool_]]:
        # Keep images separate until decoding has confirmed their sizes.
        found: dict[int, npt.NDArray[np.uint8]] = {}
        good = self._decode_all(strings, found.__setitem__)
        shapes = [found[row].shape[:2] if row in found else (0, 0) for row in range(len(strings))]
        heights, widths = np.array(shapes, np.int64).reshape(-1, 2).T
        lines, pixels = _ends(np.repeat(widths, heights)), _ends(heights * widths)
        values = np.empty((int(pixels[-1]), self._channels), self._dtype)
        for row in sorted(found):
            flat = found.pop(row).reshape(-1, self._channels)
            self._store(flat, values[pixels[row] : pixels[row + 1]])
        return Ragged(Ragged(values, lines), _ends(heights)), good

    def _decode_all(
        self, strings: Ragged, put: Callable[[int, npt.NDArray[np.uint8]], None]
    ) -> npt.NDArray[np.bool_]:
        reasons: dict[int, str] = {}
        rows = iter(range(len(strings)))

        def work() -> None:
            for row in rows:  # each thread takes the next one
                try:
                    put(row, self._pixels(strings[row]))
                except MemoryError:
                    raise
                # Pillow raises a dozen kinds of errors for hostile bytes.
                except Exception as e:
                    reasons[row] = _reason(e)
                    if self._errors == "raise":
                        _exhaust(rows)

        threads = min(self._threads or thread_count(), thread_count(), len(strings))
        if threads <= 1:
            work()
        else:
            pool = _pool(os.getpid())
            try:
                for task in [pool.submit(work) for _ in range(threads)]:
                    task.result()
            finally:
                _exhaust(rows)  # stops the threads after an interrupt
        if reasons and self._errors == "raise":
            # Rows are started in order, so every row before the first of these is done.
            raise self._error(min(reasons), reasons[min(reasons)])
        good = np.ones(len(strings), np.bool_)
        good[list(reasons)] = False
        return good

    def _error(self, row: int, reason: str) -> ImageError:
        error = ImageError(
            f"field {self.column!r}: row {row:,} of the batch: {reason} "
            "(errors='skip' drops such rows, 'zero' leaves them black)",
            field=self.column,
        )
        error.row = row
        return error

    def _pixels(self, data: bytes) -> npt.NDArray[np.uint8]:
        pillow = _pillow()
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            limit = pillow.MAX_IMAGE_PIXELS
            width, height = image.size
            if limit is not None and width * height > limit:
                raise ValueError(f"{width:,} x {height:,} pixels, more than the {limit:,} allowed")
            mode = _MODES[self._channels]
            size = self._size and self._size[::-1]  # Pillow's order
            turn = image.getexif().get(_ORIENTATION) if self._exif else None
            drafted = size[::-1] if size and turn in _SIDEWAYS else size
            image.draft("L" if mode == "L" else "RGB", drafted if self._fast else None)
            alpha = _bmp_alpha(image, data) if mode == "RGBA" else None
            made = _converted(image, mode)
            if alpha is not None:
                made.putalpha(alpha)
            made = _turned(made, turn)
            if size and made.size != size:
                made = _resized(made, size)
            pixels: npt.NDArray[np.uint8] = np.asarray(made)
        return pixels.reshape(*pixels.shape[:2], self._channels)

    def _store(self, pixels: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
        if self._scale is None:
            out[...] = pixels
        else:
            wide = np.float64 if self._dtype == np.float64 else np.float32
            np.divide(pixels, wide(255), out=out, casting="same_kind")


def _ends(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _converted(image: Any, mode: str) -> Any:
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip
        return _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "CMYK":
        image = image.convert("RGB")
    image.load()
    return image if image.mode == mode else image.convert(mode)


def _resized(image: Any, size: tuple[int, int]) -> Any:
    pillow = _pillow()
    bilinear = pillow.Resampling.BILINEAR
    if image.mode != "RGBA":
        return image.resize(size, bilinear)
    # Pillow would weight colours by alpha.
    return pillow.merge("RGBA", [band.resize(size, bilinear) for band in image.split()])


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


def _reason(error: Exception) -> str:
    text = str(error)
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image (JPEG, PNG, WebP, GIF and BMP are)"
    return f"a broken image: {text or type(error).__name__}"


def _checked_size(size: tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = [as_whole("size", side, 1, _MOST_SIDE) for side in as_list("size", size, "(224, 224)")]
    if len(sides) != 2:
        raise OptionError(f"size={size!r}: it is (height, width), each 1 or more, or None")
    return sides[0], sides[1]


def _exhaust(rows: Iterator[int]) -> None:
    for _ in rows:
        pass


@lru_cache(maxsize=1)
def _pool(process: int) -> Threads:
    """Return the threads of this process, which all decoders share. A fork starts its own."""
    return Threads(pool_size(), f"recmap-images-{process}")


@lru_cache(maxsize=1)
def _pillow() -> Any:
    try:
        from PIL import Image, WebPImagePlugin  # noqa: F401  # which Pillow loads late
    except ImportError as e:
        raise MissingPackageError("images need Pillow", extra="images") from e
    Image.preinit()  # here, rather than in several threads at once
    return Image
