"""Any columns, shown in every way: as text, as HTML, on the page of recmap view, in reports."""

from __future__ import annotations

import base64
import io
import json
import os
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case
from recmap.cli import main
from recmap.view.api import Api
from recmap.view.report import write_report
from recmap.view.search import OPERATORS
from recmap.view.table import RowTable

__all__ = ["case"]

_HOSTILE = "</td><script>alert(1)</script>\x1b[31m\0\u202e"
# What images and sound begin with, and what only looks like it.
_BEGINNINGS = [
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF89a",
    b"BM",
    b"RIFF....WEBP",
    b"ID3",
    b"",
]
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADElEQVR42mNgoA4AAABIAAEQRe/SAAAAAElFTkSuQmCC"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<": np.less,
    "≥": np.greater_equal,
}
_FORMATS = [".npz", ".h5", ".zarr", ".tfrecord", ".tfrecord.gz", "memory", "memory"]


def case(case: Case) -> None:
    rows = case.pick([0, 1, 2, case.between(3, 60)])
    names = [f"{arrays.name(case)}{i}" for i in range(case.between(1, 5))]
    columns = {name: _column(case, rows) for name in names}
    dataset = _stored(case, columns)
    case.note(f"{dataset.schema}, {rows} rows")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's, which say nothing to a user
        _show_in_python(case, dataset)
        _show_in_terminal(case, dataset)
        _ask_the_page(case, dataset, rows)
        _find_a_difference(case, columns, rows)


def _column(case: Case, rows: int) -> Any:
    kind = case.pick(["array", "array", "frames", "bytes", "text", "ragged", "lists", "nested"])
    if kind == "array":
        dtype = arrays.dtype(case, strings=False)
        if case.chance(0.15):
            dtype = np.dtype(case.pick(["m8", "V3", "V16", "g", "G"]))
        return arrays.values(case, arrays.shape(case, rows), dtype)
    if kind == "frames":
        dtype = np.dtype(case.pick(["u1", "f4"]))
        return arrays.values(case, (rows, case.between(0, 6), 8, case.pick([0, 8, 9]), 3), dtype)
    if kind == "bytes":
        return rm.Ragged.from_bytes([_bytes(case) for _ in range(rows)])
    if kind == "text":
        words = ["", "a", "é漢𝄞", _HOSTILE, "x" * 400]
        return rm.Ragged.from_text([case.pick(words) for _ in range(rows)])
    lengths = [case.between(0, 9) for _ in range(rows)]
    if kind == "ragged":
        dtype = np.dtype(case.pick(arrays.NUMBERS))
        return rm.Ragged.from_rows([arrays.values(case, (n,), dtype) for n in lengths], dtype=dtype)
    items = sum(lengths)
    inside: Any = rm.Ragged.from_bytes([_bytes(case) for _ in range(items)])
    if kind == "nested":
        flat = inside if case.chance(0.5) else np.zeros((items, 8, 8, 3), np.uint8)
        ends = np.sort(case.rng.integers(0, items + 1, items))
        ends[-1:] = items
        inside = rm.Ragged(flat, [0, *ends])
    return rm.Ragged(inside, np.cumsum([0, *lengths]))


def _bytes(case: Case) -> bytes:
    if case.chance(0.1):
        return _PNG
    begin = case.pick([*_BEGINNINGS, b"", _HOSTILE.encode()])
    return begin + case.rng.bytes(case.pick([0, 1, 30, 2000]))


def _stored(case: Case, columns: dict[str, Any]) -> rm.Dataset:
    suffix = case.pick(_FORMATS)
    dataset = rm.from_arrays(columns)
    if suffix == "memory":
        return dataset
    path = case.path(f"data{suffix}")
    try:
        dataset.save(path)
    except rm.RecmapError as e:  # not every format takes every type
        case.note(f"{suffix}: {e}")
        return dataset
    return rm.open(path)


def _show_in_python(case: Case, dataset: rm.Dataset) -> None:
    case.note("text and HTML")
    rows = [dataset[i] for i in range(min(3, len(dataset)))]
    for shown in (repr(dataset), *map(repr, rows)):
        assert len(shown) < 20_000, "much too long"
    _check_html(dataset._repr_html_())
    stats = dataset.stats()
    assert str(stats)
    _check_html(stats._repr_html_())


