"""Text: fields, columns, and which bytes are UTF-8."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.field import TEXT, Field
from recmap.model.text import as_strings_of, first_not_text
from recmap.native import _core

# A byte order mark, zeros, nothing, and characters of one to four bytes.
TEXTS = ["plain", "", "café", "\ufeffmarked", "a\0b\0", "漢字", "🦜🦜", "e\u0301", "\U0010ffff"]
# Surrogates, characters in too many bytes, too large ones, cut ones, and bytes of no character.
NOT_TEXT = [
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf"),
    *(b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80"),
    *(b"\x80", b"\xff", b"\xfe\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\xa6", b"\xe2\x28\xa1"),
]


def is_text(string: bytes) -> bool:
    try:
        string.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("string", [*NOT_TEXT, *(text.encode() for text in TEXTS)])
def test_a_string_is_text_if_python_decodes_it(string: bytes) -> None:
    for around in (b"", b"x", b"seven..", b"twelve bytes", "é".encode()):
        for whole in (string + around, around + string, around + string + around):
            column = rm.Ragged.from_bytes([b"first", whole, b"last"])
            assert first_not_text(column) == (None if is_text(whole) else 1)


def test_random_bytes_are_judged_like_python_does() -> None:
    rng = np.random.default_rng(1)
    alphabet = [text.encode() for text in TEXTS] + NOT_TEXT + [bytes([i]) for i in range(256)]
    found = set()
    for _ in range(3000):
        parts = rng.choice(len(alphabet) if rng.random() < 0.2 else len(TEXTS), rng.integers(0, 6))
        rows = [b"", b"".join(alphabet[i] for i in parts), b"end"]
        # A character that is cut at the end of a row may not continue in the next one.
        cut = int(rng.integers(0, len(rows[1]) + 1)) if rng.random() < 0.3 else len(rows[1])
        rows[1:2] = [rows[1][:cut], rows[1][cut:]]
        wanted = next((row for row, string in enumerate(rows) if not is_text(string)), None)
        assert first_not_text(rm.Ragged.from_bytes(rows)) == wanted
        found.add(wanted)
    assert found == {None, 1, 2}


def test_offsets_that_do_not_fit_are_refused() -> None:
    values = np.zeros(4, np.uint8)
    for offsets in ([], [0, 5], [-1, 2], [0, 4, 2]):
        with pytest.raises(ValueError, match="offsets must ascend"):
            _core.first_invalid_utf8(values, np.array(offsets, np.int64))
    with pytest.raises(rm.ColumnError, match="must ascend"):
        first_not_text(rm.Ragged(np.zeros(4, "S1"), [0, 9]))


def test_the_row_of_a_list_of_strings_is_named() -> None:
    strings = rm.Ragged.from_bytes([b"a", b"b", b"\xff", b"c"])
    lists = rm.Ragged(strings, [0, 0, 2, 2, 4])
    assert first_not_text(lists) == 3
    assert first_not_text(lists[3:]) == 0
    assert first_not_text(lists[:3]) is None
    assert first_not_text(rm.Ragged(lists, [0, 1, 4])) == 1


def test_rows_of_text_are_str() -> None:
    column = rm.Ragged.from_text(TEXTS)
    assert column.is_text
    assert column.is_bytes
    assert column.tolist() == TEXTS
    assert list(column) == TEXTS
    assert column[3] == "\ufeffmarked"
    assert column[[4, 4, -1]].tolist() == ["a\0b\0", "a\0b\0", "\U0010ffff"]
    assert column[2:4].tolist() == TEXTS[2:4]
    assert column[::-2].tolist() == TEXTS[::-2]
    assert column.lengths.tolist() == [len(text.encode()) for text in TEXTS]
    assert repr(column).startswith("Ragged(9 rows of text, longest 9: ")
    assert pickle.loads(pickle.dumps(column)).tolist() == TEXTS
    assert rm.Ragged.from_text(text for text in TEXTS).tolist() == TEXTS
    assert rm.Ragged.from_text([]).tolist() == []
    long = rm.Ragged.from_text(["é" * 500, "x"])
    assert long[[1, 0]].tolist() == ["x", "é" * 500]


def test_text_equals_text_but_not_bytes() -> None:
    text, strings = rm.Ragged.from_text(TEXTS), rm.Ragged.from_bytes([t.encode() for t in TEXTS])
    assert text == rm.Ragged.from_text(TEXTS)
    assert text != rm.Ragged.from_text([*TEXTS[:-1], "\U0010fffe"])
    assert text != strings
    assert as_strings_of(Field("text"), strings) == text
    assert as_strings_of(Field("bytes"), text) == strings
    assert as_strings_of(Field("text"), text) is text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a", b"b"], "row 1 is bytes, not text; decode it"),
        (["a", None], "row 1 is NoneType, not text"),
        (["a", "\ud800"], "row 1: '\\\\ud800' is not text that UTF-8 can hold"),
    ],
)
def test_what_is_not_text_is_refused_with_its_row(rows: list[Any], message: str) -> None:
    with pytest.raises(rm.ColumnError, match=message):
        rm.Ragged.from_text(rows)


def test_a_row_that_is_not_utf8_is_an_error_and_not_a_guess() -> None:
    wrong = as_strings_of(Field("text"), rm.Ragged.from_bytes([b"a", b"\xff"]))
    assert wrong[0] == "a"
    with pytest.raises(rm.ColumnError, match="row 1 of a Ragged of text is not UTF-8"):
        wrong[1]


@pytest.mark.parametrize(
    ("text", "shape", "fill"),
    [
        ("text", (), None),
        ("text[*]", (None,), None),
        ("text[3]", (3,), None),
        ("text[*,2]", (None, 2), None),
        ("text = n/a", (), "n/a"),
        ("text[2] = ünd so", (2,), "ünd so"),
    ],
)
def test_text_fields_are_parsed_and_spelled(text: str, shape: Any, fill: str | None) -> None:
    field = Field.parse(text)
    assert (field.dtype, field.shape, field.fill) == (TEXT, shape, fill)
    assert str(field) == text
    assert field.is_text
    assert field.is_bytes
    assert field != Field("bytes", shape)
    assert field == Field(TEXT, shape, fill)
    if fill is not None:
        assert field.fill_row() == fill.encode()


def test_text_is_also_what_numpy_and_python_call_str() -> None:
    assert Field(str) == Field("str") == Field(np.dtype("U")) == Field(">U0") == Field("text")
    assert Field(bytes) == Field("bytes") != Field("text")
    assert not Field("bytes").is_text
    with pytest.raises(rm.FieldTextError, match="use bytes or text"):
        Field("U5")


@pytest.mark.parametrize("fill", [b"bytes", 3, "\ud800"])
def test_the_fill_value_of_text_is_text(fill: Any) -> None:
    with pytest.raises(rm.FieldTextError):
        Field("text", (), fill)


def test_a_text_field_takes_str_and_a_list_of_str_alone_is_bytes() -> None:
    assert rm.from_arrays({"s": TEXTS}).schema == {"s": "bytes"}
    assert rm.from_arrays({"s": rm.Ragged.from_text(TEXTS)}).schema == {"s": "text"}
    schema = {"s": "text", "words": "text[*]", "pair": "text[2]"}
    lists, pairs = [["a", "é"], [], ["漢"]] * 3, [["x", "🦜"]] * 9
    ragged = rm.Ragged(rm.Ragged.from_text(["a", "é", "漢"] * 3), np.arange(10))
    for words, wanted in ((lists, lists), (ragged, ragged.tolist())):
        ds = rm.from_batches([{"s": TEXTS, "words": words, "pair": pairs}], schema)
        (batch,) = ds.batches(100)
        assert batch["s"].tolist() == TEXTS
        assert batch["words"].tolist() == wanted
        assert batch["pair"].tolist() == pairs


def test_bytes_for_a_text_field_are_checked() -> None:
    good = rm.from_batches([{"s": [b"caf\xc3\xa9"]}], {"s": "text"})
    assert next(good.batches(1))["s"].tolist() == ["café"]
    bad = rm.from_batches([{"s": [b"a", b"caf\xe9"]}], {"s": "text"})
    with pytest.raises(rm.ColumnError, match="column 's' is text, but row 1 is not UTF-8"):
        next(bad.batches(1))


def test_text_for_a_bytes_field_is_its_utf8() -> None:
    ds = rm.from_batches([{"s": rm.Ragged.from_text(["é"])}], {"s": "bytes"})
    assert next(ds.batches(1))["s"].tolist() == ["é".encode()]
