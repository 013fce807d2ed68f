"""netCDF-4 files that netCDF4 writes: packed, unsigned and missing values, whole and damaged."""

from __future__ import annotations

import warnings
from typing import Any

import netCDF4
import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case, NoReferenceError
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table, with_masks

__all__ = ["case"]

_NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", ">i2", ">f4", ">f8"]


def case(case: Case) -> None:
    path = case.path("x.nc")
    rows = case.pick([1, case.between(2, 40)])
    names = [f"x{i}" for i in range(case.between(1, 4))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with netCDF4.Dataset(path, "w") as file:
                file.createDimension("time", case.pick([None, rows]))
                if case.chance(0.5):
                    file.createVariable("time", "i4", ("time",))[:] = np.arange(rows)
                    names.append("time")
                for name in names:
                    if name != "time":
                        _variable(case, file, name, rows)
    except (ValueError, TypeError, OverflowError, RuntimeError, OSError) as e:
        raise NoReferenceError(repr(e)) from e
    if case.chance(0.25):
        check_damaged(case, path, lambda: _read(path, names))
        return
    ds = rm.open(path, fields=names)
    wanted = with_masks(_read(path, names), ds.schema)
    check_some_ways(case, rm.open(path, fields=names, nulls="mask"), wanted)


def _variable(case: Case, file: Any, name: str, rows: int) -> None:
    inner = tuple(case.between(1, 4) for _ in range(case.between(0, 2)))
    axes = [f"{name}_{i}" for i in range(len(inner))]
    for axis, size in zip(axes, inner, strict=True):
        file.createDimension(axis, size)
    dtype = np.dtype(case.pick(_NUMBERS))
    values = _values(case, (rows, *inner), dtype)
    fill = case.pick([None, None, values.flat[0], dtype.type(3)])
    attributes: dict[str, Any] = {}
    if case.chance(0.2):
        attributes["missing_value"] = case.pick([values.flat[-1], np.array([1, 2], dtype)])
    if case.chance(0.3) and dtype.itemsize < 8:
        factor = case.pick([np.float32, np.float64])
        attributes["scale_factor"] = factor(case.pick([0.5, 2, 0.01]))
        if case.chance(0.5):
            attributes["add_offset"] = factor(case.pick([0, -1, 273.15]))
    if case.chance(0.3) and dtype.kind == "i":
        attributes["_Unsigned"] = "true"
    options: dict[str, Any] = {"zlib": case.chance(0.4), "shuffle": case.chance(0.5)}
    if case.chance(0.4):
        sizes = (rows, *inner)
        options["chunksizes"] = tuple(case.between(1, size) for size in sizes)
    made = file.createVariable(name, dtype, ("time", *axes), fill_value=fill, **options)
    made.set_auto_maskandscale(False)
    made[:] = values
    made.setncatts(attributes)
    case.note(f"{name}: {dtype} {values.shape}, fill {fill!r}, {attributes}, {options}")


def _values(case: Case, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    values = arrays.values(case, shape, dtype)
    if dtype.kind == "f":  # netCDF4 does not keep the bits of NaN, nor numbers near infinity
        return np.where(np.abs(values) < 1e30, values, np.array(7, dtype)).astype(dtype)
    # No float holds larger ones exactly, and netCDF4 takes what it writes by default for missing.
    if dtype.itemsize == 8:
        values = values % (1 << 50)
    default = netCDF4.default_fillvals.get(dtype.str[1:])
    return np.where(values == default, np.zeros((), dtype), values).astype(dtype)


def _read(path: str, names: list[str]) -> Table:
    """Return what netCDF4 reads: missing values as NaN, or None where rows are integers."""
    table: Table = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with netCDF4.Dataset(path) as file:
            for name in names:
                table[name] = _rows(file[name])
    return table


def _rows(variable: Any) -> list[Any]:
    found = np.ma.asarray(variable[:])
    values, gone = np.asarray(found), np.ma.getmaskarray(found)
    attributes = set(variable.ncattrs())
    if {"scale_factor", "add_offset"} & attributes:
        factors = [variable.getncattr(n) for n in ("scale_factor", "add_offset") if n in attributes]
        single = all(np.asarray(each).dtype == np.float32 for each in factors)
        narrow = variable.dtype.itemsize <= 2 or variable.dtype == np.float32
        values = values.astype(np.float32 if single and narrow else np.float64)
    if values.dtype.kind == "f":
        return list(np.where(gone, np.array(np.nan, values.dtype), values))
    if not {"_FillValue", "missing_value"} & attributes:
        return list(values)
    if values.ndim == 1:
        return [None if missing else v for v, missing in zip(values, gone, strict=True)]
    promoted = values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
    promoted[gone] = np.nan
    return list(promoted)