def _show_in_terminal(case: Case, dataset: rm.Dataset) -> None:
    if not dataset.files:
        return
    width = case.pick([60, 80, 120, 200])
    settings = {"COLUMNS": str(width), "NO_COLOR": "1"}
    for verb in ("info", "head", "stats"):
        case.note(f"recmap {verb}, {width} wide")
        out = io.StringIO()
        terminal = patch("recmap.cli.output.on_terminal", lambda: True)
        with terminal, patch.dict(os.environ, settings), redirect_stdout(out):
            assert main([verb, *dataset.files]) == 0
        for line in out.getvalue().splitlines():
            assert line.isprintable(), line
            assert dataset.files[0] in line or len(line) <= width, line


def _ask_the_page(case: Case, dataset: rm.Dataset, rows: int) -> None:
    api = Api(RowTable(dataset, _HOSTILE))
    names = list(dataset.schema)
    numbers = list(range(len(names)))
    assert _asked(api, "info")["count"]["rows"] >= rows
    answer = _asked(api, "rows", start=0, stop=rows, columns=numbers)
    assert [row["row"] for row in answer["rows"]] == list(range(rows))
    for column, name in enumerate(names):
        case.note(f"column {column} of the page")
        assert _asked(api, "summary", column=column)["rows"] == rows
        values = [row["cells"][column] for row in answer["rows"]]
        if dataset.schema[name].dtype.kind in "iub" and not dataset.schema[name].shape:
            _search(case, api, column, np.asarray(dataset[name][:]))
        for row in {case.between(0, rows - 1) for _ in range(3 if rows else 0)}:
            _asked(api, "value", row=row, column=column)
            items = len(values[row].get("items", [])) if values[row]["kind"] == "list" else 0
            for item in ("", *map(str, range(items))):
                api.media({"row": str(row), "column": column, "item": item})
        given = {"operator": case.pick(OPERATORS), "text": case.pick(["", "0", "nan", "a", "1e9"])}
        _asked_or_refused(api, "search", column=column, start=0, **given)
        tried = {"dtype": case.pick(["uint8", "float32", "x"]), "shape": case.pick(["", "2", "-1"])}
        _asked_or_refused(api, "try", column=column, row=0, **tried)
    case.note("report")
    path = case.path("report.html")
    write_report(RowTable(dataset, _HOSTILE), path)
    _check_html(Path(path).read_text("utf-8"))


def _search(case: Case, api: Api, column: int, values: npt.NDArray[Any]) -> None:
    if not len(values):
        return
    value = values[case.between(0, len(values) - 1)]
    compare: dict[str, Callable[[Any, Any], Any]] = {
        "=": np.equal,
        "<": np.less,
        "≥": np.greater_equal,
    }
    operator = case.pick(list(compare))
    found = _asked_or_refused(
        api, "search", column=column, start=0, operator=operator, text=str(value).lower()
    )
    if found is not None:
        assert found["rows"] == np.flatnonzero(_COMPARE[operator](values, value)).tolist()


def _find_a_difference(case: Case, columns: dict[str, Any], rows: int) -> None:
    if not rows:
        return
    changed = case.between(0, rows - 1)
    case.note(f"row {changed} differs")
    numbers = np.arange(rows)
    one = rm.from_arrays({**columns, "changed": numbers, "only here": numbers})
    others = {**columns, "changed": np.where(numbers == changed, -1, numbers)}
    shorter = changed < rows - 1 and case.chance(0.3)
    two = rm.from_arrays({n: c[:-1] for n, c in others.items()} if shorter else others)
    found = rm.diff(one, two)
    assert (found.rows, found.columns[0].row) == (1, changed)
    api = Api(RowTable(one, "a"), RowTable(two, "b"))
    rest = [rows - 1] if shorter else []
    assert _asked(api, "search", operator="differs", start=0)["rows"] == [changed, *rest]
    path = case.path("both.html")
    write_report(RowTable(one, "a"), path, other=RowTable(two, "b"))
    text = Path(path).read_text("utf-8")
    _check_html(text)
    assert f"1 row of {rows - len(rest):,} differs" in text
    assert ("Only a has rows" in text) == shorter


def _asked(api: Api, name: str, **given: Any) -> Any:
    """Return the answer to a request, which must be plain JSON."""
    return json.loads(json.dumps(api.call(name, given), allow_nan=False))


def _asked_or_refused(api: Api, name: str, **given: Any) -> Any | None:
    try:
        return _asked(api, name, **given)
    except rm.RecmapError:
        return None


class _Tags(HTMLParser):
    """Collects the names of tags and of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def _check_html(text: str) -> None:
    tags = _Tags()
    tags.feed(text)
    unsafe = {name for name in tags.found if name in ("script", "iframe") or name.startswith("on")}
    assert not unsafe, unsafe
