"""Images decoded on a device. A stand-in for torchvision makes the CPU such a device."""

from __future__ import annotations

import enum
import io
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import recmap as rm
from recmap.adapters import device_images
from tests.pipeline.test_decode_image import detailed, encoded, picture

SIZE = (32, 40)


class ImageReadMode(enum.Enum):
    GRAY = 1
    RGB = 3


class FakeDecoder:
    """Decodes like torchvision: all images, or none."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.unable: set[int] = set()  # the lengths of JPEGs that it cannot decode

    def decode_jpeg(self, jpegs: list[Any], mode: ImageReadMode, device: Any) -> list[Any]:
        self.calls.append(len(jpegs))
        if any(len(jpeg) in self.unable for jpeg in jpegs):
            raise RuntimeError("nvjpegDecode failed: 5")
        return [self._decoded(jpeg, mode).to(device) for jpeg in jpegs]

    def _decoded(self, jpeg: Any, mode: ImageReadMode) -> Any:
        with Image.open(io.BytesIO(jpeg.numpy().tobytes())) as image:
            wanted = "L" if mode is ImageReadMode.GRAY else "RGB"
            image.draft(wanted, None)
            pixels = np.array(image.convert(wanted))
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDecoder]:
    made = FakeDecoder()
    module: Any = types.ModuleType("torchvision.io")
    module.decode_jpeg, module.ImageReadMode = made.decode_jpeg, ImageReadMode
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    device_images._jpeg_decoder.cache_clear()
    yield made
    device_images._jpeg_decoder.cache_clear()


def dataset(*images: bytes) -> rm.Dataset:
    strings = rm.Ragged.from_bytes(images)
    return rm.from_arrays({"image": strings, "id": np.arange(len(images))})


def photos() -> list[bytes]:
    sizes = [(48, 64), (48, 64), (20, 90), (32, 40), (1, 1), (48, 64)]
    return [encoded(detailed(*size), "JPEG", quality=90) for size in sizes]


def on_device(ds: Any, **options: Any) -> Any:
    return ds.decode_image("image", SIZE, device="cpu", **options).batch(100).to_torch(device="cpu")


def on_host(ds: Any, **options: Any) -> Any:
    return next(iter(ds.decode_image("image", SIZE, **options).batch(100)))["image"]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", ">f4"])
def test_images_are_those_of_the_cpu(decoder: FakeDecoder, channels: int, dtype: str) -> None:
    ds = dataset(*photos(), encoded(picture(), "PNG"))
    scale = None if dtype == "uint8" else "0-1"
    options: dict[str, Any] = {"channels": channels, "dtype": dtype, "scale": scale}
    got = next(iter(on_device(ds, **options)))
    assert got["id"].tolist() == list(range(7))
    assert got["image"].dtype == getattr(torch, np.dtype(dtype).name)
    expected = on_host(ds, **options)
    level = 1 if scale is None else 1.01 / 255
    assert got["image"].shape == expected.shape
    assert np.abs(got["image"].numpy().astype(float) - expected).max() <= level
    assert decoder.calls == [6]


def test_other_formats_and_odd_jpegs_are_decoded_on_the_cpu(decoder: FakeDecoder) -> None:
    images = [
        encoded(picture(), "PNG"),
        photos()[0],
        encoded(Image.fromarray(picture()).convert("CMYK"), "JPEG"),
        photos()[0] + b"\0",  # may be cut off, for all that its end tells
        encoded(picture(), "WEBP"),
    ]
    ds = dataset(*images)
    got = next(iter(on_device(ds, dtype="uint8")))["image"].numpy()
    assert np.abs(got.astype(int) - on_host(ds, dtype="uint8")).max() <= 1
    assert decoder.calls == [1]
    assert next(iter(on_device(dataset(images[0]), dtype="uint8")))["image"].shape == (1, *SIZE, 3)
    assert decoder.calls == [1]


def test_jpegs_that_the_device_cannot_decode_are_decoded_on_the_cpu(decoder: FakeDecoder) -> None:
    images = photos()
    decoder.unable = {len(images[2])}
    ds = dataset(*images)
    got = next(iter(on_device(ds, dtype="uint8")))["image"].numpy()
    assert np.abs(got.astype(int) - on_host(ds, dtype="uint8")).max() <= 1
    assert decoder.calls == [6, 1, 1, 1, 1, 1, 1]


def test_a_device_that_decodes_nothing_is_an_error(decoder: FakeDecoder) -> None:
    decoder.unable = {len(each) for each in photos()}
    with pytest.raises(rm.OptionError, match="cannot be decoded there: nvjpegDecode failed"):
        next(iter(on_device(dataset(*photos()))))


@pytest.mark.usefixtures("decoder")
def test_broken_images_are_black_or_an_error() -> None:
    whole = photos()
    ds = dataset(whole[0], whole[1][:-50], b"junk", whole[3])
    got = next(iter(on_device(ds, errors="zero")))["image"]
    assert [bool(image.any()) for image in got] == [True, False, False, True]
    with pytest.raises(rm.ImageError, match="row 1 of the batch: .*truncated"):
        next(iter(on_device(ds)))


@pytest.mark.usefixtures("decoder")
def test_batches_are_shuffled_sharded_and_resumed() -> None:
    ds = dataset(*photos() * 3)
    whole = next(iter(on_device(ds, dtype="uint8")))["image"]
    shuffled = ds.shuffle(seed=1).decode_image("image", SIZE, dtype="uint8", device="cpu")
    train = shuffled.shard(1, 2).batch(4).to_torch(device="cpu", features="image", label="id")
    batches = list(train)
    assert len(batches) == 3
    for images, ids in batches:
        assert torch.equal(images, whole[ids])
    first = iter(train)
    next(first)
    again = shuffled.shard(1, 2).batch(4).to_torch(device="cpu", features="image", label="id")
    rest = list(again.restore(train.state()))
    assert [ids.tolist() for _, ids in rest] == [ids.tolist() for _, ids in first]


def test_a_column_that_is_not_asked_for_is_not_decoded(decoder: FakeDecoder) -> None:
    ds = dataset(*photos()).decode_image("image", SIZE, device="cpu")
    assert ds.schema["image"] == rm.Field("float32", (*SIZE, 3))
    next(iter(ds.batch(6).to_torch(device="cpu", features="id")))
    next(iter(ds.select("id").batch(6).to_torch(device="cpu")))
    assert decoder.calls == []


@pytest.mark.usefixtures("decoder")
def test_what_needs_the_pixels_on_the_host_is_refused() -> None:
    ds = dataset(*photos()).decode_image("image", SIZE, device="cpu")
    hint = r"decode_image\('image', device='cpu'\)"
    for refused in (
        lambda: ds.map(dict),
        lambda: ds.filter(bool),
        lambda: ds.batch(2).map(dict),
        lambda: ds.bucket("image", [3]),
        lambda: ds.pack(8),
        lambda: rm.mix(ds, ds),
        lambda: rm.zip(ds, ds.select("id")),
        lambda: iter(ds.batch(2)),
        lambda: ds.batch(2).run(),
        lambda: ds.batch(2).to_torch(),
        ds.to_torch,
        lambda: ds.batch(2).to_jax(),
        lambda: ds.batch(2).to_tf(),
        lambda: ds.batch(2).to_keras(),
    ):
        with pytest.raises(rm.OptionError, match=hint):
            refused()


@pytest.mark.usefixtures("decoder")
def test_options_that_a_device_cannot_follow_are_refused() -> None:
    ds = dataset(*photos())
    for options, message in [
        ({"size": None}, "needs one size"),
        ({"errors": "skip"}, "errors='zero'"),
        ({"fast": True}, "fast=True is for the CPU"),
    ]:
        with pytest.raises(rm.OptionError, match=message):
            ds.decode_image("image", device="cpu", **options)  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="'image' is decoded already"):
        ds.decode_image("image", device="cpu").decode_image("image")
    with pytest.raises(rm.OptionError, match="give both the same device"):
        ds.decode_image("image", device="cuda").batch(2).to_torch(device="cpu")
    with pytest.raises(rm.OptionError, match="'id' is int64, not bytes"):
        ds.decode_image("id", device="cpu").batch(2).to_torch(device="cpu")


def test_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchcodec", "torchvision"):
        monkeypatch.setitem(sys.modules, name, None)
    device_images._jpeg_decoder.cache_clear()
    with pytest.raises(rm.MissingPackageError, match="needs TorchCodec or torchvision"):
        on_device(dataset(*photos()))


def test_torchcodec_does_not_see_orientations(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def decode_jpeg(jpegs: list[Any], *, mode: str, device: Any) -> list[Any]:
        assert mode == "RGB"
        seen.extend(jpeg.numpy().tobytes() for jpeg in jpegs)
        return [torch.zeros(3, *SIZE, dtype=torch.uint8, device=device) for _ in jpegs]

    module: Any = types.ModuleType("torchcodec.decoders")
    module.decode_jpeg = decode_jpeg
    monkeypatch.setitem(sys.modules, "torchcodec", types.ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)
    device_images._jpeg_decoder.cache_clear()
    exif = Image.Exif()
    exif[0x0112] = 6
    image = encoded(picture(), "JPEG", exif=exif)
    try:
        next(iter(on_device(dataset(image))))
    finally:
        device_images._jpeg_decoder.cache_clear()
    assert Image.open(io.BytesIO(image)).getexif()
    assert not Image.open(io.BytesIO(seen[0])).getexif()
