"""Split specifications: ``train``, ``train[:80%]``, ``train[10:20]+test``, ``all``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recmap.errors import Message, Option, OptionError
from recmap.formats.tfds.metadata import DatasetInfo, Split

_PART = re.compile(r"(?P<name>[\w-]+)(\[(?P<rows>[^\]]*)\])?")
_BOUND = re.compile(r"(?P<number>-?\d[\d_]*(\.\d+)?)(?P<unit>%|shard)?")


@dataclass(frozen=True)
class ShardRows:
    """Consecutive rows of a split: the shards that hold them, and which of their rows."""

    shards: list[str]
    shard_rows: list[int]
    start: int
    stop: int

    @property
    def whole(self) -> bool:
        """Whether these are all rows of the shards."""
        return self.start == 0 and self.stop == sum(self.shard_rows)


def choose_shards(info: DatasetInfo, spec: str | None, folder: str) -> list[ShardRows]:
    """Return the rows that a specification names, in order.

    Whole splits that follow each other are one piece.
    """
    if spec is None:
        if len(info.splits) != 1:
            raise OptionError(
                Message(
                    f"{folder}: which split? There are: {info.describe_splits()}; give ",
                    Option("split", next(iter(info.splits), "train")),
                    ", a part of one such as ",
                    Option("split", "train[:80%]"),
                    ", several as 'train+test', or 'all'",
                )
            )
        spec = next(iter(info.splits))
    chosen: list[ShardRows] = []
    for part in spec.split("+"):
        for split, span in _parse(part.strip(), info, folder):
            piece = _rows_of(info, split, span)
            if not piece.shards:
                continue
            if chosen and chosen[-1].whole and piece.whole:
                last = chosen.pop()
                shards, rows = last.shards + piece.shards, last.shard_rows + piece.shard_rows
                piece = ShardRows(shards, rows, 0, sum(rows))
            chosen.append(piece)
    return chosen


def _parse(part: str, info: DatasetInfo, folder: str) -> list[tuple[Split, range]]:
    match = _PART.fullmatch(part)
    if match is None:
        raise _unreadable(part, folder)
    name, rows = match["name"], match["rows"]
    if name == "all" and "all" not in info.splits:
        if rows is not None:
            raise OptionError(f"{folder}: split={part!r}: 'all' takes no rows; slice each split")
        return [(split, range(split.rows)) for split in info.splits.values()]
    if name not in info.splits:
        raise OptionError(
            f"{folder}: no split {name!r}; there are: {info.describe_splits()}, and 'all'"
        )
    split = info.splits[name]
    return [(split, range(split.rows) if rows is None else _span(part, rows, split, folder))]


def _span(part: str, rows: str, split: Split, folder: str) -> range:
    """Return the rows in brackets, as TFDS counts them."""
    texts = [text.strip() for text in rows.split(":")]
    found = [_BOUND.fullmatch(text) for text in texts]
    if any(text and not match for text, match in zip(texts, found, strict=True)):
        raise _unreadable(part, folder)
    if not any(found) or len(texts) > 2:
        raise _unreadable(part, folder)
    units = {match["unit"] or "rows" for match in found if match}
    if len(units) > 1:
        raise OptionError(f"{folder}: split={part!r}: give both bounds in rows, % or shards")
    unit = units.pop()
    if len(texts) == 1:
        if unit != "shard":
            raise OptionError(f"{folder}: split={part!r}: give a span of rows, such as [10:20]")
        first = _number(part, found[0], folder)
        bounds: list[float | None] = [first, None if first == -1 else first + 1]
    else:
        bounds = [None if match is None else _number(part, match, folder) for match in found]
    edges = _edges(split, unit)
    start = 0 if bounds[0] is None else _place(part, bounds[0], unit, edges, folder)
    stop = split.rows if bounds[1] is None else _place(part, bounds[1], unit, edges, folder)
    return range(start, max(start, stop))


def _edges(split: Split, unit: str) -> list[int]:
    """Return the number of rows before each shard, and of all; of rows, only the latter."""
    if unit != "shard":
        return [split.rows]
    edges = [0]
    for rows in split.shard_rows:
        edges.append(edges[-1] + rows)
    return edges


def _number(part: str, match: re.Match[str] | None, folder: str) -> float:
    assert match is not None
    text = match["number"].replace("_", "")
    if "." in text and match["unit"] != "%":
        raise _unreadable(part, folder)
    return float(text) if match["unit"] == "%" else int(text)


def _place(part: str, bound: float, unit: str, edges: list[int], folder: str) -> int:
    """Return the row at a bound; a negative one counts from the end."""
    rows = edges[-1]
    if unit == "shard":
        shards = len(edges) - 1
        if abs(bound) > shards:
            raise OptionError(f"{folder}: split={part!r}: there are {shards:,} shards")
        return edges[int(bound) + (shards if bound < 0 else 0)]
    if unit == "%":
        if abs(bound) > 100:
            raise OptionError(f"{folder}: split={part!r}: give -100% to 100%")
        # Rounded to even, as tensorflow_datasets does, so that both choose the same rows.
        bound = round(bound * rows / 100.0)
    if abs(bound) > rows:
        raise OptionError(f"{folder}: split={part!r}: there are {rows:,} rows")
    return int(bound) + (rows if bound < 0 else 0)


def _rows_of(info: DatasetInfo, split: Split, rows: range) -> ShardRows:
    """Return the shards that hold these rows of a split. Empty shards are left out."""
    shards: list[str] = []
    counts: list[int] = []
    names: Mapping[int, str] = dict(enumerate(info.shard_names(split)))
    at, skipped = 0, 0
    for i, count in enumerate(split.shard_rows):
        if count and at < rows.stop and at + count > rows.start:
            shards.append(names[i])
            counts.append(count)
        elif at + count <= rows.start:
            skipped = at + count
        at += count
    return ShardRows(shards, counts, rows.start - skipped, rows.stop - skipped)


def _unreadable(part: str, folder: str) -> OptionError:
    return OptionError(
        f"{folder}: split={part!r} cannot be read: write 'train', 'train[:80%]', 'train[10:20]', "
        "'train[2shard]', several as 'train+test', or 'all'"
    )
