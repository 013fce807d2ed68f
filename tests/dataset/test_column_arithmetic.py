"""Columns compute like NumPy arrays: reductions, operators and ufuncs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.dataset.test_column_view import Array, npys

REDUCTIONS = (
    *("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin"),
)
DTYPES = [
    *("int8", "uint8", "int32", "int64", "uint64", "bool", "float16", "float32", "float64"),
    *("complex64", ">i2", "<m8[s]"),
]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    values = np.random.default_rng(seed).integers(0, 100, shape)
    return (values > 50) if dtype == "bool" else values.astype(dtype)


def reduced(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make()
        except (TypeError, ValueError) as e:
            return TypeError if isinstance(e, TypeError) else ValueError


def same(found: Any, expected: Any) -> None:
    """Check that two results are equal, except for the last digits of floats."""
    if isinstance(expected, type):
        assert found is expected
        return
    a, b = np.asarray(found), np.asarray(expected)
    assert (type(found), a.dtype, a.shape) == (type(expected), b.dtype, b.shape)
    if a.dtype.kind in "fc":
        digits = {2: 2e-3, 4: 1e-5}.get(a.real.dtype.itemsize, 1e-12)
        np.testing.assert_allclose(a, b, rtol=digits, atol=digits)
    else:
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "m")


def exactly(call: Callable[[Any], Any], array: Array) -> Any:
    """Return NumPy's result; short floats are computed with more digits, then rounded."""
    expected = reduced(lambda: call(array))
    if array.dtype.kind not in "fc" or isinstance(expected, type) or expected.dtype.kind == "i":
        return expected
    wide = reduced(lambda: call(array.astype("c16" if array.dtype.kind == "c" else "f8")))
    with np.errstate(all="ignore"):
        return wide.astype(expected.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_match_numpy(name: str, dtype: str) -> None:
    for number, shape in enumerate([(40,), (40, 3), (40, 2, 3), (0, 3), (40, 0)]):
        array = numbers(shape, dtype, number)
        for i, part in enumerate([array[:17], array[17:18], array[18:]]):
            np.save(f"{number}-{i}.npy", part)
        column = rm.open(f"{number}-*.npy")["data"]
        assert isinstance(column, rm.ColumnView)
        axes: list[Any] = [None, *range(-len(shape), len(shape)), len(shape), (0, -1), ()]
        if dtype not in ("int64", "float32"):  # how results are laid out does not depend on it
            axes = [None, 0]
        for axis in axes:
            for keepdims in (False, True) if len(axes) > 2 else (False,):

                def call(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                    return reduced(lambda: getattr(x, name)(axis=axis, keepdims=keepdims))

                same(call(column), exactly(call, array))
        of_numpy = getattr(np, name)
        same(reduced(partial(of_numpy, column)), exactly(of_numpy, array))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*REDUCTIONS} - {"prod"}))  # prod may overflow early
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_many_blocks_keep_nan_and_infinity(name: str, axis: int | None) -> None:
    array = np.random.default_rng(0).standard_normal((300_000, 8)).astype("float32")
    array[200_000, 1], array[250_000, 1], array[5, 2], array[290_000, 3] = np.nan, np.nan, np.inf, 9
    for i, part in enumerate([array[:100_000], array[100_000:]]):
        np.save(f"{i}.npy", part)
    column = rm.open("?.npy")["data"]
    same(getattr(column, name)(axis=axis), exactly(lambda x: getattr(x, name)(axis=axis), array))


def test_options_of_reductions_match_numpy() -> None:
    array = np.arange(60, dtype="int16").reshape(20, 3)
    column = npys(array)["x"]
    out = np.zeros(3)
    assert column.sum(axis=0, out=out) is out
    assert np.array_equal(out, array.sum(axis=0))
    assert column.sum(dtype="float32").dtype == np.float32
    same(column.var(ddof=1), array.var(ddof=1))
    same(np.std(column, axis=0, ddof=2), np.std(array, axis=0, ddof=2))
    same(column.max(initial=99), array.max(initial=99))
    same(column.sum(where=array > 5), array.sum(where=array > 5))
    with pytest.raises(rm.OptionTypeError, match="bogus"):
        column.sum(bogus=1)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_an_out_array_of_another_shape_is_refused(name: str) -> None:
    column = npys(np.arange(60).reshape(20, 3))["x"]
    for out, axis in (np.zeros(3), None), (np.zeros((2, 3)), 0), (np.zeros((1, 3)), 0):
        with pytest.raises(rm.OptionError, match="shape"):
            getattr(column, name)(axis=axis, out=out)
    with pytest.raises(rm.OptionTypeError, match="out"):
        column.sum(out="x")


