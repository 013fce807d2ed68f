"""Rows with nulls on the page of recmap view."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import recmap as rm
from recmap.view.api import Api
from recmap.view.summary import summary
from recmap.view.table import RowTable

TABLE = pa.table({"x": [1, None, 3], "t": ["a", None, ""], "l": [[1, None], None, []]})


def test_nulls_are_shown_as_nothing_and_not_as_values() -> None:
    rm.open(TABLE).save("x.parquet")
    rm.open(TABLE.drop(["l"])).save("x.tfrecord")
    for ds in (rm.open(TABLE), rm.open("x.parquet"), rm.open("x.tfrecord")):
        api = Api(RowTable(ds, "nulls"))
        columns = list(range(len(ds.columns)))
        answer = api.call("rows", {"start": 0, "stop": 3, "columns": columns})
        assert answer is not None
        nulls = [[cell.get("text") == "null" for cell in row["cells"]] for row in answer["rows"]]
        assert nulls == [[False] * len(columns), [True] * len(columns), [False] * len(columns)]
        json.dumps(api.call("info", {}))


def test_summaries_count_nulls_apart_from_empty_values() -> None:
    rm.open(TABLE).save("x.parquet")
    for ds in (rm.open(TABLE), rm.open("x.parquet")):
        table = RowTable(ds, "nulls")
        found = [summary(table, name) for name in ("x", "t", "l")]
        # A null item of a list counts as well.
        assert [(each["nulls"], each["empty"]) for each in found] == [(1, 0), (1, 1), (2, 1)]
    rm.report(ds, "report.html")
    assert Path("report.html").read_text("utf-8").count("1 null") == 2
