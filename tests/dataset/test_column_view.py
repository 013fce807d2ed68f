"""A column is used like an array, whatever files it lies in."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

import recmap as rm
from recmap.dataset import indexing
from recmap.dataset.reductions import REDUCTIONS

Array = npt.NDArray[Any]


def _parts(x: Array) -> list[Array]:
    cut = [len(x) * i // 3 for i in range(4)]
    return [x[a:b] for a, b in itertools.pairwise(cut)]


def npy(x: Array) -> rm.Dataset:
    np.save("x.npy", x)
    return rm.open({"x": "x.npy"})


def npys(x: Array) -> rm.Dataset:
    for i, part in enumerate(_parts(x)):
        np.save(f"part-{i}.npy", part)
    return rm.open({"x": "part-*.npy"})


def npz(x: Array) -> rm.Dataset:
    np.savez_compressed("x.npz", x=x, other=np.arange(len(x)))
    return rm.open("x.npz")


def hdf5(x: Array) -> rm.Dataset:
    with h5py.File("x.h5", "w") as file:
        file["x"] = x
    return rm.open("x.h5")


def hdf5_chunked(x: Array) -> rm.Dataset:
    with h5py.File("c.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(min(3, len(x)), *x.shape[1:]), compression="gzip")
    return rm.open("c.h5")


def zarr(x: Array) -> rm.Dataset:
    rm.from_arrays({"x": x}).save("x.zarr", options={"chunk_rows": 4})
    return rm.open("x.zarr")


def tfrecord(x: Array) -> rm.Dataset:
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": x, "more": rm.Ragged.from_rows([[1] * (i % 3) for i in range(len(x))])})
    return rm.open("x.tfrecord")


def tfrecords(x: Array) -> rm.Dataset:
    with rm.TFRecordWriter("s.tfrecord", rows=len(x), shards=3) as writer:
        writer.write({"x": x})
    return rm.open("s-*.tfrecord")


def gzip(x: Array) -> rm.Dataset:
    with rm.TFRecordWriter("x.tfrecord.gz", compression="gzip") as writer:
        writer.write({"x": x})
    return rm.open("x.tfrecord.gz")


def memory(x: Array) -> rm.Dataset:
    return rm.from_arrays({"x": x})


def columns(x: Array) -> rm.Dataset:
    return rm.open({"x": npys(x), "y": np.arange(len(x))})


def chosen(x: Array) -> rm.Dataset:
    np.savez("named.npz", other=x, y=np.arange(len(x)))
    return rm.open({"x": rm.open(["named.npz", "named.npz"], fields=["other"])})


STORED: list[Callable[[Array], rm.Dataset]] = [
    *(npy, npys, npz, hdf5, hdf5_chunked, zarr),
    *(tfrecord, tfrecords, gzip, memory, columns),
]


def outcome(make: Callable[[], Any]) -> Any:
    """A value with its type and shape, or the builtin exceptions that were raised."""
    try:
        made = make()
    except (IndexError, TypeError, ValueError) as e:
        return [kind for kind in (IndexError, TypeError, ValueError) if isinstance(e, kind)][:1]
    array = np.asarray(made)
    return type(made).__name__, array.dtype.str, array.shape, array.tobytes()


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index as a user of NumPy may write one, most of them right."""
    items: list[Any] = []
    arrays = draw(st.sampled_from([(), (2,), (3, 1), (1, 2), (0,)]))
    ellipsis = False
    for size in shape[: draw(st.integers(0, len(shape)))]:
        number = st.integers(-size, max(size - 1, -size)) if size else st.just(0)
        wrong = st.sampled_from([size, -size - 1, 10**12])
        kind = draw(st.sampled_from(["int", "int", "slice", "slice", "array", "mask", "new"]))
        if kind == "new":
            items.append(draw(st.sampled_from([None, None, True, False])))
        if kind in ("int", "new"):
            items.append(draw(st.one_of(number, number, number, number, wrong)))
            if draw(st.booleans()):
                items[-1] = np.array(items[-1]) if draw(st.booleans()) else np.int64(items[-1])
        elif kind == "slice":
            bound = st.none() | st.integers(-size - 2, size + 2)
            step = st.sampled_from([None, 1, 2, 3, -1, -2, 100, -100])
            items.append(slice(draw(bound), draw(bound), draw(step)))
        elif kind == "array":
            values = draw(st.lists(number, min_size=6, max_size=6))
            picked = np.resize(np.array(values, draw(st.sampled_from(["i8", "i2"]))), arrays)
            items.append(picked.tolist() if draw(st.booleans()) and picked.size else picked)
        else:
            bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            items.append(np.array(bits, bool))
        if not ellipsis and draw(st.integers(0, 5)) == 0:
            items.insert(draw(st.integers(0, len(items))), Ellipsis)
            ellipsis = True
    if draw(st.integers(0, 9)) == 0:
        depth = draw(st.integers(1, len(shape)))
        total = int(np.prod(shape[:depth]))
        bits = draw(st.lists(st.booleans(), min_size=total, max_size=total))
        return np.array(bits, bool).reshape(shape[:depth])
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


