"""Values are never rounded, truncated or unmasked silently."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from recmap.model.casting import first_lost

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64", "longdouble"]
DTYPES = ["bool", *INTEGERS, *FLOATS, "complex64", "complex128", ">i4", ">f8", "bfloat16"]

# NumPy has no common dtype for bfloat16 and any other.
JOINED = [name for name in DTYPES if name != "bfloat16"]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@functools.cache
def edges(name: str) -> npt.NDArray[Any]:
    """Return values of a dtype at which casts go wrong."""
    dtype = dtype_of(name)
    if dtype.kind == "b":
        return np.array([False, True])
    powers = [sign * (2**n + d) for n in range(65) for d in (-1, 0, 1) for sign in (1, -1)]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        inside = {n for n in (*powers, limits.min, limits.max) if limits.min <= n <= limits.max}
        return np.array(sorted(inside), dtype)
    special = [0.5, 1.5, 0.1, math.inf, -math.inf, math.nan, 1e300, -1e300, 1e-300, 65504, 65520]
    with np.errstate(all="ignore"):
        values = np.array([*map(float, powers), *special]).astype(dtype)
        return np.array([*values, *(values * 1j)], dtype) if dtype.kind == "c" else values


def exact(value: Any) -> Any:
    """Return a value as an exact number; NaN and infinity by name."""
    if isinstance(value, np.complexfloating):
        return exact(value.real), exact(value.imag)
    if isinstance(value, np.bool_ | np.integer):
        return Fraction(int(value)), Fraction(0)
    number = np.longdouble(value)
    if not np.isfinite(number):
        return str(number), Fraction(0)
    whole, parts = number.as_integer_ratio()
    return Fraction(whole, parts), Fraction(0)


def holds(value: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype can hold exactly this number, the slow and obvious way."""
    real, imaginary = exact(value)
    if isinstance(real, tuple):
        real = real[0]
    if isinstance(imaginary, tuple):
        imaginary = imaginary[0]
    if dtype.kind == "c":
        part = np.zeros((), dtype).real.dtype
        return holds_real(real, part) and holds_real(imaginary, part)
    return bool(imaginary == 0) and holds_real(real, dtype)


def holds_real(number: Any, dtype: np.dtype[Any]) -> bool:
    if isinstance(number, str):
        return dtype.kind in "fV"
    if dtype.kind == "b":
        return number in (0, 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return bool(number.denominator == 1 and limits.min <= number <= limits.max)
    info = ml_dtypes.finfo(dtype)
    if number == 0:
        return True
    size = abs(number)
    exponent = math.floor(math.log2(size.numerator) - math.log2(size.denominator))
    exponent += 1 if size >= Fraction(2) ** (exponent + 1) else 0
    exponent -= 1 if size < Fraction(2) ** exponent else 0
    step = Fraction(2) ** (max(exponent, info.minexp) - info.nmant)
    return bool(exponent < info.maxexp and (size / step).denominator == 1)


@pytest.mark.parametrize("old", DTYPES)
def test_a_cast_is_exact_or_names_what_is_lost(old: str) -> None:
    values = edges(old)
    for dtype in map(dtype_of, DTYPES):
        kept = [holds(value, dtype) for value in values]
        for value, is_kept in list(zip(values, kept, strict=True))[::4]:  # alone, and below all
            lost = first_lost(np.array([value], values.dtype), dtype)
            assert (lost is None) == is_kept, (value, dtype)
        lost = first_lost(values, dtype)
        first = kept.index(False) if False in kept else None
        assert (None if lost is None else lost[0]) == first, dtype


@pytest.mark.parametrize("old", JOINED)
def test_rows_of_two_dtypes_are_joined_exactly_or_refused(old: str) -> None:
    for new in JOINED:
        ends = edges(new)
        for first, second in itertools.product(edges(old)[::37], ends[:: max(1, len(ends) // 4)]):
            rows = [np.array([first], old), np.array([second], new)]
            try:
                joined = rm.Ragged.from_rows(rows)
            except rm.ColumnError:
                continue
            assert holds_same(joined[0][0], first), new
            assert holds_same(joined[1][0], second), new


def holds_same(a: Any, b: Any) -> bool:
    return bool(exact(np.complex128(a)) == exact(np.complex128(b))) and exact(a) in (
        exact(b),
        (exact(b), (Fraction(0), Fraction(0))),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [[2**53 + 1], [0.5]],
        [[2**53 + 1, 0.5]],
        [np.array([2**64 - 1], np.uint64), np.array([-1])],
        [[2**64 - 1, -1]],
        [[1], ["a"]],
        [["a"], [1]],
        [[1, "a"]],
        [[None]],
        [[1], None],
        ["ab", "c"],
        [{}],
        [1, 2],
        [[1, 2], [[3]]],
        [[2**70]],
        [np.array([np.datetime64("2020")]), [1.5]],
        [np.ma.array([1, 2], mask=[False, True])],
        [[1], [np.ma.masked]],
        [[1, [2]]],
        [[np.timedelta64(3, "D")], [1]],
        [[np.datetime64("2020")], [np.timedelta64(3, "D")]],
    ],
    ids=str,
)
def test_rows_that_no_dtype_can_hold_are_refused(rows: list[Any]) -> None:
    with pytest.raises(rm.ColumnError):
        rm.Ragged.from_rows(rows)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.uint64(5), np.int64(-3)], "int64"),
        ([np.uint64(5), -3, True], "int64"),
        ([np.uint64(2**64 - 1), np.int64(3)], "uint64"),
        ([np.True_, 2**64 - 1], "uint64"),
        ([[np.uint64(5)], [np.int64(-3)]], "int64"),
        ([np.array([5], np.uint64), np.array([-3])], "int64"),
    ],
    ids=str,
)
def test_lists_of_integers_stay_integers(values: list[Any], dtype: str) -> None:
    column = rm.from_arrays({"x": values})["x"]
    flat = [int(value) for value in np.array(values, object).flat]
    assert (column.dtype.name, column.ravel().tolist()) == (dtype, flat)
    row = rm.Ragged.from_rows([np.array(values, object).ravel().tolist()])
    assert (row.dtype.name, row.tolist()) == (dtype, [flat])


