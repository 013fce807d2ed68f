"""Numbers without a header, at any offset, compared with numpy.fromfile."""

from __future__ import annotations

import numpy as np

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import table_of

__all__ = ["case"]


def case(case: Case) -> None:
    array = arrays.array(case, strings=False)
    offset = case.pick([0, 0, 1, 3, 128])
    path = case.path(case.pick(["x.bin", "x.dat", "x", "x.raw"]))
    with open(path, "wb") as file:
        file.write(case.rng.bytes(offset))
        file.write(np.ascontiguousarray(array).tobytes())
    shape = (-1, *array.shape[1:]) if case.chance(0.7) else array.shape
    case.note(f"{array.dtype} {array.shape} at {offset}, opened as {shape}")
    if 0 in array.shape:
        try:
            ds = rm.open(path, dtype=array.dtype, shape=shape, offset=offset)
        except rm.RecmapError as e:
            case.note(f"refused: {e}")
            case.outcome = "refused"
            return
    else:
        ds = rm.open(path, dtype=array.dtype, shape=shape, offset=offset)
    check_some_ways(case, ds, table_of({"data": array}))
