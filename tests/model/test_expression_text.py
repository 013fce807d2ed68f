"""Conditions written as text."""

from __future__ import annotations

import warnings

import pytest

import recmap as rm
from recmap.model.expression_text import parse_expression


def test_text_is_read_as_the_condition_it_says() -> None:
    texts = {
        "label == 3": "col('label') == 3",
        "3 != label": "col('label') != 3",
        "-1.5 < x <= 20": "(col('x') > -1.5) & (col('x') <= 20)",
        "a == 1 and b == 2 or not c": "((col('a') == 1) & (col('b') == 2)) | ~col('c')",
        "(a == 1) & ((b < 2) | ~c)": "(col('a') == 1) & ((col('b') < 2) | ~col('c'))",
        "kind in ['a', \"b\"]": "col('kind').is_in(['a', 'b'])",
        "kind not in (1, 2)": "~col('kind').is_in([1, 2])",
        "`image/class/label` == 7": "col('image/class/label') == 7",
        "col('my \"column\"') == 7": "col('my \"column\"') == 7",
        "a.b.c == '`x`'": "col('a.b.c') == '`x`'",
        "name.startswith('x') and contains(name, 'y')": (
            "col('name').starts_with('x') & col('name').contains('y')"
        ),
        "'x' in name": "col('name').contains('x')",
        "x is null or y is not None": "col('x').is_null() | ~col('y').is_null()",
        "x.is_nan() | is_null(x)": "col('x').is_nan() | col('x').is_null()",
        "between(x, 1, 5)": "(col('x') >= 1) & (col('x') <= 5)",
        "flag == true and x < inf": "(col('flag') == True) & (col('x') < inf)",
        "data == b'\\xff'": "col('data') == b'\\xff'",
        "wait > np.timedelta64(5, 's')": "col('wait') > np.timedelta64(5, 's')",
        "größe > 1": "col('größe') > 1",
    }
    for text, meant in texts.items():
        assert repr(parse_expression(text)) == meant
        assert repr(parse_expression(meant)) == meant
    long = " or ".join(f"x == {i}" for i in range(2000))
    assert len(parse_expression(long).names) == 1


def test_what_cannot_be_read_is_refused_with_what_to_write() -> None:
    wrong = {
        "": "it is empty",
        "label = 3": "compare with ==, not =",
        "label <> 3": "write != instead",
        "a AND b": "in small letters",
        "a && b": "write and, or, not",
        "kind == cat": "cat is read as a column; put text in quotes: 'cat'",
        "a in [b]": "put text in quotes",
        "label == 3 & size > 2": "put each comparison in parentheses",
        "image/label == 3": "put such a name in backquotes",
        "image/class/label == 3": "goes in backquotes",
        "x == None": "nothing equals null",
        "f(x)": "not one of the tests, is_in, between",
        "x.upper() == 'A'": "is not a column",
        "__import__('os').system('true')": "not one of the tests",
        "x == __import__('os')": "is not a value",
        "(lambda: 3)()": "not one of the tests",
        "x[0] == 3": "is not a column",
        "x is 3": "is takes null",
        "between(x, 1)": "not one of the tests",
        "x == f'{y}'": "is not a value",
        "name == 'it''s'": 'two texts side by side: write "it\'s"',
        "name in ['a' b'b']": "two texts side by side",
        "name like 'a%'": "instead of like",
        "size between 1 and 5": "write between\\(size, 1, 5\\), or 1 <= size <= 5",
        "day >= 2024-01-31": "put dates in quotes",
        "day >= 2024-10-31": "put dates in quotes",
        "x == nan": "use is_nan",
        "`a": "cannot be read",
        "x == 1; y": "cannot be read",
        "\0": "cannot be read",
        "(" * 500 + "x" + ")" * 500: "nested too deeply|cannot be read",
        "9" * 5000 + " == x": "cannot be read",
        "~" * 100_000 + "x": "nested too deeply",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(parse_expression("x == '\\d'")) == r"col('x') == '\\d'"
        for text, match in wrong.items():
            with pytest.raises(rm.OptionError, match=match) as caught:
                parse_expression(text)
            assert len(str(caught.value)) < 700
