"""Write a report: one HTML file with the columns, their statistics, and the first rows.

It has no script, loads nothing, and every value is escaped.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from recmap.files.atomic_write import write_whole
from recmap.files.output_file import refuse_existing
from recmap.model.arguments import size_text
from recmap.view.cells import Cell, cell_of, hex_dump, media_of
from recmap.view.media import Media, image_of
from recmap.view.summary import summary
from recmap.view.table import Damage, Row

__all__ = ["write_report"]

_ROWS = 20
_COLUMNS = 60
# Arrays are shown as thumbnails. Encoded images stand as they are, as far as there is room.
_THUMBNAIL = 128
_MOST_MEDIA = 8 << 20
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --line: #8883; --soft: #777; --accent: #0f766e; }
@media (prefers-color-scheme: dark) { :root { --soft: #999; --accent: #5eead4; } }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin-top: 2rem; }
p, small { color: var(--soft); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .75rem .35rem 0; }
th, td { vertical-align: top; }
td { max-width: 22rem; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
code, pre { font: 12px/1.4 ui-monospace, monospace; } img { max-width: 128px; max-height: 128px; }
svg { width: 128px; height: 28px; fill: var(--accent); stroke: none; }
svg polyline { fill: none; stroke: var(--accent); vector-effect: non-scaling-stroke; }
"""


def write_report(table: Any, path: str, *, overwrite: bool = False) -> None:
    """Write the report of a table."""
    refuse_existing(path, overwrite)
    write_whole(path, "".join(_parts(table)))


def _parts(table: Any) -> Iterator[str]:
    name = escape(os.path.basename(table.name) or table.name)
    count = table.count()
    rows = f"{count.rows:,} rows" if count.exact else f"about {count.rows:,} rows (not counted)"
    size = "" if table.size is None else f", {size_text(table.size)}"
    yield (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{_STYLE}</style>"
        f"<h1>{name}</h1><p>{escape(table.format)}, {rows}, {_counted(len(table.schema), 'column')}"
        f"{size}</p>"
    )
    yield (
        '<h2>Columns</h2><div class="scroll"><table><tr><th>name<th>type<th>of<th>values<th>range'
        "<th>missing<th>distinct<th>most frequent</tr>"
    )
    names = list(table.schema)
    for each in names[:_COLUMNS]:
        yield _column(each, str(table.schema[each]), summary(table, each))
    yield "</table></div>"
    if len(names) > _COLUMNS:
        yield f"<p>{len(names) - _COLUMNS:,} more columns are not shown.</p>"
    shown = table.rows(range(_ROWS))
    yield f"<h2>{'All' if count.exact and len(shown) == count.rows else 'The first'} "
    yield f'{_counted(len(shown), "row")}</h2><div class="scroll"><table><tr><th>row'
    yield "".join(f"<th>{escape(each)}" for each in names[:_COLUMNS]) + "</tr>"
    room = _Room(_MOST_MEDIA)
    for row in shown:
        yield _row(row, names[:_COLUMNS], table.labels, room)
    yield "</table></div></html>\n"


class _Room:
    """The bytes left for images."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def _column(name: str, kind: str, found: Mapping[str, Any]) -> str:
    numbers = found.get("values") or found.get("lengths") or {}
    what = "" if "values" in found else "length "
    low, high = numbers.get("min"), numbers.get("max")
    missing = [
        f"{n:,} {word}"
        for n, word in (
            (found.get("values", {}).get("nan", 0), "NaN"),
            (found["empty"], "empty"),
            (found["damaged"], "damaged"),
        )
        if n
    ]
    of = f"all {found['rows']:,} rows" if found["whole"] else f"the first {found['rows']:,} rows"
    top = ", ".join(f"{escape(each['text'])} ({each['count']:,})" for each in found.get("top", []))
    cells = [
        escape(name),
        f"<code>{escape(kind)}</code>",
        of,
        _bars(numbers.get("bars", [])),
        "" if low is None else escape(f"{what}{low} to {high}"),
        ", ".join(missing) or "none",
        f"{found['distinct']:,}" if "distinct" in found else "",
        top,
    ]
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"


def _row(row: Row, names: list[str], labels: Any, room: _Room) -> str:
    if row.damage is not None:
        return f'<tr><td>{row.number:,}<td colspan="{len(names)}">{_damage(row.damage)}</tr>'
    cells = [_value(name, row.values[name], labels, room) for name in names]
    return f"<tr><td>{row.number:,}" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"


def _damage(damage: Damage) -> str:
    lines = "\n".join("  ".join(line) for line in hex_dump(damage.data[:64], damage.byte or 0))
    return f"{escape(damage.reason)}<pre>{escape(lines)}</pre>"


def _value(name: str, value: Any, labels: Any, room: _Room) -> str:
    cell = cell_of(name, value, labels)
    if cell["kind"] == "image":
        media = media_of(name, value) if cell["type"] != "array" else image_of(value, _THUMBNAIL)
        return _image(media, cell, room)
    if "points" in cell:
        return _line(cell["points"]) + f"<br><small>{escape(_text(cell))}</small>"
    return escape(_text(cell))


def _image(media: Media | None, cell: Cell, room: _Room) -> str:
    size = 0 if media is None else len(media.data)
    if media is None or not room.take(size):
        return f"{escape(cell['type'])}, {size_text(size)}, left out of the report"
    data = base64.b64encode(media.data).decode()
    return f'<img alt="{escape(media.name)}" src="data:{media.type};base64,{data}">'


def _text(cell: Cell) -> str:
    match cell["kind"]:
        case "list":
            items = ", ".join(_text(item) for item in cell["items"])
            return f"[{items}{', ...' if cell['size'] > len(cell['items']) else ''}]"
        case "bytes":
            return f"0x{cell['text'].replace(' ', '')}, {cell['size']:,} bytes"
        case "audio" | "image":
            return f"{cell['type']}, {cell['size']:,} {'samples' if 'shape' in cell else 'bytes'}"
        case "numbers":
            return f"[{','.join(map(str, cell['shape']))}] {cell['text']}"
        case "text" if cell["size"] > len(cell["text"]):
            return f"{cell['text']}..."
        case _:
            return f"{cell['text']} {cell.get('label', '')}".rstrip()


def _bars(counts: list[int]) -> str:
    most = max(counts, default=0)
    if not most:
        return ""
    bars = "".join(
        f'<rect x="{i}" y="{1 - n / most:.3f}" width=".9" height="{n / most:.3f}"/>'
        for i, n in enumerate(counts)
        if n
    )
    return f'<svg viewBox="0 0 {len(counts)} 1" preserveAspectRatio="none">{bars}</svg>'


def _line(points: list[float | None]) -> str:
    known = [point for point in points if point is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    half = (high / 2 - low / 2) or 1.0
    placed = " ".join(
        f"{i},{1 - (point / 2 - low / 2) / half:.3f}"
        for i, point in enumerate(points)
        if point is not None
    )
    return (
        f'<svg viewBox="0 -.1 {max(len(points) - 1, 1)} 1.2" preserveAspectRatio="none">'
        f'<polyline points="{placed}"/></svg>'
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
