"""Rows of Parquet files at random, read by the pages that they are in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.formats.parquet import open_parquet
from recmap.formats.row_groups import RowGroupSource
from tests.formats.test_parquet import as_lists, random_table, wanted

_ROWS = 1200


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files to be larger than what is kept of them."""
    monkeypatch.setattr("recmap.formats.row_groups._KEPT", 0)


def by_pages(source: RowGroupSource, rows: Any, group: int = 0) -> Any:
    return source._file.take_few(group, list(source.schema), np.asarray(rows))


def nested_table(rows: int, seed: int) -> Any:
    """Make columns with nulls, lists in lists, tensors and members of structs."""
    rng = np.random.default_rng(seed)
    some = random_table(rows, seed)
    missing = pa.array(rng.random(rows) < 0.2)
    columns = {
        name: pa.compute.if_else(missing, None, some[name].combine_chunks())
        for name in ("i", "f", "flag", "when", "list")
    }
    lists = [[[int(x)] * (int(x) % 3) for x in rng.integers(0, 9, n % 4)] for n in range(rows)]
    columns["deep"] = pa.array(lists, pa.list_(pa.list_(pa.int16())))
    columns["tensor"] = pa.FixedShapeTensorArray.from_numpy_ndarray(
        rng.random((rows, 2, 3)).astype("f4")
    )
    columns["fixed"] = pa.array(rng.integers(0, 9, (rows, 4)).tolist(), pa.list_(pa.int8(), 4))
    return pa.table(columns)


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "compression": str(rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"])),
        "use_dictionary": bool(rng.random() < 0.5),
        "data_page_version": str(rng.choice(["1.0", "2.0"])),
        "data_page_size": int(rng.choice([64, 500, 4000])),
        "write_batch_size": int(rng.choice([7, 64])),
        "row_group_size": int(rng.choice([500, _ROWS])),
        "write_page_index": bool(rng.random() < 0.7),
        "write_page_checksum": bool(rng.random() < 0.5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_table, nested_table])
def test_rows_by_pages_are_the_rows_of_the_file(make: Any) -> None:
    taken = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        table, options = make(_ROWS, seed), random_options(rng)
        pq.write_table(table, "x.parquet", **options)
        few = rng.integers(0, _ROWS, int(rng.integers(1, 12)))
        expected = {name: column[few] for name, column in rm.open("x.parquet")[:].items()}
        data = rm.open("x.parquet")
        found = data[few]
        assert as_lists(found) == as_lists(expected), (seed, options)
        if make is random_table:
            assert as_lists(found) == wanted(table, few)
        inside = few[few < options["row_group_size"]]
        for name in data.schema:
            source = open_parquet("x.parquet", [name])
            pages = by_pages(source, inside)
            taken += pages is not None
            if pages is not None:
                direct = {name: expected[name][few < options["row_group_size"]]}
                assert as_lists(pages) == as_lists(direct)
    assert taken > 15


def test_own_files_have_an_index_so_lists_are_read_by_pages() -> None:
    values = np.random.default_rng(0).random((4000, 512)).astype("f4")
    rm.from_arrays({"x": values}).save("own.parquet")
    source = open_parquet("own.parquet")
    rows = np.array([700, 5, 5, 6])
    found = by_pages(source, rows)
    assert found is not None
    np.testing.assert_array_equal(found["x"], values[rows])


def test_rows_in_most_pages_are_not_read_by_pages() -> None:
    pq.write_table(random_table(_ROWS, 0), "x.parquet", data_page_size=500, write_batch_size=64)
    source = open_parquet("x.parquet", ["i", "f"])
    assert by_pages(source, np.arange(0, _ROWS, 2)) is None
    assert by_pages(source, [1]) is not None


def test_lists_that_may_go_on_in_the_next_page_are_not_read_by_pages() -> None:
    table = random_table(_ROWS, 0).select(["list"])
    for version, index, possible in (("1.0", 0, False), ("1.0", 1, True), ("2.0", 0, True)):
        pq.write_table(
            table,
            "x.parquet",
            data_page_size=500,
            write_batch_size=64,
            data_page_version=version,
            write_page_index=bool(index),
        )
        assert (by_pages(open_parquet("x.parquet"), [9]) is not None) == possible


def test_pages_are_kept_for_later_rows_and_never_shared() -> None:
    pq.write_table(random_table(_ROWS, 0), "x.parquet", data_page_size=500, write_batch_size=64)
    source = open_parquet("x.parquet", ["f"])
    first = by_pages(source, [3, 4])
    first["f"][:] = -1
    again = by_pages(source, [4, 3])
    np.testing.assert_array_equal(again["f"], source.read(3, 5)["f"][::-1])


def test_masks_come_with_their_columns() -> None:
    pq.write_table(nested_table(_ROWS, 1), "x.parquet", data_page_size=500, write_batch_size=64)
    source = open_parquet("x.parquet", nulls="mask")
    rows = np.array([17, 4])
    columns = source.select(["f", "f/is_null"])
    found = by_pages(columns, rows)
    assert found is not None
    for name, column in found.items():
        np.testing.assert_array_equal(column, columns.read(0, 20)[name][rows])


@pytest.mark.slow
def test_damage_is_an_error_or_outside_of_the_pages_that_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = random_table(_ROWS, 5).select(["i", "f", "word", "list"])
    rows, rng, taken = np.array([40, 2, 1001]), np.random.default_rng(0), 0
    for number in range(30):
        pq.write_table(
            table,
            "x.parquet",
            data_page_size=500,
            write_batch_size=64,
            compression=["none", "zstd"][number % 2],
            write_page_index=True,
            write_page_checksum=True,
        )
        with open("x.parquet", "r+b") as file:
            size = file.seek(0, 2)
            file.seek(int(rng.integers(4, size - 8)))
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1 << int(rng.integers(8))]))
        try:
            found = as_lists(rm.open("x.parquet")[rows])
        except rm.DataError:
            continue
        taken += 1
        if found != wanted(table, rows):  # the footer says so, to all who read the file
            with monkeypatch.context() as patch:
                patch.setattr("recmap.formats.parquet._ParquetFile.take_few", lambda *_: None)
                assert found == as_lists(rm.open("x.parquet")[rows])
    assert taken > 5
