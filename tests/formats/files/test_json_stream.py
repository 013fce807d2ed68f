"""JSON objects that are read value by value."""

from __future__ import annotations

import json
from typing import Any

import pytest

import recmap as rm
from recmap.formats.files import json_stream
from recmap.formats.files.json_stream import JsonStream
from recmap.local.location import OpenFile


class Held(OpenFile):
    """Bytes in memory as a file."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def pread(self, count: int, at: int) -> bytes:
        return self._content[at : at + count]


def read(content: bytes) -> dict[str, Any]:
    stream = JsonStream("x.json", Held(content))
    found: dict[str, Any] = {}
    for name in stream.members():
        if name.startswith("list"):
            found[name] = list(stream.items())
        elif name.startswith("skip"):
            stream.skip()
        else:
            found[name] = stream.value()
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 1 << 20])
def test_values_are_those_of_json_wherever_the_file_is_cut(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "_READ", step)
    values = {
        "a": -12.5e-3,
        "list": [1, 23, {"x": [456]}, 'é\u2028"\\', None, True, []],
        "b": {"deep": [[[]]], "text": "🦜" * 50},
        "list none": [],
        "skip": [1, "x" * 200, {"list": 3}],
        "skip 2": {"y": 1},
        "": 0,
        "n": 123456789012345678901234567890,
    }
    wanted = {name: value for name, value in values.items() if not name.startswith("skip")}
    for options in ({}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}):
        text = json.dumps(values, **options)
        for content in (text, f"\ufeff \n{text}\r\n "):
            assert read(content.encode()) == wanted
    assert read(b" {} ") == {}


@pytest.mark.parametrize("step", [1, 5, 1 << 20])
def test_what_is_not_json_is_an_error(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_READ", step)
    whole = b'{"list": [1, 22, {"x": "y"}], "a": tru, "b": {"c": [1.5]}}'.replace(b"tru,", b"true,")
    assert read(whole)["a"] is True
    for end in range(len(whole)):
        with pytest.raises(rm.DataError, match="x.json: byte"):
            read(whole[:end])
    for bad in (
        b"", b"[]", b"1", b'{"a": 1,}', b'{"a": 1 "b": 2}', b'{"a" 1}', b"{a: 1}", b"{1: 1}",
        b'{"list": [1,]}', b'{"list": [1 2]}', b'{"list": 1}', b'{"a": 1} 2', b'{"a": 1, "a": 2}',
        b'{"a": Infinity}', b'{"a": "\\x"}', b'{"a": "\xff"}', b'{"a": 01}', b'{"a": "\n"}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a": 1' + b"0" * 5000 + b"}",
    ):  # fmt: skip
        with pytest.raises(rm.DataError, match="x.json: (near )?byte"):
            read(bad)


def test_a_value_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_READ", 64)
    monkeypatch.setattr(json_stream, "_MOST", 1000)
    assert read(b'{"skip": [' + b"1," * 5000 + b'1], "a": 1}') == {"a": 1}
    with pytest.raises(rm.DataError, match="a value of more than 1,000 characters"):
        read(b'{"a": "' + b"x" * 5000 + b'"}')
