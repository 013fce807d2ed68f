"""CSV, TSV and JSON Lines, compared with Python's csv and json modules, pandas and polars."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from recmap.formats.text import text_file

PACKED = ["", ".gz", ".zst"]


def write(name: str, content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    if name.endswith(".gz"):
        raw = gzip.compress(raw)
    elif name.endswith(".zst"):
        import pyarrow as pa

        half = len(raw) // 2
        raw = b"".join(pa.compress(part, "zstd", asbytes=True) for part in (raw[:half], raw[half:]))
    Path(name).write_bytes(raw)
    return name


def table(rows: int) -> dict[str, Any]:
    """Columns with everything that needs care: nulls, empty text, quotes, all digits of floats."""
    rng = np.random.default_rng(3)
    texts = ["", "plain", 'a "quote"', "a,b", "two\nlines\r\n", "007", "é🦜", "null", "\ttab", " "]
    floats = rng.integers(0, 2**64, rows, np.uint64).view(np.float64)
    floats[np.isnan(floats)] = np.nan  # text does not tell them apart
    floats[:5] = [0.0, -0.0, 1e16, 5e-324, np.inf]
    mask = np.arange(rows) % 3 == 1
    return {
        "id": np.arange(rows) + 2**62,
        "f64": floats,
        "f32": np.float32(rng.normal(size=rows)) * np.float32(10) ** rng.integers(-40, 38, rows),
        "flag": np.arange(rows) % 2 == 0,
        "maybe": np.ma.masked_array(np.arange(rows), mask),
        "text": rm.Ragged.from_text([texts[i % len(texts)] for i in range(rows)]),
        "name": rm.Ragged(
            rm.Ragged.from_text(["" if m else texts[i % 9] for i, m in enumerate(mask)]).values,
            rm.Ragged.from_text(["" if m else texts[i % 9] for i, m in enumerate(mask)]).offsets,
            mask,
        ),
    }


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, rm.Ragged):
        assert found.tolist() == wanted.tolist()
        return
    assert found.dtype == wanted.dtype
    assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(wanted))
    known = ~np.ma.getmaskarray(wanted)
    mine, theirs = np.asarray(found)[known], np.asarray(wanted)[known]
    nan = np.isnan(theirs) if theirs.dtype.kind == "f" else np.zeros(len(theirs), bool)
    assert np.array_equal(mine[~nan], theirs[~nan])
    assert np.array_equal(np.signbit(mine[~nan]), np.signbit(theirs[~nan]))
    assert nan.sum() == (np.isnan(mine).sum() if theirs.dtype.kind == "f" else 0)


@pytest.mark.parametrize("end", [f"{kind}{packed}" for kind in (".csv", ".tsv", ".jsonl")
                                 for packed in PACKED])  # fmt: skip
def test_what_is_written_is_read_back_exactly(end: str) -> None:
    columns = table(500)
    if end.startswith(".jsonl"):
        columns["list"] = rm.Ragged(np.arange(700) % 90, [0, *range(1, 1 + 500)])
        columns["nested/words"] = rm.Ragged(
            rm.Ragged.from_text(['"', "b"] * 250), [0, *range(1, 501)]
        )
    rm.from_arrays(columns).save(f"a{end}", verify="full", memory="300MB")
    ds = rm.open(f"a{end}")
    assert len(ds) == 500
    assert list(ds.schema) == list(columns)
    rows = np.random.default_rng(0).integers(0, 500, 40)
    whole, few = ds[:], ds[rows]
    for name, column in columns.items():
        same(whole[name], column)
        same(few[name], column[rows])
    # Other programs read the same, and nothing is lost without the description.
    os.remove(f"a{end}.recmap.json")
    inferred = rm.open(f"a{end}")[:]
    assert inferred["text"].tolist() == columns["text"].tolist()
    assert inferred["name"].tolist() == columns["name"].tolist()
    assert np.array_equal(inferred["id"], columns["id"])
    same(inferred["maybe"], columns["maybe"])


def random_csv(rng: np.random.Generator, rows: int) -> tuple[str, list[list[str]]]:
    """Return CSV in one of the ways that Python's csv module writes it."""
    letters = ["a", '"', ",", "\n", "\r\n", "é", " ", "1", ";", "\0x"]
    made = [
        ["x" + "".join(rng.choice(letters, rng.integers(0, 5))) for _ in range(3)]
        for _ in range(rows)
    ]
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=str(rng.choice([",", ";", "\t"])),
        quoting=csv.QUOTE_ALL if rng.random() < 0.5 else csv.QUOTE_MINIMAL,
        lineterminator=str(rng.choice(["\n", "\r\n"])),
    )
    writer.writerows([["a", "b", "c"], *made])
    text = out.getvalue()
    return (text[: -len(writer.dialect.lineterminator)] if rng.random() < 0.3 else text), made