SHAPES = [(23,), (23, 4), (23, 3, 2), (1, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("store", STORED, ids=lambda store: store.__name__)
def test_any_index_gives_what_an_array_gives(
    store: Callable[[Array], rm.Dataset], shape: tuple[int, ...]
) -> None:
    array = np.random.default_rng(1).integers(-100, 100, shape)
    column = store(array)["x"]

    @settings(max_examples=40)
    @given(indices(shape))
    def check(key: Any) -> None:
        assert outcome(lambda: column[key]) == outcome(lambda: array[key])

    check()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_an_index_that_is_read_in_blocks_gives_the_same(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(23 * 12).reshape(23, 3, 4)
    column = npys(array)["x"]
    monkeypatch.setattr(indexing, "_BLOCK", rows * array[0].nbytes)

    @settings(max_examples=300)
    @given(indices(array.shape))
    def check(key: Any) -> None:
        assert outcome(lambda: column[key]) == outcome(lambda: array[key])

    check()


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (np.s_[5:10, 0], 5),
        (np.s_[7, 1], 1),
        (np.s_[20:2:-6], 3),
        (np.s_[[3, 3, 9], [0, 1, 2]], 2),
        (np.s_[..., 0], 23),
        (np.s_[5:5, 0], 0),
    ],
    ids=str,
)
def test_an_index_reads_the_rows_it_needs(key: Any, rows: int) -> None:
    array = np.arange(23 * 4).reshape(23, 4)
    read: list[int] = []

    def note(found: Array) -> Array:
        read.append(len(found))
        return found

    reader = indexing.RowReader(
        array.shape, array.dtype, lambda a, b: note(array[a:b]), lambda n: note(array[n])
    )
    assert np.array_equal(indexing.index_array(reader, key), array[key])
    assert sum(read) == rows


@pytest.mark.parametrize(
    "key",
    [
        *(1.5, "x", {}, len, [1.5], ["a"], [[1], [2, 3]], np.array([]), (0, 0, 0), (0, "a")),
        *(slice(1.5, None), slice(None, None, 0), slice("a", "b"), np.zeros(5, bool), (..., ...)),
        *(23, -24, [23], [0, -24], (0, 4), ([1, 2], [1, 2, 3]), np.array([2**63], np.uint64)),
        *((slice(None), 2**63), (2**63, [True]), ([0], -(10**30)), (0, np.uint64(2**63))),
    ],
    ids=repr,
)
def test_a_wrong_index_is_refused_as_numpy_refuses_it(key: Any) -> None:
    array = np.arange(92).reshape(23, 4)
    column = npys(array)["x"]
    with pytest.raises((IndexError, TypeError, ValueError, OverflowError)) as numpy_error:
        array[key]
    kinds: tuple[type[Exception], ...] = (IndexError, TypeError, ValueError)
    # NumPy has an OverflowError for some numbers that are too large, an IndexError for others.
    builtin = next((kind for kind in kinds if isinstance(numpy_error.value, kind)), IndexError)
    if isinstance(key, list) and key == [[1], [2, 3]]:
        builtin = LookupError  # NumPy cannot make an array of it: recmap says it is no index
    with pytest.raises(builtin) as error:
        column[key]
    assert isinstance(error.value, rm.RecmapError)


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
    """Equal, but for the last digits of floats."""
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
    """What NumPy computes; of short floats with more digits, then rounded."""
    expected = reduced(lambda: call(array))
    if array.dtype.kind not in "fc" or isinstance(expected, type) or expected.dtype.kind == "i":
        return expected
    wide = reduced(lambda: call(array.astype("c16" if array.dtype.kind == "c" else "f8")))
    with np.errstate(all="ignore"):
        return wide.astype(expected.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_those_of_numpy(name: str, dtype: str) -> None:
    for number, shape in enumerate([(40,), (40, 3), (40, 2, 3), (0, 3), (40, 0)]):
        array = numbers(shape, dtype, number)
        for i, part in enumerate([array[:17], array[17:18], array[18:]]):
            np.save(f"{number}-{i}.npy", part)
        column = rm.open(f"{number}-*.npy")["data"]
        assert isinstance(column, rm.ColumnView)
        axes: list[Any] = [None, *range(-len(shape), len(shape)), len(shape), (0, -1), ()]
        for axis in axes:
            for keepdims in (False, True):

                def call(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                    return reduced(lambda: getattr(x, name)(axis=axis, keepdims=keepdims))

                same(call(column), exactly(call, array))
        of_numpy = getattr(np, name)
        same(reduced(partial(of_numpy, column)), exactly(of_numpy, array))


@pytest.mark.parametrize("name", sorted({*REDUCTIONS} - {"prod"}))  # which may overflow early
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_many_blocks_keep_nan_and_infinity(name: str, axis: int | None) -> None:
    array = np.random.default_rng(0).standard_normal((300_000, 8)).astype("float32")
    array[200_000, 1], array[250_000, 1], array[5, 2], array[290_000, 3] = np.nan, np.nan, np.inf, 9
    for i, part in enumerate([array[:100_000], array[100_000:]]):
        np.save(f"{i}.npy", part)
    column = rm.open("?.npy")["data"]
    same(getattr(column, name)(axis=axis), exactly(lambda x: getattr(x, name)(axis=axis), array))


def test_options_of_reductions_are_those_of_numpy() -> None:
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
def test_a_reduction_fills_no_out_array_of_another_shape(name: str) -> None:
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
def test_wrong_options_of_reductions_are_errors_of_recmap(
    name: str, options: dict[str, Any], rows: int
) -> None:
    column = npys(np.zeros((rows, 2), "uint8"))["x"]
    with pytest.raises(rm.OptionError, match=r"dtype|\w+: "):
        getattr(column, name)(**options)


def test_operands_that_do_not_fit_a_column_are_errors_of_recmap() -> None:
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


def test_a_column_equals_no_text_or_none_as_an_array_does_not() -> None:
    array = np.arange(6.0)
    column = npys(array)["x"]
    others: list[Any] = ["a", b"a", None, {}]
    for other in others:
        same(column == other, array == other)
        same(column != other, array != other)


def test_ufuncs_do_not_change_a_copy_of_a_column() -> None:
    column = npys(np.arange(6))["x"]
    with pytest.raises(rm.OptionError, match="read-only"):
        np.add.at(column, [0], 1)


def test_a_row_number_may_be_an_array_without_axes() -> None:
    import torch

    ds = rm.from_arrays({"x": np.arange(6), "t": rm.Ragged.from_rows([[i] for i in range(6)])})
    for number in (np.array(2), np.array(2, "uint8"), torch.tensor(2)):
        assert ds[number]["x"] == ds["t"][number].item() == ds[:]["t"][number].item() == 2
        assert npys(np.arange(6))["x"][number] == 2


def test_a_truth_value_is_no_row_number() -> None:
    ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3]])})
    truths: list[Any] = [True, np.True_, np.array(True)]
    tuples: list[Any] = [(True, 0), (0, 1), (0, None)]
    for key in truths + tuples:
        with pytest.raises(rm.RowNotFoundError):
            ds[:]["t"][key]
    for key in truths:
        with pytest.raises(rm.RecmapError):
            ds[key]
        with pytest.raises(rm.RowNotFoundError):
            ds["t"][key]


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


