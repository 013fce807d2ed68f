"""rm.open takes what other libraries hold, and says what to do with the rest."""

from __future__ import annotations

import array
import io
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import xarray
import zarr

import recmap as rm
from tests.frameworks import jnp, torch

X = np.arange(12, dtype=np.float32).reshape(6, 2)


def tensors() -> dict[str, Any]:
    wide = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    return {
        "torch": torch.from_numpy(X.copy()),
        "torch, transposed": torch.from_numpy(np.ascontiguousarray(X.T)).T,
        "torch, every other column": wide[:, ::2] / 2 - torch.tensor([0.0, 0.0]),
        "torch with a gradient": torch.tensor(X.copy(), requires_grad=True) * 1,
        "torch.nn.Parameter": torch.nn.Parameter(torch.tensor(X.copy())),
        "jax": jnp.asarray(X),
        "__array__ only": _Array(),
        "__dlpack__ only": _DLPack(),
        "memoryview": memoryview(X.data),
    }


class _Array:
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return X


class _DLPack:
    def __dlpack__(self, **options: Any) -> Any:
        return X.copy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_tensors_are_opened_like_arrays() -> None:
    for name, x in tensors().items():
        expected = np.asarray(x.detach().numpy() if isinstance(x, torch.Tensor) else X)
        ds = rm.open(x)
        assert ds.schema == {"data": "float32[2]"}, name
        assert np.array_equal(ds[:]["data"], expected), name
        assert np.array_equal(rm.open({"x": x})[[3, 1]]["x"], expected[[3, 1]]), name
        rm.convert(x, "x.npy", verify="full", overwrite=True)
        assert np.array_equal(np.load("x.npy"), expected), name