def test_rows_of_different_dtypes_keep_their_values() -> None:
    mixed = rm.Ragged.from_rows([np.array([2**63 - 1], np.uint64), np.array([-5])])
    assert (mixed.dtype.name, mixed.tolist()) == ("int64", [[2**63 - 1], [-5]])
    mixed = rm.Ragged.from_rows([np.array([2**64 - 1], np.uint64), np.array([5])])
    assert (mixed.dtype.name, mixed.tolist()) == ("uint64", [[2**64 - 1], [5]])
    assert rm.Ragged.from_rows([[1, 2], [0.5], []]).tolist() == [[1.0, 2.0], [0.5], []]
    assert rm.Ragged.from_rows([[True], [2]]).tolist() == [[1], [2]]
    assert rm.Ragged.from_rows([[0.1]], dtype="float32").dtype == np.float32
    for wrong, dtype in (([[300]], "uint8"), ([[0.5]], "int64"), ([[1e300]], "float32")):
        with pytest.raises(rm.ColumnError, match="cannot hold"):
            rm.Ragged.from_rows(wrong, dtype=dtype)


def written(x: Any) -> rm.Dataset:
    with rm.TFRecordWriter("x.tfrecord", overwrite=True) as writer:
        writer.write({"x": x})
    return rm.open("x.tfrecord")


def mapped(fn: Callable[..., Any], **options: Any) -> rm.Stream:
    return rm.from_arrays({"x": np.arange(3)}).map(fn, **options)


def saved_in_two(x: Any) -> list[str]:
    names = ["first.npy", "second.npy"]
    for name, part in zip(names, (x[:1], x[1:]), strict=True):
        np.save(name, part)
    return names


