"""ds.sort: rows in the order of a column."""

from __future__ import annotations

import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.dataset.sort import Sorted
from recmap.model.ordered_rows import OrderedRows
from recmap.model.progress import Progress
from recmap.model.source import at_epoch
from recmap.pipeline.row_source import SourceRows
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.shuffle import Shuffle

DATES = ["2026-01-02", "NaT", "1969-12-31", "2026-01-02", "2026-01-01"]
TEXTS = ["b", "a", "é", "", "a\0", "a", "Z", "aaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaaaaaa"]
INF = float("inf")
COLUMNS: dict[str, Any] = {
    "int64": np.array([3, -1, 2**63 - 1, -(2**63), 3, 0]),
    "uint64": np.array([3, 2**64 - 1, 0, 3], np.uint64),
    "int8": np.array([-128, 127, 0, -128], np.int8),
    "bool": np.array([True, False, True, False]),
    "float64": np.array([1.5, np.nan, -INF, 0.0, -0.0, INF, np.nan, 1.5]),
    "float16": np.array([1.5, np.nan, -2, 1.5], np.float16),
    "big-endian": np.array([3, -1, 500, 3], ">i4"),
    "one number": np.array([[3], [1], [2]]),
    "date": np.array(DATES, "M8[D]"),
    "duration": np.array([5, -1, 5, 0], "m8[s]"),
    "text": rm.Ragged.from_text(TEXTS),
    "bytes": rm.Ragged.from_bytes([text.encode() for text in TEXTS]),
    "nothing": np.empty(0),
    "no text": rm.Ragged.from_text([]),
}


def is_last(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124  # NaN


def model(values: list[Any], descending: bool) -> list[int]:
    """Return the rows as Python sorts them."""
    known = [row for row in range(len(values)) if not is_last(values[row])]
    last = [row for row in range(len(values)) if is_last(values[row])]
    return sorted(known, key=values.__getitem__, reverse=descending) + last


def plain(column: Any) -> list[Any]:
    values = column.reshape(-1).tolist() if isinstance(column, np.ndarray) else column.tolist()
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return [None if np.isnat(n) else int(n.view("i8")) for n in column]
    return list(values)


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_are_sorted_as_python_sorts_them(kind: str) -> None:
    column = COLUMNS[kind]
    ds = rm.from_arrays({"key": column, "row": np.arange(len(column))})
    for descending in (False, True):
        found = ds.sort("key", descending=descending)
        wanted = model(plain(column), descending)
        assert found[:]["row"].tolist() == wanted
        assert len(found) == len(column)
        assert [int(row["row"]) for row in found] == wanted
        assert pickle.loads(pickle.dumps(found))[:]["row"].tolist() == wanted


@pytest.mark.slow
def test_random_columns_of_several_reads_are_sorted() -> None:
    draw = random.Random(3)
    texts = ["".join(draw.choices("ab\0é", k=draw.choice([0, 1, 2, 9]))) for _ in range(3000)]
    numbers = np.array([draw.choice([math.nan, 1, 2, 3]) for _ in range(400_000)])
    ds = rm.from_arrays({"t": rm.Ragged.from_text(texts)})
    assert ds.sort("t")[:]["t"].tolist() == sorted(texts)
    ds = rm.from_arrays({"x": numbers, "row": np.arange(len(numbers))})
    assert ds.sort("x", descending=True)[:]["row"].tolist() == model(numbers.tolist(), True)


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "x.npz", "x.h5", "x.parquet"])
def test_a_sorted_file_is_sliced_saved_and_trained_from(tmp_path: Path, name: str) -> None:
    keys = [5, 3, 9, 3, 1, 7, 0]
    names = rm.Ragged.from_text([f"n{key}" for key in keys])
    rm.from_arrays({"key": np.array(keys), "name": names}).save(tmp_path / name)
    passes: list[Progress] = []
    ds = rm.open(tmp_path / name).sort("key", progress=passes.append)
    assert passes == []
    assert ds[0]["name"] == "n0"
    assert ds[-2:]["key"].tolist() == [7, 9]
    assert [n for batch in ds.batch(3) for n in batch["key"].tolist()] == sorted(keys)
    assert ds.stats()["key"].values.max == 9  # type: ignore[union-attr]
    ds.save(tmp_path / "sorted.npz")
    assert rm.open(tmp_path / "sorted.npz")["key"][:].tolist() == sorted(keys)
    assert len(passes) <= 2  # one pass
    assert ds.select("key").batch(4).shard(1, 2) is not None
    shuffled = ds.shuffle(seed=1)
    assert sorted(int(row["key"]) for row in shuffled) == sorted(keys)
    assert ds.sort("name", descending=True)[0]["name"] == "n9"


def test_nulls_come_last() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": [3, None, 1, None, 2], "t": ["b", None, "", "a", None]})
    ds = rm.open(table, nulls="mask")
    for descending, wanted in ((False, [2, 4, 0, 1, 3]), (True, [0, 4, 2, 1, 3])):
        rows = ds.sort("x", descending=descending)[:]
        expected = [table["x"][row].as_py() or 0 for row in wanted]
        assert rows["x"].tolist() == expected
        assert rows["x/is_null"].tolist() == [row in (1, 3) for row in wanted]
    assert ds.sort("t")[:]["t"].tolist() == ["", "a", "b", "", ""]


def test_rows_that_change_places_are_sorted_in_every_epoch() -> None:
    ds = rm.from_arrays({"x": np.arange(20) % 3, "row": np.arange(20)})
    rows = OrderedRows(SourceRows(ds._opened.source, None), Shuffle(20, Seed(1)))
    ordered = OrderedRows(rows, Sorted(rows, "x", False, None, None))
    orders = []
    for epoch in (0, 1, 2, 0):
        batch = at_epoch(ordered, epoch).read(0, 20)
        assert batch["x"].tolist() == sorted(batch["x"].tolist())
        orders.append(batch["row"].tolist())
    assert orders[0] == orders[3] != orders[1]


def test_what_has_no_order_is_refused() -> None:
    ds = rm.from_arrays(
        {
            "tokens": rm.Ragged.from_rows([[1], [2, 3]]),
            "pairs": np.zeros((2, 2)),
            "complex": np.zeros(2, complex),
        }
    )
    for name, field in (("tokens", r"int64\[\*\]"), ("pairs", r"float64\[2\]"), ("complex", "c")):
        with pytest.raises(rm.OptionError, match=f"sort: column '{name}' is {field}"):
            ds.sort(name)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'x'; there are: tokens"):
        ds.sort("x")
    with pytest.raises(rm.OptionTypeError, match="descending='yes'"):
        ds.sort("pairs", descending="yes")  # type: ignore[arg-type]
