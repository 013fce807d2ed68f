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
from PIL import Image

import recmap as rm
from tests.frameworks import Lazy, torch
from tests.pictures import detailed, encoded, picture

torch_images: Any = Lazy("recmap.adapters.torch_images")
SIZE = (32, 40)


class ImageReadMode(enum.Enum):
    GRAY = 1
    RGB = 3


class FakeDecoder:
    """Decodes like torchvision: all images, or none."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.unable: set[int] = set()  # the lengths of JPEGs that it cannot decode
        self.works = True

    def decode_jpeg(self, jpegs: list[Any], mode: ImageReadMode, device: Any) -> list[Any]:
        self.calls.append(len(jpegs))
        if not self.works or any(len(jpeg) in self.unable for jpeg in jpegs):
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
    torch_images._jpeg_decoder.cache_clear()
    yield made
    torch_images._jpeg_decoder.cache_clear()


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
    # Both were rounded to the dtype.
    level = 1 if scale is None else 1 / 255 + float(np.finfo(dtype).eps)
    assert got["image"].shape == expected.shape
    assert np.abs(got["image"].numpy().astype(float) - expected).max() <= level
    assert decoder.calls == [1, 6]  # the first is a trial


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
    assert decoder.calls == [1, 1]
    assert next(iter(on_device(dataset(images[0]), dtype="uint8")))["image"].shape == (1, *SIZE, 3)
    assert decoder.calls == [1, 1, 1]


def test_jpegs_that_the_device_cannot_decode_are_decoded_on_the_cpu(decoder: FakeDecoder) -> None:
    images = photos()
    decoder.unable = {len(images[2])}
    ds = dataset(*images)
    got = next(iter(on_device(ds, dtype="uint8")))["image"].numpy()
    assert np.abs(got.astype(int) - on_host(ds, dtype="uint8")).max() <= 1
    assert decoder.calls == [1, 6, 1, 1, 1, 1, 1, 1]


def test_a_device_that_cannot_decode_is_an_error(decoder: FakeDecoder) -> None:
    decoder.works = False
    with pytest.raises(rm.OptionError, match="cannot be decoded there: nvjpegDecode failed"):
        next(iter(on_device(dataset(*photos()))))


def test_a_first_batch_that_the_device_cannot_decode_is_left_to_the_cpu(
    decoder: FakeDecoder,
) -> None:
    data = photos()[0]
    broken = data.replace(b"\xff\xdb", b"\xff\xe5")  # no quantization tables
    decoder.unable = {len(data)}
    got = next(iter(on_device(dataset(broken), errors="zero")))["image"]
    assert not got.any()
    with pytest.raises(rm.ImageError, match=r"row 0 of the batch: .*\(errors='zero' leaves such"):
        next(iter(on_device(dataset(broken))))
    got = next(iter(on_device(dataset(data), dtype="uint8")))["image"]
    assert np.array_equal(got, on_host(dataset(data), dtype="uint8"))


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(("most", "together"), [(1, [1] * 6), (2 * 48 * 64 * 3, [2, 1, 1, 1, 1])])
def test_images_are_resized_a_few_at_a_time(
    most: int, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = dataset(*photos())
    expected = next(iter(on_device(ds)))["image"]
    counts: list[int] = []
    resized = torch_images.DeviceImages._resized

    def counted(self: Any, images: Any) -> Any:
        counts.append(len(images))
        return resized(self, images)

    monkeypatch.setattr(torch_images.DeviceImages, "_resized", counted)
    monkeypatch.setattr("recmap.adapters.torch_images._LEVELS_TOGETHER", most)
    assert torch.equal(next(iter(on_device(ds)))["image"], expected)
    assert counts == together


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("device", ["nonsense", object(), 1.5])
def test_what_is_not_a_device_is_refused(device: Any) -> None:
    ds = dataset(*photos()).decode_image("image", SIZE, device=device).batch(2)
    with pytest.raises(rm.OptionError, match=r"decode_image\('image', device=.*: not a device of"):
        ds.to_torch(device="cpu")


def test_the_device_is_part_of_the_repr() -> None:
    ds = dataset(*photos())
    text = repr(ds.decode_image("image", SIZE, device="cuda:1").batch(2))
    assert text.endswith(" > batch(2) > 'image' on cuda:1)")
    assert " on " not in repr(ds.decode_image("image", SIZE).batch(2))


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
        lambda: ds.rename({"image": "picture"}),
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
    torch_images._jpeg_decoder.cache_clear()
    with pytest.raises(rm.MissingPackageError, match="needs TorchCodec or torchvision"):
        on_device(dataset(*photos()))


class FakeTorchCodec:
    """Keeps the JPEGs that it is given."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def decode_jpeg(self, jpegs: list[Any], *, mode: str, device: Any) -> list[Any]:
        assert mode == "RGB"
        assert jpegs
        self.seen.extend(jpeg.numpy().tobytes() for jpeg in jpegs)
        return [torch.zeros(3, *SIZE, dtype=torch.uint8, device=device) for _ in jpegs]


@pytest.fixture
def torchcodec(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorchCodec]:
    made = FakeTorchCodec()
    module: Any = types.ModuleType("torchcodec.decoders")
    module.decode_jpeg = made.decode_jpeg
    monkeypatch.setitem(sys.modules, "torchcodec", types.ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)
    torch_images._jpeg_decoder.cache_clear()
    yield made
    torch_images._jpeg_decoder.cache_clear()


def rotated() -> tuple[bytes, int]:
    """Make a JPEG with an orientation; return it, and where its EXIF segment begins."""
    exif = Image.Exif()
    exif[0x0112] = 6
    image = encoded(picture(), "JPEG", exif=exif)
    assert Image.open(io.BytesIO(image)).getexif()
    return image, image.index(b"Exif\0\0") - 4


@pytest.mark.parametrize("before", [b"", b"\xff", b"\xff\xff\xff", b"\xff\x01", b"\xff\xd0\xff"])
def test_torchcodec_does_not_see_orientations(torchcodec: FakeTorchCodec, before: bytes) -> None:
    image, at = rotated()
    image = image[:at] + before + image[at:]
    next(iter(on_device(dataset(image))))
    assert len(torchcodec.seen) == 2  # a trial before
    assert b"Exif\0\0" in image
    assert torchcodec.seen[1] == image.replace(b"Exif\0\0", b"\0xif\0\0")


def test_headers_that_cannot_be_followed_are_left_to_the_cpu(torchcodec: FakeTorchCodec) -> None:
    image, at = rotated()
    odd = image[:at] + b"\0" + image[at:]  # libjpeg skips what is no marker
    ds = dataset(odd, image)
    got = next(iter(on_device(ds, dtype="uint8", errors="zero")))["image"].numpy()
    assert len(torchcodec.seen) == 2
    assert np.array_equal(got[0], on_host(ds, dtype="uint8", errors="zero")[0])
    assert not got[1].any()


@pytest.mark.parametrize("cut", range(2, 40))
def test_headers_that_end_early_are_left_to_the_cpu(cut: int) -> None:
    image, _ = rotated()
    assert torch_images._hide_exif(torch.frombuffer(bytearray(image), dtype=torch.uint8))
    for data in (image[:cut], image[:cut] + b"\xff\xe1\0\1" * 9, image[:2] + b"\xff" * cut):
        assert not torch_images._hide_exif(torch.frombuffer(bytearray(data), dtype=torch.uint8))
