"""Files that NumPy writes: every dtype, layout and header version, one file or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table, table_of

__all__ = ["case"]


def case(case: Case) -> None:
    files = case.pick([1, 1, 1, 2, 5])
    first = _array(case)
    paths, parts = [], []
    for i in range(files):
        part = first if i == 0 else first[case.between(0, len(first)) :]
        path = case.path(f"{i}.npy")
        version = case.pick([None, (1, 0), (2, 0), (3, 0)])
        laid = arrays.lay_out(case, part)
        case.note(f"{path}: {laid.dtype} {laid.shape} version {version}")
        with open(path, "wb") as file:
            np.lib.format.write_array(file, laid, version=version, allow_pickle=False)
        paths.append(path)
        # Expect what the reference reads, not what was intended.
        parts.append(np.load(path))
    ds = rm.open(paths if files > 1 or case.chance(0.5) else paths[0])
    check_some_ways(case, ds, _expected(np.concatenate(parts)))


def _array(case: Case) -> npt.NDArray[Any]:
    if case.chance(0.8):
        return arrays.array(case)
    rows = case.between(0, 30)
    kinds = []
    for i in range(case.between(1, 4)):
        inner = tuple(case.between(1, 3) for _ in range(case.between(0, 2)))
        kinds.append((f"f{i}", arrays.dtype(case), inner))
    record = np.dtype(kinds, align=case.chance(0.3))
    made = np.zeros(rows, record)
    for field in record.names or ():
        inner = record[field].shape
        made[field] = arrays.values(case, (rows, *inner), record[field].base)
    return made


def _expected(array: npt.NDArray[Any]) -> Table:
    return table_of({"" if array.dtype.names else "data": array})
