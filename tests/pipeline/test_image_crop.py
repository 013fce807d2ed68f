"""Images cropped, mirrored and turned to channels first, compared with Pillow and plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import recmap as rm
from recmap.native import _core
from recmap.pipeline.transforms import image_reader
from recmap.pipeline.transforms.decode_image import ImageDecoder
from recmap.pipeline.transforms.image_reader import ImageReader
from tests.expected_crops import Box, RowNumbers, expected_box, expected_image
from tests.pictures import detailed, encoded, picture


def apart(one: Any, other: Any) -> int:
    return int(np.abs(np.asarray(one, np.int64) - np.asarray(other, np.int64)).max())


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted).map(tuple),
    st.tuples(st.floats(0.05, 20), st.floats(0.05, 20)).map(sorted).map(tuple),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 2**62)),
)
def test_boxes_are_those_of_torchvision_with_numbers_of_numpy(
    shape: tuple[int, int], scale: Any, ratio: Any, row: tuple[int, int, int]
) -> None:
    seed, epoch, position = row
    numbers = RowNumbers(seed, epoch, position)
    where = np.array([position])
    for crop in ("random_resized", "random", "center", {"scale": scale, "ratio": ratio}, None):
        chosen = ImageDecoder("x", (40, 30), crop=crop, flip=True, seed=seed).crop
        box = chosen.boxes(where, epoch, *shape)[0]
        wanted = expected_box(crop, numbers, shape, (40, 30))
        # An exponential of NumPy's may round to another pixel.
        assert apart(box, wanted) <= (1 if isinstance(crop, dict) else 0)
        top, left, height, width = box
        assert 0 <= top <= top + height <= shape[0]
        assert 0 <= left <= left + width <= shape[1]
        assert min(height, width) >= 1
        flips = chosen.flips(where, epoch)
        assert flips is not None
        assert bool(flips[0]) == numbers.flips()


def test_random_crops_cover_the_image_and_half_are_mirrored() -> None:
    chosen = ImageDecoder("x", 10, crop="random_resized", flip=True).crop
    boxes = chosen.boxes(np.arange(4000), 0, 100, 120)
    areas = boxes[:, 2] * boxes[:, 3] / 12_000
    assert 0.07 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.4 < areas.mean() < 0.6  # large ones of an extreme ratio do not fit
    ratios = boxes[:, 3] / boxes[:, 2]
    assert 0.7 < ratios.min() < 0.8
    assert 1.3 < ratios.max() < 1.4
    assert boxes[:, 0].min() == 0 == boxes[:, 1].min()
    flips = chosen.flips(np.arange(4000), 0)
    assert flips is not None
    assert 0.46 < flips.mean() < 0.54


# Images of every kind.


def every_kind() -> dict[str, bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    colour = Image.fromarray(detailed(130, 90, 4))
    return {
        "JPEG": encoded(detailed(97, 203), "JPEG"),
        "progressive JPEG": encoded(detailed(120, 90), "JPEG", progressive=True),
        "rotated JPEG": encoded(detailed(64, 120), "JPEG", exif=exif),
        "JPEG of 4:4:4": encoded(detailed(64, 61), "JPEG", subsampling=0),
        "grey JPEG": encoded(detailed(77, 88, 1)[..., 0], "JPEG"),
        "CMYK JPEG": encoded(colour.convert("CMYK"), "JPEG"),
        "JPEG of one pixel": encoded(detailed(1, 1), "JPEG"),
        "JPEG of one line": encoded(detailed(1, 300), "JPEG"),
        "padded JPEG": encoded(detailed(50, 60), "JPEG") + b"\0" * 7,
        "PNG": encoded(detailed(83, 51), "PNG"),
        "RGBA": encoded(colour, "PNG"),
        "grey": encoded(detailed(40, 200, 1)[..., 0], "PNG"),
        "palette": encoded(colour.convert("P"), "PNG"),
        "one pixel": encoded(detailed(1, 1), "PNG"),
        "one column": encoded(detailed(200, 1), "PNG"),
        "WebP": encoded(detailed(60, 70), "WEBP"),
        "BMP": encoded(colour, "BMP"),
        "GIF": encoded(colour.convert("P"), "GIF"),
    }


CROPS: list[Any] = [
    None, "random_resized", "random", "center", {"scale": (0.3, 0.5), "ratio": (1, 1)},
    {"center": 1.0}, {"scale": (1, 1)},
]  # fmt: skip


@pytest.mark.parametrize("parts", [True, False], ids=["parts", "without Pillow's libjpeg"])
def test_every_kind_of_image_is_cropped_like_pillow(
    parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not parts:
        monkeypatch.setattr(image_reader, "_can_read_parts", lambda: False)
    files = list(every_kind().values())
    strings = rm.Ragged.from_bytes(files)
    for case, crop in enumerate(CROPS):
        size, flip, seed = [(32, 32), (50, 21), (150, 170)][case % 3], case % 2 == 0, case
        for channels in (1, 3, 4):
            whole, _ = ImageDecoder("x", None, channels, "uint8").decode(strings)
            options: dict[str, Any] = {"crop": crop, "flip": flip, "seed": seed}
            decoder = ImageDecoder("x", size, channels, "uint8", **options)
            made, good = decoder.decode(strings)
            assert good.all()
            for row, image in enumerate(whole):
                pixels, numbers = image.pad(), RowNumbers(seed, 0, row)
                box = expected_box(crop, numbers, pixels.shape, size)
                wanted = expected_image(pixels, box, size, flip and numbers.flips())
                assert apart(made[row], wanted) <= 1
            if channels != 3 and case != 1:
                continue
            options |= {"layout": "CHW"}
            planes = ImageDecoder("x", size, channels, "uint8", **options).decode(strings)[0]
            assert np.array_equal(np.asarray(planes), np.asarray(made).transpose(0, 3, 1, 2))
            float32 = ImageDecoder("x", size, channels, scale="0-1", **options).decode(strings)[0]
            assert np.array_equal(np.asarray(float32), np.asarray(planes) / np.float32(255))


def test_images_that_keep_their_size_are_mirrored() -> None:
    pictures = [detailed(5 + i, 7 + i % 3) for i in range(8)]
    strings = rm.Ragged.from_bytes([encoded(each, "PNG") for each in pictures])
    made = ImageDecoder("x", None, dtype="uint8", flip=True, seed=3).decode(strings)[0]
    for row, pixels in enumerate(pictures):
        flip = RowNumbers(3, 0, row).flips()
        assert np.array_equal(made[row].pad(), pixels[:, ::-1] if flip else pixels)


# Parts of JPEGs.


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 120)),
    st.sampled_from(["444", "422", "420", "440", "411", "gray"]),
    st.sampled_from([{}, {"progressive": True}, {"restart_marker_rows": 1}]),
    st.sampled_from([1, 3, 4]),
    st.data(),
)
def test_parts_of_jpegs_are_exactly_those_of_the_whole(
    shape: tuple[int, int], kind: str, options: dict[str, Any], channels: int, draw: st.DataObject
) -> None:
    assert image_reader._can_read_parts()
    pixels = detailed(*shape)
    if kind == "gray":
        data = encoded(pixels[..., 0], "JPEG", **options)
    elif options:
        data = encoded(pixels, "JPEG", subsampling={"444": 0, "422": 1}.get(kind, 2), **options)
    else:
        data = simplejpeg.encode_jpeg(pixels, 85, colorsubsampling=kind)
    by = draw.draw(st.sampled_from([1, 1, 1, 2, 4, 8])) if max(shape) >= 8 else 1
    name = {1: "Gray", 3: "RGB", 4: "RGBA"}[channels]
    sides = [-(-side // by) for side in shape]
    limits = {} if by == 1 else {"min_height": sides[0], "min_width": sides[1]}
    whole = simplejpeg.decode_jpeg(data, name, **limits)
    assert whole.shape == (*sides, channels)
    top, left = (draw.draw(st.integers(0, side - 1)) for side in sides)
    height = draw.draw(st.integers(1, sides[0] - top))
    width = draw.draw(st.integers(1, sides[1] - left))
    part = np.empty((height, width, channels), np.uint8)
    assert _core.decode_jpeg(data, by, (top, left), part)
    assert np.array_equal(part, whole[top : top + height, left : left + width])
    too_far = np.empty((height, sides[1] - left + 1, channels), np.uint8)
    assert not _core.decode_jpeg(data, by, (top, left), too_far)


def test_fast_decodes_what_a_crop_needs_at_a_reduced_size() -> None:
    data = encoded(picture(600, 800), "JPEG", quality=95)
    strings = rm.Ragged.from_bytes([data] * 12)
    for crop in ("random_resized", "center"):
        exact = ImageDecoder("x", 64, dtype="uint8", crop=crop).decode(strings)[0]
        fast = ImageDecoder("x", 64, dtype="uint8", crop=crop, fast=True).decode(strings)[0]
        assert 0 < apart(exact, fast) <= 8


SEEDS = [
    encoded(picture(40, 56), "JPEG"),
    encoded(picture(40, 56), "JPEG", progressive=True),
    encoded(picture(33, 17)[..., 0], "JPEG"),
    encoded(picture(24, 24), "JPEG", subsampling=0, restart_marker_rows=1, dpi=(72, 72)),
]


@pytest.mark.filterwarnings("ignore")  # Pillow's, of damaged EXIF data and large sizes
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_jpegs_have_the_pixels_of_pillow_or_are_refused(
    seed: bytes, draw: st.DataObject
) -> None:
    made = bytearray(seed)
    for _ in range(draw.draw(st.integers(1, 6))):
        made[draw.draw(st.integers(0, len(made) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(made[: draw.draw(st.integers(0, 2 * len(made)))])
    reader = ImageReader(3, (8, 8), exif=False, fast=False, parts=True)
    chosen: list[Box] = []

    def choose(height: int, width: int) -> Box:
        chosen.append((height // 3, width // 4, (height + 2) // 3, (width + 1) // 2))
        return chosen[-1]

    part = reader._part_with_turbo(data, choose)
    try:
        whole = reader._with_pillow(data)
    except Exception:
        return  # below the part, if there is one
    if part is not None:
        top, left, height, width = chosen[-1]
        assert np.array_equal(part, whole[top : top + height, left : left + width])


@pytest.mark.parametrize("crop", ["random_resized", "center"])
def test_errors_decides_what_happens_to_broken_images(crop: Any) -> None:
    good, half = SEEDS[0], SEEDS[0][: len(SEEDS[0]) // 2]
    files = [good, half, b"", good, encoded(picture(), "PNG")[:-200], b"text"]
    ds = rm.from_arrays({"n": np.arange(6), "image": rm.Ragged.from_bytes(files)})
    options: dict[str, Any] = {"crop": crop, "flip": True, "dtype": "uint8"}
    with pytest.raises(rm.ImageError, match="row 1.*errors='skip'"):
        list(ds.decode_image("image", 16, **options))
    kept = list(ds.decode_image("image", 16, errors="skip", **options))
    assert [row["n"].item() for row in kept] == [0, 3]
    rows = list(ds.decode_image("image", 16, errors="zero", **options))
    assert [bool(row["image"].any()) for row in rows] == [True, False, False, True, False, False]
    assert np.array_equal(rows[3]["image"], kept[1]["image"])


# Images that are stored as arrays.


def raw_images(rows: int = 12, shape: Any = (30, 41, 3)) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (rows, *shape), np.uint8)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70), st.sampled_from([1, 3, 4])),
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.sampled_from(CROPS),
    st.booleans(),
    st.sampled_from(["HWC", "CHW"]),
    st.integers(0, 9),
)
def test_arrays_are_cropped_like_numpy_and_pillow(
    shape: Any, size: Any, crop: Any, flip: bool, layout: Any, seed: int
) -> None:
    images = raw_images(5, shape)
    ds = rm.from_arrays({"image": images})
    options: dict[str, Any] = {"channels": shape[2], "dtype": "uint8", "crop": crop, "flip": flip}
    made = ds.decode_image("image", size, layout=layout, seed=seed, **options)
    got = next(iter(made.batch(5)))["image"]
    assert rm.Field("uint8", got.shape[1:]) == made.schema["image"]
    got = got.transpose(0, 2, 3, 1) if layout == "CHW" else got
    for row, pixels in enumerate(images):
        numbers = RowNumbers(seed, 0, row)
        box = expected_box(crop, numbers, shape, size)
        wanted = expected_image(pixels, box, size, flip and numbers.flips())
        # Without resizing, exactly.
        assert apart(got[row], wanted) <= (0 if box[2:] == tuple(size) else 1)


def test_arrays_keep_their_size_if_none_is_given() -> None:
    images = raw_images()
    ds = rm.from_arrays({"image": images}).decode_image("image", None, dtype="uint8", flip=True)
    assert ds.schema["image"] == rm.Field("uint8", (30, 41, 3))
    for row, made in enumerate(ds["image"][:]):
        flip = RowNumbers(0, 0, row).flips()
        assert np.array_equal(made, images[row][:, ::-1] if flip else images[row])


# Pipelines.


def datasets(folder: Path) -> dict[str, rm.Dataset]:
    images = raw_images()
    files = rm.Ragged.from_bytes([encoded(each, "JPEG") for each in images])
    np.save(folder / "image.npy", images)
    rm.from_arrays({"image": files}).save(folder / "image.tfrecord")
    opened = [rm.open({"image": str(folder / "image.npy")}), rm.open(folder / "image.tfrecord")]
    cases: list[Any] = [
        ("arrays", opened[0], "random"),
        ("JPEGs", opened[1], "random_resized"),
    ]
    return {
        name: ds.decode_image(
            "image", (16, 20), dtype="uint8", crop=crop, flip=True, layout="CHW", seed=5
        )
        for name, ds, crop in cases
    }


def images_of(batches: Any) -> npt.NDArray[Any]:
    return np.concatenate([np.asarray(batch["image"]) for batch in batches])


def test_rows_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    for ds in datasets(tmp_path).values():
        first = images_of(ds.batch(5))
        assert first.shape == (12, 3, 16, 20)
        second = images_of(ds.batch(5).repeat(2))[12:]
        assert (first != second).any(axis=(1, 2, 3)).all()
        # By number, one by one, as a slice and saved: those of the first epoch.
        assert np.array_equal(ds[7]["image"], first[7])
        assert np.array_equal(ds["image"][3:9], first[3:9])
        assert np.array_equal(ds[[9, 2]]["image"], first[[9, 2]])
        ds.save(tmp_path / "saved.npz", overwrite=True)
        assert np.array_equal(rm.open(tmp_path / "saved.npz")["image"][:], first)
        # Of any worker, and of any batch.
        mapped = ds.map(dict, workers="fork:2").batch(4)
        assert np.array_equal(images_of(mapped), first)
        assert np.array_equal(images_of(ds.batch(1)), first)
        # On any number of ranks.
        ranks = [images_of(ds.batch(2).shard(rank, 3)) for rank in range(3)]
        assert sorted(each.tobytes() for rank in ranks for each in rank) == sorted(
            each.tobytes() for each in first
        )


def test_states_resume_at_every_batch(tmp_path: Path) -> None:
    for ds in datasets(tmp_path).values():
        train = ds.shuffle(seed=2).batch(5).repeat(2)
        states, batches = [train.state()], []
        for batch in train:
            batches.append(batch["image"].copy())
            states.append(train.state())
        for at, state in enumerate(states[:-1]):
            rest = [
                batch["image"] for batch in ds.shuffle(seed=2).batch(5).repeat(2).restore(state)
            ]
            assert len(rest) == len(batches) - at
            assert all(map(np.array_equal, rest, batches[at:]))


def test_a_state_is_refused_under_other_options() -> None:
    ds = rm.from_arrays({"image": raw_images()})
    state = ds.decode_image("image", 8, crop="random", seed=1).batch(2).state()
    others: list[Any] = [{"crop": "random"}, {"crop": "center", "seed": 1}, {"seed": 1}]
    for options in others:
        with pytest.raises(rm.OptionError):
            ds.decode_image("image", 8, **options).batch(2).restore(state)
    plain = ds.decode_image("image", 8).batch(2)
    assert "crop" not in str(plain.state())


def test_columns_with_one_seed_are_cropped_alike_and_branches_are_not() -> None:
    images = raw_images()
    ds = rm.from_arrays({"image": images, "mask": images[..., :1]})
    options: dict[str, Any] = {"dtype": "uint8", "crop": "random", "flip": True, "seed": 4}
    both = ds.decode_image("image", 16, **options).decode_image("mask", 16, channels=1, **options)
    batch = next(iter(both.batch(12)))
    assert np.array_equal(batch["image"][..., :1], batch["mask"])
    one = ds.select("image").decode_image("image", 16, **options)
    first, second = np.split(images_of(rm.concat(one, one).batch(12)), 2)
    assert np.array_equal(first, batch["image"])
    assert (first != second).any(axis=(1, 2, 3)).sum() > 8


def test_frameworks_get_channels_first() -> None:
    ds = rm.from_arrays({"image": raw_images()})

    def train() -> rm.Stream:  # each in its first epoch
        return ds.decode_image("image", 16, dtype="uint8", crop="random", layout="CHW").batch(4)

    wanted = next(iter(train()))["image"]
    tensor = next(iter(train().to_torch()))["image"]
    assert tensor.is_contiguous()
    assert np.array_equal(tensor.numpy(), wanted)
    assert np.array_equal(next(iter(train().to_tf()))["image"].numpy(), wanted)
    assert np.array_equal(np.asarray(next(iter(train().to_jax()))["image"]), wanted)


def test_wrong_options_are_refused() -> None:
    files = rm.from_arrays({"image": [encoded(picture(), "PNG")]})
    arrays = rm.from_arrays({"image": raw_images(), "two": raw_images(shape=(4, 5, 2))})
    for options, message in [
        ({"crop": "centre"}, "crop='centre': use 'random_resized'"),
        ({"crop": {}}, "crop="),
        ({"crop": {"size": 3}}, "crop="),
        ({"crop": {"scale": (0.5, 0.1)}}, "the least and the most"),
        ({"crop": {"scale": (0, 1)}}, "above 0"),
        ({"crop": {"scale": (0.1, 1.5)}}, "up to 1"),
        ({"crop": {"ratio": (1, 2, 3)}}, "ratio="),
        ({"crop": {"center": "all"}}, "center="),
        ({"crop": "random", "size": None}, "needs a size"),
        ({"layout": "CHW", "size": None}, "layout='CHW'"),
        ({"layout": "NCHW"}, "layout="),
        ({"flip": 0.5}, "flip="),
        ({"seed": -1}, "seed="),
    ]:
        with pytest.raises(rm.OptionError, match=message):
            files.decode_image("image", **options)  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="give channels=3"):
        arrays.decode_image("image", 8, channels=1)
    with pytest.raises(rm.OptionError, match="1, 3 or 4 channels"):
        arrays.decode_image("two", 8)
    with pytest.raises(AttributeError, match='crop="random_resized"'):
        files.random_resized_crop  # type: ignore[attr-defined]  # noqa: B018


def test_arrays_are_cropped_alike_wherever_they_are_stored_and_in_any_order(tmp_path: Path) -> None:
    images = raw_images(20)
    rm.from_arrays({"n": np.arange(20), "image": images}).save(tmp_path / "x.tfrecord")
    np.save(tmp_path / "image.npy", images)
    np.save(tmp_path / "n.npy", np.arange(20))
    npy = {name: str(tmp_path / f"{name}.npy") for name in ("n", "image")}
    orders: list[Any] = [
        lambda ds: ds,
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.shuffle(seed=1, window=6),
        lambda ds: ds.repeat(2),
        lambda ds: ds.select([3, 3, 0, 19]),
        lambda ds: ds.select(range(5, 15, 3)),
        lambda ds: ds.select("image"),
        lambda ds: ds.filter(lambda row: row["n"] % 3 == 1),
        lambda ds: ds.map(dict),
        lambda ds: rm.concat(ds, ds),
        lambda ds: ds.rename({"n": "m"}),
    ]
    options: dict[str, Any] = {"crop": "random", "flip": True, "dtype": "uint8"}
    for order in orders:
        made: list[Any] = []
        for ds in (rm.open(npy), rm.open(tmp_path / "x.tfrecord")):
            train = order(ds).decode_image("image", 16, **options).batch(7)
            made.append([images_of(train) for epoch in range(2)])
        assert all(map(np.array_equal, *made))
        assert not np.array_equal(*made[0])
