"""ds.windows: rows that are made of several rows of the source, such as 16 steps of an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import check_same_rows, from_rows, refuse_nulls, scan_column
from recmap.dataset.derived_rows import DerivedRows
from recmap.errors import DataError, MemoryLimitError, OptionError, OptionTypeError
from recmap.machine.mapped import guarded
from recmap.model.arguments import as_list, as_whole, is_iterable
from recmap.model.batch import Positions, RowArray, RowNumbers, join
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.field import Field
from recmap.model.progress import ProgressOption
from recmap.model.ragged import Column, Ragged, concatenate, has_mask, offsets_of
from recmap.model.ranks import byte_ranks
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import RowSizes, batch_sizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, gather_within, row_name

Edges: TypeAlias = Literal["drop", "repeat", "pad"]
# Rows relative to the one that a window belongs to; None is that row's own value, without an axis.
Offsets: TypeAlias = tuple[int, ...] | None

# The column that says which rows of a window are padding, and the one with the rows to predict.
_PADDING = "/is_pad"
_TARGET = "/target"


class Part(NamedTuple):
    """A column of windows: the column of the source, and which of its rows."""

    column: str
    offsets: Offsets


def window_parts(schema: Schema, size: Any, within: str | None, horizon: Any) -> dict[str, Part]:
    """Return the columns of windows, from the user's arguments."""
    if isinstance(size, Mapping):
        chosen = {name: _offsets(name, given) for name, given in size.items()}
        schema.select(list(chosen))
        if horizon is not None:
            raise OptionError(
                "windows: horizon= follows a number of rows; with offsets by column, give the rows "
                'to predict as offsets, too: {"load": range(24 + 6)}'
            )
    else:
        if is_iterable(size):
            raise OptionTypeError(
                f"size={size!r}: give a number of rows, or offsets by column: "
                '{"image": [-1, 0], "action": range(16)}'
            )
        rows = tuple(range(as_whole("size", size, least=1)))
        chosen = {name: rows for name in schema if name != within}
    parts = {name: Part(name, chosen.get(name)) for name in schema}
    for name, ahead in _horizons(chosen, horizon).items():
        first = len(chosen[name] or ())
        parts[name + _TARGET] = Part(name, tuple(range(first, first + ahead)))
    return parts


def _offsets(name: str, given: Any) -> tuple[int, ...]:
    numbers = as_list(f"size[{name!r}]", given, "[-1, 0] or range(16)")
    if not numbers:
        raise OptionError(f"size[{name!r}]: give one offset or more, such as [-1, 0] or range(16)")
    for number in numbers:
        as_whole(f"an offset of {name!r}", number, least=-(2**40), most=2**40)
    return tuple(int(number) for number in numbers)


def _horizons(chosen: Mapping[str, Any], horizon: Any) -> dict[str, int]:
    """Return how many rows to predict, by column."""
    if horizon is None:
        return {}
    given = horizon if isinstance(horizon, Mapping) else dict.fromkeys(chosen, horizon)
    for name in given:
        if name not in chosen:
            Schema(dict.fromkeys(chosen, Field("int8"))).select([name])
    return {name: as_whole("horizon", rows, least=1) for name, rows in given.items()}