def test_a_wider_out_array_keeps_sums_from_overflowing() -> None:
    array = np.full(4, 2**62, np.int64)
    for name in ("sum", "prod"):
        wide = getattr(npys(array)["x"], name)(out=np.zeros(()))
        same(wide, getattr(array, name)(out=np.zeros(())))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("var", {"ddof": None}),
        ("std", {"ddof": "a"}),
        ("sum", {"dtype": "O"}),
        ("mean", {"dtype": object}),
        ("sum", {"dtype": "bogus"}),
        ("min", {"initial": -3.5}),
        ("max", {"axis": 1.5}),
        ("max", {"axis": 7}),
    ],
)
@pytest.mark.parametrize("rows", [0, 20])
def test_wrong_options_of_reductions_raise_recmap_errors(
    name: str, options: dict[str, Any], rows: int
) -> None:
    column = npys(np.zeros((rows, 2), "uint8"))["x"]
    with pytest.raises(rm.OptionError, match=r"dtype|\w+: "):
        getattr(column, name)(**options)


def test_operands_that_do_not_fit_a_column_raise_recmap_errors() -> None:
    column = npys(np.arange(6.0))["x"]
    wrong: list[Callable[[], Any]] = [
        lambda: column + np.arange(2),
        lambda: column & 1,
        lambda: "a" * column,
        lambda: [1, 2] in column,
    ]
    for call in wrong:
        with pytest.raises(rm.OptionError, match="column 'x'"):
            call()


def test_comparing_a_column_with_text_or_none_matches_numpy() -> None:
    array = np.arange(6.0)
    column = npys(array)["x"]
    others: list[Any] = ["a", b"a", None, {}]
    for other in others:
        same(column == other, array == other)
        same(column != other, array != other)


def test_ufuncs_cannot_write_to_a_column() -> None:
    column = npys(np.arange(6))["x"]
    with pytest.raises(rm.OptionError, match="read-only"):
        np.add.at(column, [0], 1)


def test_a_column_computes_like_an_array() -> None:
    array = np.arange(12, dtype="float32").reshape(6, 2)
    column = npys(array)["x"]
    for made, expected in [
        (column * 2 + 1, array * 2 + 1),
        (1 - column, 1 - array),
        (column > 5, array > 5),
        (column == column, array == array),  # noqa: PLR0124
        (-column, -array),
        (np.sqrt(column), np.sqrt(array)),
        (array + column, array + array),
        (column @ array.T, array @ array.T),
        (np.median(column, axis=0), np.median(array, axis=0)),
        (np.concatenate([column, column]), np.concatenate([array, array])),
        (column.T, array.T),
        (column.astype("int8"), array.astype("int8")),
        (column.reshape(-1), array.reshape(-1)),
    ]:
        same(made, expected)
    assert column[column > 5].tolist() == array[array > 5].tolist()
    assert [row.tolist() for row in column] == array.tolist()
    assert (5 in column, 5.5 in column) == (True, False)
    facts = ("ndim", "shape", "dtype", "nbytes", "size", "itemsize")
    assert [getattr(column, f) for f in facts] == [getattr(array, f) for f in facts]
    assert len(column) == len(array)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(column)
    with pytest.raises(TypeError):
        hash(column)
    with pytest.raises(AttributeError, match="sort"):
        column.sort()


@pytest.mark.slow
def test_a_sum_of_a_column_takes_bounded_memory() -> None:
    import tracemalloc

    array = np.ones((4_000_000, 4), "float32")  # 64 MB
    np.save("a.npy", array[:3_000_000])
    np.save("b.npy", array[3_000_000:])
    column = rm.open("?.npy")["data"]
    tracemalloc.start()
    try:
        assert column.mean() == 1
        assert column.std(axis=0).tolist() == [0, 0, 0, 0]
        assert column.argmax() == 0
        assert column[:, 0].nbytes == 16_000_000
        assert tracemalloc.get_traced_memory()[1] < 56 << 20
    finally:
        tracemalloc.stop()