def test_asarray_follows_the_rules_of_numpy_for_copies() -> None:
    column = npys(np.arange(6))["x"]
    assert np.asarray(column, dtype="float16").dtype == np.float16
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(column, copy=False)
    copy = np.array(column)
    copy[0] = 99
    assert column[0] == 0
    held = np.arange(6)
    viewed = rm.open({"x": rm.from_arrays({"x": held}), "y": held * 2})["x"]
    np.array(viewed)[0] = 99
    assert held[0] == 0


@pytest.mark.parametrize("store", STORED, ids=lambda store: store.__name__)
def test_columns_are_not_written_to(store: Callable[[Array], rm.Dataset]) -> None:
    array = np.arange(12).reshape(6, 2)
    column = store(array)["x"]
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        column += 1
    assert np.array_equal(column, np.arange(12).reshape(6, 2))
    assert array.flags.writeable


def test_ragged_columns_are_indexed_by_row() -> None:
    rows = [[1, 2], [], [3, 4, 5], [6]]
    with rm.TFRecordWriter("t.tfrecord") as writer:
        writer.write({"t": rm.Ragged.from_rows(rows), "s": [b"a", b"bb", b"", b"bb"]})
    ds = rm.open("t.tfrecord")
    tokens, names = ds["t"], ds["s"]
    assert tokens[2].tolist() == tokens[-2].tolist() == tokens[np.int8(2),].tolist() == [3, 4, 5]
    assert (tokens[2, 1], tokens[2, 1:].tolist(), names[1]) == (4, [4, 5], b"bb")
    assert tokens[[3, 0]].tolist() == [[6], [1, 2]]
    assert tokens[::-1].tolist() == tokens[...][::-1].tolist() == rows[::-1]
    assert tokens[np.array([True, False, False, True])].tolist() == [[1, 2], [6]]
    assert (tokens.shape, tokens.ndim, names.shape, len(names)) == ((4, None), 2, (4,), 4)
    assert (tokens.max(), tokens.sum(), tokens.mean(), np.min(tokens)) == (6, 21, 3.5, 1)
    assert ((names == b"bb").tolist(), (names != "a").tolist()) == (
        [False, True, False, True],
        [False, True, True, True],
    )
    assert (b"bb" in names, "x" in names, 4 in tokens, 7 in tokens) == (True, False, True, False)
    wrong: list[Callable[[], Any]] = [
        lambda: tokens[:, 0],
        lambda: tokens[4],
        lambda: names[1, 0],
        lambda: tokens[1.5],
        lambda: tokens[None],
        lambda: tokens[0, 9],
    ]
    for call in wrong:
        with pytest.raises(IndexError):
            call()
    for call in (lambda: tokens.max(axis=0), tokens.argmax, names.max, names.sum):
        with pytest.raises(rm.OptionTypeError, match="column"):
            call()
    for call in (lambda: np.asarray(tokens), lambda: tokens + 1, lambda: tokens.size):
        with pytest.raises(rm.OptionError, match="pad"):
            call()


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


