"""Rows with nulls on the page of recmap view."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import recmap as rm
from recmap.cli import main
from recmap.view.api import Api
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


def test_summaries_and_reports_count_nulls() -> None:
    table = TABLE.append_column("f", pa.array([0.5, None, 0.5]))
    rm.open(table).save("x.parquet")
    api = Api(RowTable(rm.open("x.parquet"), "nulls"))
    nulls = {"x": 1, "t": 1, "l": 2, "f": 1}
    for number, name in enumerate(nulls):
        found = api.call("summary", {"column": number})
        assert found is not None
        assert found["nulls"] == nulls[name]
        assert found["empty"] == (name in "tl")
    assert main(["view", "x.parquet", "--html", "report.html"]) == 0
    report = Path("report.html").read_text()
    assert "2 null" in report
    assert main(["view", "x.parquet", "--html", "some.html", "--where", "x is null"]) == 0
