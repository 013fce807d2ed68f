"""Random encoded images, decoded by ``decode_image``, compared with the pixels they are made of."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import recmap as rm
from hostile.case import Case
from hostile.reading import check_some_ways

__all__ = ["case"]

_ENDINGS = [".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".parquet"]


def case(case: Case) -> None:
    rows, size = case.pick([1, 2, 5, 30]), (case.between(1, 9), case.between(1, 9))
    pixels = case.rng.integers(0, 256, (rows, *size, 3)).astype(np.uint8)
    broken = case.rng.random(rows) < case.pick([0.0, 0.0, 0.2])
    errors: Any = case.pick(["raise", "skip", "zero"])
    strings = [_encoded(case, *each) for each in zip(pixels, broken, strict=True)]
    path = case.path("x" + case.pick(_ENDINGS))
    rm.from_arrays({"row": np.arange(rows), "image": rm.Ragged.from_bytes(strings)}).save(path)
    layout: Any = case.pick(["HWC", "CHW"])
    dtype = case.pick(["uint8", "float32"])
    case.note(f"{size}, {errors=}, {layout=}, {dtype=}, broken: {np.flatnonzero(broken)}, {path}")
    ds = rm.open(path).decode_image("image", size, errors=errors, layout=layout, dtype=dtype)
    if errors == "raise" and broken.any():
        _refused(case, ds)
        return
    pixels[broken] = 0
    kept = np.flatnonzero(~broken) if errors == "skip" else np.arange(rows)
    wanted = [np.transpose(each, (2, 0, 1)) if layout == "CHW" else each for each in pixels]
    if not len(kept):
        if len(ds):
            raise AssertionError(f"{len(ds)} rows, but all images are broken")
        return
    table: dict[str, Any] = {
        "row": list(kept),
        "image": [wanted[row].astype(dtype) for row in kept],
    }
    check_some_ways(case, ds, table)


def _encoded(case: Case, pixels: npt.NDArray[np.uint8], broken: bool) -> bytes:
    """Return an image without loss, which is cut off if it is to be broken."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, case.pick(["PNG", "BMP"]))
    content = stream.getvalue()
    return content[: case.between(0, 30)] if broken else content


def _refused(case: Case, ds: rm.Dataset) -> None:
    try:
        ds[:]
    except rm.DataError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    raise AssertionError("a broken image was decoded")