REFUSED: list[Callable[[Any], Any]] = [
    lambda x: list(rm.from_batches([{"x": np.zeros(3)}, {"x": x}]).batches(2)),
    lambda x: rm.Ragged.from_rows([x]),
    lambda x: list(mapped(lambda _: {"y": x}, fields={"y": "float64[*]"})),
    lambda x: list(rm.from_arrays({"x": np.arange(3)}).filter(lambda _: x > 0, batched=True)),
    lambda x: rm.Ragged.from_rows([[1], [2], [3]])[x > 0],
    lambda x: rm.Ragged(np.ones((4, 3)), [0, 4]).pad(5, fill=x),
    lambda x: rm.Ragged(np.arange(9), np.cumsum(np.ma.filled(x, 3)).astype(int) * (x > 0)),
]
KEPT: list[Callable[[Any], Any]] = [
    lambda x: rm.from_arrays({"x": x})["x"][:],
    lambda x: rm.open({"x": x})["x"][:],
    lambda x: written(x)["x"][:],
    lambda x: rm.from_arrays({"x": list(x)})["x"][:],
    lambda x: rm.from_arrays({"x": [x, x]})["x"][0],
    lambda x: next(iter(rm.from_batches([{"x": x}]).batches(3)))["x"],
    lambda x: rm.Ragged(x, [0, 3])[0],
    lambda x: next(iter(mapped(lambda _: {"y": x})))["y"],
]


CHOSEN: list[Callable[[Any], Any]] = [
    lambda mask: rm.from_arrays({"x": np.arange(3)})[mask]["x"],
    lambda mask: rm.from_arrays({"x": rm.Ragged.from_rows([[], [1], [1, 1]])})["x"][mask].lengths,
    lambda mask: rm.open(saved_in_two(np.arange(3)))["data"][mask],
]


@pytest.mark.parametrize("use", CHOSEN, ids=range(len(CHOSEN)))
def test_a_mask_chooses_no_row_where_it_is_masked(use: Callable[[Any], Any]) -> None:
    x = np.ma.array([1.0, np.nan, 3.0], mask=[False, True, False])
    assert use(x > 0).tolist() == [0, 2]
    assert use(x > 1).tolist() == [2]


@pytest.mark.parametrize("use", REFUSED, ids=range(len(REFUSED)))
def test_a_masked_array_is_refused_unless_nothing_is_masked(use: Callable[[Any], Any]) -> None:
    with pytest.raises(rm.RecmapError, match="fill"):
        use(np.ma.array([1.0, np.nan, 3.0], mask=[False, True, False]))
    use(np.ma.array([1.0, 2.0, 3.0], mask=[False, False, False]))
    use(np.ma.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("use", KEPT, ids=range(len(KEPT)))
def test_the_masked_values_of_a_column_are_nulls(use: Callable[[Any], Any]) -> None:
    found = use(np.ma.array([1.0, np.nan, 3.0], mask=[False, True, False]))
    assert found.tolist() == [1.0, None, 3.0]
    assert use(np.ma.array([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]


def test_a_mask_of_the_fields_of_a_structured_array_is_refused_too() -> None:
    masked: Any = np.ma.array([(1, 2)], mask=[(False, True)], dtype="i4,i4")
    with pytest.raises(rm.ColumnError, match="filled"):
        rm.from_arrays({"x": masked})


class Nullable:
    """Return integers with missing values as pandas, Polars and Arrow hold them."""

    dtype = "Int64"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array([1, math.nan, 2**53 + 1], np.float64)

    def __iter__(self) -> Any:
        return iter([1, None, 2**53 + 1])


def missing() -> list[Any]:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    values = [1, None, 2**53 + 1]
    return [
        pd.array(values, dtype="Int64"),
        pd.Series(values, dtype="Int64"),
        pd.Series(values, dtype="int64[pyarrow]"),
        pa.array(values),
        pa.chunked_array([values]),
    ]


def test_integers_with_missing_values_do_not_become_floats() -> None:
    with pytest.raises(rm.ColumnError, match="'x': .*missing"):
        rm.from_arrays({"x": Nullable()})
    for column in [Nullable(), *missing()]:
        with pytest.raises(rm.RecmapError, match="missing"):
            list(mapped(lambda _, column=column: {"y": column}))


def test_columns_of_other_libraries_keep_their_types_and_nulls() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    for column in missing():
        ds = rm.from_arrays({"x": column})
        assert ds.schema == {"x": "int64?"}
        assert ds["x"][:].tolist() == [1, None, 2**53 + 1]
    values = {
        "float64?": (pa.array([0.5, None]), pl.Series([0.5, None]), pd.array([0.5, None])),
        "bool?": (pa.array([True, None]), pl.Series([True, None]), pd.array([True, None])),
        "text?": (pa.array(["a", None]), pl.Series(["a", None]), pd.Categorical(["a", None])),
        "int64[*]?": (pa.array([[1, 2], None]), pl.Series([[1, 2], None])),
        "uint8?": (pl.Series([7, None], dtype=pl.UInt8), pd.array([7, None], dtype="UInt8")),
        "datetime64[D]": (pa.array([19_000, None], pa.date32()),),
    }
    for field, columns in values.items():
        for column in columns:
            ds = rm.from_arrays({"x": column})
            assert ds.schema == {"x": field}, column
            as_arrow = column.to_arrow() if isinstance(column, pl.Series) else pa.array(column)
            assert ds["x"][:].tolist() == as_arrow.to_pylist(), column
    assert rm.from_arrays({"x": pl.Series(["a", "b"])}).schema == {"x": "text"}
    # Without nulls, or of a kind that only NumPy has.
    assert rm.from_arrays({"x": pd.Series([1.5, np.nan])}).schema == {"x": "float64"}
    with pytest.raises(rm.ColumnError, match="'x': its rows are not arrays"):
        rm.from_arrays({"x": pl.Series([object()])})
    with pytest.raises(rm.ColumnError, match="'x': its rows are not arrays"):
        rm.from_arrays({"x": pa.array([[{"a": 1}], []])})


def test_a_set_is_refused_because_it_has_no_order() -> None:
    for column in ({1, 2}, frozenset([1, 2])):
        with pytest.raises(rm.ColumnError, match="'x': .*order"):
            rm.from_arrays({"x": column})
    assert rm.from_arrays({"x": {2: "a", 1: "b"}.keys()})["x"].tolist() == [2, 1]


def test_variable_width_numpy_strings_are_strings() -> None:
    strings = np.array(["a", "", "bcd"], dtype=np.dtypes.StringDType())
    assert rm.from_arrays({"x": strings})[:]["x"].tolist() == [b"a", b"", b"bcd"]
    some = np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None))
    with pytest.raises(rm.ColumnError, match="None"):
        rm.from_arrays({"x": some})


def test_tensors_that_numpy_cannot_convert_are_refused_by_name() -> None:
    import torch

    for tensor in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16)):
        for column in (tensor, [tensor, tensor]):
            with pytest.raises(rm.ColumnError, match="'x': cannot make an array of"):
                rm.from_arrays({"x": column})


