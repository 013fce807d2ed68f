"""Files of safetensors: those of the package, whole and damaged, and those that recmap writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as package

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table, rows_of

__all__ = ["case"]

_DTYPES = [kind for kind in arrays.NUMBERS if kind != "c16"]


def case(case: Case) -> None:
    rows = case.pick([0, 1, case.between(2, 40), 1000])
    columns: dict[str, Any] = {}
    for i in range(case.between(1, 5)):
        dtype = np.dtype(case.pick(_DTYPES))
        columns[f"{arrays.name(case)}{i}"] = arrays.values(case, arrays.shape(case, rows), dtype)
    path = case.path("x.safetensors")
    case.note(f"{rows} rows of {[(n, c.dtype, c.shape) for n, c in columns.items()]}")
    package.save_file(columns, path, {"a": "b"} if case.chance(0.3) else None)
    table = {name: rows_of(column) for name, column in columns.items()}
    ds = rm.open(path)
    check_some_ways(case, ds, table)
    saved = case.path("y.safetensors")
    ds.save(saved, verify=case.pick([True, "full"]))
    for name, column in package.load_file(saved).items():
        wanted = columns[name]
        if (column.dtype, column.shape, column.tobytes()) != (
            wanted.dtype, wanted.shape, wanted.tobytes()
        ):  # fmt: skip
            raise AssertionError(f"the package reads another {name!r}")
    if case.chance(0.6):
        check_damaged(case, path, lambda: _read(path))


def _read(path: str) -> Table:
    try:
        found = package.load_file(path)
    except SafetensorError as e:
        raise ValueError(str(e)) from e
    return {name: rows_of(column) for name, column in found.items() if column.ndim}
