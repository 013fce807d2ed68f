"""netCDF-4 files, compared with what netCDF4 and xarray read from those that they wrote."""

from __future__ import annotations

import contextlib
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import recmap as rm
from recmap.formats.hdf5.netcdf_times import TimeUnit
from tests.buckets import Bucket
from tests.formats.every_format import assert_same

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import h5netcdf  # noqa: F401  # xarray writes with it
    import netCDF4

HOURS, LATS, LONS = 30, 4, 5
ENGINES = ["netcdf4", "h5netcdf"]


def weather() -> xr.Dataset:
    rng = np.random.default_rng(0)
    t2m = rng.normal(280, 10, (HOURS, LATS, LONS)).astype("float32")
    t2m[3:5, 1] = np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m, {"units": "K"}),
            "rain": (("time", "lat", "lon"), rng.random((HOURS, LATS, LONS))),
            "count": (("time",), np.arange(HOURS, dtype="int32")),
            "ok": (("time",), np.arange(HOURS) % 2 == 0),
            "station": (("time",), [f"é{i}" for i in range(HOURS)]),
            "mask": (("lat", "lon"), np.ones((LATS, LONS), "int8")),
        },
        {
            "time": np.datetime64("2020-02-28T00", "ns")
            + np.arange(HOURS) * np.timedelta64(1, "h"),
            "lat": np.linspace(-45, 45, LATS),
            "lon": np.arange(LONS, dtype="float32"),
        },
    )


def write(ds: xr.Dataset, path: str = "a.nc", engine: str = "h5netcdf", **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.to_netcdf(path, engine=engine, **options)
    return path


def opened(path: str = "a.nc", *names: str) -> rm.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.LeftOutWarning)
        return rm.open(path, list(names) or None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("packing", [{}, {"zlib": True, "chunksizes": (7, 2, 5)}])
def test_variables_along_the_unlimited_dimension_are_columns(
    engine: str, packing: dict[str, Any]
) -> None:
    ds = weather()
    encoding = {"rain": packing, "t2m": packing}
    write(ds, engine=engine, encoding=encoding, unlimited_dims=["time"])
    with pytest.warns(rm.LeftOutWarning, match="'lat' has its rows along 'lat', not 'time'"):
        found = rm.open("a.nc")
    assert found.info().format == "netcdf"
    assert set(found.schema) == {"t2m", "rain", "count", "ok", "station", "time"}
    assert "a row for each step of 'time'" in str(found.info())
    assert found.info().notes["t2m"].startswith("units 'K'")
    wanted = xr.load_dataset("a.nc", engine=engine)
    for rows in (slice(None), slice(2, 9), [7, 3, 3, 29]):
        for name in ("t2m", "rain", "count", "ok"):
            assert_same(found[rows][name], wanted[name].to_numpy()[rows])
        assert found[rows]["station"].tolist() == wanted["station"].to_numpy()[rows].tolist()
        assert (found[rows]["time"] == wanted["time"].to_numpy()[rows]).all()
    assert_same(rm.open("a.nc", ["lat"])[:]["lat"], wanted["lat"].to_numpy())
    assert_same(rm.open("a.nc", ["mask"])[:]["mask"], wanted["mask"].to_numpy())
    with pytest.raises(rm.DataError, match="'lat' has its rows along 'lat', not 'time'"):
        rm.open("a.nc", ["t2m", "lat"])
    with pytest.raises(rm.FieldNotFoundError, match="no column 'tm2'.*did you mean 't2m'"):
        rm.open("a.nc", ["tm2"])
    assert rm.verify("a.nc").ok


def test_plain_numbers_are_mapped() -> None:
    write(weather(), encoding={"rain": {"_FillValue": None}})
    assert {"rain", "t2m"} <= set(opened().info().mapped)


@pytest.mark.parametrize("engine", ENGINES)
def test_packed_numbers_are_unpacked_as_xarray_does(engine: str) -> None:
    ds = weather()
    encoding = {
        "t2m": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768},
        "rain": {"dtype": "uint8", "scale_factor": np.float32(0.004), "_FillValue": 255},
        "count": {"dtype": "int16", "_FillValue": 7},
    }
    write(ds, engine=engine, encoding=encoding)
    wanted, found = xr.load_dataset("a.nc", engine=engine), opened()
    for name in ("t2m", "rain"):
        assert_same(found[:]["rain"], wanted["rain"].to_numpy())
        assert np.array_equal(found[:][name], wanted[name].to_numpy(), equal_nan=True)
    assert np.isnan(found[3]["t2m"][1]).all()
    assert "packed in int16" in found.info().notes["t2m"]
    assert str(found.schema["count"]) == "int16?"
    assert found["count"][:].tolist() == [None if i == 7 else i for i in range(HOURS)]