def test_a_name_in_a_dataset_is_a_column() -> None:
    ds = rm.from_arrays({"x": np.arange(3), "y": np.arange(3) * 2})
    assert "x" in ds
    assert "z" not in ds
    assert 0 not in ds
    assert ds.keys() == ["x", "y"]
    assert {name: column.tolist() for name, column in dict(ds).items()} == {
        "x": [0, 1, 2],
        "y": [0, 2, 4],
    }
    assert [name for name, _ in ds.items()] == ["x", "y"]
    assert "x" in ds.shuffle(seed=1).batch(2)
    assert "z" not in ds.batch(2).repeat()


def test_a_tuple_is_not_a_list_of_rows() -> None:
    ds = rm.from_arrays({"x": np.arange(6).reshape(3, 2)})
    with pytest.raises(rm.OptionError, match=r"ds\[\[1, 2\]\]"):
        ds[(1, 2)]  # type: ignore[call-overload]
    with pytest.raises(rm.OptionError, match="ds.select"):
        ds[["x"]]  # type: ignore[index]
    assert ds["x"][1, 1] == 3
    for wrong in (slice(1.5, 2), slice(None, None, 0), slice("a"), np.array([2**63], np.uint64)):
        with pytest.raises(rm.RecmapError):
            ds[wrong]


def test_a_zarr_store_is_found_after_a_change_of_folder(tmp_path: Path) -> None:
    column = zarr(np.arange(5))["x"]
    (tmp_path / "other").mkdir()
    with contextlib.chdir(tmp_path / "other"):
        assert column[:].tolist() == [0, 1, 2, 3, 4]
