"""What the page asks for, and the answers: plain data, and images and sound by row and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from recmap.errors import OptionError, RowNotFoundError
from recmap.machine.mapped import guarded
from recmap.model.arguments import size_text
from recmap.model.permutation import Permutation
from recmap.view.boxes import BOX_ORDERS, box_columns, boxes_on_images, usual_order
from recmap.view.cells import (
    DTYPES,
    Cell,
    Media,
    as_array,
    cell_of,
    code,
    detail_of,
    hex_dump,
    media_of,
    shapes,
    told_rate,
)
from recmap.view.search import OPERATORS, SearchHits, differing, find_differences, search
from recmap.view.summary import summary
from recmap.view.table import BatchTable, Damage, RowTable, TableRow

# A request takes about this long at most. The page asks again for the rest.
_SECONDS = 0.25
_MOST_ROWS = 256
_MOST_COLUMNS = 256
_MOST_SKIPPED = 200
_RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)


class Api:
    """Answers about a table, and about another one to compare it with."""

    def __init__(self, table: RowTable | BatchTable, other: RowTable | None = None) -> None:
        self._table: Any = table
        self._other: Any = other
        self._names = list(table.schema)
        if other is not None:
            self._names += [name for name in other.schema if name not in table.schema]
        self._boxes = box_columns(table.schema)
        self._calls = {
            "info": self.info,
            "rows": self.rows,
            "summary": self.summary,
            "search": self.search,
            "value": self.value,
            "try": self.try_type,
            "count": self.count,
            "advance": self.advance,
        }

    @guarded
    def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a request, or return None if there is no such request."""
        call = self._calls.get(name)
        with np.errstate(all="ignore"):  # what is shown may be any bits
            return None if call is None else call(given)

    def info(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the page shows first. No row is read for that."""
        del given
        table = self._table
        return {
            "name": table.name,
            "other": None if self._other is None else self._other.name,
            "format": table.format,
            "size": None if table.size is None else size_text(table.size),
            "columns": [self._column(name) for name in self._names],
            "count": self._count(),
            "boxes": [" ".join(each) for each in self._boxes],
            # Whether one column has the four numbers of a box, and their order has to be chosen.
            "box_orders": list(BOX_ORDERS) if any(len(n) != 4 for n in self._boxes) else [],
            "box_order": usual_order(table.format),
            "operators": list(OPERATORS),
            "dtypes": list(DTYPES),
            "rates": list(_RATES),
            "batches": list(table.batches) if isinstance(table, BatchTable) else None,
            "skipped": self._skipped(),
        }

    def _column(self, name: str) -> dict[str, Any]:
        schema = self._table.schema
        found = {"name": name, "type": str(schema[name]) if name in schema else None}
        if self._other is not None:
            there = self._other.schema
            found["other"] = str(there[name]) if name in there else None
        if isinstance(self._table, RowTable) and name in schema:
            found["storage"] = self._table.storage(name)
        return found

    def _skipped(self) -> list[dict[str, Any]]:
        if not isinstance(self._table, RowTable):
            return []
        return [asdict(each) for each in self._table.dataset.skipped[:_MOST_SKIPPED]]

    def _count(self) -> dict[str, Any]:
        count = self._table.count()._asdict()
        if self._other is not None:
            count["other"] = self._other.count()._asdict()
            count["rows"] = max(count["rows"], count["other"]["rows"])
            count["exact"] = count["exact"] and count["other"]["exact"]
        return dict(count)

    def count(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Continue to count rows, for a moment."""
        del given
        done = all(each.find(2**63 - 2, _SECONDS) for each in self._tables())
        return {"count": self._count(), "done": done}

    def advance(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Take the next batches of a pipeline."""
        if not isinstance(self._table, BatchTable):
            raise OptionError("these rows are not batches of a pipeline")
        self._table.advance()
        return self.info(given)

    def _tables(self) -> list[Any]:
        return [self._table] if self._other is None else [self._table, self._other]

    # Rows.

    def rows(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows by number, or from ``start`` to ``stop`` in the order of the file or another.

        If they are not found yet, search for a moment and answer ``pending``.
        """
        numbers = self._numbers(given)
        names = [self._name(column) for column in _list(given, "columns", _MOST_COLUMNS)]
        furthest = max(numbers, default=0)
        if not all(each.find(furthest, _SECONDS) for each in self._tables()):
            return {"rows": [], "count": self._count(), "pending": True}
        order = str(given.get("boxes") or BOX_ORDERS[0])
        rows = self._table.rows(numbers)
        if self._other is None:
            shown = [self._row(row, names, order) for row in rows]
        else:
            others = {row.number: row for row in self._other.rows(numbers)}
            mine = {row.number: row for row in rows}
            shown = [
                self._pair(n, mine.get(n), others.get(n), names, order)
                for n in numbers
                if n in mine or n in others
            ]
        return {"rows": shown, "count": self._count(), "pending": False}

    def _numbers(self, given: Mapping[str, Any]) -> list[int]:
        if "numbers" in given:
            return [_whole({"n": n}, "n") for n in _list(given, "numbers", _MOST_ROWS)]
        start, stop = _whole(given, "start"), _whole(given, "stop")
        stop = min(stop, start + _MOST_ROWS)
        if given.get("seed") is None and given.get("sort") is None:
            return list(range(start, stop))
        count = self._table.count()
        if not count.exact:
            raise OptionError("rows can be shuffled and sorted once they are counted")
        places = np.arange(start, max(start, min(stop, count.rows)), dtype=np.int64)
        if given.get("sort") is None:
            return [int(n) for n in Permutation(count.rows, _whole(given, "seed"))[places]]
        if not isinstance(self._table, RowTable):
            raise OptionError("the rows of batches cannot be sorted")
        order = self._table.sorted(self._name(given["sort"]), bool(given.get("descending")))
        return [int(n) for n in order.numbers(places)]

    def _row(self, row: TableRow, names: Sequence[str], order: str) -> dict[str, Any]:
        found: dict[str, Any] = {"row": row.number}
        if isinstance(self._table, BatchTable):
            found["title"] = self._table.title(row.number)
        if row.damage is not None:
            return {**found, "damage": _damage(row.damage)}
        found["cells"] = self._cells(row, names)
        images = [
            name
            for name, cell in zip(names, found["cells"], strict=True)
            if cell and cell["kind"] == "image"
        ]
        drawn = boxes_on_images(self._boxes, row.values, images, order)
        boxes = {
            names.index(name): [{"boxes": some, "fractions": parts} for some, parts in each]
            for name, each in drawn.items()
        }
        return {**found, "boxes": boxes} if boxes else found

    def _cells(self, row: TableRow, names: Sequence[str]) -> list[Cell | None]:
        labels = self._table.labels
        return [
            cell_of(name, row.values[name], labels) if name in row.values else None
            for name in names
        ]

    def _pair(
        self, number: int, a: TableRow | None, b: TableRow | None, names: Sequence[str], order: str
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"row": number} if a is None else self._row(a, names, order)
        if b is not None and b.damage is not None:
            found["other_damage"] = _damage(b.damage)
        elif b is not None:
            found["other"] = self._cells(b, names)
        different = differing(a, b, self._names)
        return {
            **found,
            "differs": [i for i, name in enumerate(names) if name in different],
            "hidden": len([name for name in different if name not in names]),
        }

    # Columns and values.

    def summary(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Summarise a column, from its first rows."""
        name = self._name(given.get("column"))
        only_there = self._other is not None and name not in self._table.schema
        return summary(self._other if only_there else self._table, name)

    def search(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Search from row ``start``, for a moment."""
        start = _whole(given, "start")
        if given.get("operator") == "differs":
            if self._other is None:
                raise OptionError("there is no other dataset to compare with")
            found: SearchHits = find_differences(self._table, self._other, start, _SECONDS)
        else:
            name = self._name(given.get("column"))
            self._table.schema[name]  # it may be a column of the other dataset only
            operator, text = str(given.get("operator")), str(given.get("text", ""))
            found = search(self._table, name, operator, text, start, _SECONDS)
        return {**asdict(found), "count": self._count()}

    def value(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return most of one value, for the pane."""
        name, row = self._asked(given)
        value = row.values[name]
        found = detail_of(name, value, self._table.labels)
        if isinstance(value, bytes):
            found["shapes"] = shapes(len(value))
        found["rate"] = told_rate(row.values)
        media = media_of(name, value, _rate(given, row))
        return {**found, "note": media.note} if media and media.note else found

    def try_type(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return raw bytes as another type, and the code that reads the column so."""
        name, array = self._typed(given)
        records = self._table.format == "TFRecord"
        media = media_of("", array)
        return {
            **detail_of("", array),
            "note": media.note if media else "",
            "code": code(self._table.name, name, _whole(given, "row"), array, records=records),
        }

    @guarded
    def media(self, given: Mapping[str, Any]) -> Media | None:
        """Return an image or a sound by row and column, or None if the value is neither."""
        if given.get("dtype"):
            _, array = self._typed(given)
            return media_of("", array, item=_item(given))
        name, row = self._asked(given)
        return media_of(name, row.values[name], _rate(given, row), _item(given))

    def _typed(self, given: Mapping[str, Any]) -> tuple[str, Any]:
        name, row = self._asked(given)
        value = row.values[name]
        if not isinstance(value, bytes):
            raise OptionError(f"{name} has a type already: {self._table.schema[name]}")
        return name, as_array(value, str(given.get("dtype")), str(given.get("shape", "")))

    def _asked(self, given: Mapping[str, Any]) -> tuple[str, TableRow]:
        """Return the column that is asked for, and the row, which has it."""
        name, number = self._name(given.get("column")), _whole(given, "row")
        table = self._other if given.get("side") == "b" and self._other else self._table
        row = table.row(number)
        if row is None:
            raise RowNotFoundError(f"there is no row {number:,}")
        if row.damage is not None:
            raise OptionError(row.damage.reason)
        if name not in row.values:
            raise OptionError(f"{table.name} has no column {name}")
        return name, row

    def _name(self, column: Any) -> str:
        number = _whole({"column": column}, "column")
        if number >= len(self._names):
            raise OptionError(f"there is no column {number}")
        return self._names[number]


def _damage(damage: Damage) -> dict[str, Any]:
    return {
        "reason": damage.reason,
        "file": damage.file,
        "byte": damage.byte,
        "hex": hex_dump(damage.data, damage.byte or 0),
    }


def _rate(given: Mapping[str, Any], row: TableRow) -> int:
    """Return the sample rate of a sound: as asked for, as the row tells, or a usual one."""
    rate = _whole({"rate": given.get("rate") or told_rate(row.values) or 16_000}, "rate")
    return min(max(rate, 1000), 192_000)


def _item(given: Mapping[str, Any]) -> list[int]:
    """Return which item of a list is asked for, or of a list in a list: ``3`` or ``3,0``."""
    numbers = str(given.get("item") or "").split(",")
    return [_whole({"item": number}, "item") for number in numbers if number]


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    try:
        number = int(value) if isinstance(value, int | str) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 2**63 - 1:
        raise OptionError(f"{name} must be a whole number of 0 or more, not {str(value)[:40]!r}")
    return number


def _list(given: Mapping[str, Any], name: str, most: int) -> list[Any]:
    value = given.get(name, [])
    if not isinstance(value, list) or len(value) > most:
        raise OptionError(f"{name} must be a list of up to {most}")
    return value
