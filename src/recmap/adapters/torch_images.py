"""Images that are decoded, cropped and resized on a device.

The encoded images of a batch are decoded together by TorchCodec or torchvision, whichever is
installed. What a GPU does not decode, or might decode without noticing that something is missing,
is decoded on the CPU and copied. Images that are arrays are copied as they are stored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from recmap.adapters.columns import as_native
from recmap.adapters.feed import ImagesOnDevice
from recmap.adapters.torch_tensors import Place, as_tensor
from recmap.errors import MissingPackageError, OptionError
from recmap.model.ragged import Ragged

# The position and the epoch of each row.
_Places: TypeAlias = npt.NDArray[np.int64]

# Takes encoded images, the name of a colour mode and a device; returns (channels, height, width),
# or None for an image to be left to the CPU.
_DecodeJpegs: TypeAlias = Callable[[list[Any], str, Any], list[Any]]
_MARKER, _START_OF_SCAN, _EXIF = 0xFF, 0xDA, b"Exif\0\0"
_WITHOUT_LENGTH = (0x01, *range(0xD0, 0xD8))
_NOT_IN_HEADERS = (0x00, 0xD8, 0xD9)  # an escaped byte, and the start and end of an image
# Levels that are resized together, as floats of four bytes.
_LEVELS_TOGETHER = 64 << 20


def check_devices(images: Mapping[str, ImagesOnDevice], device: Any) -> None:
    """Refuse to place a batch on another device than its images are decoded on."""
    for name, decoder in images.items():
        try:
            wanted = torch.device(decoder.device)
        except (RuntimeError, TypeError, ValueError) as e:
            raise OptionError(
                f"decode_image({name!r}, device={decoder.device!r}): not a device of PyTorch, "
                f"such as 'cuda': {str(e).splitlines()[0]}"
            ) from e
        if wanted.type != device.type or wanted.index not in (None, device.index):
            raise OptionError(
                f"decode_image({name!r}, device={decoder.device!r}) with "
                f"to_torch(device={str(device)!r}): give both the same device"
            )


class DeviceImages:
    """Decodes, crops and resizes a column of images on a device.

    Images that are not ``encoded`` are arrays, (rows, height, width, channels).
    """

    def __init__(self, images: ImagesOnDevice, device: Any, *, encoded: bool) -> None:
        self._images, self._device = images, device
        self._shape: Any = images.field.shape
        planes: Any = self._shape if images.planes else (self._shape[2], *self._shape[:2])
        self._channels, self._size = planes[0], planes[1:]
        self._dtype = getattr(torch, images.field.dtype.name)
        self._mode = "GRAY" if self._channels == 1 else "RGB"
        if encoded:
            self._check_device()

    def made(self, columns: Mapping[str, Any], copy: Place) -> Any:
        """Return a tensor of the images of a batch on the device; ``copy`` copies tensors there."""
        column, noted = columns[self._images.column], self._images.place_column
        places = np.zeros((len(column), 2), np.int64) if noted is None else columns[noted]
        shape = (len(column), *self._shape)
        out = torch.empty(shape, dtype=self._dtype, device=self._device)
        if isinstance(column, Ragged):
            self._decode(column, places, out, copy)
            return out
        stored = copy(as_tensor(self._images.column, column)).permute(0, 3, 1, 2)
        for some in self._together(stored.shape[1:], range(len(column))):
            rows = slice(some[0], some[-1] + 1)
            out[rows] = self._values(self._levels(stored[rows], places[rows], copy))
        return out

    def _decode(self, strings: Ragged, places: _Places, out: Any, copy: Place) -> None:
        data = list(strings)
        jpegs = [row for row, each in enumerate(data) if self._images.is_sound_jpeg(each)]
        decoded = dict(zip(jpegs, self._decoded([data[row] for row in jpegs]), strict=True))
        by_size: dict[Any, list[int]] = defaultdict(list)
        for row, image in decoded.items():
            if image is not None:
                by_size[image.shape].append(row)
        for shape, rows in by_size.items():
            for some in self._together(shape, rows):
                images = torch.stack([decoded[row] for row in some])
                where = torch.tensor(some, device=self._device)
                out[where] = self._values(self._levels(images, places[some], copy))
        others = [row for row in range(len(data)) if decoded.get(row) is None]
        if others:
            pixels = self._images.decode_rows(strings, np.array(others), places)
            where = torch.tensor(others, device=self._device)
            out[where] = copy(torch.from_numpy(as_native(self._images.column, pixels)))

    def _check_device(self) -> None:
        """Refuse a device that cannot decode JPEGs. Later failures are those of an image."""
        try:
            self._decode_together([_encoded_tensor(self._images.sample_jpeg())])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as e:
            raise OptionError(
                f"decode_image(device={self._images.device!r}): JPEGs cannot be decoded "
                f"there: {e}. Leave out device= in decode_image"
            ) from e

    def _decoded(self, jpegs: Sequence[bytes]) -> list[Any]:
        """Decode JPEGs on the device. Those that it cannot decode are None."""
        if not jpegs:
            return []
        tensors = [_encoded_tensor(each) for each in jpegs]
        try:
            return self._decode_together(tensors)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # it does not say which one it cannot decode
            return [self._decoded_alone(each) for each in tensors]

    def _decoded_alone(self, jpeg: Any) -> Any:
        try:
            return self._decode_together([jpeg])[0]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            return None  # the CPU says what is wrong with it

    def _decode_together(self, jpegs: list[Any]) -> list[Any]:
        if self._device.type == "cuda":
            # torchvision decodes on a stream of its own, which does not wait for what this
            # one still does with memory that it uses again.
            torch.cuda.current_stream(self._device).synchronize()
        return _jpeg_decoder()(jpegs, self._mode, self._device)

    def _together(self, shape: Any, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield some of the rows at a time, of images of one shape."""
        most = max(math.prod(shape), math.prod(self._shape))
        count = max(1, _LEVELS_TOGETHER // most)
        for start in range(0, len(rows), count):
            yield rows[start : start + count]

    def _levels(self, images: Any, places: _Places, copy: Place) -> Any:
        """Crop and resize images of (rows, channels, height, width) like the CPU does."""
        if not self._images.crops:
            return self._resized(images)
        boxes = self._images.boxes(places, *images.shape[2:])
        # Of each image, the box that is kept, as numbers that can be combined with its weights.
        top, left, height, width, flip = copy(torch.from_numpy(boxes)).view(-1, 5, 1, 1).unbind(1)
        down = self._weights(top, height, self._size[0], images.shape[2])
        across = self._weights(left, width, self._size[1], images.shape[3])
        across = torch.where(flip > 0, across.flip(1), across)
        with torch.autocast(self._device.type, enabled=False):
            made = torch.einsum("nyh,nchw->ncyw", down, images.float())
            return _whole_levels(torch.einsum("nxw,ncyw->ncyx", across, made))

    def _weights(self, start: Any, length: Any, size: int, whole: int) -> Any:
        """Return how much each pixel of a side counts in each that the box is resized to.

        They are those of the triangle filter: (rows, ``size``, ``whole``).
        """
        scale = length / size
        centre = (torch.arange(size, device=self._device).view(-1, 1) + 0.5) * scale
        pixel = torch.arange(whole, device=self._device) + 0.5 - start
        weights = (1 - (pixel - centre).abs() / scale.clamp(min=1)).clamp(min=0)
        weights = weights * ((pixel > 0) & (pixel < length))
        return weights / weights.sum(2, keepdim=True)

    def _resized(self, images: Any) -> Any:
        """Resize whole images."""
        if tuple(images.shape[2:]) == self._size:
            return images.float()
        if self._size[1] > 1:
            return _whole_levels(_interpolated(images.float(), self._size))
        # What PyTorch 2.13 makes one pixel wide on a CPU is wrong, unless it is one high as well.
        lying = _interpolated(images.float().transpose(2, 3), (1, self._size[0]))
        return _whole_levels(lying.transpose(2, 3))

    def _values(self, levels: Any) -> Any:
        """Return what becomes of levels, in the layout of the output."""
        if levels.shape[1] < self._channels:
            levels = torch.nn.functional.pad(levels, (0, 0, 0, 0, 0, 1), value=255)
        if self._images.scaled:
            levels = (levels.double() if self._dtype.itemsize == 8 else levels) / 255
        values = levels.to(self._dtype)
        return values if self._images.planes else values.permute(0, 2, 3, 1)


def _interpolated(images: Any, size: tuple[int, int]) -> Any:
    return torch.nn.functional.interpolate(
        images, size, mode="bilinear", antialias=True, align_corners=False
    )


def _whole_levels(levels: Any) -> Any:
    return levels.add_(0.5).floor_().clamp_(0, 255)


@lru_cache(maxsize=1)
def _jpeg_decoder() -> _DecodeJpegs:
    """Return a function that decodes several JPEGs at once."""
    problems = []
    for find in (_torchcodec, _torchvision):
        try:
            return find()
        # Both fail in many ways if they were built for another PyTorch.
        except (AttributeError, ImportError, OSError, RuntimeError) as e:
            problems.append(f"{find.__name__.strip('_')}: {str(e).splitlines()[0]}")
    raise MissingPackageError(
        "decode_image(device=...) needs TorchCodec or torchvision: pip install torchvision "
        f"({'; '.join(problems)})"
    )


def _torchcodec() -> _DecodeJpegs:
    from torchcodec.decoders import decode_jpeg

    def decode(jpegs: list[Any], mode: str, device: Any) -> list[Any]:
        upright = [_hide_exif(jpeg) for jpeg in jpegs]
        usual = [jpeg for jpeg, hidden in zip(jpegs, upright, strict=True) if hidden]
        decoded = iter(decode_jpeg(usual, mode=mode, device=device) if usual else [])
        return [next(decoded) if hidden else None for hidden in upright]

    return decode


def _torchvision() -> _DecodeJpegs:
    from torchvision.io import ImageReadMode, decode_jpeg

    def decode(jpegs: list[Any], mode: str, device: Any) -> list[Any]:
        return list(decode_jpeg(jpegs, mode=ImageReadMode[mode], device=device))

    return decode


def _encoded_tensor(jpeg: bytes) -> Any:
    # A writable copy, since PyTorch has no read-only tensors.
    return torch.frombuffer(bytearray(jpeg), dtype=torch.uint8)


def _hide_exif(jpeg: Any) -> bool:
    """Hide the EXIF data from TorchCodec, which would rotate the image.

    Return False if the headers are unusual, so that some may be left.
    """
    data = memoryview(jpeg.numpy())
    at = 2
    while at + 4 <= len(data) and data[at] == _MARKER:
        marker = data[at + 1]
        if marker == _START_OF_SCAN:
            return True
        if marker == _MARKER:  # a fill byte
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        elif marker in _NOT_IN_HEADERS:
            return False
        else:
            if data[at + 4 : at + 10] == _EXIF:
                data[at + 4] = 0
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            if length < 2:
                return False
            at += 2 + length
    return False
