"""CSV and TSV files, as RFC 4180 defines them.

A quoted field is text, unless all are quoted. A column whose other values are all integers is
int64, one of decimal numbers float64, and any other text. An empty field is null, and ``""`` an
empty string. Every row is checked against the types that the first rows have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from recmap.errors import DataError, Message, Option
from recmap.formats.text.columns import TextColumn, check_type
from recmap.formats.text.open_files import (
    Given,
    TextSample,
    given_fields,
    open_rows,
    said_origin,
    samples,
)
from recmap.formats.text.rows import RowParser, row_syntax
from recmap.formats.text.text_file import Bytes, TextFile
from recmap.model.field import Field
from recmap.model.schema import FieldsLike
from recmap.model.source import Source
from recmap.native import _core
from recmap.recognise.sniff import sniff, unknown_format

# Bytes that tell the delimiter.
_FIRST_LINE = 1 << 16
# Bytes that a header usually fits into.
_HEADER = 1 << 12


def open_csv(
    files: Sequence[str],
    fields: FieldsLike | None = None,
    *,
    delimiter: str | None = None,
    header: bool = True,
) -> Source:
    """Open files of comma-separated values, all with the same columns."""
    return _open("csv", files, fields, delimiter, header=header)


def open_tsv(
    files: Sequence[str],
    fields: FieldsLike | None = None,
    *,
    delimiter: str | None = None,
    header: bool = True,
) -> Source:
    """Open files of tab-separated values, all with the same columns."""
    return _open("tsv", files, fields, delimiter or "\t", header=header)


def _open(
    format: str,
    files: Sequence[str],
    fields: FieldsLike | None,
    delimiter: str | None,
    *,
    header: bool,
) -> Source:
    found = samples(files, lambda sample: row_syntax(delimiter or _guessed(sample)))
    first = found[0]
    chosen = delimiter or _guessed(first)
    given = given_fields(files, fields)
    names = _names(first.path, first.rows, row_syntax(chosen), header=header)
    surveyed = [_survey(sample, row_syntax(chosen), len(names), header=header) for sample in found]
    looks = np.bitwise_or.reduce(surveyed)
    quoted = bool(((looks & _core.LOOKS_BARE) == 0).all()) and (
        not header or _all_quoted(first, row_syntax(chosen), len(names))
    )
    columns = [
        _column(files[0], name, int(bits), given, quoted=quoted)
        for name, bits in zip(names, looks, strict=True)
    ]
    origin = said_origin(columns, found, fields)
    header_names = partial(_header_names, chosen) if header else None
    parser = RowParser(format, columns, origin, chosen, header_names)
    return open_rows(files, parser, fields)


def _guessed(sample: TextSample) -> str:
    """Return the delimiter: a comma, unless the first line has none, and another instead."""
    line = re.sub(rb'"[^"]*"', b"", sample.rows[:_FIRST_LINE].tobytes()).partition(b"\n")[0]
    if b"," in line:
        return ","
    return max(",;\t|", key=lambda each: line.count(each.encode()))


def _header_names(delimiter: str, text: TextFile) -> list[str]:
    syntax = row_syntax(delimiter)
    return _names(text.path, _first_bytes(text, syntax), syntax, header=True)


def _first_bytes(text: TextFile, syntax: _core.RowSyntax) -> Bytes:
    """Return the first row, and perhaps some bytes after it."""
    size = _HEADER
    while True:
        with text.span(text.begin, text.begin + size) as span:
            found: Bytes = span.copy()
        _, end = _core.walk_text_rows(found, syntax, 1, 1 << 62)
        if end < len(found) or len(found) < size:
            return found
        size *= 8


def _names(path: str, rows: Bytes, syntax: _core.RowSyntax, *, header: bool) -> list[str]:
    fields = _core.first_csv_row(rows, syntax)
    if not fields:
        raise unknown_format(path, sniff(path))
    if not header:
        return [f"column_{number}" for number in range(len(fields))]
    try:
        names = [name.decode() for name in fields]
    except UnicodeDecodeError as e:
        raise DataError(
            f"{path}: the header is not UTF-8; write the file again as UTF-8",
            file=path,
            byte=0,
        ) from e
    # The index of a DataFrame has no name.
    names = [name or f"column_{number}" for number, name in enumerate(names)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            Message(
                f"{path}: two columns are called {twice[0]!r}: rename one in the first "
                "line, or, if that is a row, give ",
                Option("header", False),
            ),
            file=path,
            byte=0,
        )
    return names


def _survey(sample: TextSample, syntax: _core.RowSyntax, columns: int, *, header: bool) -> Any:
    rows = sample.rows
    if header:
        _, end = _core.walk_text_rows(rows, syntax, 1, 1 << 62)
        rows = rows[end:]
    looks, fault = _core.survey_csv(rows, syntax, columns)
    del fault  # raised, with its place, when the row is read
    return looks


def _all_quoted(sample: TextSample, syntax: _core.RowSyntax, columns: int) -> bool:
    _, end = _core.walk_text_rows(sample.rows, syntax, 1, 1 << 62)
    looks, _ = _core.survey_csv(sample.rows[:end], syntax, columns)
    return bool((looks & _core.LOOKS_BARE == 0).all())


def _column(path: str, name: str, looks: int, given: Given, *, quoted: bool) -> TextColumn:
    if name in given:
        check_type(path, name, given[name], lists=False)
        return TextColumn(name, (), given[name], given=True)
    return TextColumn(name, (), _inferred(looks, quoted=quoted))


def _inferred(looks: int, *, quoted: bool) -> Field:
    nullable = bool(looks & _core.LOOKS_EMPTY)
    text = looks & _core.LOOKS_OTHER or (looks & _core.LOOKS_QUOTED and not quoted)
    numbers = looks & (_core.LOOKS_WHOLE | _core.LOOKS_DECIMAL)
    if text or not numbers or (looks & _core.LOOKS_EXPONENT and not looks & _core.LOOKS_DECIMAL):
        return Field("text", nullable=nullable)
    return Field("float64" if looks & _core.LOOKS_DECIMAL else "int64", nullable=nullable)
