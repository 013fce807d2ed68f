"""Images cropped and mirrored on a device, compared with the CPU and with Pillow.

PyTorch's own CPU is the device. Images that are arrays need nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from tests.adapters.test_device_images import dataset, decoder, photos
from tests.expected_crops import RowNumbers, expected_box, expected_image
from tests.frameworks import Lazy, torch
from tests.pictures import encoded, picture

torch_images: Any = Lazy("recmap.adapters.torch_images")

__all__ = ["decoder"]

SIZE = (32, 40)
CROPS: list[Any] = [
    None,
    "random_resized",
    "random",
    "center",
    {"scale": (0.01, 0.2), "ratio": (0.2, 5)},
    {"center": 1.0},
]


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("torchcodec", "torchvision"):
        monkeypatch.setitem(sys.modules, name, None)
    torch_images._jpeg_decoder.cache_clear()
    yield
    torch_images._jpeg_decoder.cache_clear()


def raw(rows: int = 20, shape: Any = (45, 60, 3)) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (rows, *shape), np.uint8)


def arrays(rows: int = 20, shape: Any = (45, 60, 3)) -> rm.Dataset:
    return rm.from_arrays({"image": raw(rows, shape), "id": np.arange(rows)})


def decoded(ds: Any, device: str | None = "cpu", size: Any = SIZE, **options: Any) -> Any:
    return ds.decode_image("image", size, device=device, **options)


def on_device(ds: Any) -> list[Any]:
    return [
        {name: tensor.numpy() for name, tensor in batch.items()}
        for batch in ds.to_torch(device="cpu")
    ]


def levels_apart(one: Any, other: Any) -> float:
    """Return the largest difference, after a check that all else is equal."""
    assert [list(batch) for batch in one] == [list(batch) for batch in other]
    for made, wanted in zip(one, other, strict=True):
        assert made["image"].dtype == wanted["image"].dtype
        assert made["image"].shape == wanted["image"].shape
        assert np.array_equal(made["id"], wanted["id"])
    pairs = zip(one, other, strict=True)
    return max(float(np.abs(a["image"].astype(float) - b["image"]).max()) for a, b in pairs)


@pytest.mark.usefixtures("no_decoder")
@pytest.mark.parametrize("crop", CROPS, ids=str)
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_arrays_are_those_of_the_cpu(crop: Any, flip: bool, layout: Any) -> None:
    options: dict[str, Any] = {"crop": crop, "flip": flip, "layout": layout, "seed": 3}
    for dtype, scale, level in [("uint8", None, 1), ("float32", "0-1", 1.01 / 255)]:
        options |= {"dtype": dtype, "scale": scale}
        there = decoded(arrays().shuffle(seed=1), **options)
        here = decoded(arrays().shuffle(seed=1), None, **options)
        assert there.schema == here.schema
        apart = levels_apart(on_device(there.batch(7)), list(here.batch(7)))
        assert apart <= (0 if crop == "random" else level)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("shape", [(45, 60), (9, 300), (200, 11), (1, 1), SIZE])
def test_arrays_are_cropped_like_pillow(channels: int, shape: Any) -> None:
    ds, images = arrays(6, (*shape, channels)), raw(6, (*shape, channels))
    for crop in CROPS:
        made = decoded(ds, channels=channels, dtype="uint8", crop=crop, flip=True, seed=5)
        for row, got in enumerate(on_device(made.batch(6))[0]["image"]):
            numbers = RowNumbers(5, 0, row)
            box = expected_box(crop, numbers, shape, SIZE)
            wanted = expected_image(images[row], box, SIZE, numbers.flips())
            assert np.abs(got.astype(int) - wanted).max() <= (0 if box[2:] == SIZE else 1)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(2, 1), (6, 1), (60, 1), (1, 1), (1, 6), (60, 2)])
def test_narrow_images_are_those_of_the_cpu(channels: int, size: Any) -> None:
    for shape in [(6, 56), (50, 7), (82, 3)]:
        ds = arrays(3, (*shape, channels))
        options: dict[str, Any] = {"size": size, "channels": channels, "dtype": "uint8"}
        there, here = decoded(ds, **options), decoded(ds, None, **options)
        assert levels_apart(on_device(there.batch(2)), list(here.batch(2))) <= 1


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("crop", CROPS, ids=str)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_encoded_images_of_all_sizes_are_those_of_the_cpu(crop: Any, channels: int) -> None:
    images = [*photos(), encoded(picture(), "PNG"), b"junk"] * 2
    options: dict[str, Any] = {"crop": crop, "flip": True, "layout": "CHW", "errors": "zero"}
    options |= {"channels": channels, "dtype": "uint8"}
    there = on_device(decoded(dataset(*images), **options).batch(5))
    assert levels_apart(there, list(decoded(dataset(*images), None, **options).batch(5))) <= 1
    assert not there[1]["image"][2].any()  # junk


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("source", ["arrays", "files"])
def test_rows_are_cropped_alike_however_they_are_ordered(source: str) -> None:
    ds = arrays() if source == "arrays" else dataset(*photos() * 3)
    orders: list[Any] = [
        lambda ds, decode: decode(ds).shuffle(seed=1).batch(4),
        lambda ds, decode: decode(ds.filter(lambda row: row["id"] % 3 > 0)).batch(5).repeat(3),
        lambda ds, decode: decode(ds).repeat(2).batch(7),
        lambda ds, decode: decode(ds.map(dict)).skip(2).take(9).batch(4),
        lambda ds, decode: decode(ds.shuffle(seed=1)).batch(4).shard(1, 2, even="pad"),
        lambda ds, decode: decode(ds).select("image", "id").shuffle(seed=2).batch(4),
        lambda ds, decode: decode(ds).batch(4).select("image", "id"),
        lambda ds, decode: decode(rm.concat(ds, ds)).batch(9),
    ]
    options: dict[str, Any] = {"crop": "random_resized", "flip": True, "dtype": "uint8"}
    for order in orders:
        there = order(ds, lambda ds: decoded(ds, **options))
        here = order(ds, lambda ds: decoded(ds, None, **options))
        for _ in range(2):  # epochs
            assert levels_apart(on_device(there), list(here)) <= 1


def test_epochs_states_and_devices_go_together() -> None:
    options: dict[str, Any] = {"crop": "random", "flip": True, "dtype": "uint8"}

    def here() -> Any:
        return decoded(arrays().shuffle(seed=1), None, **options).batch(6)

    on_host = here()
    batches = [batch["image"] for _ in range(2) for batch in on_host]
    assert not np.array_equal(batches[0], batches[4])

    def train() -> Any:
        return decoded(arrays().shuffle(seed=1), **options).batch(6).to_torch(device="cpu")

    whole = train()
    states, got = [whole.state()], []
    for _ in range(2):
        for batch in whole:
            got.append(batch["image"].numpy())
            states.append(whole.state())
    assert all(map(np.array_equal, got, batches))
    for at, state in enumerate(states[:4]):
        rest = [batch["image"].numpy() for batch in train().restore(state)]
        assert all(map(np.array_equal, rest, batches[at:4]))
        assert len(rest) == 4 - at
        rest = [batch["image"] for batch in here().restore(state)]
        assert all(map(np.array_equal, rest, batches[at:4]))


def test_two_columns_are_cropped_alike() -> None:
    images = raw()
    ds = rm.from_arrays({"image": images, "mask": images[..., :1]})
    options: dict[str, Any] = {"dtype": "uint8", "crop": "random", "flip": True, "device": "cpu"}
    both = ds.decode_image("image", 16, **options).decode_image("mask", 16, channels=1, **options)
    for batch in both.batch(8).to_torch(device="cpu"):
        assert list(batch) == ["image", "mask"]
        assert torch.equal(batch["image"][..., :1], batch["mask"])
    first = next(iter(both.batch(8).to_torch(device="cpu")))
    only = next(iter(both.select("mask").batch(8).to_torch(device="cpu")))
    assert list(only) == ["mask"]
    assert torch.equal(only["mask"], first["mask"])


def first_images() -> npt.NDArray[Any]:
    made = decoded(arrays(), crop="random_resized", dtype="uint8").batch(20)
    return np.asarray(on_device(made)[0]["image"])


def test_crops_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = first_images()
    for most in (1, 45 * 60 * 3 * 7):
        monkeypatch.setattr("recmap.adapters.torch_images._LEVELS_TOGETHER", most)
        assert np.array_equal(first_images(), expected)


def test_crops_are_exact_under_autocast() -> None:
    with torch.autocast("cpu"):
        got = first_images()
    assert np.array_equal(got, first_images())


def test_only_the_columns_of_a_user_are_shown() -> None:
    ds = decoded(arrays(), crop="random", flip=True)
    assert list(ds.schema) == list(ds.batch(4).schema) == ["image", "id"]
    features, label = next(iter(ds.batch(4).to_torch(device="cpu", label="id")))
    assert list(features) == ["image"]
    assert label.shape == (4,)
    with pytest.raises(rm.OptionError, match="makes a column 'image/place', and there is one"):
        decoded(rm.from_arrays({"image": raw(), "image/place": np.arange(20)}), crop="random")
    with pytest.raises(rm.OptionError, match=r"decode_image\('image', device='cpu'\)"):
        next(iter(ds.batch(4)))


def test_arrays_that_are_no_images_are_refused() -> None:
    with pytest.raises(rm.OptionError, match="give channels=3"):
        decoded(arrays(), channels=1)
    with pytest.raises(rm.OptionError, match="not bytes"):
        decoded(rm.from_arrays({"image": raw().astype("int16")}))