LISTS: list[list[Any]] = [
    [2**53 + 1, 0.5],
    [[2**53 + 1], [0.5]],
    [np.array([2**53 + 1]), np.array([0.5])],
    [2**64 - 1, -1],
    [2**64],
    [1, "a"],
    ["a", 1],
    [b"a", 1],
    [{}, {}],
    [1, [2]],
    [["a"], ["b", None]],
    [True, 2**64],
    [np.True_, 2**63, -1],
    [np.datetime64("2020"), np.timedelta64(3, "D")],
    [np.timedelta64(3, "D"), 5],
    [np.datetime64("5000", "Y"), np.datetime64("2020-01-01T00:00:00.000000001")],
]


@pytest.mark.parametrize("values", LISTS, ids=str)
def test_a_list_that_numpy_would_round_is_refused(values: list[Any]) -> None:
    with pytest.raises(rm.ColumnError, match="x"):
        rm.from_arrays({"x": values})
    with pytest.raises(rm.RecmapError):
        list(rm.from_arrays({"i": np.arange(2)}).map(lambda _: {"x": values}))


def _without_address(value: Any) -> str:
    """Return the name of a case, the same in every process."""
    return str(value).partition(" at 0x")[0]


WRONG: list[tuple[str, Any]] = [
    ("float32", 1e300),
    ("float32", -1e300),
    ("float32", np.array(1e300)),
    ("float16", 70000.0),
    ("float16", 70001),
    ("float64", 2**53 + 1),
    ("float32", 2**24 + 1),
    ("uint8", -1),
    ("uint8", 300),
    ("int8", 128),
    ("int64", 0.5),
    ("int64", math.nan),
    ("int64", math.inf),
    ("int64", 2.0**63),
    ("int64", np.uint64(2**63)),
    ("uint64", -1),
    ("float64", 1j),
    ("float64", 1 + 0j),
    ("bool", 2),
    ("float64", "1"),
    ("float64", None),
    ("float64", {}),
    ("float64", {1}),
    ("float64", (i for i in range(3))),
    ("float64", object()),
    ("bytes", 1),
    ("bytes", None),
    ("float64", b"1"),
    ("int64", np.datetime64("2020-01-01")),
]


