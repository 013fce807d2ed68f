"""Images of different sizes, through batches, functions, workers and frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from tests.pictures import encoded, picture


def mixed_sizes() -> tuple[rm.Dataset, list[npt.NDArray[Any]]]:
    pictures = [picture(8 + i % 5, 9 + i % 7) for i in range(20)]
    strings = rm.Ragged.from_bytes([encoded(pixels, "PNG") for pixels in pictures])
    ds = rm.from_arrays({"id": np.arange(20), "image": strings})
    return ds.decode_image("image", None, dtype="uint8"), pictures


def test_images_of_different_sizes_come_in_batches_and_as_rows() -> None:
    ds, pictures = mixed_sizes()
    assert ds.schema["image"] == rm.Field("uint8", (None, None, 3))
    for row in ds:
        assert np.array_equal(row["image"].pad(), pictures[row["id"]])
    for batch in ds.batch(6):
        for number, image in zip(batch["id"], batch["image"], strict=True):
            assert np.array_equal(image.pad(), pictures[number])
    padded = next(iter(ds.batch(6, pad="longest")))["image"]
    assert padded.shape == (6, 12, 14, 3)
    assert np.array_equal(padded[1, :9, :10], pictures[1])
    assert not padded[1, 9:].any()


def crop(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    image = row["image"].pad()
    y, x = rng.integers(0, np.array(image.shape[:2]) - 7)
    return {"id": row["id"], "crop": image[y : y + 8, x : x + 8], "y": y, "x": x}


@pytest.mark.parametrize("workers", [None, "fork:2", "threads:2"])
def test_a_function_crops_images_of_different_sizes(workers: Any) -> None:
    ds, pictures = mixed_sizes()
    for batch in ds.map(crop, workers=workers).shuffle(seed=1).batch(6):
        for n, made, y, x in zip(*(batch[k] for k in ("id", "crop", "y", "x")), strict=True):
            assert np.array_equal(made, pictures[n][y : y + 8, x : x + 8])


def same(row: dict[str, Any]) -> dict[str, Any]:
    return dict(row)


@pytest.mark.parametrize("workers", [None, "fork:2"])
def test_images_of_different_sizes_pass_through_functions_and_workers(workers: Any) -> None:
    ds, pictures = mixed_sizes()
    for batch in ds.map(same, workers=workers).filter(lambda row: row["id"] % 2 == 1).batch(4):
        for number, image in zip(batch["id"], batch["image"], strict=True):
            assert np.array_equal(image.pad(), pictures[number])


def test_functions_may_return_arrays_of_different_sizes_or_of_one_size() -> None:
    ds, pictures = mixed_sizes()
    rows = list(ds.map(lambda row: {"id": row["id"], "image": 255 - row["image"].pad()}))
    for row in rows:
        assert np.array_equal(row["image"].pad(), 255 - pictures[row["id"]])
    one = ds.select([3] * 8).map(lambda row: {"image": row["image"].pad()})
    assert np.array_equal(next(iter(one.batch(2)))["image"][1].pad(), pictures[3])
    assert next(iter(one.batch(2, pad="longest")))["image"].shape == (2, *pictures[3].shape)


def test_images_of_different_sizes_reach_frameworks() -> None:
    ds, pictures = mixed_sizes()
    tensors = next(iter(ds.batch(6).to_tf()))["image"]
    assert np.array_equal(tensors[3].to_tensor().numpy(), pictures[3])
    nested = next(iter(ds.batch(6).to_torch()))["image"]
    assert np.array_equal(np.stack([line.numpy() for line in nested[3].unbind()]), pictures[3])


def test_one_number_is_the_size_of_both_sides() -> None:
    ds = rm.from_arrays({"image": [encoded(picture(8, 9), "PNG")]})
    square, pair = ds.decode_image("image", size=12), ds.decode_image("image", size=(12, 12))
    assert square.schema["image"] == rm.Field("float32", (12, 12, 3))
    assert np.array_equal(square[0]["image"], pair[0]["image"])
    state = square.batch(1).state()
    assert pair.batch(1).restore(state).state() == state
    for wrong in (0, True, (1, 2, 3)):
        with pytest.raises(rm.OptionError, match="size="):
            ds.decode_image("image", size=wrong)  # type: ignore[arg-type]