def test_random_csv_is_read_as_pythons_csv_module_does() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        text, rows = random_csv(rng, int(rng.integers(1, 40)))
        ds = rm.open(write("a.csv", text), delimiter=text[text.index("a") + 1 :].strip('"')[0])
        assert len(ds) == len(rows)
        found = ds[:]
        assert [list(row) for row in zip(*(found[n].tolist() for n in "abc"), strict=True)] == rows
        assert ds[len(rows) - 1] == dict(zip("abc", rows[-1], strict=True))


def test_random_json_is_read_as_pythons_json_module_does() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows: list[dict[str, Any]] = []
        for _ in range(int(rng.integers(2, 30))):
            text = "".join(map(chr, rng.integers(1, 0x2FFF, 5)))
            row: dict[str, Any] = {
                "a": int(rng.integers(-(2**63), 2**63 - 1)),
                "b": float(rng.normal() * 10.0 ** rng.integers(-300, 300)),
                "c": {"d": text, "e": [[1], list(range(int(rng.integers(0, 4))))]},
                "f": bool(rng.random() < 0.5),
            }
            if rows and rng.random() < 0.3:
                row[str(rng.choice(["a", "b", "f"]))] = None
            if rows and rng.random() < 0.2:
                row["c"] = None
            if rows and rng.random() < 0.2:
                del row["b"]
            rows.append(row)
        ascii_ = bool(rng.random() < 0.5)
        lines = [json.dumps(row, ensure_ascii=ascii_, indent=None) for row in rows]
        ds = rm.open(write("a.jsonl", "\n".join(lines) + "\n" * int(rng.integers(0, 3))))
        found = ds[:]
        assert found["a"].tolist() == [row["a"] for row in rows]
        assert found["b"].tolist() == [row.get("b") for row in rows]
        assert found["f"].tolist() == [row["f"] for row in rows]
        assert found["c/d"].tolist() == [row["c"] and row["c"]["d"] for row in rows]
        assert [
            None if each is None else [list(inner) for inner in each] for each in found["c/e"]
        ] == [row["c"] and row["c"]["e"] for row in rows]


def test_numbers_agree_with_pandas_and_polars() -> None:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"i": rng.integers(-9, 9**9, 999), "f": rng.normal(size=999), "t": "x,y"})
    frame.to_csv("a.csv")
    ds = rm.open("a.csv")
    assert str(ds.schema) == "Schema(column_0: int64, i: int64, f: float64, t: text)"
    read = pl.read_csv("a.csv")
    for name in ("i", "f"):
        assert ds[:][name].tolist() == frame[name].tolist() == read[name].to_list()
    ds.save("b.csv")
    assert pd.read_csv("b.csv")["f"].tolist() == frame["f"].tolist()
    assert pl.read_csv("b.csv")["t"].to_list() == ["x,y"] * 999


def test_types_are_inferred_strictly_and_can_be_given() -> None:
    values = "007,1e5,nan,true,2026-01-01,0x10,12345678901234567890,1.0,,-0"
    names = "zip,exp,nan,bool,date,hex,big,real,none,zero"
    write("a.csv", f"{names}\n{values}\n")
    assert {n: str(f) for n, f in rm.open("a.csv").schema.items()} == {
        **dict.fromkeys(["zip", "exp", "nan", "bool", "date", "hex", "big", "zero"], "text"),
        "real": "float64",
        "none": "text?",
    }
    given: dict[Any, Any] = {"zip": "int16", "exp": "float32", "nan": "float64", "bool": "bool"}
    given |= {"big": "uint64", "none": "text", "zero": "float64"}
    row = rm.open("a.csv", {**given, ...: None})[0]
    assert row["zip"] == 7
    assert row["exp"] == np.float32(1e5)
    assert np.isnan(row["nan"])
    assert row["bool"]
    assert row["big"] == 12345678901234567890
    assert row["none"] == ""
    assert np.signbit(row["zero"])
    write("a.csv", 'a,b\n"1",2\n"3",4\n')
    assert str(rm.open("a.csv").schema) == "Schema(a: text, b: int64)"  # what is quoted is text
    write("a.csv", '"a","b"\n"1","x"\n')
    assert str(rm.open("a.csv").schema) == "Schema(a: int64, b: text)"  # unless all is quoted
    assert "inferred from all rows" in str(rm.open("a.csv").info())
    assert rm.open(write("a.csv", "1;2\n3;4\n"), header=False)[1] == {"column_0": 3, "column_1": 4}
    assert rm.open(write("a.csv", "a,b\n1,\n"), {"b": "int64 = 7"})[0] == {"b": 7}
    fixed = rm.open(write("a.jsonl", '{"a":[1,2]}\n{"a":[3,4]}\n'), {"a": "float32[2]"})
    assert fixed[:]["a"].tolist() == [[1, 2], [3, 4]]


