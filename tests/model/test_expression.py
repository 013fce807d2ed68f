"""Conditions on columns: how they are written, shown, and refused."""

from __future__ import annotations

import enum
import operator
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import recmap as rm
from recmap.model.expression import Expression
from recmap.model.schema import Schema


class Kind(enum.StrEnum):
    CAT = "cat"


def test_the_repr_of_a_condition_is_python_again() -> None:
    shown = {
        "col('x') == 3": rm.col("x") == 3,
        "col('x') > 3": np.int64(3) < rm.col("x"),
        "col('x') <= 0.5": np.float32(0.5) >= rm.col("x"),
        "(col('x') >= 1) & (col('x') <= 5)": rm.col("x").between(1, 5),
        "(col('a') > 1) & col('b').is_in(['x', 'y'])": (rm.col("a") > 1)
        & rm.col("b").is_in({"y", "x"}),
        "~((col('a') != 1) | ~col('b'))": ~((rm.col("a") != 1) | ~rm.col("b")),
        "col('s').starts_with('a') & col('s').contains(b'b')": rm.col("s").starts_with("a")
        & rm.col("s").contains(b"b"),
        "col('n').is_null() | col('n').is_nan()": rm.col("n").is_null() | rm.col("n").is_nan(),
        "col('kind') == 'cat'": rm.col("kind") == Kind.CAT,
        "col('d') < '2024-01-31'": rm.col("d") < date(2024, 1, 31),
        "col('t') >= np.timedelta64(1000000, 'us')": rm.col("t") >= timedelta(seconds=1),
        "col('d') == '2024-01-31T00:00:00.000000001'": rm.col("d")
        == pd.Timestamp("2024-01-31T00:00:00.000000001"),
    }
    names: dict[str, Any] = {"col": rm.col, "np": np}
    for text, condition in shown.items():
        assert repr(condition) == text
        assert repr(eval(text, names)) == text  # it is our own
        assert repr(pickle.loads(pickle.dumps(condition))) == text
    assert repr(~~rm.col("x")) == "col('x')"


def test_a_long_list_of_values_has_a_short_repr_of_its_own() -> None:
    one, other = rm.col("x").is_in(range(1000)), rm.col("x").is_in([*range(999), 7])
    assert len(repr(one)) < 100
    assert repr(one) != repr(other)
    assert repr(one) == repr(rm.col("x").is_in(np.arange(1000)))


def test_conditions_are_neither_true_nor_false_in_python() -> None:
    condition: Any = rm.col("x") == 3
    tries: list[Any] = [
        lambda: bool(condition),
        lambda: condition and condition,
        lambda: not condition,
        lambda: 1 < rm.col("x") < 5,
        lambda: rm.col("x") in [1, 2],
    ]
    for tried in tries:
        with pytest.raises(rm.OptionError, match=r"use \(a\) & \(b\)"):
            tried()
    with pytest.raises(AttributeError, match="cannot be changed"):
        rm.col("x").column = "y"


def test_values_that_nothing_equals_are_refused_where_they_are_written() -> None:
    x = rm.col("x")
    for value, match in [
        (None, r"nothing equals null; use is_null\(\)"),
        (np.datetime64("NaT", "s"), "nothing equals null"),
        (pd.NaT, "nothing equals null"),
        (float("nan"), r"nothing equals NaN; use is_nan\(\)"),
        (np.float32("nan"), "nothing equals NaN"),
        ([1, 2], "use is_in"),
        (np.arange(3), "use is_in"),
        (object(), "compare it with a number, text, bytes or a date"),
        (rm.col("y"), "for two columns, use filter with a function"),
        (datetime(2024, 1, 1, tzinfo=UTC), "has a time zone"),
        (1 << 5000, "5,001 bits"),
    ]:
        for compare in (operator.eq, operator.ne, operator.lt):
            with pytest.raises(rm.OptionError, match=match):
                compare(x, value)
        with pytest.raises(rm.OptionError, match=match):
            x.is_in([3, value])
    for wrong in ("abc", b"abc", 3, None, x):
        with pytest.raises(rm.OptionError, match="give a list"):
            x.is_in(wrong)  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="give the smaller value first"):
        x.between(5, 1)
    with pytest.raises(rm.OptionError, match="does not calculate"):
        x % 2 == 0  # noqa: B015
    with pytest.raises(rm.OptionError, match="the name of a column is text"):
        rm.col(3)  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="a condition is a comparison of a column"):
        (x == 3) & True  # type: ignore[operator]


SCHEMA = Schema(
    {
        "i": "int64",
        "f": "float32",
        "c": "complex64",
        "flag": "bool",
        "text": "text",
        "bytes": "bytes",
        "void": "V3",
        "day": "datetime64[D]",
        "wait": "timedelta64[s]",
        "image": "uint8[32,32,3]",
        "tokens": "int64[*]",
        "words": "text[*]",
    }
)


def test_values_of_a_kind_that_a_column_cannot_equal_are_refused() -> None:
    col = rm.col
    wrong: list[tuple[Expression, str]] = [
        (col("i") == "3", r"column 'i' is int64: compare it with a number, not '3'"),
        (col("i") == b"3", "compare it with a number"),
        (col("i").is_in([1, "2"]), "compare it with a number, not '2'"),
        (col("i").starts_with("3"), "starts_with takes a column of strings"),
        (col("i"), "not true or false: compare it with a value"),
        (col("i") == np.datetime64("2024-01-01"), "compare it with a number"),
        (col("text") == 3, "column 'text' is text: compare it with text, not 3"),
        (col("text") == b"a", "compare it with text, not b'a'"),
        (col("bytes") == "cat", r"write b'cat', or read it as text: ds.cast"),
        (col("bytes").contains("cat"), "write b'cat'"),
        (col("void") == b"ab", "has 3 bytes in each row, and none can equal 2"),
        (col("c") < 3, "cannot be ordered"),
        (col("i") == 2j, "cannot be ordered"),
        (col("day") == 3, "compare it with a date, such as '2024-01-31'"),
        (col("day") == "yesterday", "cannot read the date 'yesterday'"),
        (col("day") == "2024-01-01T00:00Z", "without a time zone"),
        (col("day") == "now", "cannot read the date"),
        (col("wait") > 3, "compare it with a duration"),
        (col("wait") > np.timedelta64(3, "M"), "months and years differ in length"),
        (col("text").is_nan(), "is_nan takes a column of numbers"),
        (col("image") == 3, r"'image' is uint8\[32,32,3\]: it has several values in each row"),
        (col("tokens") == 3, r"rows of different lengths.*filter with a function"),
        (col("words").contains("x"), "rows of different lengths"),
    ]
    for condition, match in wrong:
        with pytest.raises(rm.OptionError, match=match):
            condition.bind(SCHEMA)
        with pytest.raises(rm.OptionError, match=match):
            (~condition | (col("i") == 1)).bind(SCHEMA)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'flog'.*did you mean 'flag'"):
        (col("flog") == 1).bind(SCHEMA)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'none'"):
        col("none").is_null().bind(SCHEMA)
