"""A column works like an array, whatever format it is stored in."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

import recmap as rm
from recmap.dataset import on_demand_array

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
    """Return a value with its type and shape, or the builtin exceptions that were raised."""
    try:
        made = make()
    except (IndexError, TypeError, ValueError) as e:
        return [kind for kind in (IndexError, TypeError, ValueError) if isinstance(e, kind)][:1]
    array = np.asarray(made)
    return type(made).__name__, array.dtype.str, array.shape, array.tobytes()


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Return a random index as a NumPy user might write it; most are valid."""
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
def test_any_index_matches_numpy(
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
def test_an_index_read_in_blocks_gives_the_same_values(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(23 * 12).reshape(23, 3, 4)
    column = npys(array)["x"]
    monkeypatch.setattr(on_demand_array, "_BLOCK", rows * array[0].nbytes)

    @settings(max_examples=100)
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
def test_an_index_reads_only_the_rows_it_needs(key: Any, rows: int) -> None:
    array = np.arange(23 * 4).reshape(23, 4)
    read: list[int] = []

    def note(found: Array) -> Array:
        read.append(len(found))
        return found

    reader = on_demand_array.OnDemandArray(
        array.shape, array.dtype, lambda a, b: note(array[a:b]), lambda n: note(array[n])
    )
    assert np.array_equal(on_demand_array.index_array(reader, key), array[key])
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
def test_a_wrong_index_raises_the_error_that_numpy_raises(key: Any) -> None:
    array = np.arange(92).reshape(23, 4)
    column = npys(array)["x"]
    with pytest.raises((IndexError, TypeError, ValueError, OverflowError)) as numpy_error:
        array[key]
    kinds: tuple[type[Exception], ...] = (IndexError, TypeError, ValueError)
    # NumPy raises OverflowError for some numbers that are too large, IndexError for others.
    builtin = next((kind for kind in kinds if isinstance(numpy_error.value, kind)), IndexError)
    if isinstance(key, list) and key == [[1], [2, 3]]:
        builtin = LookupError  # NumPy cannot make an array of it, so recmap refuses it
    with pytest.raises(builtin) as error:
        column[key]
    assert isinstance(error.value, rm.RecmapError)


def test_a_row_number_may_be_a_zero_dimensional_array() -> None:
    import torch

    ds = rm.from_arrays({"x": np.arange(6), "t": rm.Ragged.from_rows([[i] for i in range(6)])})
    for number in (np.array(2), np.array(2, "uint8"), torch.tensor(2)):
        assert ds[number]["x"] == ds["t"][number].item() == ds[:]["t"][number].item() == 2
        assert npys(np.arange(6))["x"][number] == 2


def test_a_boolean_is_not_a_row_number() -> None:
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
def test_columns_are_read_only(store: Callable[[Array], rm.Dataset]) -> None:
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


def test_a_dataset_works_like_a_dict_of_columns() -> None:
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


def test_damage_is_an_error_with_its_place_in_every_operation() -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        rm.from_arrays({"x": np.arange(100)}).save(name, options={"index": False})
    content = bytearray(Path("b.tfrecord").read_bytes())
    content[len(content) // 2] ^= 1
    Path("b.tfrecord").write_bytes(content)
    column, other = rm.open(["a.tfrecord", "b.tfrecord"])["x"], rm.from_arrays({"x": np.zeros(9)})
    for read in (
        lambda: other[column],
        lambda: list(other.select(column).batch(2)),
        lambda: rm.open({"x": other})["x"][column],
        column.max,
        column.mean,
        lambda: column.sum(where=column[:100] > 3),
        lambda: 1_000 in column,
        lambda: column + 1,
        lambda: column == 7,
        lambda: np.median(column),
    ):
        with pytest.raises(rm.CorruptRecordError) as e:
            read()
        assert e.value.file == "b.tfrecord"