LATER = {
    "x,1.5": ("a", "'x' is not a number", 'columns={"a": "text", ...: None}'),
    "1.5,1.5": ("a", "'1.5' is not an integer", 'columns={"a": "float64", ...: None}'),
    "007,1.5": ("a", "'007' is not a number", 'columns={"a": "text", ...: None}'),
    "9223372036854775808,1": ("a", "out of range", 'columns={"a": "float64", ...: None}'),
    ",1.5": ("a", "no value", 'columns={"a": "int64?", ...: None}'),
    "1,inf": ("b", "'inf' is not a number", 'columns={"b": "float64", ...: None}'),
    "NaN,1.5": ("a", "'NaN' is not a number", 'columns={"a": "float64", ...: None}'),
    "1,n/a": ("b", "'n/a' is not a number", 'columns={"b": "text", ...: None}'),
    "1,9007199254740993": ("b", "would be rounded", 'columns={"b": "text", ...: None}'),
    "1,2,3": (None, "more fields than the 2 columns", ""),
    "1": (None, "1 field, but there are 2 columns", ""),
}  # fmt: skip


@pytest.mark.slow
def test_a_later_row_that_does_not_fit_is_an_error_that_says_where() -> None:
    head = "a,b\n" + f"12,0.{'5' * 40}\n" * 200_000
    for line, (field, what, remedy) in LATER.items():
        write("a.csv", head + line + "\n1,1.5\n")
        ds = rm.open("a.csv")
        assert ds[200_001] == {"a": 1, "b": 1.5}
        for rows in (slice(199_999, None), [200_000]):
            with pytest.raises(rm.DataError, match=what) as caught:
                ds[rows]
            assert remedy in str(caught.value)
            assert (caught.value.record, caught.value.field) == (200_000, field)
            assert caught.value.byte in range(len(head), len(head) + len(line) + 1)
            assert "line 200,002" in str(caught.value)


