"""Which datasets of an HDF5 file become columns, and how the others are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm


def made(columns: Mapping[str, Any] | None = None, **options: Any) -> h5py.File:
    """Create a file and leave it open; every dataset gets these options."""
    file = h5py.File("x.h5", "w")
    for name, values in (columns or {}).items():
        file.create_dataset(name, data=values, **options)
    return file


def test_paths_of_nested_groups_are_names() -> None:
    with made({"b": np.arange(3), "a/deep/x": np.arange(3.0), "a/y": np.arange(3)}) as file:
        file["soft"] = h5py.SoftLink("/a/y")
        file["hard"] = file["a/y"]
        file["a/back"] = file["a"]
    ds = rm.open("x.h5")
    assert list(ds.schema) == ["a/deep/x", "a/y", "b"]
    assert list(rm.open("x.h5", ["soft", "/b"]).schema) == ["soft", "/b"]
    assert rm.open("x.h5", ["soft"])[:]["soft"].tolist() == [0, 1, 2]


def left_out(*columns: str) -> str:
    """Check that exactly these columns are read, and return the warning about the others."""
    with pytest.warns(rm.LeftOutWarning) as caught:
        assert list(rm.open("x.h5").schema) == list(columns)
    return str(caught[0].message)


def test_links_that_lead_nowhere_or_out_of_the_file_are_left_out() -> None:
    with made({"a": np.arange(3)}) as file:
        file["away"] = h5py.ExternalLink("other.h5", "/x")
        file["g/circle"] = h5py.SoftLink("/g/circle")
        file["lost"] = h5py.SoftLink("/none")
        file["sound"] = h5py.SoftLink("/a")
        file["g/up"] = file["/"]
        file[b"caf\xe9"] = np.arange(3)
    text = left_out("a")
    assert "'away' (it is in another file, other.h5; open that one)" in text
    assert "'g/circle' (it cannot be opened: " in text
    assert "'lost' (it is a link to /none, which does not exist)" in text
    assert "'caf\ufffd' (its name is not UTF-8)" in text
    assert "sound" not in text
    assert "g/up" not in text
    with pytest.raises(rm.FieldNotFoundError, match="no dataset 'lost'; there are: a"):
        rm.open("x.h5", ["lost"])


def test_internal_groups_of_other_programs_are_left_out() -> None:
    with made({"t": np.zeros(9, "<i4,<f4"), "_i_mine/x": np.arange(9)}) as file:
        file["_i_t/bounds"] = file["_i_t/ranges"] = np.zeros((0, 5))
        file["#refs#/a"] = np.arange(9)
        file["e"] = np.array([0, 0])
        file["e"].attrs["MATLAB_empty"] = np.uint8(1)
    text = left_out("_i_mine/x", "t.f0", "t.f1")
    assert "'#refs#' (the contents of MATLAB cells)" in text
    assert "'e' (it is empty" in text
    assert rm.open("x.h5", ["#refs#/a"])[2]["#refs#/a"] == 2
    with h5py.File("x.h5", "r+") as file:
        file.attrs["PYTABLES_FORMAT_VERSION"] = "2.1"
    text = left_out("t.f0", "t.f1")
    assert "'_i_t' (an index of PyTables)" in text


def test_columns_of_one_row_do_not_outvote_longer_ones() -> None:
    made({"x": np.arange(9), **{f"one{i}": [i] for i in range(5)}, "none": np.zeros(0)}).close()
    assert "'one4' (it has 1 rows, not 9)" in left_out("x")
    assert rm.open("x.h5", ["one3", "one4"])[0] == {"one3": 3, "one4": 4}


def test_a_dataset_wins_over_a_field_of_the_same_name() -> None:
    made({"a": np.zeros(4, [("b", "<i4"), ("c", "<f4")]), "a.b": np.arange(4)}).close()
    assert "'a.b' (another column has that name)" in left_out("a.c", "a.b")
    assert rm.open("x.h5", ["a.b"])[:]["a.b"].tolist() == [0, 1, 2, 3]


def test_a_missing_external_file_or_filter_is_named() -> None:
    with made({"a": np.arange(9)}) as file:
        file.create_dataset("values", (9,), "<i4", external="gone.raw")
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_chunk((9,))
        storage.set_filter(32017, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((9,))
        h5py.h5d.create(file.id, b"filter", h5py.h5t.STD_I32LE, space, storage)
    text = left_out("a")
    assert "'values' (its values are in the file gone.raw, which is not there)" in text
    assert "'filter' (its filter sz is missing; pip install hdf5plugin and import it)" in text


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (305, "its filter lzo is missing; hdf5plugin does not have it. Rewrite the file"),
        (307, "its filter bzip2 is missing; pip install hdf5plugin and import it"),
        (32013, "its filter zfp is missing; pip install hdf5plugin and import it"),
        (32099, "its filter 32099 is missing; hdf5plugin does not have it either"),
    ],
)
def test_a_missing_filter_is_named_with_a_way_to_get_it(number: int, says: str) -> None:
    with made({"x": [1, 2]}) as file:
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_chunk((2,))
        storage.set_filter(number, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.id, b"y", h5py.h5t.STD_I32LE, space, storage)
    assert says in left_out("x")


def test_creation_order_is_kept_where_the_file_has_it() -> None:
    with h5py.File("x.h5", "w", track_order=True) as file:
        for name in ("z", "m", "a"):
            file[name] = np.arange(3)
    assert list(rm.open("x.h5").schema) == ["z", "m", "a"]


def test_datasets_of_other_lengths_are_left_out_and_named() -> None:
    columns = {"a": np.arange(10), "b": np.arange(10.0), "c": np.arange(7), "d": np.arange(99)}
    with made(columns) as file:
        file["scalar"] = 5
        file["empty"] = h5py.Empty("f4")
        file.create_dataset("ref", (10,), h5py.ref_dtype)
        file["opaque"] = np.zeros(10, "V3")
    with pytest.warns(rm.LeftOutWarning) as caught:
        ds = rm.open("x.h5")
    assert list(ds.schema) == ["a", "b"]
    text = str(caught[0].message)
    for part in (
        "'c' (it has 7 rows, not 10)",
        "'d' (it has 99 rows, not 10)",
        "'scalar' (it is a single value)",
        "'empty' (it holds nothing)",
        "'ref' (it holds references to other objects)",
        "'opaque' (it holds opaque bytes)",
    ):
        assert part in text
    assert len(rm.open("x.h5", ["d"])) == 99
    with pytest.raises(rm.DataError, match="'c' has 7, 'd' has 99"):
        rm.open("x.h5", ["c", "d"])


def test_the_longest_of_equally_common_lengths_is_taken() -> None:
    made({"a": np.arange(10), "b": np.arange(20), "c": np.arange(5)}).close()
    with pytest.warns(rm.LeftOutWarning):
        assert list(rm.open("x.h5").schema) == ["b"]


def test_what_cannot_be_a_column_is_refused_by_name() -> None:
    with h5py.File("other.h5", "w") as file:
        file["x"] = np.arange(3)
    with made({"a": np.arange(10)}) as file:
        file["scalar"] = 5
        file["opaque"] = np.zeros(10, "V3")
        file["table"] = np.zeros(10, [("u", "<i4"), ("v", "V2")])
        file.create_dataset("nested", (10,), h5py.vlen_dtype(h5py.string_dtype()))
        file["away"] = h5py.ExternalLink("other.h5", "x")
    for name, why in {
        "scalar": "it is a single value",
        "opaque": "it holds opaque bytes",
        "table.v": "it holds opaque bytes",
        "nested": "only lists of numbers",
        "away": "it is in another file, .*other.h5; open that one",
    }.items():
        with pytest.raises(rm.DataError, match=f"x.h5: '{name}' cannot be a column: .*{why}"):
            rm.open("x.h5", [name])
    with pytest.raises(rm.FieldNotFoundError, match="no dataset 'b'; there are: a, nested"):
        rm.open("x.h5", ["b"])
    with pytest.raises(rm.FieldNotFoundError, match="its table has: 'table.u', 'table.v'"):
        rm.open("x.h5", ["table"])


def test_files_without_a_column_are_refused() -> None:
    made({"scalar": 5}).close()
    with pytest.raises(rm.DataError, match=r"no dataset can be a column; left out: 'scalar'"):
        rm.open("x.h5")


def test_datasets_left_out_for_one_reason_are_listed_together() -> None:
    made({"x": np.arange(9), "a": 1, "b": 2.5, "c": np.arange(3)}).close()
    text = left_out("x")
    assert "left out: 'a', 'b' (it is a single value), 'c' (it has 3 rows, not 9)" in text
    assert "columns=[...] chooses columns" in text


def test_a_file_without_datasets_is_refused() -> None:
    made({}).close()
    with pytest.raises(rm.DataError, match="the HDF5 file holds no datasets"):
        rm.open("x.h5")