@pytest.mark.parametrize(("kind", "value"), WRONG, ids=_without_address)
@pytest.mark.parametrize("axes", ["", "[1]", "[*]"])
def test_a_map_result_that_does_not_fit_is_refused(kind: str, value: Any, axes: str) -> None:
    fine = b"a" if kind == "bytes" else 1
    given = [value] if axes else value
    said = {"y": f"{kind}{axes}"}

    def late(row: dict[str, Any]) -> dict[str, Any]:
        first = [fine] if axes else fine
        return {"y": first if row["x"] < 1100 else given}

    ds = rm.from_arrays({"x": np.arange(1101)})  # more rows than are tried first
    with pytest.raises(rm.RecmapError, match="y"):
        list(ds.map(late, fields=said).batch(100))
    with pytest.raises(rm.RecmapError, match="y"):
        list(ds.map(lambda _: {"y": given}, fields=said))


def test_a_map_result_says_row_column_and_value() -> None:
    ds = rm.from_arrays({"x": np.arange(3000, dtype="float32")})
    for axes in ((), (1,)):
        with pytest.raises(rm.MapError, match=r"row 2,000.*'x'.*float32.*1e\+300"):
            list(
                ds.map(
                    lambda row, n=axes: {"x": np.full(n, row["x"] if row["x"] < 2000 else 1e300)},
                    fields={"x": rm.Field("float32", (None,) * len(axes))},
                )
            )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("float32", 0.1), ("float32", math.inf), ("float32", math.nan), ("float16", 65504)),
        *(("int8", 127), ("int8", np.uint64(3)), ("int64", 2.0), ("uint64", 2**64 - 1)),
        *(("float64", 2**53), ("bool", 1), ("float32", np.float64(0.1)), ("complex64", 1.5)),
    ],
    ids=str,
)
def test_a_map_result_that_fits_is_kept(kind: str, value: Any) -> None:
    ds = rm.from_arrays({"x": np.arange(3)})
    (row, *_) = ds.map(lambda _: {"y": value}, fields={"y": kind})
    assert row["y"].dtype == np.dtype(kind)
    expected = np.array(value).astype(kind)
    assert row["y"] == expected or np.isnan(row["y"])


def test_later_batches_keep_their_values_or_are_refused() -> None:
    batches = [{"x": np.array([0.5])}, {"x": np.array([2**53 + 1])}]
    with pytest.raises(rm.ColumnError, match="9007199254740993"):
        list(rm.from_batches(batches).batches(4))
    batches[1] = {"x": np.array([2**53])}
    assert [b["x"].tolist() for b in rm.from_batches(batches).batches(4)] == [[0.5, 2.0**53]]


@pytest.mark.parametrize(
    ("field", "fill"),
    [("uint8", 300), ("uint8", -1), ("int64", 0.5), ("int64", math.nan), ("float32", 1e300),
     ("float64", 2**53 + 1), ("float64", 1j), ("int64", "a"), ("bool", 2)],
    ids=str,
)  # fmt: skip
def test_a_fill_value_that_does_not_fit_is_refused(field: str, fill: Any) -> None:
    with pytest.raises(rm.OptionError):
        rm.Field(field, (), fill)
    if field == "bool":
        return
    ragged = rm.Ragged.from_rows([[1], [2, 3]], dtype=field)
    with pytest.raises(rm.OptionError):
        ragged.pad(fill=fill)
    with pytest.raises(rm.OptionError):
        list(rm.from_arrays({"t": ragged}).batch(2, pad=rm.Pad(fill=fill)))


NUMBERS = [*INTEGERS, "float16", "float32", "float64", "bool", "complex64"]


@pytest.mark.parametrize("old", NUMBERS)
def test_convert_casts_exactly_or_not_at_all(old: str) -> None:
    values = edges(old)
    for new, value in itertools.product(NUMBERS, values[:: max(1, len(values) // 2)]):
        array = np.array([value], old)
        try:
            rm.from_arrays({"x": array}).cast({"x": new}).save(
                "x.npy", overwrite=True, options={"durable": False}
            )
        except rm.FieldMismatchError:
            assert not holds(array[0], np.dtype(new))
            continue
        assert holds(array[0], np.dtype(new))
        assert np.load("x.npy").dtype == np.dtype(new)
