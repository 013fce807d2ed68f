"""Tables with nulls on the command line: masks, advice, and verify."""

from __future__ import annotations

import shlex
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.cli import main


@pytest.fixture
def table() -> str:
    columns = {
        "x": pa.array([1, None, 3]),
        "l": pa.array([[1, None], None, []]),
        "f": pa.array([b"abc", None, b"def"], pa.binary(3)),
        "d": pa.array([Decimal("1.5"), None, None]),
    }
    pq.write_table(pa.table(columns), "x.parquet")
    return "x.parquet"


def test_a_chosen_column_comes_with_its_mask(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["head", table, "--field", "x", "--nulls", "mask"]) == 0
    assert "x/is_null" in capsys.readouterr().out
    assert (
        main(["convert", table, "y.npz", "--columns", "x", "--field", "x", "--nulls", "mask"]) == 0
    )
    assert rm.open("y.npz")[:]["x/is_null"].tolist() == [False, True, False]


def test_advice_about_nulls_can_be_typed(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, filled in (("l", "int64[*] = 0"), ("f", "|V3 = 0")):
        command = ["head", table, "--field", name]
        assert main(command) == 0
        assert main([*command, "--nulls", "error"]) == 1
        assert "use --nulls keep" in capsys.readouterr().err
        assert main([*command, "--nulls", "fill"]) == 1
        assert f"--column {name}={shlex.quote(filled)}" in capsys.readouterr().err
        assert main(["head", table, "--nulls", "fill", "--field", f"{name}={filled}"]) == 0


def test_masks_go_to_hdf5_with_the_names_that_are_advised(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", table, "y.h5", "--field", "x", "--nulls", "mask"]
    assert main(command) != 0
    advice = capsys.readouterr().err.partition("as in ")[2]
    assert main([*command, *shlex.split(advice)]) == 0
    assert rm.open("y.h5")[:]["x_is_null"].tolist() == [False, True, False]


def test_verify_calls_a_table_with_nulls_sound(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", table]) == 0
    said = capsys.readouterr()
    assert "3 sound records, 0 damaged" in said.out
    assert "nulls" not in said.out + said.err


def test_refusals_of_nulls_quote_options_that_can_be_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pq.write_table(pa.table({"x": [1, None], "t": ["a", None], "l": [[1], [None]]}), "n.parquet")
    for column, advice in (("x", "--column x='int64 = 0'"), ("t", "--nulls fill")):
        command = ["convert", "n.parquet", f"{column}.npy", "--field", column]
        assert main(command) == 1
        said = capsys.readouterr().err
        assert "ds." not in said
        assert advice in said
        assert "--nulls mask" in said
    assert main(["convert", "n.parquet", "x.npy", "--field", "x=int64 = 0"]) == 0
    assert np.load("x.npy").tolist() == [1, 0]
    command = ["convert", "n.parquet", "x.tfrecord"]
    assert main(command) == 1
    assert "--column l='int64[*] = 0' --column ..." in capsys.readouterr().err
    assert (
        main(["convert", "n.parquet", "x.tfrecord", "--field", "l=int64[*] = 0", "--field", "..."])
        == 0
    )
    assert [row["x"] for row in rm.open("x.tfrecord")] == [1, None]
    bench = ["bench", "n.parquet", "--field", "x", "--batch", "2", "--json"]
    assert main(bench) == 1
    assert "--nulls mask" in capsys.readouterr().err
    assert main([*bench, "--nulls", "mask"]) == 0
    assert main(["head", "x.tfrecord"]) == 0
