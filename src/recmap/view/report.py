"""Write a report: one HTML file about a dataset, or about how two datasets differ.

It has no script, loads nothing, and every value is escaped.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import numpy as np

from recmap.dataset.glimpse import LARGE_IMAGE
from recmap.dataset.open import open as open_dataset
from recmap.local.local_path import located, refuse_existing
from recmap.model.arguments import check_flag, size_text
from recmap.model.preview import printable, quantity
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.pipeline.transforms.image_reader import image_size, small_png
from recmap.store.paths import PathLike, as_path
from recmap.view.boxes import BoxColumns, Boxes, box_columns, boxes_on_images, usual_order
from recmap.view.cells import Cell, Media, cell_of, hex_dump, image_of, media_of
from recmap.view.search import SearchHits, differing, find_differences
from recmap.view.summary import summary
from recmap.view.table import Damage, RowTable, TableRow

_ROWS = 20
_COLUMNS = 60
# Arrays and large images are shown as thumbnails, as far as there is room.
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
code, pre { font: 12px/1.4 ui-monospace, monospace; }
img { max-width: 128px; max-height: 128px; margin-right: 4px; }
.boxed { position: relative; display: inline-block; line-height: 0; } .boxed img { margin: 0; }
.boxed svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.boxed rect { fill: #ffd54f22; stroke: #ffca28; stroke-width: 2; }
.boxed rect { vector-effect: non-scaling-stroke; }
svg { width: 128px; height: 28px; fill: var(--accent); stroke: none; }
svg polyline { fill: none; stroke: var(--accent); vector-effect: non-scaling-stroke; }
"""