class Windows(NamedTuple):
    """Some windows: the row that each belongs to, and the rows of the episode around it."""

    anchors: RowArray
    first: RowArray
    end: RowArray

    def rows(self, offsets: Sequence[int]) -> tuple[RowArray, npt.NDArray[np.bool_] | None]:
        """Return the rows at these offsets, end to end, and which of them exist if some do not.

        In place of one that does not exist is the nearest row of the episode.
        """
        rows = self.anchors[:, None] + np.array(offsets, np.int64)
        first, end = self.first[:, None], self.end[:, None]
        inside = (rows >= first) & (rows < end)
        if inside.all():
            return rows.reshape(-1), None
        return np.clip(rows, first, end - 1).reshape(-1), inside.reshape(-1)

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Return the rows from the first to the last one that these windows need."""
        start = np.maximum(self.anchors + low, self.first).min()
        return int(start), int(self.ends(high).max())

    def ends(self, high: int) -> RowArray:
        """Return the row after the last one that each window needs."""
        return np.minimum(self.anchors + high + 1, self.end)


class WindowOrder:
    """The windows of all episodes, end to end: nothing is kept but where episodes begin."""

    def __init__(self, edges: RowArray, low: int, high: int, stride: int, drop: bool) -> None:
        self._edges, self._stride = edges, stride
        # With ``drop``, all rows of a window are inside its episode.
        self._lead = -low if drop else 0
        usable = np.diff(edges) - (high - low if drop else 0)
        windows = np.maximum(0, -(-usable // stride))
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(windows)])

    @property
    def count(self) -> int:
        return int(self._before[-1])

    def at(self, positions: Positions) -> Windows:
        """Return the windows at these positions."""
        episode = np.searchsorted(self._before, positions, side="right") - 1
        first = self._edges[episode]
        anchors = first + self._lead + (positions - self._before[episode]) * self._stride
        return Windows(anchors, first, self._edges[episode + 1])


def window_order(
    source: Source,
    parts: Mapping[str, Part],
    stride: int,
    within: str | None,
    edges: Edges,
    progress: ProgressOption,
    reopen: Callable[[], Source] | None,
) -> Remembered[int, WindowOrder]:
    """Return the windows, which are found when they are first needed."""
    check_same_rows("windows", source)
    if within is not None:
        _check_within(source, within)
    low, high = _extent(parts)
    compute = partial(
        _ordered,
        within=within,
        make=partial(WindowOrder, low=low, high=high, stride=stride, drop=edges == "drop"),
        progress=progress,
    )
    return from_rows(source, compute, reopen)


def _extent(parts: Mapping[str, Part]) -> tuple[int, int]:
    """Return the lowest and the highest offset; a window has its own row, too."""
    offsets = [0, *(offset for part in parts.values() for offset in part.offsets or ())]
    return min(offsets), max(offsets)


def _check_within(source: Source, name: str) -> None:
    field = source.schema[name]
    if field.shape or not (field.is_bytes or field.dtype.kind in "biumM"):
        raise OptionError(
            f"windows: column {name!r} is {field}; an episode is identified by one integer, date, "
            "text or byte string in each row"
        )


@guarded
def _ordered(
    source: Source,
    within: str | None,
    make: Callable[[RowArray], WindowOrder],
    progress: ProgressOption,
) -> WindowOrder:
    if within is None:
        return make(np.array([0, len(source)]))
    return make(_episode_edges(source, within, progress))


def _episode_edges(source: Source, name: str, progress: ProgressOption) -> RowArray:
    """Return where episodes begin, and the number of rows."""
    starts, kinds, rows = [np.zeros(0, np.int64)], list[Column](), 0
    for block in scan_column(source, name, progress):
        refuse_nulls("windows", source, name, block)
        # The last value before this block tells whether its first row begins an episode.
        values = concatenate([*kinds[-1:], block.values]) if kinds else block.values
        extra = len(values) - len(block.values)
        keys: npt.NDArray[Any] = byte_ranks(values) if isinstance(values, Ragged) else values
        new = np.ones(len(keys), bool)
        new[1:] = keys[1:] != keys[:-1]
        begins = np.flatnonzero(new[extra:])
        starts.append(begins + block.start)
        if len(begins):
            kinds.append(block.values[begins])
        rows = block.start + len(block.values)
    edges = np.concatenate([*starts, [rows]]).astype(np.int64)
    if kinds:
        _refuse_return(source, name, concatenate(kinds), edges)
    return edges


def _refuse_return(source: Source, name: str, kinds: Column, edges: RowArray) -> None:
    """Raise if an episode goes on after another one has begun."""
    keys: npt.NDArray[Any] = byte_ranks(kinds) if isinstance(kinds, Ragged) else kinds
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(again):
        at = int(order[again + 1].min())
        raise DataError(
            f"windows: {name!r} is {kinds[at]!r} again at {row_name(source, int(edges[at]))}, "
            f"after other rows; bring the rows of an episode together first: "
            f"ds.sort({name!r}).windows(...)",
            field=name,
            record=int(edges[at]),
        )


class RowWindows(DerivedRows[WindowOrder]):
    """The windows of a source as rows. A row that several windows share is read once.

    Where any row can be read alone, reading it again is as fast as copying it.
    """

    def __init__(
        self,
        source: Source,
        parts: Mapping[str, Part],
        order: Remembered[int, WindowOrder],
        edges: Edges,
        extent: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(source, order)
        self._parts, self._edges = dict(parts), edges
        self._low, self._high = _extent(parts) if extent is None else extent
        self._schema = _window_schema(source.schema, parts, edges)
        self._groups = dict[Offsets, dict[str, str]]()
        for name, part in parts.items():
            self._groups.setdefault(part.offsets, {})[name] = part.column
        self._total = sum(1 if offsets is None else len(offsets) for offsets in self._groups)

    def _over(self, source: Source) -> RowWindows:
        return RowWindows(source, self._parts, self._found, self._edges, (self._low, self._high))

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        facts = super().facts
        own = {name for name, part in self._parts.items() if part.offsets is None}
        return with_facts(
            facts,
            descriptions={n: told for n, told in facts.descriptions.items() if n in own},
            table_types={n: told for n, told in facts.table_types.items() if n in own},
        )

    def row_bytes(self) -> int:
        return self._source.row_bytes() * self._total

    def _windows(self, rows: RowNumbers) -> Windows:
        return self._layout.at(np.asarray(rows, np.int64))

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        if limit is not None:
            stop = min(stop, start + max(1, limit // 2 // self.row_bytes()))
        if start >= stop:
            return self.gather(np.empty(0, np.int64))
        windows = self._windows(range(start, stop))
        first, end = windows.span(self._low, self._high)
        if self._alone and end - first > len(windows.anchors) * (self._high - self._low + 1):
            return gather_within(self, np.arange(start, stop), limit)
        block, read = self._read_block(windows, first, end, limit)
        whole = int(np.searchsorted(windows.ends(self._high), read, side="right"))
        windows = Windows(*(each[:whole] for each in windows))
        if limit is not None:
            sizes = _sums(batch_sizes(block), windows, self._groups, first)
            count = fitting(sizes, whole, limit // 2)
            windows = Windows(*(each[:count] for each in windows))
        return self._made(windows, lambda rows: (block, rows - first))

    def _read_block(
        self, windows: Windows, first: int, end: int, limit: int | None
    ) -> tuple[Batch, int]:
        """Return rows from ``first`` on, with those of one window or more, and where they end."""
        parts, read, need = list[Batch](), first, int(windows.ends(self._high)[0])
        taken, room = 0, None if limit is None else limit // 2
        while read < (need if parts else end):
            if room is not None and taken >= room:
                raise MemoryLimitError(
                    f"the rows of a window take more than {room:,} bytes of memory",
                    size=2 * taken,
                    limit=limit or 0,
                )
            parts.append(self._source.read(read, end, None if room is None else room - taken))
            rows, size = measure(parts[-1])
            if not rows:
                break
            read, taken = read + rows, taken + size
        return join(parts), read

    def gather(self, rows: RowArray) -> Batch:
        windows = self._windows(rows)
        if self._alone:
            return self._made_alone(windows)
        found = self._rows_of(windows)
        block = self._source.gather(found)
        return self._made(windows, lambda rows: (block, np.searchsorted(found, rows)))

    @cached_property
    def _alone(self) -> bool:
        facts = self._source.facts
        return not facts.calls_user_code and facts.chunk_rows() == 1

    def _made_alone(self, windows: Windows) -> Batch:
        """Return windows whose rows are read as often as they come."""
        made = dict[str, Column]()
        for offsets, names in self._groups.items():
            rows, inside = windows.rows(offsets or (0,))
            batch = self._source.select(list(dict.fromkeys(names.values()))).gather(rows)
            made |= self._columns(offsets, names, batch, inside, len(windows.anchors))
        return {name: made[name] for name in self._schema}

    def _made(self, windows: Windows, find: Callable[[RowArray], tuple[Batch, Positions]]) -> Batch:
        """Return windows whose rows have been read: ``find`` says where they are in a batch."""
        made = dict[str, Column]()
        for offsets, names in self._groups.items():
            rows, inside = windows.rows(offsets or (0,))
            batch, places = find(rows)
            taken = {column: batch[column][places] for column in dict.fromkeys(names.values())}
            made |= self._columns(offsets, names, taken, inside, len(windows.anchors))
        return {name: made[name] for name in self._schema}

    def _columns(
        self,
        offsets: Offsets,
        names: Mapping[str, str],
        batch: Batch,
        inside: npt.NDArray[np.bool_] | None,
        count: int,
    ) -> Batch:
        """Return columns of ``count`` windows, of rows that are end to end in ``batch``."""
        if offsets is None:
            return {name: batch[column] for name, column in names.items()}
        made, padded = dict[str, Column](), self._edges == "pad"
        for name, column in names.items():
            values = batch[column]
            if padded and inside is not None:
                values = _blanked(values, inside)
            made[name] = _folded(values, count, len(offsets))
            if padded:
                outside = np.zeros(count * len(offsets), bool) if inside is None else ~inside
                made[name + _PADDING] = outside.reshape(count, len(offsets))
        return made

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        windows, total = self._windows(rows), np.zeros(len(rows), np.int64)
        for offsets in self._groups:
            needed, _ = windows.rows(offsets or (0,))
            sizes = self._source.row_sizes(needed)
            if sizes is None:
                return None
            each = np.broadcast_to(np.asarray(sizes, np.int64), len(needed))
            total += each.reshape(len(rows), len(offsets or (0,))).sum(1)
        return total

    def _rows_of(self, windows: Windows) -> RowArray:
        """Return the rows of windows, each once, in ascending order."""
        needed = [windows.rows(offsets or (0,))[0] for offsets in self._groups]
        return np.unique(np.concatenate(needed))

    def _needed(self, rows: RowArray) -> RowArray:
        return self._rows_of(self._windows(rows))

    def _span(self, start: int, stop: int) -> range:
        windows = self._windows(np.array([start, stop - 1]))
        return range(*windows.span(self._low, self._high))

    def row_name(self, row: int) -> str:
        [anchor] = self._windows(np.array([row])).anchors
        return f"the window at {row_name(self._source, int(anchor))}"

    def select(self, names: Sequence[str]) -> Source:
        wanted = {name.removesuffix(_PADDING) if self._pads(name) else name for name in names}
        parts = {name: part for name, part in self._parts.items() if name in wanted}
        columns = list(dict.fromkeys(part.column for part in parts.values()))
        source = RowWindows(
            self._source.select(columns), parts, self._found, self._edges, (self._low, self._high)
        )
        exact = list(names) == list(source.schema)
        return source if exact else Source.select(source, names)

    def _pads(self, name: str) -> bool:
        return self._edges == "pad" and name not in self._parts


def _window_schema(schema: Schema, parts: Mapping[str, Part], edges: Edges) -> Schema:
    fields = dict[str, Field]()
    for name, (column, offsets) in parts.items():
        if name in fields or (name != column and name in schema):
            raise OptionError(f"windows: there is already a column {name!r}; rename it first")
        fields[name] = _window_field(schema[column], offsets)
        if edges == "pad" and offsets is not None:
            if name + _PADDING in parts:
                raise OptionError(
                    f"windows: there is already a column {name + _PADDING!r}; rename it first"
                )
            fields[name + _PADDING] = Field("bool", len(offsets))
    return Schema(fields)


def _window_field(field: Field, offsets: Offsets) -> Field:
    if offsets is None:
        return field
    if _listed(field):
        return Field(field.dtype, (None, *field.shape), null_items=field.has_nulls)
    return Field(field.dtype, (len(offsets), *field.shape))


def _listed(field: Field) -> bool:
    """Whether windows of a column are lists: ragged axes come first, and only items can be null."""
    return bool(field.ragged) or field.is_bytes or field.has_nulls


def _folded(column: Column, count: int, size: int) -> Column:
    """Return windows of ``size`` rows, which are end to end in ``column``."""
    if isinstance(column, Ragged) or has_mask(column):
        return Ragged(column, np.arange(count + 1, dtype=np.int64) * size)
    return column.reshape(count, size, *column.shape[1:])


def _blanked(column: Column, inside: npt.NDArray[np.bool_]) -> Column:
    """Return a column with zeros, or empty rows, where ``inside`` is False."""
    if not isinstance(column, Ragged):
        blank = column.copy()
        blank[~inside] = np.zeros((), column.dtype)
        return blank
    kept = column[np.flatnonzero(inside)]
    lengths = np.zeros(len(column), np.int64)
    lengths[inside] = kept.lengths
    mask = None if column.mask is None else column.mask & inside
    return Ragged(kept.flat, offsets_of(lengths), mask)


def _sums(sizes: RowSizes, windows: Windows, groups: Mapping[Offsets, Any], first: int) -> RowSizes:
    """Return at most how many bytes each window takes, from the sizes of rows from ``first`` on."""
    total = np.zeros(len(windows.anchors), np.int64)
    for offsets in groups:
        rows, _ = windows.rows(offsets or (0,))
        each = np.broadcast_to(sizes, len(rows)) if isinstance(sizes, int) else sizes[rows - first]
        total += each.reshape(len(total), len(offsets or (0,))).sum(1)
    return total
