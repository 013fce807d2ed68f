"""CSV and JSON Lines in many dialects, whole and damaged, compared with Python's own modules."""

from __future__ import annotations

import csv
import gzip
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import recmap as rm
from hostile.case import Case
from hostile.file_damage import damage
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_LETTERS = [*'a",;|\t\n 0\\{}[]:é🦜\x01\ufeff', "\r\n", "null", "x" * 80]


def case(case: Case) -> None:
    lines = case.chance(0.5)
    rows = case.between(1, case.pick([3, 30, 3000]))
    table = _table(case, rows)
    end = case.pick(["", "", ".gz", ".zst"])
    path = case.path(("x.jsonl" if lines else "x.csv") + end)
    plain = _json(case, table) if lines else _csv(case, table)
    case.note(f"{path}: {len(plain):,} bytes, begins with {plain[:200]!r}")
    Path(path).write_bytes(_packed(plain, end))
    types = {"whole": "int64", "real": "float64", "text": "text", "other": "text"}
    index = not end and case.chance(0.3)
    if index:
        rm.index(path)
    ds = rm.open(path, types)
    check_some_ways(case, ds, table)
    case.note("save")
    saved = case.path(case.pick(["y.csv", "y.tsv", "y.jsonl", "y.csv.gz", "y.jsonl.zst"]))
    ds.save(saved, verify=case.pick([True, "full"]))
    check_some_ways(case, rm.open(saved), table)
    if not end and case.chance(0.6):
        damage(case, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_damaged(case, path, lines=lines)


def _text(case: Case) -> str:
    return "".join(case.pick(_LETTERS) for _ in range(case.between(0, 5)))


def _table(case: Case, rows: int) -> Table:
    floats = case.rng.integers(0, 2**64, rows, np.uint64).view(np.float64)
    floats[~np.isfinite(floats)] = 0.5
    some = [_text(case) for _ in range(20)]
    return {
        "whole": list(case.rng.integers(-(2**63), 2**63 - 1, rows)),
        "real": list(floats),
        "text": [case.pick(some) for _ in range(rows)],
        "other": [case.pick(some) for _ in range(rows)],
    }


def _packed(plain: bytes, end: str) -> bytes:
    if end == ".gz":
        half = len(plain) // 2
        return gzip.compress(plain[:half]) + gzip.compress(plain[half:])
    return bytes(pa.compress(plain, "zstd", asbytes=True)) if end else plain


def _csv(case: Case, table: Table) -> bytes:
    out = io.StringIO()
    end = case.pick(["\n", "\r\n"])
    writer = csv.writer(
        out,
        delimiter=case.pick([",", ",", ";", "\t", "|"]),
        quoting=case.pick([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
        lineterminator=end,
    )
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow([row[0], repr(float(row[1])), *row[2:]])
        if case.chance(0.02):
            out.write(end)
    text = out.getvalue()
    cut = text.removesuffix(end) if case.chance(0.3) else text
    return (("\ufeff" if case.chance(0.3) else "") + cut).encode()


def _json(case: Case, table: Table) -> bytes:
    lines = []
    ascii_ = case.chance(0.5)
    for row in zip(*table.values(), strict=True):
        values = [int(row[0]), float(row[1]), *row[2:]]
        members = list(zip(table, values, strict=True))
        if case.chance(0.2):
            case.rng.shuffle(members)
        lines.append(json.dumps(dict(members), ensure_ascii=ascii_))
    return ("\n".join(lines) + "\n" * case.between(0, 2)).encode()


def _check_damaged(case: Case, path: str, *, lines: bool) -> None:
    """Read a damaged file: what recmap returns is what Python's module reads, or it is refused."""
    content = Path(path).read_bytes()
    try:
        if lines:
            ds = rm.open(path)
        else:
            header = _csv_rows(content, ",")[:1]
            ds = rm.open(path, dict.fromkeys(header[0], "text") if header else None, delimiter=",")
        found = list(ds)
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    if lines:
        wanted = [json.loads(line) for line in content.split(b"\n") if line.strip(b"\r")]
        names = list(ds.schema)
        for row, mine in zip(wanted, found, strict=True):
            _same(names, [row.get(name) for name in names], mine)
        return
    _, *rows = _csv_rows(content, ",")
    for number, values in enumerate(rows):
        _same(list(ds.schema), values, found[number])
    if len(rows) != len(found):
        raise AssertionError(f"{len(found)} rows, not {len(rows)}")


def _csv_rows(content: bytes, delimiter: str) -> list[list[str]]:
    text = content.removeprefix("\ufeff".encode()).decode("utf-8", "surrogateescape")
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def _same(names: list[str], wanted: list[Any], found: dict[str, Any]) -> None:
    for name, value in zip(names, wanted, strict=True):
        mine = found[name]
        if not (mine is None and value is None) and mine != value and str(mine) != str(value):
            raise AssertionError(f"damaged {name!r}: {mine!r}, not {value!r}")