HOSTILE: dict[str, list[tuple[Any, str]]] = {
    "a.csv": [
        ('a,b\n1,"x\n', "a quoted field does not end"),
        ('a,b\n1,x"y\n', "a quote inside a field"),
        ('a,b\n1,"x"y\n', "a quote inside a field"),
        ("a,b\r1,2\r", "carriage return without"),
        ("# made by x\na,b\n1,2\n", "more fields than the 1 column .the first line begins with #"),
        ('# by "x"\na,b\n1,2\n', "a quote inside a field.*the first line begins with #"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        (b"a,b\n1,x\n" + b"1,yyyyyyyyyyyy\n" * 999 + b"1,\xff\n", "is not UTF-8"),
    ],
    "a.jsonl": [
        ('{"a":1}\n{"a":1,"a":2}\n', "the key 'a' is there twice"),
        ('{"a":1}\n[1]\n', "is not an object"),
        ('{"a":1}\n{"a":1\n', "ends within"),
        ('{"a":' + "[" * 100_000 + "\n", "more than 500 deep"),
        ('{"a":"\\ud800"}\n', "an escape that is not a character"),
        ('{"a":1}\n' * 20_000 + '{"a":1,"b":2}\n', "the key 'b' is not in the first rows"),
        ('{"a":[{"b":1}]}\n', "it holds a list; objects in a list"),
        ('{"a":1}\n{"a":"x"}\n', "it holds int; text"),
    ],
}


def test_hostile_files_are_errors_that_name_the_file() -> None:
    for name, cases in HOSTILE.items():
        for content, what in cases:
            write(name, content)
            with pytest.raises(rm.DataError, match=what) as caught:
                rm.open(name)[:]
            assert caught.value.file == name
    write("a.csv.gz", "a,b\n1,2\n" * 99)
    Path("a.csv.gz").write_bytes(Path("a.csv.gz").read_bytes()[:-9])
    with pytest.raises(rm.CompressionError, match="ends early"):
        rm.open("a.csv.gz")
    write("a.csv.zst", "a,b\n1,2\n" * 99)
    Path("a.csv.zst").write_bytes(Path("a.csv.zst").read_bytes()[:-3])
    with pytest.raises(rm.CompressionError, match="zstd stream is damaged"):
        rm.open("a.csv.zst")


def test_a_damaged_file_stays_damaged_when_it_is_read_again() -> None:
    write("a.csv", 'a,b\n1,2\n3,4\n5,x"y\n6,7\n')
    ds = rm.open("a.csv")
    for attempt in (lambda: ds[0], lambda: len(ds), lambda: ds[0:3], lambda: ds[[3, 7]]):
        with pytest.raises(rm.DataError, match="row 2, line 4, byte 15: a quote"):
            attempt()
    raw = gzip.compress(b"a,b\n" + b"1,22222222\n" * 1_000_000, 1)
    Path("b.csv.gz").write_bytes(raw[:-2_000])  # beyond the rows that tell the types
    ds = rm.open("b.csv.gz")
    for _ in range(2):
        with pytest.raises(rm.CompressionError, match="ends early"):
            len(ds)


def test_an_object_is_never_read_as_null() -> None:
    write("a.jsonl", '{"a":{"b":1}}\n{"a":{"b":2}}\n')
    with pytest.raises(rm.DataError, match="'a' cannot be a column: it holds objects.*'?a/b"):
        rm.open("a.jsonl", {"a": "text?"})
    write("a.jsonl", '{"a":' * 700 + "1" + "}" * 700 + "\n")
    with pytest.raises(rm.DataError, match="more than 500 deep"):
        rm.open("a.jsonl")


def test_no_rows_and_null_arrays_are_read_back() -> None:
    array = np.ma.masked_array(np.arange(6).reshape(2, 3), [[True] * 3, [False] * 3])
    for rows in (2, 0):
        rm.from_arrays({"v": array[:rows], "x": np.arange(rows)}).save("a.jsonl", overwrite=True)
        found = rm.open("a.jsonl")
        assert found.schema["v"].shape == (3,)
        assert found[:]["v"].tolist() == [None, [3, 4, 5]][:rows]
    write("b.jsonl", '{"v":[1,2]}\n')
    with pytest.raises(rm.ColumnError, match=r"b.jsonl: column 'v' .* number of values: 2"):
        rm.open("b.jsonl", {"v": "int64[3]?"})[:]


def test_a_header_keeps_every_name() -> None:
    names = ["\ufeffa", "b;c", 'd"e', "f\ng"]
    rm.from_arrays({name: np.arange(2) for name in names}).save("a.csv")
    assert list(rm.open("a.csv").schema) == names
    with pytest.raises(rm.ColumnError, match="a column without a name"):
        rm.from_arrays({"": np.arange(2)}).save("b.csv")


def test_what_cannot_be_written_is_refused_by_name() -> None:
    lists = rm.from_arrays({"x": rm.Ragged.from_rows([[1], [2]])})
    with pytest.raises(rm.ColumnError, match=r"column 'x' is int64\[\*\].*write .jsonl"):
        lists.save("a.csv")
    with pytest.raises(rm.ColumnError, match=r"blank line"):
        rm.from_arrays({"x": np.ma.masked_array([1, 2], np.array([False, True]))}).save("a.csv")
    with pytest.raises(rm.ColumnError, match="not UTF-8"):
        rm.from_arrays({"x": [b"\xff"], "y": [1]}).save("a.jsonl")
    with pytest.raises(rm.ColumnError, match="complex64, which text cannot hold"):
        rm.from_arrays({"x": np.ones(2, "complex64")}).save("a.jsonl")
    assert os.listdir() == []


@pytest.mark.filterwarnings("ignore::recmap.errors.SlowOrderWarning")
@pytest.mark.parametrize("packed", PACKED)
def test_rows_are_shuffled_resumed_and_sent_to_workers(packed: str) -> None:
    for part in range(3):
        lines = [f'{i},"{i}\n"' for i in range(100 * part, 100 * part + 100)]
        write(f"{part}.csv{packed}", "\ufeffi,t\n" + "\n\n".join(lines))
    ds = rm.open("*.csv*")
    assert ds[[299, 0, 150]]["t"].tolist() == ["299\n", "0\n", "150\n"]
    assert pickle.loads(pickle.dumps(ds))[150]["i"] == 150

    def batches() -> rm.Stream:
        return ds.shuffle(seed=1).map(lambda row: row, workers="threads:2").batch(16)

    whole = np.concatenate([batch["i"] for batch in batches()])
    assert sorted(whole) == list(range(300))
    begun, later = batches(), batches()
    first = [batch["i"] for _, batch in zip(range(4), begun, strict=False)]
    later.restore(begun.state())
    rest = [batch["i"] for batch in later]
    assert np.array_equal(np.concatenate([*first, *rest]), whole)


def test_files_with_other_columns_are_not_mixed() -> None:
    write("a.csv", "a,b\n1,2\n")
    write("b.csv", "a,c\n1,2\n")
    with pytest.raises(rm.DataError, match=r"b.csv: its columns are a, c"):
        rm.open("*.csv")
    # A type is that of all files.
    write("b.csv", "a,b\n0.5,\n")
    assert str(rm.open("*.csv").schema) == "Schema(a: float64, b: int64?)"
    # Not all of many files are looked at for types, but all for their columns.
    for number in range(70):
        write(f"many-{number:02}.csv", "b,a\n1,2\n" if number == 1 else "a,b\n1,2\n")
    with pytest.raises(rm.DataError, match=r"many-01.csv: its columns are b, a"):
        rm.open("many-*.csv")


@pytest.mark.slow
def test_a_row_that_does_not_fit_into_the_memory_is_refused() -> None:
    with open("a.csv", "wb") as file:
        file.write(b"a,b\n1,x\n" * 1_200_000 + b"1,")
        file.writelines(b"y" * 1_000_000 for _ in range(50))
    with pytest.raises(rm.MemoryLimitError):
        rm.convert("a.csv", "a.npz", columns={"a": "text", "b": "text"}, memory="64MB")


def test_an_index_is_used_until_the_file_changes() -> None:
    lines = [f'{i},"{"x" * (i % 99)}\n"\n' for i in range(2_000)]
    write("a.csv", "i,t\n" + "".join(lines))
    assert rm.index("a.csv") == [".a.csv.recmap"]
    ds = rm.open("a.csv")
    assert ds[[1_999, 3]]["i"].tolist() == [1_999, 3]
    assert len(ds) == 2_000
    moved = Path(".a.csv.recmap").read_bytes()
    write("a.csv", "i,t\n" + "".join(reversed(lines)))
    with pytest.warns(rm.StaleIndexWarning, match="changed after it was made"):
        assert rm.open("a.csv")[[0, 1_999]]["i"].tolist() == [1_999, 0]
    write("a.csv", "i;t\n1;2\n")
    Path(".a.csv.recmap").write_bytes(moved[:-1])
    with pytest.warns(rm.StaleIndexWarning, match="damaged"):
        assert rm.open("a.csv")[0] == {"i": 1, "t": 2}


def test_the_command_line_shows_and_verifies_them(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.csv", "a;b\n1;x\n2;y\n")
    write("b.csv", "a,b\n1,2\n")
    assert main(["head", "a.csv", "--delimiter", ";"]) == 0
    assert main(["verify", "a.csv"]) == 0
    assert main(["diff", "a.csv", "a.csv"]) == 0
    assert main(["stats", "b.csv"]) == 0
    write("b.csv", "a,b\n" + f"1,2{' ' * 40}\n" * 200_000 + "x,2\n")
    assert main(["verify", "b.csv"]) == 1
    assert "line 200,002" in "".join(capsys.readouterr())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::recmap.errors.SlowOrderWarning")
@pytest.mark.parametrize("end", [".csv", ".jsonl"])
def test_going_back_in_gzip_makes_an_index(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "_KEPT", 1 << 20)
    rng = np.random.default_rng(0)
    words = [rng.bytes(int(size)).hex() for size in rng.integers(0, 800, 4_000)]
    if end == ".csv":
        text = "i,t\n" + "".join(f'{i},"{word}\n"\n' for i, word in enumerate(words))
    else:
        text = "".join(
            json.dumps({"i": i, "t": f"{word}\n"}) + "\n" for i, word in enumerate(words)
        )
    path = f"a{end}.gz"
    Path(path).write_bytes(gzip.compress(text.encode(), 1))
    rows = rng.permutation(4_000)
    expected = [f"{words[row]}\n" for row in rows.tolist()]
    ds = rm.open(path)
    assert len(ds) == 4_000
    assert f".{path}.recmap-gz" not in os.listdir()
    assert ds[rows[:50]]["t"].tolist() == expected[:50]
    assert f".{path}.recmap-gz" in os.listdir()
    assert ds[rows]["t"].tolist() == expected
    again = rm.open(path)
    assert again[rows[:100]]["t"].tolist() == expected[:100]
    assert len(again) == 4_000
    assert again[:]["i"].tolist() == list(range(4_000))
    assert pickle.loads(pickle.dumps(again))[rows]["t"].tolist() == expected
    again.save("b.npz", verify="full")
    Path(path).write_bytes(gzip.compress(text.replace("0", "1").encode(), 1))
    assert rm.open(path)[3_999]["i"] == 3_999