def variable(
    values: Any, kind: str, attributes: dict[str, Any], fill: Any = None, path: str = "a.nc"
) -> Any:
    """Write a variable with these stored values and attributes; return what netCDF4 reads."""
    values = np.asarray(values)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("n", None)
        axes = [f"axis{i}" for i in range(values.ndim - 1)]
        for axis, size in zip(axes, values.shape[1:], strict=True):
            file.createDimension(axis, size)
        endian: Any = "big" if kind.startswith(">") else "native"
        made = file.createVariable("x", kind, ("n", *axes), endian=endian, fill_value=fill)
        made.set_auto_maskandscale(False)
        made[:] = values
        made.setncatts(attributes)
    with netCDF4.Dataset(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of marks that do not fit
        with contextlib.suppress(TypeError):
            return file["x"][:]


GRID = np.arange(12).reshape(4, 3)
STORED: dict[str, tuple[Any, str, dict[str, Any], Any, str]] = {
    "floats": (GRID / 2, "f4", {}, 2.5, "float32[3]"),
    "floats, the default": (np.where(GRID == 4, 9.969209968386869e36, GRID), "f8", {}, None,
        "float64[3]"),
    "a missing value": (GRID, "f4", {"missing_value": np.float64(3)}, None, "float32[3]"),
    "several missing values": (GRID, "f8", {"missing_value": np.array([3.0, 4.0])}, 5.0,
        "float64[3]"),
    "big-endian": (GRID, ">f4", {}, 2.0, ">f4[3]"),
    "big-endian shorts": (np.arange(4), ">i2", {}, 2, ">i2?"),
    "integers": (np.arange(5), "i4", {}, 3, "int32?"),
    "tables of shorts": (GRID, "i2", {}, 3, "float32[3]"),
    "tables of integers": (GRID, "i4", {"missing_value": np.int32(1)}, 3, "float64[3]"),
    "tables without missing values": (GRID, "i4", {}, None, "int32[3]"),
    "long integers": (GRID.astype("i8") << 40, "i8", {}, 3 << 40, "float64[3]"),
    "unsigned": (GRID - 5, "i1", {"_Unsigned": "true"}, -2, "float32[3]"),
    "unsigned in rows": (np.arange(6) - 3, "i2", {"_Unsigned": "true"}, -2, "uint16?"),
    "packed": (GRID, "i2", {"scale_factor": 0.5, "add_offset": 10.0}, 4, "float64[3]"),
    "packed in little": (GRID, "i2", {"scale_factor": np.float32(0.5)}, None, "float32[3]"),
    "packed and unsigned": (GRID - 5, "i1",
        {"_Unsigned": "true", "scale_factor": np.float32(0.5), "add_offset": np.float32(1)}, -1,
        "float32[3]"),
    "packed floats": (GRID, "f4", {"scale_factor": np.float32(0.5)}, None, "float32[3]"),
    "floats with an offset": (GRID, "f4", {"add_offset": np.float32(2)}, 3.0, "float32[3]"),
    "an offset": (GRID, "i4", {"add_offset": 100.0}, None, "float64[3]"),
    "a scale of 1": (GRID, "f4", {"scale_factor": 1.0, "add_offset": 0.0}, None, "float32[3]"),
    "a mark of another type": (GRID, "i2", {"missing_value": -9999.0}, None, "float32[3]"),
    "a mark that does not fit": (GRID, "i2", {"missing_value": 1e20}, None, "int16[3]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STORED)
def test_values_are_decoded_as_netcdf4_does(kind: str) -> None:
    values, dtype, attributes, fill, field = STORED[kind]
    wanted = variable(values, dtype, attributes, fill)
    ds = rm.open("a.nc")
    assert str(ds.schema["x"]) == field
    for rows in (slice(None), slice(1, 3), [3, 0, 3]):
        found, expected = ds[rows]["x"], np.ma.asarray(wanted)[rows]
        gone = np.ma.getmaskarray(expected)
        missing = np.ma.getmaskarray(found) if field.endswith("?") else np.isnan(found)
        assert np.array_equal(missing, gone)
        assert np.allclose(np.asarray(found)[~gone], np.asarray(expected)[~gone], 1e-7, 0)


def test_a_mark_is_rounded_to_the_type_of_the_numbers() -> None:
    variable(GRID + 0.1, "f4", {"missing_value": np.float64(3.1)})
    assert np.isnan(rm.open("a.nc")[1]["x"][0])


def test_integers_that_no_float_holds_are_refused_where_values_are_missing() -> None:
    variable([[1, 2**60 + 1]], "i8", {}, 1)
    with pytest.raises(rm.DataError, match=r"beyond 2\*\*53.*format=\"hdf5\" reads"):
        rm.open("a.nc")[:]
    variable([1, 2**60 + 1], "i8", {}, 1)
    assert rm.open("a.nc")["x"][:].tolist() == [None, 2**60 + 1]


def test_attributes_that_are_no_numbers_are_refused() -> None:
    variable([1, 2], "i2", {"scale_factor": "0.1"})
    with pytest.raises(rm.DataError, match="its scale_factor is '0.1', not a number"):
        rm.open("a.nc")
    with pytest.raises(rm.DataError, match="'x' cannot be decoded: its scale_factor"):
        rm.open("a.nc", ["x"])
    assert rm.open("a.nc", ["x"], format="hdf5")["x"][:].tolist() == [1, 2]


@pytest.mark.parametrize("unit", ["days", "hours", "minutes", "seconds", "milliseconds"])
@pytest.mark.parametrize("dtype", ["i4", "f8", "f4"])
def test_times_are_dates(unit: str, dtype: str) -> None:
    numbers = np.array([0, 1, 100, 365]) if dtype == "i4" else np.array([0, 0.5, 99.25, 365])
    variable(numbers, dtype, {"units": f"{unit} since 1999-12-31 18:30:00"})
    wanted = xr.load_dataset("a.nc", engine="netcdf4")["x"].to_numpy()
    ds = rm.open("a.nc")
    assert ds.schema["x"].dtype == np.dtype("M8[us]")
    assert (ds[:]["x"] == wanted).all()
    assert "decoded from" in ds.info().notes["x"]


@pytest.mark.parametrize(
    ("units", "first"),
    [
        ("days since 1970-01-01", "1970-01-02T00:00:00"),
        ("hours since 1970-1-1 00:00:0.0", "1970-01-01T01:00:00"),
        ("Hours Since 1970-01-01T12:00Z", "1970-01-01T13:00:00"),
        ("seconds since 1970-01-01 00:00:00.25 UTC", "1970-01-01T00:00:01.250000"),
        ("minutes since 2000-02-29 23:59 +02:00", "2000-02-29T22:00:00"),
        ("h since 1970-01-01 00 -6", "1970-01-01T07:00:00"),
        ("microseconds since 1582-10-15", "1582-10-15T00:00:00.000001"),
    ],
)
def test_units_of_time_are_understood(units: str, first: str) -> None:
    found = TimeUnit.parsed(units, "")
    assert found is not None
    assert found.decode(np.array([1]), np.array([False]))[0] == np.datetime64(first)


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("months since 1970-01-01", ""),
        ("days", ""),
        ("K", ""),
        ("days since 2000-02-30", ""),
        ("days since 1-1-1", "standard"),
        ("days since 2000-01-01", "noleap"),
        ("days since 2000-01-01", "360_day"),
        ("days since then", ""),
        ("hours since 2000-01-01 61:75", ""),
    ],
)
def test_other_units_leave_numbers(units: str, calendar: str) -> None:
    attributes = {"units": units} | ({"calendar": calendar} if calendar else {})
    variable([1.5, 2.5], "f8", attributes)
    ds = rm.open("a.nc")
    assert ds["x"][:].tolist() == [1.5, 2.5]
    assert units in ds.info().notes["x"]


def test_bounds_have_the_units_of_their_times() -> None:
    ds = weather()
    ds["time"].attrs["bounds"] = "time_bnds"
    ds["time_bnds"] = (("time", "nv"), np.stack([ds.time.to_numpy()] * 2, axis=1))
    write(ds, encoding={"time": {"units": "hours since 2020-01-01"}})
    with h5py.File("a.nc") as file:
        assert "units" not in file["time_bnds"].attrs
    assert (opened("a.nc", "time_bnds")[:]["time_bnds"] == ds["time_bnds"].to_numpy()).all()


def test_missing_times_are_nat_and_far_ones_are_refused() -> None:
    variable([1, 2, -1], "i4", {"units": "days since 2000-01-01"}, -1)
    assert [str(each) for each in rm.open("a.nc")["x"][:]] == [
        "2000-01-02T00:00:00.000000", "2000-01-03T00:00:00.000000", "NaT",
    ]  # fmt: skip
    variable([1e300], "f8", {"units": "days since 2000-01-01"})
    with pytest.raises(rm.DataError, match="too far away"):
        rm.open("a.nc")[:]
    variable([-1e6], "f8", {"units": "days since 2000-01-01"})
    with pytest.raises(rm.DataError, match="before October 15, 1582"):
        rm.open("a.nc")[:]
    attributes = {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"}
    variable([0, 730119], "i4", attributes)
    assert [str(t)[:10] for t in rm.open("a.nc")["x"][:]] == ["0001-01-01", "2000-01-01"]


def test_groups_characters_and_types_of_the_user() -> None:
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("n", None)
        file.createDimension("width", 6)
        file.createDimension("none", 3)  # without a variable
        names = file.createVariable("name", "S1", ("n", "width"))
        names[:] = netCDF4.stringtochar(np.array([b"ab", b"", b"longer"], "S6"))
        coded = file.createVariable("coded", "S1", ("n", "width"))
        coded._Encoding = "utf-8"
        coded[:] = np.array(["é", "a", "b"])
        file.createVariable("letter", "S1", ("n",))[:] = np.array([b"a", b"b", b"c"])
        inner = file.createGroup("inner")
        inner.createDimension("m", 2)
        inner.createVariable("y", "f8", ("m",))[:] = [1, 2]
        inner.createVariable("along_n", "i4", ("n",))[:] = [1, 2, 3]
        lists = file.createVLType(np.int32, "lists")
        rows = file.createVariable("rows", lists, ("n",))
        for i in range(3):
            rows[i] = np.arange(i, dtype="i4")
        pair = file.createCompoundType(np.dtype([("a", "f4"), ("b", "i4")]), "pair")
        file.createVariable("pairs", pair, ("n",))[:] = np.array([(1, 2)] * 3, "f4,i4")
        kind = file.createEnumType(np.int8, "kinds", {"no": 0, "yes": 1})
        file.createVariable("kind", kind, ("n",), fill_value=0)[:] = [0, 1, 0]
        file.createVariable("crs", "i4", ())[...] = 1
    with pytest.warns(rm.LeftOutWarning) as caught:
        ds = rm.open("a.nc")
    told = str(caught[0].message)
    assert "'inner/y' has its rows along 'inner/m', not 'n'" in told
    assert "'crs' cannot be a column: it is a single value" in told
    assert set(ds.schema) == {
        "name", "coded", "letter", "inner/along_n", "rows", "pairs.a", "pairs.b", "kind",
    }  # fmt: skip
    assert ds["name"][:].tolist() == [b"ab", b"", b"longer"]
    assert ds["coded"][:].tolist() == ["é", "a", "b"]
    assert ds[[2, 0]]["name"].tolist() == [b"longer", b"ab"]
    assert ds["letter"][:].tolist() == [b"a", b"b", b"c"]
    assert [row.tolist() for row in ds["rows"][:]] == [[], [0], [0, 1]]
    assert ds["pairs.b"][:].tolist() == [2, 2, 2]
    assert rm.open("a.nc", ["inner/y"])[:]["inner/y"].tolist() == [1, 2]
    with pytest.warns(rm.LeftOutWarning, match="'inner/y'|'inner/along_n'"):
        assert len(rm.open("a.nc", group="inner").schema) == 1


def test_dimensions_are_told_apart_though_equally_long() -> None:
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("a", 3)
        file.createDimension("b", 3)
        for name, dimension in (("x", "a"), ("y", "a"), ("z", "b"), ("b", "b")):
            file.createVariable(name, "i4", (dimension,))[:] = np.arange(3)
        # Called like a dimension, but along another one; and one that has two axes.
        file.createVariable("a", "i4", ("b", "a"))[:] = np.ones((3, 3))
    with pytest.warns(rm.LeftOutWarning, match="'z' has its rows along 'b', not 'a'"):
        ds = rm.open("a.nc")
    assert list(ds.schema) == ["x", "y"]
    assert set(rm.open("a.nc", ["a", "b", "z"]).schema) == {"a", "b", "z"}


def test_a_variable_that_was_not_written_to_its_end_is_left_out() -> None:
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("n", None)
        file.createVariable("x", "i4", ("n",))[:] = np.arange(5)
        file.createVariable("late", "i4", ("n",))[:2] = [1, 2]
    with pytest.warns(rm.LeftOutWarning, match="'late' has 2 of the 5 rows of 'n'"):
        assert rm.open("a.nc")["x"][:].tolist() == [0, 1, 2, 3, 4]


def test_hdf5_without_dimensions_is_read_by_length() -> None:
    with h5py.File("a.nc", "w") as file:
        file["x"], file["y"], file["z"] = np.arange(4), np.ones((4, 2)), np.arange(3)
    with pytest.warns(rm.LeftOutWarning, match="'z' has its rows along 'dimension of 3'"):
        assert list(rm.open("a.nc").schema) == ["x", "y"]
    with h5py.File("empty.nc", "w"):
        pass
    with pytest.raises(rm.DataError, match="no arrays with rows"):
        rm.open("empty.nc")


@pytest.mark.parametrize("kind", ["references", "numbers", "one number", "too many", "a group"])
def test_damaged_references_to_dimensions_leave_them_without_a_name(kind: str) -> None:
    with h5py.File("a.h5", "w") as file:
        file["t"], file["x"] = np.arange(3), np.arange(3.0)
        file["t"].make_scale("t")
        file["x"].dims[0].attach_scale(file["t"])
        lists = file["x"].attrs["DIMENSION_LIST"]
        if kind == "a group":
            del file["t"]
            file.create_group("t")
        else:
            del file["x"].attrs["DIMENSION_LIST"]
        if kind == "references":  # not lists of them, with which the HDF5 library crashes
            file["x"].attrs.create("DIMENSION_LIST", file["t"].ref, (1,), h5py.ref_dtype)
        elif kind == "numbers":
            file["x"].attrs["DIMENSION_LIST"] = [1.5]
        elif kind == "one number":
            file["x"].attrs["DIMENSION_LIST"] = 3
        elif kind == "too many":
            dtype = h5py.vlen_dtype(h5py.ref_dtype)
            file["x"].attrs.create("DIMENSION_LIST", np.repeat(lists, 2), dtype=dtype)
    ds = rm.open("a.h5", ["x"], format="netcdf")
    assert ds.info().origin == "from the file, a row for each step of 'dimension of 3'"
    assert ds["x"][:].tolist() == [0, 1, 2]


def test_it_converts_trains_and_travels() -> None:
    ds = weather()
    packed = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -1, "zlib": True}
    write(ds, encoding={"t2m": packed})
    found = opened("a.nc", "t2m", "time", "station", "count")
    found.save("a.parquet", verify="full")
    again = rm.open("a.parquet")
    assert np.array_equal(again[:]["t2m"], found[:]["t2m"], equal_nan=True)
    assert (again[:]["time"] == found[:]["time"]).all()
    copy = pickle.loads(pickle.dumps(found))
    assert np.array_equal(copy[[3, 1]]["t2m"], found[[3, 1]]["t2m"], equal_nan=True)
    read = np.concatenate([b["count"] for b in found.select("count").shuffle(seed=1).batch(7)])
    assert sorted(read.tolist()) == list(range(HOURS))


@pytest.mark.slow
def test_several_files_are_one_dataset_if_they_mean_the_same() -> None:
    ds = weather()
    first, second = ds.isel(time=slice(0, 10)), ds.isel(time=slice(10, None))
    encoding = {"time": {"units": "hours since 2020-01-01"}}
    write(first, "a.nc", encoding=encoding)
    write(second, "b.nc", encoding={"time": {"units": "minutes since 2020-02-01"}})
    names = ["t2m", "time"]
    found = rm.open(["a.nc", "b.nc"], names)
    assert np.array_equal(found[:]["t2m"], ds["t2m"], equal_nan=True)
    assert (found[:]["time"] == ds["time"].to_numpy()).all()
    write(second.assign(t2m=second.t2m.assign_attrs(units="C")), "c.nc", encoding=encoding)
    with pytest.raises(rm.DataError, match=r"the units of 't2m' are not those of a.nc \('C', not"):
        rm.open(["a.nc", "c.nc"], names)
    kelvin, celsius = rm.open("a.nc", names), rm.open("c.nc", names)
    for join in (rm.concat, rm.mix):
        with pytest.raises(rm.DataError, match=r"c.nc: the units .* \('C', not .*; change one of"):
            join(kelvin.take(5), celsius.rename({"t2m": "t"}).rename({"t": "t2m"}))
    changed = celsius.map(lambda row: {**row, "t2m": row["t2m"] + np.float32(273.15)})
    assert len(rm.concat(kelvin, changed)) == HOURS
    write(second.assign_coords(lat=second.lat + 1), "d.nc", encoding=encoding)
    with pytest.raises(rm.DataError, match="d.nc: the values of 'lat' are not those of a.nc"):
        rm.open(["a.nc", "d.nc"], names)
    assert len(rm.open(["a.nc", "d.nc"], ["time"])) == HOURS


def test_netcdf_3_is_refused_with_a_remedy_that_works() -> None:
    ds = weather().drop_vars(["station", "ok"])
    write(ds, "old.nc", "scipy", encoding={"t2m": {"dtype": "int16", "scale_factor": 0.01,
        "_FillValue": -1}})  # fmt: skip
    with pytest.raises(rm.UnknownFormatError, match=r"netCDF-3.*nccopy -k nc4") as caught:
        rm.open("old.nc")
    code = re.search(r"in Python (xarray\..*\))$", str(caught.value))
    assert code is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eval(code[1], {"xarray": xr})
    wanted = xr.load_dataset("old.nc", engine="scipy")["t2m"].to_numpy()
    assert np.allclose(opened("new.nc")[:]["t2m"], wanted, equal_nan=True)


def test_files_are_read_from_a_store(bucket: Bucket) -> None:
    ds = weather()
    write(ds, encoding={"t2m": {"zlib": True, "dtype": "int16", "scale_factor": 0.01,
        "_FillValue": -1}})  # fmt: skip
    bucket.put("a.nc", Path("a.nc").read_bytes())
    found = rm.open(f"{bucket.url}/a.nc", ["t2m", "time"], storage=bucket.storage)
    assert np.allclose(found[:]["t2m"], ds["t2m"], atol=0.01, equal_nan=True)
    assert (found[[3, 1]]["time"] == ds["time"].to_numpy()[[3, 1]]).all()