def report(
    dataset: Any,
    path: PathLike,
    *,
    other: Any = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> None:
    """Write a report to share: one HTML file with the statistics and the first rows of a dataset.

    Given an ``other`` dataset, it shows the first rows in which the two differ. Each is a
    dataset, or anything else that ``rm.open`` opens, such as a path. The file has no scripts.

    >>> import recmap as rm
    >>> rm.report(rm.from_arrays({"x": [1, 2, 3]}), "report.html")
    """
    check_progress(progress)
    there = None if other is None else RowTable(open_dataset(other))
    write_report(
        RowTable(open_dataset(dataset)), as_path(path), other=there,
        overwrite=check_flag("overwrite", overwrite), progress=progress,
    )  # fmt: skip


def write_report(
    table: Any,
    path: str,
    *,
    other: RowTable | None = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> None:
    """Write the report of a table, or of the rows in which it differs from another."""
    refuse_existing(path, overwrite)
    parts = _about(table) if other is None else _about_both(table, other, progress)
    located(path).write_whole("".join(parts).encode())


def _about(table: Any) -> Iterator[str]:
    yield _head(_name(table)) + _facts(table)
    yield (
        '<h2>Columns</h2><div class="scroll"><table><tr><th>name<th>type<th>of<th>values<th>range'
        "<th>missing<th>distinct<th>most frequent</tr>"
    )
    names = list(table.schema)
    for each in names[:_COLUMNS]:
        yield _column(each, str(table.schema[each]), summary(table, each))
    yield f"</table></div>{_more_columns(names)}"
    shown = table.rows(range(_ROWS))
    count = table.count()
    yield f"<h2>{'All' if count.exact and len(shown) == count.rows else 'The first'} "
    yield f'{quantity(len(shown), "row")}</h2><div class="scroll"><table><tr><th>row'
    yield "".join(f"<th>{escape(each)}" for each in names[:_COLUMNS]) + "</tr>"
    room, boxes = _MediaRoom(_MOST_MEDIA), box_columns(table.schema)
    for row in shown:
        yield _row(row, names[:_COLUMNS], table, room, boxes)
    yield "</table></div></html>\n"


def _about_both(a: RowTable, b: RowTable, progress: ProgressOption) -> Iterator[str]:
    rows, compared, damaged, longer = _differences(a, b, progress)
    yield _head(f"{_name(a)} and {_name(b)}")
    for side, table in (("a", a), ("b", b)):
        yield f"<h2>{side}: {escape(printable(table.name))}</h2>{_facts(table)}"
    names = [*a.schema, *(name for name in b.schema if name not in a.schema)]
    yield '<h2>Columns</h2><div class="scroll"><table><tr><th>name<th>type in a<th>type in b</tr>'
    for name in names[:_COLUMNS]:
        kinds = [
            f"<code>{escape(str(t.schema[name]))}</code>" if name in t.schema else "none"
            for t in (a, b)
        ]
        yield f"<tr><td>{escape(name)}<td>{kinds[0]}<td>{kinds[1]}</tr>"
    yield f"</table></div>{_more_columns(names)}<h2>{_headline(rows, compared, damaged)}</h2>"
    if longer:
        yield f"<p>Only {longer} has rows from {compared:,} on.</p>"
    if rows:
        yield '<div class="scroll"><table><tr><th>row<th>column<th>a<th>b</tr>'
        room = _MediaRoom(_MOST_MEDIA)
        shared = [name for name in a.schema if name in b.schema]
        for number in rows:
            yield from _pair(number, a, b, shared, room)
        yield "</table></div>"
    yield "</html>\n"


def _headline(rows: list[int], compared: int, damaged: int) -> str:
    if not rows:
        return f"No difference in {quantity(compared, 'row')}"
    differ = "differs" if len(rows) == 1 else "differ"
    if damaged:
        differ += " or cannot be compared"
    if len(rows) < _ROWS:
        return f"{quantity(len(rows), 'row')} of {compared:,} {differ}"
    return f"The first {_ROWS} rows that {differ}, of {compared:,} compared"


def _differences(
    a: RowTable, b: RowTable, progress: ProgressOption
) -> tuple[list[int], int, int, str]:
    """Return the first rows that differ, how many were compared to find them, and more.

    Some of them are damaged and could not be compared: the third is how many. The last is the
    dataset that has more rows, "a" or "b", if one has.
    """
    rows: list[int] = []
    damaged, known = 0, a.count()
    with Counter(known.rows if known.exact else None, progress) as counter:
        found = SearchHits(0)
        while not found.done and len(rows) < _ROWS:
            start = found.next
            found = find_differences(a, b, start, seconds=0.25)
            counter.add(found.next - start)
            rows += found.rows
            damaged += found.damaged
        counter.finish()
    # The last one may be the first row that only one of them has.
    longer = ""
    if found.done and rows and rows[-1] == found.next:
        longer = "a" if a.part(rows.pop(), list(a.schema)[:1]) else "b"
    compared = found.next if len(rows) < _ROWS else rows[_ROWS - 1] + 1
    return rows[:_ROWS], compared, damaged, longer


def _pair(
    number: int, a: RowTable, b: RowTable, names: list[str], room: _MediaRoom
) -> Iterator[str]:
    """Yield a line for each column in which two rows differ."""
    one, other = a.part(number, names), b.part(number, names)
    if one is None or other is None or one.damage is not None or other.damage is not None:
        cells = [_absent_or_damaged(row) for row in (one, other)]
        yield f"<tr><td>{number:,}<td>all<td>{cells[0]}<td>{cells[1]}</tr>"
        return
    different = differing(one, other, names)
    for name in different[:_COLUMNS]:
        cells = [
            _value(name, row.values[name], table.labels, room)
            for row, table in ((one, a), (other, b))
        ]
        yield f"<tr><td>{number:,}<td>{escape(name)}<td>{cells[0]}<td>{cells[1]}</tr>"
    if len(different) > _COLUMNS:
        rest = quantity(len(different) - _COLUMNS, "more column")
        yield f"<tr><td>{number:,}<td colspan=3>{rest}</tr>"


def _absent_or_damaged(row: TableRow | None) -> str:
    if row is None:
        return "no such row"
    return "a row" if row.damage is None else _damage(row.damage)


def _head(title: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>"
    )


def _more_columns(names: list[str]) -> str:
    more = len(names) - _COLUMNS
    return f"<p>Not shown: {quantity(more, 'more column')}.</p>" if more > 0 else ""


def _name(table: Any) -> str:
    return printable(os.path.basename(table.name) or str(table.name))


def _facts(table: Any) -> str:
    count = table.count()
    rows = quantity(count.rows, "row")
    if not count.exact:
        rows = f"about {rows} (not counted)"
    size = "" if table.size is None else f", {size_text(table.size)}"
    return f"<p>{escape(table.format)}, {rows}, {quantity(len(table.schema), 'column')}{size}</p>"


class _MediaRoom:
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
            (found["nulls"], "null"),
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


def _row(
    row: TableRow, names: list[str], table: Any, room: _MediaRoom, boxes: list[BoxColumns]
) -> str:
    if row.damage is not None:
        return f'<tr><td>{row.number:,}<td colspan="{len(names)}">{_damage(row.damage)}</tr>'
    cells = {name: _value(name, row.values[name], table.labels, room) for name in names}
    images = [name for name, cell in cells.items() if cell.startswith("<img")]
    drawn = boxes_on_images(boxes, row.values, images, usual_order(table.format))
    for name, each in drawn.items():
        cells[name] = _boxed(cells[name], row.values[name], each)
    return f"<tr><td>{row.number:,}" + "".join(f"<td>{cell}" for cell in cells.values()) + "</tr>"


def _boxed(image: str, value: Any, drawn: list[Boxes]) -> str:
    """Draw boxes on an image. Without its size, those in pixels are left out."""
    size = image_size(value) if isinstance(value, bytes) else np.shape(value)[:2]
    layers = ""
    for boxes, fractions in drawn:
        if not fractions and size is None:
            continue
        height, width = (1, 1) if fractions or size is None else size
        rects = "".join(
            f'<rect x="{left:g}" y="{top:g}" width="{max(0, right - left):g}" '
            f'height="{max(0, bottom - top):g}"/>'
            for left, top, right, bottom in boxes
        )
        layers += f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{rects}</svg>'
    return f'<span class="boxed">{image}{layers}</span>'


def _damage(damage: Damage) -> str:
    lines = "\n".join("  ".join(line) for line in hex_dump(damage.data[:64], damage.byte or 0))
    return f"{escape(printable(damage.reason))}<pre>{escape(lines)}</pre>"


def _value(name: str, value: Any, labels: Any, room: _MediaRoom) -> str:
    cell = cell_of(name, value, labels)
    if cell["kind"] == "image":
        return _image(value, cell, room)
    if _has_images(cell):
        shown = " ".join(_value("", item, labels, room) for item in value[: len(cell["items"])])
        noun = "image" if all(item["kind"] == "image" for item in cell["items"]) else "item"
        return f"{shown}<br><small>{quantity(cell['size'], noun)}</small>"
    if "points" in cell:
        return _line(cell["points"]) + f"<br><small>{escape(_text(cell))}</small>"
    return escape(_text(cell))


def _has_images(cell: Cell) -> bool:
    """Return whether a list holds images, or lists of them."""
    items = cell["items"] if cell["kind"] == "list" else ()
    return any(item["kind"] == "image" or _has_images(item) for item in items)


def _image(value: Any, cell: Cell, room: _MediaRoom) -> str:
    media = media_of("", value) if cell["type"] != "array" else image_of(value, _THUMBNAIL)
    if media is not None and len(media.data) > LARGE_IMAGE:
        small = small_png(media.data, _THUMBNAIL)
        media = media if small is None else Media("image/png", media.name, small)
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
