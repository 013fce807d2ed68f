"""Summaries of columns, from the first rows: the page says how many were read."""

from __future__ import annotations

from typing import Any

from recmap.dataset.field_stats import Numbers, ValueCounts
from recmap.dataset.stats_collector import FieldCollector, ValueCounter
from recmap.model.ragged import Ragged, has_mask, null_mask
from recmap.model.row_sizes import measure
from recmap.view.cells import number_text, sniffed, text_of
from recmap.view.table import RowTable

# A summary covers this many rows, or as many as these bytes hold.
_ROWS = 10_000
_SIZE = 32 << 20
_TOP = 5
_LETTERS = 60


def summary(table: RowTable, name: str) -> dict[str, Any]:
    """Summarise a column: rows read, histogram, missing and distinct values, the most frequent."""
    field = table.schema[name]
    collector = FieldCollector(field)
    # Statistics of a whole file do not count floats, but those of some rows can.
    floats = ValueCounter()
    rows = size = empty = damaged = 0
    whole = False
    while rows < _ROWS and size < _SIZE:
        batch, damage = table.read([name], rows, _ROWS, _SIZE - size)
        if damage is not None:
            damaged += 1
            rows += 1
            continue
        found, taken = measure(batch)
        if not found:
            whole = True
            break
        column = batch[name]
        collector.add(column)
        if has_mask(column):
            column = column[~null_mask(column)]
        if isinstance(column, Ragged):
            empty += int((column.lengths == 0).sum())
        elif field.shape == () and field.dtype.kind not in "biu":
            floats.add_numbers(column)
        rows, size = rows + found, size + max(taken, 1)
    stats = collector.result()
    count = table.count()
    answer: dict[str, Any] = {
        "rows": rows,
        "whole": whole or (count.exact and rows >= count.rows),
        "nulls": stats.nulls,
        "empty": empty,
        "damaged": damaged,
    }
    if stats.values is not None:
        answer["values"] = _numbers(stats.values)
    lengths = stats.sizes if stats.sizes is not None else next(iter(stats.lengths), None)
    if lengths is not None:
        answer["lengths"] = _numbers(lengths)
    counts = stats.counts or floats.result()
    if counts is not None and field.shape == ():
        answer["distinct"] = counts.distinct
        answer["top"] = _top(table, name, counts)
    return answer


def _top(table: RowTable, name: str, counts: ValueCounts) -> list[dict[str, Any]]:
    """Return the most frequent values, unless all occur once."""
    labels = table.labels.get(name, ())
    return [
        {"text": _text(value, labels), "count": n}
        for value, n in counts.top[:_TOP]
        if n > 1 or counts.distinct <= _TOP
    ]


def _text(value: Any, labels: Any) -> str:
    if isinstance(value, bytes):
        media = sniffed(value)
        text = text_of(value, _LETTERS)
        return media.name if media else f"0x{value[:12].hex()}" if text is None else text
    if isinstance(value, str):
        return value[:_LETTERS]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(labels):
        return f"{value} {labels[value]}"[:_LETTERS]
    return number_text(value)


def _numbers(found: Numbers) -> dict[str, Any]:
    shown = {
        name: None if value is None else value if isinstance(value, str) else number_text(value)
        for name, value in (("min", found.min), ("max", found.max), ("mean", found.mean))
    }
    bars = [] if found.histogram is None else found.histogram.counts
    return {**shown, "count": found.count, "nan": found.nan, "bars": bars}
