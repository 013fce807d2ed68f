"""``decode_image``: turn a column of encoded images into pixels, on all CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, ImageError, OptionError, OptionTypeError
from recmap.machine.cpus import pool_size, thread_count
from recmap.machine.memory import empty
from recmap.machine.threads import Threads
from recmap.model.arguments import as_dtype, as_list, as_whole, check_choice, check_flag
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.image_crop import Box, Crop, ImageCrop, RowCrops
from recmap.pipeline.transforms.image_reader import ImageReader, reason_of, sample_jpeg

BadImages: TypeAlias = Literal["raise", "skip", "zero"]
Layout: TypeAlias = Literal["HWC", "CHW"]

_CHANNELS = (1, 3, 4)
_MOST_SIDE = 1 << 20
_DTYPES = ("uint8", "float16", "float32", "float64")


@dataclass(frozen=True)
class DecodeImages(Transform):
    """Decodes a column of images."""

    decoder: ImageDecoder
    skips_bad: bool
    name = "decode_image"

    @property
    def drops(self) -> bool:
        return self.skips_bad

    @property
    def varies(self) -> bool:
        return self.decoder.crop.is_random

    def leaves(self, name: str) -> bool:
        return name != self.decoder.column and not self.drops

    def reseeded(self, by: int) -> DecodeImages:
        return replace(self, decoder=self.decoder.reseeded(by))

    def output(self, schema: Schema) -> Schema:
        column = self.decoder.column
        field = self.decoder.field_of(schema[column])
        if field is None:
            drop = f"; leave out rows without an image: ds.drop_null({column!r})"
            hint = drop if schema[column].nullable else ""
            raise OptionError(f"decode_image: {column!r} is {schema[column]}, not bytes{hint}")
        return Schema({**schema, column: field})

    def apply(self, block: Block) -> Block:
        images = block.batch[self.decoder.column]
        crops = RowCrops(self.decoder.crop, block.positions, block.epoch)
        if not isinstance(images, Ragged):
            pixels = self.decoder.crop_arrays(images, crops)
            return replace(block, batch={**block.batch, self.decoder.column: pixels})
        return self._decoded(block, images, crops)

    def _decoded(self, block: Block, strings: Ragged, crops: RowCrops) -> Block:
        try:
            pixels, good = self.decoder.decode(strings, crops)
        except ImageError as e:
            if e.row is None:
                raise
            error = ImageError(f"{block.origin(e.row)}: {e}")
            error.row = e.row
            raise error from e
        made = replace(block, batch={**block.batch, self.decoder.column: pixels})
        return made.where(good) if self.drops else made


@dataclass(frozen=True)
class NotePlaces(Transform):
    """Adds a column with the position and the epoch of each row.

    What is random about an image that is cropped on a device is drawn there, from these.
    """

    column: str
    name = "decode_image"
    varies = True

    def leaves(self, name: str) -> bool:
        return name != self.column

    def output(self, schema: Schema) -> Schema:
        if self.column in schema:
            raise OptionError(
                f"decode_image(device=...) makes a column {self.column!r}, and there is one "
                "already: rename it"
            )
        return Schema({**schema, self.column: Field("int64", (2,))})

    def apply(self, block: Block) -> Block:
        places = np.empty((len(block.positions), 2), np.int64)
        places[:, 0], places[:, 1] = block.positions, block.epoch
        return replace(block, batch={**block.batch, self.column: places})


class ImageDecoder:
    """Decodes JPEG, PNG, WebP, BMP and the first frame of GIF into one column.

    ``size`` is (height, width), or one number for both. None keeps the sizes of the images, which
    may differ: the column is then ragged, rows of lines of pixels.

    Resizing is bilinear and antialiased, in whole levels of 0 to 255. Each level is within 1
    of ``tf.image.resize(..., antialias=True)`` on the whole image, channel by channel, alpha
    included. JPEGs are decoded with libjpeg-turbo's accurate transform, which TensorFlow calls
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

    ``crop`` and ``flip`` are as in ``decode_image``: a part of the image, perhaps mirrored, is
    resized to ``size``. ``layout`` is the order of the axes. Arrays of images that are decoded
    already are cropped by ``crop_arrays``.

    At most ``threads`` CPUs work at a time; None uses all.

    ``device`` is where images are decoded and cropped instead, when a batch is placed there: see
    ``recmap.adapters.torch_images``.
    """

    def __init__(
        self,
        column: str,
        size: int | tuple[int, int] | None = (256, 256),
        channels: int = 3,
        dtype: npt.DTypeLike = "float32",
        scale: Literal["0-1"] | None = None,
        errors: BadImages = "raise",
        threads: int | None = None,
        *,
        exif: bool = False,
        fast: bool = False,
        crop: Crop | None = None,
        flip: bool = False,
        layout: Layout = "HWC",
        seed: int = 0,
        device: Any = None,
    ) -> None:
        self.column, self.device = column, device
        self.size = _checked_size(size)
        self._dtype = as_dtype("dtype", dtype)
        if not isinstance(column, str):
            raise OptionTypeError(f"column={column!r}: give the name of the column of images")
        if as_whole("channels", channels) not in _CHANNELS:
            raise OptionError(f"channels={channels}: use 1 (grey), 3 (RGB) or 4 (RGBA)")
        if self._dtype.name not in _DTYPES:
            raise OptionError(f"dtype={self._dtype}: use one of {', '.join(_DTYPES)}")
        check_choice("scale", scale, ("0-1", None))
        if scale is not None and self._dtype == np.uint8:
            raise OptionError("scale='0-1' needs a floating-point dtype, not uint8")
        check_choice("errors", errors, get_args(BadImages))
        threads = None if threads is None else as_whole("threads", threads, 1)
        for name, flag in {"exif": exif, "fast": fast}.items():
            check_flag(name, flag)
        check_choice("layout", layout, get_args(Layout))
        if layout == "CHW" and self.size is None:
            raise OptionError("layout='CHW' with size=None: give one size, such as size=224")
        #: What is kept of each image.
        self.crop = ImageCrop.parse(crop, flip, self.size, as_whole("seed", seed))
        self.planes = layout == "CHW"
        if device is not None:
            _check_for_device(self.size, errors, fast)
        self._channels, self._errors, self._threads = channels, errors, threads
        self.scaled = scale is not None
        self._values = _values_of_levels(self._dtype, scale)
        self._reader = ImageReader(channels, self.size, exif, fast, self.crop.kind is not None)

    @property
    def field(self) -> Field:
        """The field of decoded images; height and width are ragged if images keep their size."""
        return Field(self._dtype, self._shape(*(self.size or (None, None))))

    def field_of(self, stored: Field) -> Field | None:
        """Return the field of images that are stored in such a column; None if none are."""
        if stored == Field("bytes"):
            self._reader.check_packages()
            return self.field
        shape = stored.shape
        if stored != Field("uint8", shape) or len(shape) != 3 or None in shape or 0 in shape[:2]:
            return None
        if shape[2] != self._channels:
            raise OptionError(
                f"decode_image: the images in {self.column!r} are arrays of {shape[2]} channels, "
                f"not {self._channels}; give channels={shape[2]}"
                if shape[2] in _CHANNELS
                else f"decode_image: {self.column!r} is {stored}; images have 1, 3 or 4 channels, "
                "the last axis"
            )
        return Field(self._dtype, self._shape(*(self.size or shape[:2])))

    def _shape(self, height: Any, width: Any) -> tuple[Any, ...]:
        return (self._channels, height, width) if self.planes else (height, width, self._channels)

    def reseeded(self, by: int) -> ImageDecoder:
        """Return it for another branch of a pipeline, with other random numbers."""
        other = copy(self)
        other.crop = self.crop.reseeded(by)
        return other

    def crop_arrays(
        self,
        images: npt.NDArray[Any],
        crops: RowCrops,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[Any]:
        """Crop, mirror and resize images that are arrays: (rows, height, width, channels).

        ``rows`` are the numbers of those to crop; without it, all are.
        """
        rows = np.arange(len(images)) if rows is None else rows
        height, width = images.shape[1:3]
        out = empty((len(rows), *self._shape(*(self.size or (height, width)))), self._dtype)
        _core.crop_images(
            np.ascontiguousarray(images),
            rows,
            crops.boxes(height, width),
            crops.flips,
            out.view(f"u{out.itemsize}"),
            self._values,
            self.planes,
            min(self._threads or thread_count(), thread_count()),
        )
        return out

    def decode(
        self, strings: Ragged, crops: RowCrops | None = None
    ) -> tuple[Column, npt.NDArray[np.bool_]]:
        """Decode the images of a batch, (rows, height, width, channels), and tell which are
        good. If images keep their sizes, a bad one is empty.
        """
        crops = crops or RowCrops(self.crop, np.arange(len(strings)), 0)
        if not strings.is_bytes:
            raise ColumnError(f"column {self.column!r}: images are byte strings, not {strings!r}")
        if self.size is None:
            return self._decode_unsized(strings, crops)
        out = empty((len(strings), *self._shape(*self.size)), self._dtype)

        def put(row: int, pixels: npt.NDArray[np.uint8], box: Box | None) -> None:
            self._store(pixels, out[row], box, flip=_flips(crops, row))

        good = self._decode_all(strings, put, crops=crops)
        out[~good] = 0
        return out, good

    @property
    def crops(self) -> bool:
        """Whether images are cropped or mirrored."""
        return self.crop.kind is not None or self.crop.flip

    @property
    def place_column(self) -> str | None:
        """The column that says where rows are, for random crops on a device; None without."""
        return f"{self.column}/place" if self.device is not None and self.crop.is_random else None

    def boxes(
        self, places: npt.NDArray[np.int64], height: int, width: int
    ) -> npt.NDArray[np.int64]:
        """Return what to keep of images of one size: top, left, height, width, and 1 to mirror.

        ``places`` are the positions and the epochs of their rows.
        """
        crops = self._crops_at(places)
        flips = np.zeros(len(places), np.int64) if crops.flips is None else crops.flips
        return np.column_stack([crops.boxes(height, width), flips])

    def _crops_at(self, places: npt.NDArray[np.int64]) -> RowCrops:
        positions, epochs = np.ascontiguousarray(places.T)
        return RowCrops(self.crop, positions, epochs)

    def is_sound_jpeg(self, data: bytes) -> bool:
        """Return whether this looks like a whole JPEG, of a kind that every decoder reads."""
        return self._reader.is_sound_jpeg(data)

    def sample_jpeg(self) -> bytes:
        """Make a JPEG that every decoder reads."""
        return sample_jpeg()

    def decode_rows(
        self, strings: Ragged, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        """Decode some images of a batch; ``places`` are the positions and epochs of all rows."""
        assert self.size is not None
        out = empty((len(rows), *self._shape(*self.size)), self._dtype)
        crops = self._crops_at(places)
        target = {int(row): at for at, row in enumerate(rows)}

        def put(row: int, pixels: npt.NDArray[np.uint8], box: Box | None) -> None:
            self._store(pixels, out[target[row]], box, flip=_flips(crops, row))

        good = self._decode_all(strings, put, target, crops)
        out[~good[rows]] = 0
        return out

    def _decode_unsized(
        self, strings: Ragged, crops: RowCrops
    ) -> tuple[Ragged, npt.NDArray[np.bool_]]:
        # Keep images separate until decoding has confirmed their sizes.
        found: dict[int, npt.NDArray[np.uint8]] = {}
        good = self._decode_all(strings, lambda row, px, _: found.__setitem__(row, px))
        shapes = [found[row].shape[:2] if row in found else (0, 0) for row in range(len(strings))]
        heights, widths = np.array(shapes, np.int64).reshape(-1, 2).T
        lines, pixels = _ends(np.repeat(widths, heights)), _ends(heights * widths)
        values = np.empty((int(pixels[-1]), self._channels), self._dtype)
        for row in sorted(found):
            image = found.pop(row)
            out = values[pixels[row] : pixels[row + 1]].reshape(image.shape)
            self._store(image, out, flip=_flips(crops, row))
        return Ragged(Ragged(values, lines), _ends(heights)), good

    def _decode_all(
        self,
        strings: Ragged,
        put: Callable[[int, npt.NDArray[np.uint8], Box | None], None],
        which: Collection[int] | None = None,
        crops: RowCrops | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Hand every image to ``put``, with its row and the box to keep of it."""
        reasons: dict[int, str] = {}
        which = range(len(strings)) if which is None else which
        rows = _RowQueue(which)
        good = np.zeros(len(strings), np.bool_)

        def work() -> None:
            for row in rows:
                try:
                    pixels, box = self._read(strings[row], row, crops)
                except MemoryError:
                    raise
                except Exception as e:
                    reasons[row] = reason_of(e)
                    if self._errors == "raise":
                        rows.stop()
                else:
                    put(row, pixels, box)
                    good[row] = True

        threads = min(self._threads or thread_count(), thread_count(), len(which))
        if threads <= 1:
            work()
        else:
            pool = _pool(os.getpid())
            try:
                for task in [pool.submit(work) for _ in range(threads)]:
                    task.result()
            finally:
                rows.stop()  # after an interrupt, the threads still run
        if reasons and self._errors == "raise":
            # Rows are started in order, so every row before the first of these is done.
            raise self._error(min(reasons), reasons[min(reasons)])
        return good

    def _read(
        self, data: bytes, row: int, crops: RowCrops | None
    ) -> tuple[npt.NDArray[np.uint8], Box | None]:
        if crops is None or self.crop.kind is None:
            return self._reader.read(data), None
        return self._reader.read_part(data, partial(crops.box, row))

    def _error(self, row: int, reason: str) -> ImageError:
        hint = "errors='skip' drops such rows, 'zero' leaves them black"
        if self.device is not None:
            hint = "errors='zero' leaves such images black"
        error = ImageError(
            f"column {self.column!r}: row {row:,} of the batch: {reason} ({hint})",
            field=self.column,
        )
        error.row = row
        return error

    def _store(
        self,
        pixels: npt.NDArray[np.uint8],
        out: npt.NDArray[Any],
        box: Box | None = None,
        *,
        flip: bool = False,
    ) -> None:
        """Resize an image, or a box of it, to the size of ``out``, and write its values there."""
        _core.resize_image(
            pixels, out.view(f"u{out.itemsize}"), self._values, box, flip, self.planes
        )


