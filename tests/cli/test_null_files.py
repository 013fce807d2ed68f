"""The command line looks at any Parquet or Arrow file with nulls, of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmap.cli import main

DAY = dt.date(2020, 1, 1)
STRUCT = pa.struct({"a": pa.int64(), "b": pa.string()})
COLUMNS: dict[str, Any] = {
    "int": [1, None, 3],
    "small": pa.array([1, None, 3], pa.uint8()),
    "half": pa.array([1.5, None, 2], pa.float16()),
    "text": ["a", None, "c"],
    "bytes": [b"a", None, b"\xff"],
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "bool": [True, None, False],
    "date": [DAY, None, DAY],
    "time": pa.array([1, None, 3], pa.time64("ns")),
    "zone": pa.array([1, None, 3], pa.timestamp("us", "Europe/Berlin")),
    "duration": pa.array([1, None, 3], pa.duration("s")),
    "list": [[1, None], None, []],
    "texts": [["a", None], None, []],
    "deep": [[[1], None], None, [[None]]],
    "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    "open pair": pa.array([["a", None], None, ["c", "d"]], pa.list_(pa.string(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], STRUCT),
    "structs": pa.array([[{"a": 1, "b": "x"}], None, []], pa.list_(STRUCT)),
    "map": pa.array([[("a", 1)], None, [("b", None)]], pa.map_(pa.string(), pa.int64())),
    "decimal": pa.array([Decimal("1.25"), None, Decimal(-3)], pa.decimal128(10, 2)),
    "long decimal": pa.array([Decimal("1.25"), None, Decimal(-3)], pa.decimal256(50, 2)),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "nothing": pa.nulls(3),
    "no numbers": pa.array([None] * 3, pa.int32()),
    "no texts": pa.array([None] * 3, pa.string()),
    "no lists": pa.array([None] * 3, pa.list_(pa.float32())),
    "no pairs": pa.array([None] * 3, pa.list_(pa.float32(), 2)),
    "nothing inside": pa.array([[None], None, []], pa.list_(pa.null())),
    "uuid": pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()),
    "json": pa.array(["{}", None, "1"], pa.json_()),
}
TABLE = pa.table(COLUMNS)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code = main(list(args))
    out, err = capsys.readouterr()
    assert code == 0, (args, err)
    return out


def write(table: pa.Table, path: str) -> str:
    if path.endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.slow
def test_nothing_fails_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    for name, table in {"some": TABLE, "empty": TABLE.slice(0, 0)}.items():
        for ending in (".parquet", ".arrow"):
            path = write(table, name + ending)
            for verb in ("head", "stats", "info", "schema", "verify"):
                run(capsys, verb, path)
            run(capsys, "head", path, "--json")
            run(capsys, "schema", path, "--as", "torch")
            run(capsys, "diff", path, path)
            run(capsys, "convert", path, f"copy-{name}{ending}")
            run(capsys, "diff", path, f"copy-{name}{ending}")
    shown = run(capsys, "head", "some.parquet", "--column", "decimal", "--column", "nothing")
    assert "1.25" in shown


def test_masks_show_columns_whose_items_have_values(capsys: pytest.CaptureFixture[str]) -> None:
    inside = ["list", "texts", "deep", "open pair", "map", "nothing inside"]
    path = write(TABLE.drop_columns([*inside, "structs"]), "x.parquet")
    assert "int/is_null" in run(capsys, "head", path, "--nulls", "mask", "--json")
    for verb in ("stats", "info", "schema"):
        run(capsys, verb, path, "--nulls", "mask")


def test_code_for_torch_reads_nulls_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(run(capsys, "schema", write(TABLE, "x.parquet"), "--as", "torch"), names)
    rows = [names["Rows"]()[i] for i in range(3)]
    assert (rows[0]["int"].item(), rows[1]["int"], rows[1]["pair"]) == (1, None, None)
    assert rows[0]["list"] == [1, None]