def test_the_memory_of_a_tensor_is_not_copied() -> None:
    x = torch.zeros(5, 2)
    assert np.shares_memory(rm.open(x)["data"], x.numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_types_that_numpy_lacks_keep_their_bits(dtype: str) -> None:
    x = torch.randn(7, 3).to(getattr(torch, dtype))
    ds = rm.open(x[:, 1:])
    assert ds.schema["data"].dtype == np.dtype(getattr(ml_dtypes, dtype))
    assert np.array_equal(ds["data"].astype(np.float32), x[:, 1:].float().numpy())
    jaxed = rm.open(jnp.asarray(X, jnp.bfloat16))
    assert jaxed["data"].dtype == ml_dtypes.bfloat16


def test_conjugated_tensors_have_their_values() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj()
    assert rm.open(x)["data"].tolist() == [1 - 2j, 3 + 4j]


def test_numbers_of_the_standard_library() -> None:
    assert rm.open(array.array("d", [1.5, 2.5]))["data"].tolist() == [1.5, 2.5]


class _OnGpu(_DLPack):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


_OnGpu.__module__ = "cupy"


def objects() -> Any:
    return np.array([{"a": 1}, {"b": 2}], object)


def opened_file() -> Any:
    Path("x.bin").write_bytes(b"1234")
    return open("x.bin", "rb")


def npz() -> Any:
    np.savez("x.npz", x=X)
    return np.load("x.npz")


def closed_hdf5() -> Any:
    with h5py.File("closed.h5", "w") as file:
        return file.create_dataset("x", data=X)


def writable_hdf5() -> Any:
    return h5py.File("written.h5", "w").create_dataset("x", data=X)  # closed when it is gone


def sparse_rows() -> Any:
    with warnings.catch_warnings(action="ignore"):  # torch calls them experimental
        return torch.eye(3).to_sparse_csr()


# Each object, and what the error says.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator": (lambda: ({"x": X} for _ in range(2)), "rm.from_batches(x)"),
    "an iterator of numbers": (lambda: iter([1, 2]), "rm.open(list(x))"),
    "a set": (lambda: {"x.npy"}, "sorted(x)"),
    "a number": (lambda: 3, "give a path"),
    "None": (lambda: None, "give a path"),
    "a scalar of NumPy": (lambda: np.float32(3), "no rows"),
    "an array without axes": (lambda: np.array(3), "no rows"),
    "an array of objects": (objects, 'rm.open({"x": array})'),
    "a type": (lambda: np.ndarray, "give a path"),
    "an open file": (opened_file, ".name"),
    "a buffer": (io.BytesIO, ".name"),
    "a DataLoader": (
        lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(3))),
        "rm.from_batches",
    ),
    "a dataset of torch": (
        lambda: torch.utils.data.TensorDataset(torch.zeros(3)),
        "rm.from_batches",
    ),
    "a sparse tensor": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "a sparse tensor in rows": (sparse_rows, "to_dense"),
    "a tensor that NumPy lacks": (
        lambda: torch.zeros(2, dtype=torch.float4_e2m1fn_x2),
        "x.to(...)",
    ),
    "a tensor without memory": (lambda: torch.zeros(3, device="meta"), "x.cpu()"),
    "an array on a GPU": (_OnGpu, "cupy.asnumpy(x)"),
    "arrays in a list": (lambda: [X, X], "numpy.concatenate"),
    "numbers in a list": (lambda: [1, 2], 'rm.open({"x": values})'),
    "an open .npz file": (npz, "give the path"),
    "a closed HDF5 file": (closed_hdf5, "was closed"),
    "an HDF5 file that is written": (writable_hdf5, "open for writing"),
    "rows of different columns": (lambda: [{"a": 1}, {"b": 1}], "row 1 does not have the columns"),
    "two values for a column": (lambda: [{"a/b": 1, "a": {"b": 2}}], "two values for column 'a/b'"),
    "two columns of one name": (
        lambda: {"a/b": X, "a": {"b": X}},
        "two columns have the same name",
    ),
    "a column without values": (lambda: [{"a": None}, {"a": None}], "'a' is None in every row"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_opened_says_what_to_do(name: str) -> None:
    make, remedy = REFUSED[name]
    x = make()
    with pytest.raises((rm.OptionError, rm.ColumnError)) as raised:
        rm.open(x)
    assert remedy in str(raised.value)
    with pytest.raises((rm.OptionError, rm.ColumnError)):
        rm.convert(x, "y.tfrecord")
    if isinstance(x, io.IOBase | np.lib.npyio.NpzFile):
        x.close()


def test_rows_as_dicts() -> None:
    rows = [
        {"id": i, "text": f"row {i}", "tokens": list(range(i)), "at": {"x": i / 2, "y": [i, -i]}}
        for i in range(5)
    ]
    ds = rm.open(rows)
    assert ds.schema == {
        "id": "int64",
        "text": "bytes",
        "tokens": "int64[*]",
        "at/x": "float64",
        "at/y": "int64[2]",
    }
    assert ds[3]["tokens"].tolist() == [0, 1, 2]
    assert ds[4]["at/y"].tolist() == [4, -4]
    rm.convert(rows, "x.tfrecord", verify="full")
    assert rm.open("x.tfrecord")[2]["text"] == b"row 2"


def test_columns_come_from_anything() -> None:
    np.save("x.npy", X)
    x = np.memmap("x.dat", np.float32, "w+", shape=(6, 2))
    x[:] = X + 1
    columns = {
        "path": "x.npy",
        "memmap": x,
        "tensor": torch.from_numpy(X),
        "list": [1, 2, 3, 4, 5, 6],
        "ragged": rm.Ragged.from_rows([[n] * n for n in range(6)]),
        "dataset": rm.open("x.npy"),
        "inside": {"a": X[:, 0], "b": {"c": np.array(list("abcdef"))}},
    }
    ds = rm.open(columns)
    assert ds.columns == [*list(columns)[:-1], "inside/a", "inside/b/c"]
    assert np.array_equal(ds["memmap"], X + 1)
    assert ds[5]["inside/b/c"] == b"f"
    assert ds[5]["ragged"].tolist() == [5] * 5
    again = pickle.loads(pickle.dumps(ds))
    assert all(np.array_equal(again[:][name], ds[:][name]) for name in ("path", "memmap", "list"))
    rm.convert(columns, "x.npz", verify="full")
    assert len(rm.open({"memmap": x, "path": "x.npy"}).files) == 2


def test_a_conversion_of_columns_resumes_if_all_of_them_last() -> None:
    x = np.memmap("x.dat", np.float32, "w+", shape=(6, 2))
    np.save("y.npy", np.arange(6))
    for columns, resumed in (({"x": x, "y": "y.npy"}, 2), ({"x": x, "y": np.arange(6)}, None)):
        rm.convert(columns, "out/", shards=2, overwrite=True)
        if resumed is None:
            with pytest.raises(rm.OutputExistsError):
                rm.convert(columns, "out/", shards=2)
        else:
            assert rm.convert(columns, "out/", shards=2).resumed == resumed


def test_a_dataset_is_opened_as_it_is() -> None:
    ds = rm.open({"x": X, "y": np.arange(6)})
    assert rm.open(ds) is ds
    assert rm.open(ds, fields=["y"]).columns == ["y"]
    assert rm.open({"a": X}, fields={"a": "float32[2]"}).columns == ["a"]
    with pytest.raises(rm.FieldMismatchError, match="float32"):
        rm.open(X, fields={"data": "int64"})


def hdf5(**options: Any) -> h5py.File:
    with h5py.File("x.h5", "w") as file:
        file["x"] = X
        file["label"] = np.arange(6)
        file["few"] = np.arange(3)
        file["group/chunked"] = np.arange(6)
        file.create_dataset("group/deep/z", data=X, chunks=(2, 2), compression="gzip")
        file["group/alias"] = file["x"]
        file["group/soft"] = h5py.SoftLink("/label")
        table = np.zeros(6, [("a", "i4"), ("b", "f8")])
        table["a"] = np.arange(6)
        file["table"] = table
        file["name"] = [f"n{i}" for i in range(6)]
        file["single"] = 3
    return h5py.File("x.h5", "r", **options)


def test_arrays_of_xarray_have_the_rows_of_their_first_dimension() -> None:
    array = xarray.DataArray(X, dims=("time", "place"))
    assert np.array_equal(rm.open(array)["data"], X)
    both = xarray.Dataset({"x": array, "y": ("time", np.arange(6))})
    ds = rm.open(both)
    assert ds.schema == {"x": "float32[2]", "y": "int64"}
    assert np.array_equal(ds["x"], X)
    uneven = xarray.Dataset({"x": array, "z": ("place", np.arange(2))})
    with pytest.raises(rm.RecmapError, match="z"):
        rm.open(uneven)


def test_datasets_of_hdf5_are_opened_through_their_file() -> None:
    with hdf5() as file:
        for name, column in {
            "x": "x",
            "group/deep/z": "z",
            "group/alias": "alias",
            "group/soft": "soft",
            "few": "few",
        }.items():
            ds = rm.open(file[name])
            assert ds.columns == [column]
            assert ds.files == [os.path.abspath("x.h5")]
            assert np.array_equal(ds[:][column], file[name][()])
            assert np.array_equal(pickle.loads(pickle.dumps(ds))[:][column], file[name][()])
        assert rm.open(file["table"]).columns == ["table.a", "table.b"]
        assert rm.open(file["name"])[4]["name"] == b"n4"
        assert rm.open({"y": file["label"], "z": X})[2]["y"] == 2
        with pytest.raises(rm.DataError, match="single"):
            rm.open(file["single"])
        rm.convert(file["group/deep/z"], "z.npy", verify="full")
        ds = rm.open(file["x"])
    assert np.array_equal(ds[:]["x"], X)  # the file of the user is closed, ours is not
    assert np.array_equal(np.load("z.npy"), X)


def test_datasets_of_hdf5_are_columns_side_by_side() -> None:
    with h5py.File("x.h5", "w") as file:
        file["x"], file["y"] = X, X[:, 0]
    with h5py.File("x.h5") as file:
        ds = rm.open({"a": file["x"], "b": file["y"]})
        assert ds[:]["b"].tolist() == X[:, 0].tolist()


def test_text_in_a_list_is_taken_for_paths() -> None:
    with pytest.raises(rm.PathNotFoundError, match=r"numpy\.array"):
        rm.open({"caption": ["a cat", "a dog"]})


def test_groups_of_hdf5_are_opened_through_their_file() -> None:
    with hdf5() as file:
        assert rm.open(file["group"]).columns == ["alias", "chunked", "deep/z"]
        with pytest.warns(rm.LeftOutWarning, match="few"):
            assert "group/deep/z" in rm.open(file).columns


def test_datasets_of_hdf5_in_memory_are_read_into_memory() -> None:
    with h5py.File("memory.h5", "w", driver="core", backing_store=False) as file:
        file["group/x"] = X
        file["name"] = ["a", "bc"]
        ds = rm.open(file["group/x"])
        assert ds.columns == ["x"]
        assert rm.open(file["name"])[1]["name"] == b"bc"
        with pytest.raises(rm.OptionError, match="one by one"):
            rm.open(file["group"])
    assert np.array_equal(ds[:]["x"], X)
    assert ds.files == []
    with h5py.File(io.BytesIO(), "w") as file:
        file["x"] = X
        assert np.array_equal(rm.open(file["x"])[:]["x"], X)


def fill(group: Any) -> None:
    group.create_array("x", data=X, chunks=(2, 2))
    group.create_array("inner/y", data=np.arange(6))


def test_arrays_and_groups_of_zarr_are_opened_through_their_store() -> None:
    root = zarr.create_group("x.zarr")
    fill(root)
    ds = rm.open(root["x"])
    assert ds.files == [os.path.abspath("x.zarr/x")]
    assert ds.columns == ["x"]
    assert np.array_equal(ds[[5, 0]]["x"], X[[5, 0]])
    assert np.array_equal(pickle.loads(pickle.dumps(ds))[:]["x"], X)
    assert rm.open(root["inner/y"]).columns == ["y"]
    assert rm.open(root).columns == ["inner/y", "x"]
    assert rm.open(root["inner"]).columns == ["y"]
    rm.convert(root["x"], "x.npy", verify="full")
    assert np.array_equal(np.load("x.npy"), X)
    assert rm.convert(root["x"], "out/", shards=2).resumed == 0
    assert rm.convert(root["x"], "out/", shards=2).resumed == 2
    zarr.create_array("single.zarr", data=X)
    assert rm.open(zarr.open("single.zarr")).columns == ["data"]


@pytest.mark.parametrize("kind", ["memory", "zip"])
def test_zarr_in_other_stores_is_read_through_zarr(kind: str) -> None:
    store = (
        zarr.storage.MemoryStore() if kind == "memory" else zarr.storage.ZipStore("x.zip", mode="w")
    )
    root = zarr.create_group(store)
    fill(root)
    ds = rm.open(root)
    assert ds.columns == ["inner/y", "x"]
    assert ds.files == []
    assert np.array_equal(ds[[5, 0]]["x"], X[[5, 0]])
    rm.convert(root["x"], "x.npy", verify="full")
    assert np.array_equal(np.load("x.npy"), X)
    store.close()
