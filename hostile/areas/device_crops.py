"""Random images, cropped and mirrored by PyTorch, compared with the native core.

PyTorch's CPU is the device, and images are arrays: a decoder for devices needs a GPU.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile.case import Case

__all__ = ["case"]


def case(case: Case) -> None:
    rows, channels = case.pick([1, 3, 10, 40]), case.pick([1, 3, 4])
    shape, size = (_side(case, 120), _side(case, 120)), (_side(case, 60), _side(case, 60))
    images = case.rng.integers(0, 256, (rows, *shape, channels)).astype(np.uint8)
    kind = case.pick([None, "center", "random", "random_resized", "scale", "part"])
    crop: Any = {"scale": _scales(case), "part": {"center": case.pick([0.01, 0.5, 1.0])}}.get(
        kind or "", kind
    )
    dtype, scale = case.pick([("uint8", None), ("float32", "0-1"), ("float16", None)])
    options: dict[str, Any] = {
        "channels": channels,
        "crop": crop,
        "flip": case.pick([False, True]),
        "layout": case.pick(["HWC", "CHW"]),
        "dtype": dtype,
        "scale": scale,
        "seed": case.between(0, 9),
    }
    batch, rank, turns = case.between(1, 12), case.pick([(0, 1), (1, 2)]), case.pick([1, 3])
    shuffled, first = case.pick([False, True]), case.pick([False, True])
    case.note(f"{images.shape} to {size}, {options}, {batch=}, {rank=}, {turns=}, {shuffled=}")

    def stream(device: str | None) -> rm.Stream:
        ds = rm.from_arrays({"row": np.arange(rows), "image": images})
        if first and shuffled:
            ds = ds.shuffle(seed=1)
        made = ds.decode_image("image", size, device=device, **options)
        if shuffled and not first:
            made = made.shuffle(seed=1)
        return made.batch(batch).repeat(turns).shard(*rank)

    wanted = list(stream(None))
    # Crops of one size are copied; all others are resized, and may be rounded otherwise.
    exact = crop == "random" and shape[0] >= size[0] and shape[1] >= size[1]
    apart = 0.0 if exact else 1 / 255 + float(np.finfo(dtype).eps) if scale else 1.0
    loader: Any = stream("cpu").to_torch(device="cpu")
    # After its last batch, a stream begins anew.
    stop = case.between(0, max(0, len(wanted) - 1))
    _check(list(islice(iter(loader), stop)), wanted[:stop], apart)
    again: Any = stream("cpu").to_torch(device="cpu")
    case.note(f"stopped after {stop} of {len(wanted)} batches")
    _check(list(again.restore(loader.state())), wanted[stop:], apart)


def _side(case: Case, most: int) -> int:
    return int(case.pick([1, case.between(1, 8), case.between(1, most)]))


def _scales(case: Case) -> dict[str, tuple[float, float]]:
    return {"scale": case.pick([(0.01, 0.1), (0.5, 1.0)]), "ratio": case.pick([(0.1, 10), (1, 1)])}


def _check(made: list[Any], wanted: list[Any], apart: float) -> None:
    if len(made) != len(wanted):
        raise AssertionError(f"{len(made)} batches, {len(wanted)} expected")
    for tensors, arrays in zip(made, wanted, strict=True):
        one: npt.NDArray[Any] = tensors["image"].numpy()
        other = arrays["image"]
        if not np.array_equal(tensors["row"].numpy(), arrays["row"]):
            raise AssertionError(f"rows {tensors['row']}, {arrays['row']} expected")
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise AssertionError(f"{one.dtype} {one.shape}, {other.dtype} {other.shape} expected")
        most = np.abs(one.astype(float) - other.astype(float)).max(initial=0)
        if most > apart:
            raise AssertionError(f"values up to {most} apart, {apart} allowed")
