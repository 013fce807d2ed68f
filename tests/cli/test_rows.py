"""recmap head and recmap stats, as tables and as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from recmap.cli import main


def output(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert main(list(args)) == 0
    return capsys.readouterr().out


@pytest.fixture
def mixed() -> str:
    with rm.TFRecordWriter("mixed.tfrecord") as w:
        w.write(
            {
                "image": np.arange(200, dtype=np.uint8).reshape(2, 10, 10),
                "x": np.array([0.1, np.nan], np.float32),
                "label": [7, -1],
                "name": ["größe".encode(), b"two\nlines " * 9],
                "jpeg": [b"\xff\xd8\xff" + bytes(1997), b"\x89PNG\r\n\x1a\n" + bytes(92)],
                "blob": [b"\x00\x01\xff" + bytes(37), b""],
                "tokens": rm.Ragged.from_rows([[1, 2, 3, 4, 5, 6], []]),
                "tags": rm.Ragged(rm.Ragged.from_bytes([b"a", b"b"]), [0, 2, 2]),
                "nested": rm.Ragged(rm.Ragged.from_rows([[1], [2, 3]]), [0, 2, 2]),
            }
        )
    return "mixed.tfrecord"


def test_head_prints_a_line_for_each_row(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "head", mixed).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["row", *rm.open(mixed).schema]
    for text in (
        "[10,10] 0 1 2 3 ...",
        "0.1",
        "'größe'",
        "JPEG, 2,000 bytes",
        "0x0001ff00... 40 bytes",
        "[6] 1 2 3 4 ...",
        "[2] 'a' 'b'",
        "[2] [1] 1; [2] 2 3",
    ):
        assert text in lines[1]
    for text in (
        "nan",
        "-1",
        "PNG, 100 bytes",
        "''",
        r"'two\nlines two\nlines two\nlines tw...' 90",
    ):
        assert text in lines[2]


@pytest.mark.slow
def test_head_shows_as_many_rows_as_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(150_000))
    assert len(output(capsys, "head", "x.npy").splitlines()) == 11
    assert output(capsys, "head", "x.npy", "-n", "0").splitlines() == ["row  data"]
    lines = output(capsys, "head", "x.npy", "-n", "149999", "--json").splitlines()
    assert [json.loads(lines[i])["data"] for i in (0, 140_000, -1)] == [0, 140_000, 149_998]
    np.save("y.npy", np.arange(3))
    assert len(output(capsys, "head", "y.npy", "-n", "100").splitlines()) == 4
    later = output(capsys, "head", "x.npy", "--start", "149999").splitlines()
    assert [line.split() for line in later] == [["row", "data"], ["149,999", "149999"]]


def test_head_as_json_has_every_value(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in output(capsys, "head", mixed, "--json").splitlines()]
    ds = rm.open(mixed)
    assert rows[0]["image"] == ds[0]["image"].tolist()
    assert rows[0]["x"] == float(np.float32(0.1))
    assert rows[1]["x"] == "NaN"
    assert rows[0]["name"] == "größe"
    assert base64.b64decode(rows[0]["jpeg"]["base64"]) == ds[0]["jpeg"]
    assert base64.b64decode(rows[0]["blob"]["base64"]) == ds[0]["blob"]
    assert rows[1]["blob"] == ""
    assert rows[0]["tokens"] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["tags"] == ["a", "b"]
    assert rows[0]["nested"] == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("column", "shown", "as_json"),
    [
        (np.array([np.inf, -np.inf]), "inf", "Infinity"),
        (np.array([1 + 2j, 0]), "(1+2j)", [1.0, 2.0]),
        (np.array(["2020-01-02", "NaT"], "M8[D]"), "2020-01-02", "2020-01-02"),
        (np.array([True, False]), "true", True),
        (np.array([2**64 - 1, 0], np.uint64), str(2**64 - 1), 2**64 - 1),
        (np.array([1.5, 2], ml_dtypes.bfloat16), "1.5", 1.5),
        (np.array([1.5, 2], np.float16), "1.5", 1.5),
        (np.array([[1, 2], [3, 4]], ">i2"), "[2] 1 2", [1, 2]),
        (np.zeros((2, 0)), "[0]", []),
        (np.array([1.5, 2], np.longdouble), "1.5", 1.5),
        (np.array([1 + 2j, 0], np.clongdouble), "(1+2j)", [1.0, 2.0]),
        (np.array([b"a\xff", b"xy"], "V2"), r"b'\x61\xFF'", {"base64": "Yf8="}),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_head_shows_every_type(
    column: np.ndarray[Any, Any], shown: str, as_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", column)
    if column.dtype.kind == "V":  # NumPy cannot save these
        rm.from_arrays({"data": column}).save("x.tfrecord")
    path = "x.tfrecord" if column.dtype.kind == "V" else "x.npy"
    assert output(capsys, "head", path).splitlines()[1].strip() == f"0  {shown}"
    line = output(capsys, "head", path, "--json").splitlines()[0]
    assert json.loads(line) == {"data": as_json}


def test_stats_prints_a_line_for_each_field(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "stats", mixed).splitlines()
    assert " ".join(lines[0].split()) == (
        "column of count nan min max mean std histogram distinct most common"
    )
    rows = {tuple(line.split()[:2]): line.split() for line in lines[1:]}
    assert rows["image", "uint8[10,10]"][2:7] == ["200", "0", "0", "199", "99.5"]
    assert rows["x", "float32"][2:6] == ["2", "1", "0.1", "0.1"]
    assert rows["tokens", "row"][3:7] == ["2", "0", "0", "6"]
    assert rows["nested", "step"][3:7] == ["2", "0", "1", "2"]
    assert sum(line.startswith("blob ") for line in lines) == 2
    assert rows["label", "int64"][-3:] == ["2", "all", "different"]
    assert rows["tags", "bytes[*]"][-3:] == ["2", "all", "different"]
    only = output(capsys, "stats", mixed, "--field", "label").splitlines()
    assert [line.split()[0] for line in only] == ["column", "label"]


def test_stats_shows_the_most_common_values_and_where_counting_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = np.arange(30_000)
    many[:500] = 7
    words = [b"cat"] * 20_000 + [b"dog"] * 9_999 + [b"owl"]
    columns = {"many": many, "word": rm.Ragged.from_bytes(words)}
    rm.from_arrays(columns).save("x.npz")
    lines = output(capsys, "stats", "x.npz").splitlines()
    assert lines[1].split("  ")[-1].startswith("in the first ")
    assert lines[1].endswith(": 7 (500), ...")
    assert lines[2].split("  ")[-2:] == ["3", "'cat' (20,000), 'dog' (9,999), ..."]
    found = json.loads(output(capsys, "stats", "x.npz", "--json"))
    assert found["word"]["counts"]["top"] == [["cat", 20_000], ["dog", 9_999], ["owl", 1]]
    assert not found["many"]["counts"]["complete"]
    assert found["many"]["counts"]["distinct"] > 10_000


def test_a_histogram_shows_where_its_first_bar_begins_and_its_last_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rm.from_arrays({"n": np.array([5, 6, 9]), "x": np.array([0.3, 0.7, 0.9])}).save("x.npz")
    lines = output(capsys, "stats", "x.npz").splitlines()
    assert "5 ██  █ " in lines[1]
    assert " 9 " in lines[1]
    assert lines[2].split()[8] == "0.28125"
    assert lines[2].split()[-1] == "0.90625"


def test_stats_as_json(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(capsys, "stats", mixed, "--json"))
    assert found["label"]["values"] == {
        "count": 2,
        "nan": 0,
        "min": -1,
        "max": 7,
        "mean": 3.0,
        "std": 4.0,
        "histogram": {"start": -1.0, "width": 1.0, "counts": [1, 0, 0, 0, 0, 0, 0, 0, 1]},
    }
    assert found["label"]["field"] == "int64"
    assert found["tokens"]["lengths"][0]["max"] == 6
    assert found["name"]["sizes"]["max"] == 90


def test_a_single_value_is_visible_in_a_histogram(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save("x.npy", np.repeat([0, 1, 3], [1000, 500, 1]))
    assert "0 █▄ ▁ 3" in output(capsys, "stats", "x.npy")


def test_stats_of_bytes_of_a_fixed_size_are_those_of_strings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hashes = np.array([b"abc", b"\xff\x00\x01", b"abc"], "V3")
    lists = rm.Ragged.from_rows([hashes, hashes[:0], hashes[:1]])
    rm.from_arrays({"hash": hashes, "list": lists}).save("x.npz")
    told = json.loads(output(capsys, "stats", "x.npz", "--json"))
    top = [["abc", 2], [{"base64": "/wAB"}, 1]]
    assert told["hash"]["counts"]["top"] == top
    assert told["hash"]["sizes"]["max"] == 3
    assert told["list"]["counts"]["top"] == [["abc", 3], [{"base64": "/wAB"}, 1]]
    assert "'abc' (2)" in output(capsys, "stats", "x.npz")


def test_rows_are_filtered_by_a_condition(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = output(capsys, "head", mixed, "--field", "label", "--where", "label < 0", "--json")
    assert [json.loads(line) for line in rows.splitlines()] == [{"label": -1}]
    found = json.loads(output(capsys, "stats", mixed, "--where", "label > 0", "--json"))
    assert found["label"]["values"]["max"] == 7
    both = ["--where", "label > -5", "--where", "label < 0"]
    rows = output(capsys, "head", mixed, "--field", "label", *both, "--json")
    assert [json.loads(row)["label"] for row in rows.splitlines()] == [-1]
    output(capsys, "convert", mixed, "some.tfrecord", "--where", 'name.starts_with(b"two")')
    assert rm.open("some.tfrecord")["label"][:].tolist() == [-1]
    output(capsys, "diff", "some.tfrecord", "mixed.tfrecord", "--where", "label == -1")
    output(capsys, "view", mixed, "--where", "label == -1", "--html", "report.html")
    for condition, message in [
        ("lable == 3", "no column 'lable'; there are:"),
        ("label = 3", "compare with ==, not ="),
        ("label == seven", "seven is read as a column; put text in quotes"),
        ("name == 'two'", "compare it with bytes, not 'two'; write b'two'"),
    ]:
        assert main(["head", mixed, "--where", condition]) == 2
        assert message in capsys.readouterr().err