def _flips(crops: RowCrops, row: int) -> bool:
    return crops.flips is not None and bool(crops.flips[row])


def _values_of_levels(
    dtype: np.dtype[Any], scale: Literal["0-1"] | None
) -> npt.NDArray[Any] | None:
    """Return the bits of what the levels 0 to 255 become, or None if they stay as they are."""
    if dtype == np.uint8:
        return None
    wide: type[np.floating[Any]] = np.float64 if dtype == np.float64 else np.float32
    levels = np.arange(256).astype(wide)
    values = levels / wide(255) if scale else levels
    return values.astype(dtype).view(f"u{dtype.itemsize}")


def _ends(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _checked_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        size = (int(size), int(size))
    sides = [as_whole("size", side, 1, _MOST_SIDE) for side in as_list("size", size, "(224, 224)")]
    if len(sides) != 2:
        raise OptionError(f"size={size!r}: give one number, (height, width) or None")
    return sides[0], sides[1]


def _check_for_device(size: tuple[int, int] | None, errors: BadImages, fast: bool) -> None:
    if size is None:
        raise OptionError(
            "decode_image(size=None, device=...): a device needs one size, such as size=(224, 224)"
        )
    if errors == "skip":
        raise OptionError(
            "decode_image(errors='skip', device=...): rows cannot be dropped from a finished "
            "batch; use errors='zero'"
        )
    if fast:
        raise OptionError("decode_image(fast=True, device=...): fast=True is for the CPU")


class _RowQueue(Iterator[int]):
    """Rows that several threads share: each takes the next one."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._rows = iter(rows)
        self._lock = threading.Lock()

    def __next__(self) -> int:
        with self._lock:
            return next(self._rows)

    def stop(self) -> None:
        """Give no more rows."""
        with self._lock:
            self._rows = iter(())


@lru_cache(maxsize=1)
def _pool(process: int) -> Threads:
    """Return the threads of this process, which all decoders share. A fork starts its own."""
    return Threads(pool_size(), f"recmap-images-{process}")
