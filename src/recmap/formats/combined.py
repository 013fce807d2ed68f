"""Several sources as one: their columns side by side, or their rows end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldMismatchError, MemoryLimitError
from recmap.local.local_path import located
from recmap.machine.mapped import guarded
from recmap.model.batch import (
    Allocate,
    PaddedRows,
    PadSpec,
    RowNumbers,
    divide_rows,
    gather_from,
    join,
    rows_by_owner,
)
from recmap.model.facts import (
    BadRecords,
    LargestChunk,
    Meaning,
    Skipped,
    SourceFacts,
    TableType,
    with_facts,
)
from recmap.model.fetching import Coming, Fetching, fetching_all
from recmap.model.field import Field
from recmap.model.fill_null import with_the_same_nulls
from recmap.model.info import Info
from recmap.model.order import finite
from recmap.model.ragged import Column, offsets_of
from recmap.model.row_places import RowPlaces, copy_rows
from recmap.model.row_sizes import RowSizes, added_up, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import (
    Source,
    VaryingRows,
    prepare,
    renamed,
)
from recmap.model.table_notes import is_decimal
from recmap.model.value_test import ValueRange
from recmap.store.files_ahead import FilesAhead, files_ahead
from recmap.store.paths import for_each


def _agreed(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is told of each column, unless sources tell different things."""
    names = dict.fromkeys(name for each in told for name in each)
    found = {name: [each[name] for each in told if name in each] for name in names}
    return {n: first for n, (first, *others) in found.items() if all(o == first for o in others)}


def _agreed_types(told: Sequence[Mapping[str, TableType]]) -> dict[str, TableType]:
    """Return what columns are in tables; decimals stay some, even if they differ in digits."""
    found = _agreed(told)
    for name in dict.fromkeys(name for each in told for name in each):
        known = [each[name] for each in told if name in each]
        if name not in found and all(map(is_decimal, known)):
            found[name] = known[0]
    return found


def _joined_index(told: Sequence[SourceFacts]) -> Source | None:
    """Return the index of rows that follow each other, if all have one, and of the same kind."""
    found = [facts.table_index for facts in told]
    if not all(isinstance(each, Source) for each in found):
        return None
    types = [each.facts.table_types for each in found]
    if any(each != types[0] for each in types):
        return None
    try:
        return ConcatenatedSource(found)
    except FieldMismatchError:
        return None


def _meaning(meanings: Sequence[Callable[[], Meaning]]) -> Meaning:
    return {what: meant for each in meanings for what, meant in each().items()}


def _skipped(told: Sequence[SourceFacts]) -> list[Skipped]:
    return [skipped for each in told for skipped in each.skipped]


def _chunk_rows(told: Sequence[SourceFacts]) -> int:
    return max(facts.chunk_rows() for facts in told)


def _largest_chunk(told: Sequence[SourceFacts]) -> LargestChunk:
    return max((facts.largest_chunk() for facts in told), key=lambda chunk: chunk.size)


def _chunks_together(told: Sequence[SourceFacts]) -> LargestChunk:
    found = [facts.largest_chunk() for facts in told]
    place = max(found, key=lambda chunk: chunk.size).place
    return LargestChunk(sum(chunk.size for chunk in found), place)


def _largest_together(told: Sequence[SourceFacts], above: int) -> tuple[int, int] | None:
    # The largest row of one source is a lower bound for the whole row.
    found = (facts.largest_row(above) for facts in told)
    return max((row for row in found if row), key=lambda row: row[1], default=None)


def _largest_of(
    sources: Sequence[Source], told: Sequence[SourceFacts], above: int
) -> tuple[int, int] | None:
    files = [file for facts in told for file in facts.files]
    found = for_each(lambda facts: facts.largest_row(above), told, files)
    starts = accumulate(map(len, sources), initial=0)
    rows = [(first + row[0], row[1]) for row, first in zip(found, starts, strict=False) if row]
    return max(rows, key=lambda row: row[1], default=None)


class CombinedSource(VaryingRows):
    """Base class of the ways to combine sources."""

    def __init__(self, sources: Sequence[Source], schema: Schema) -> None:
        self._sources = list(sources)
        self._schema = schema

    def _over(self, sources: Sequence[Source], schema: Schema | None = None) -> Self:
        """Return the same combination of other sources with as many rows, or of some columns."""
        other = copy(self)
        other._sources = list(sources)  # noqa: SLF001  # a copy of this one
        other.__dict__.pop("_selections", None)
        other.__dict__.pop("_joined", None)
        if schema is not None:
            other._schema = schema  # noqa: SLF001
            other.__dict__.pop("_told", None)
        return other

    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        return self._over(list(map(change, self._sources)))

    def at_epoch(self, epoch: int) -> Source:
        if not self._told.varies:  # there may be thousands of files
            return self
        return super().at_epoch(epoch)

    def prepare(self) -> None:
        for source in self._sources:
            prepare(source)

    def row_name(self, row: int) -> str:
        return self.facts.row_name(row)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        return self._told

    @cached_property
    def _told(self) -> SourceFacts:
        return self._collected([source.facts for source in self._sources])

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        return SourceFacts(
            files=[file for each in told for file in each.files],
            digest=" ".join(each.digest for each in told if each.digest),
            origin=told[0].origin,
            chunk_rows=partial(_chunk_rows, told),
            largest_chunk=partial(_largest_chunk, told),
            stored_in_order=any(each.stored_in_order for each in told),
            in_order=all(each.in_order for each in told),
            owns_rows=all(each.owns_rows for each in told),
            remote=any(each.remote for each in told),
            can_pad=all(each.can_pad for each in told),
            endless=any(each.endless for each in told),
            sized=all(each.sized for each in told),
            searched=all(each.searched for each in told),
            varies=any(each.varies for each in told),
            functions=[function for each in told for function in each.functions],
            compressed_files={f: how for each in told for f, how in each.compressed_files.items()},
            skipped=BadRecords(partial(_skipped, told)),
            labels=_agreed([each.labels for each in told]),
            descriptions=_agreed([each.descriptions for each in told]),
            table_types=_agreed_types([each.table_types for each in told]),
            meaning=partial(_meaning, [each.meaning for each in told]),
            checksums=[checksums for each in told for checksums in each.checksums],
            record_files=[file for each in told for file in each.record_files],
        )

    def __getstate__(self) -> dict[str, Any]:
        # Some facts, such as checksums, belong to files that another process opens itself.
        own = ("_told", "_selections", "_joined")
        return {name: each for name, each in self.__dict__.items() if name not in own}

    def info(self) -> Info:
        facts, infos = self.facts, [source.info() for source in self._sources]
        return Info(
            format=" and ".join(sorted({info.format for info in infos})),
            files=facts.files,
            size=sum(info.size for info in infos),
            rows=len(self),
            schema=self._schema,
            origin=facts.origin,
            mapped=[name for name in self._schema if self.column(name) is not None],
            compression=sorted({name for info in infos for name in info.compression}),
            notes={name: note for info in reversed(infos) for name, note in info.notes.items()},
        )


class SideBySideSource(CombinedSource):
    """The columns of several sources of equal length."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        """The keys of ``sources`` name the sources in error messages."""
        super().__init__(list(sources.values()), _joint_schema(sources.values()))
        self._by_name = dict(sources)
        if self._is_counted:
            self._rows  # noqa: B018  # refuses columns of different lengths

    @property
    def _is_counted(self) -> bool:
        """Whether to count the rows now, rather than when that is first needed."""
        return True

    @cached_property
    def _rows(self) -> int | None:
        """The number of rows; None if there is no end."""
        return self._counted(self._by_name)

    def _counted(self, sources: Mapping[str, Source]) -> int | None:
        """Count the rows of sources, which must be equally many; None if there is no end."""
        rows = {name: len(source) for name, source in sources.items()}
        check_equal_lengths(rows)
        return next(iter(rows.values()), 0)

    def __len__(self) -> int:
        return finite(self._rows)

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        pairs = zip(self._sources, told, strict=True)
        varying = [facts for source, facts in pairs if not _has_fixed_size(source)]
        return with_facts(
            super()._collected(told),
            largest_chunk=partial(_chunks_together, told),
            can_pad=bool(varying) and all(facts.can_pad for facts in varying),
            largest_row=partial(_largest_together, told),
        )

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if limit is None:
            return {n: c for source in self._sources for n, c in source.read(start, stop).items()}
        try:
            return self._read_shared(start, stop, limit // len(self._sources))
        except MemoryLimitError:
            return self._read_one(start, limit)

    def _read_shared(self, start: int, stop: int, limit: int) -> Batch:
        """Return as many rows as every source can read within the same limit."""
        read = []
        for source in self._sources:
            read.append(source.read(start, stop, limit))
            stop = start + measure(read[-1])[0]
        return {n: c[: stop - start] for batch in read for n, c in batch.items()}

    def _read_one(self, start: int, limit: int) -> Batch:
        """Return a single row, for which one source may need almost the whole limit."""
        row: Batch = {}
        for source in self._sources:
            row |= source.read(start, start + 1, limit - measure(row)[1])
        return row

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return {n: c for source in self._sources for n, c in source.gather(rows).items()}

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        read = PaddedRows({}, {})
        for source in self._sources:
            mine = {name: pad for name, pad in pads.items() if name in source.schema}
            if _has_fixed_size(source):
                read.others.update(_read_rows(source, rows))
                continue
            some = source.read_padded(rows, mine, size, allocate)
            if some is None:
                return None
            read.padded.update(some.padded)
            read.others.update(some.others)
        return read

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return fetching_all(source.fetch_ahead(rows) for source in self._sources)

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return added_up(source.row_sizes(rows) for source in self._sources)

    def column(self, name: str) -> Column | None:
        return self._owner(name).column(name)

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        return self._owner(name).value_ranges(name)

    def _owner(self, name: str) -> Source:
        return next(source for source in self._sources if name in source.schema)

    def select(self, names: Sequence[str]) -> Source:
        schema = self._schema.select(names)
        own = [[name for name in schema if name in source.schema] for source in self._sources]
        chosen = [
            source.select(mine) for source, mine in zip(self._sources, own, strict=True) if mine
        ]
        return self._of(chosen, names)

    def _of(self, sources: Sequence[Source], names: Sequence[str]) -> Source:
        """Return columns of other sources with as many rows."""
        other = self._over(sources, _joint_schema(sources))
        same = list(other.schema) == list(names)
        return other if same else renamed(other, {name: name for name in names})

    def row_bytes(self) -> int:
        return sum(source.row_bytes() for source in self._sources)


def check_equal_lengths(rows: Mapping[str, int]) -> None:
    """Refuse columns that have different numbers of rows."""
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name!r} has {count:,}" for name, count in rows.items())
        raise DataError(f"columns side by side must have the same number of rows, but {listed}")


def _has_fixed_size(source: Source) -> bool:
    """Return whether all rows take the same number of bytes."""
    return all(field.row_bytes is not None for field in source.schema.values())


def _read_rows(source: Source, rows: RowNumbers) -> Batch:
    """Return rows in arrays that are not views of the source."""
    if isinstance(rows, range) and source.facts.owns_rows:
        return source.read(rows.start, rows.stop)
    return source.gather(np.asarray(rows, np.int64))


def _joint_schema(sources: Iterable[Source]) -> Schema:
    fields: dict[str, Field] = {}
    for source in sources:
        for name, field in source.schema.items():
            if name in fields:
                raise FieldMismatchError(f"two of the files have a column {name!r}")
            fields[name] = field
    return Schema(fields)


class ConcatenatedSource(CombinedSource):
    """The rows of several sources with the same schema, one source after another."""

    # The same rows as one source, as soon as that is possible.
    _joined: Source | None = None

    def __init__(self, sources: Sequence[Source]) -> None:
        sources = with_the_same_nulls(sources)
        first = sources[0]
        for source in sources[1:]:
            if source.schema != first.schema:
                raise FieldMismatchError(
                    f"{source.facts.files[0]} does not fit {first.facts.files[0]}: "
                    f"{_difference(first.schema, source.schema)}",
                    file=source.facts.files[0],
                )
        super().__init__(sources, first.schema)

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each source, and of all rows."""
        return offsets_of(np.array([len(source) for source in self._sources], np.int64))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        largest_row = partial(_largest_of, list(self._sources), told)
        return with_facts(
            super()._collected(told),
            table_index=_joined_index(told),
            largest_row=largest_row,
            meaning=told[0].meaning,  # all files were compared when they were opened
        )

    def known_rows(self) -> int | None:
        counted = "_starts" in self.__dict__
        unknown = not counted and any(each.known_rows() is None for each in self._sources)
        return None if unknown else len(self)

    def prepare(self) -> None:
        super().prepare()
        self._starts  # noqa: B018  # counted when it is first asked for

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        with files_ahead(self, start, stop, limit) as ahead:
            return self._read(start, min(stop, len(self)), limit, ahead)

    def _read(self, start: int, stop: int, limit: int | None, ahead: FilesAhead) -> Batch:
        read: list[Batch] = []
        number = self._owner(start)
        while start < stop:
            ahead.reach(self, start)
            first, end = int(self._starts[number]), int(self._starts[number + 1])
            try:
                batch = self._sources[number].read(start - first, min(stop, end) - first, limit)
            except MemoryLimitError:
                if not read:
                    raise
                break
            rows, size = measure(batch)
            read.append(batch)
            if start + rows < min(stop, end):
                break
            limit = None if limit is None else limit - size
            start, number = end, number + 1
        return join(read) if read else self._sources[0].read(0, 0)

    def _owner(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        if not len(rows):
            return self._sources[0].gather(rows)
        copied = self._gathered_at_once(rows) or self._copied(rows)
        if len(copied) == len(self._schema):
            return copied
        if not copied:
            return gather_from(self._starts, rows, lambda i, mine: self._sources[i].gather(mine))
        others = [name for name in self._schema if name not in copied]
        read = self._selected(tuple(others)).gather(rows) if others else {}
        return {name: copied[name] if name in copied else read[name] for name in self._schema}

    def _selected(self, names: tuple[str, ...]) -> Source:
        if names not in self._selections:
            self._selections[names] = self.select(names)
        return self._selections[names]

    @cached_property
    def _selections(self) -> dict[tuple[str, ...], Source]:
        return {}

    def _together(self) -> Source | None:
        """Return the same rows as one source, with the columns that it gathers faster."""
        if self._joined is None:
            self._joined = self._sources[0].joined(self._sources)
        return self._joined

    def _gathered_at_once(self, rows: npt.NDArray[np.int64]) -> Batch:
        together = self._together()
        if together is not None:
            with suppress(DataError):  # the source of one file says where the error is
                return together.gather(rows)
        return {}

    def _copied(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Return rows of the columns that can be copied from several files at once."""
        if self._owner(int(rows.min())) == self._owner(int(rows.max())):
            return {}
        owned = list(rows_by_owner(self._starts, rows))
        batch: Batch = {}
        for name in self._schema:
            found: list[RowPlaces] = []
            for owner, mine in owned:
                places = self._sources[owner].places(name, rows[mine] - self._starts[owner])
                if places is None or (found and places.dtype != found[0].dtype):
                    break
                found.append(places)
            else:
                batch[name] = copy_rows(found, [mine for _, mine in owned])
        return batch

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        # Only rows of a single source can be padded into one array.
        if not len(rows):
            return None
        if isinstance(rows, range):
            first, last = rows.start, rows.stop - 1
        else:
            first, last = int(rows.min()), int(rows.max())
        owner = self._owner(first)
        if owner != self._owner(last):
            return None
        start = int(self._starts[owner])
        if isinstance(rows, range):
            mine: RowNumbers = range(rows.start - start, rows.stop - start)
        else:
            mine = rows - start
        return self._sources[owner].read_padded(mine, pads, size, allocate)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        divided = divide_rows(self._starts[:-1], rows)
        return fetching_all(self._sources[owner].fetch_ahead(mine) for owner, mine in divided)

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        stop = len(self) if stop is None else min(stop, len(self))
        for number in range(max(0, self._owner(start)), self._owner(stop - 1) + 1):
            source, facts = self._sources[number], self._sources[number].facts
            first, end = int(self._starts[number]), int(self._starts[number + 1])
            rows = range(max(0, start - first), min(stop, end) - first)
            if first > start and facts.remote and len(facts.files) == 1:
                yield Coming(
                    self, _size(source), partial(source.fetch_ahead, rows), partial(int, end)
                )
            whole = first > start and len(facts.files) > 1
            for file in source.coming(-1 if whole else rows.start, rows.stop):
                yield replace(file, source=self, stop=partial(_shifted, file.stop, first))

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        together = self._together()
        if together is not None and len(together.schema) == len(self._schema):
            return together.row_sizes(rows)
        sizes = np.empty(len(rows), np.int64)
        for owner, mine in rows_by_owner(self._starts, rows):
            found = self._sources[owner].row_sizes(rows[mine] - self._starts[owner])
            if found is None:
                return None
            sizes[mine] = found
        return sizes

    def column(self, name: str) -> Column | None:
        return self._sources[0].column(name) if len(self._sources) == 1 else None

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        told = for_each(lambda source: source.value_ranges(name), self._sources, self.facts.files)
        if all(ranges is None for ranges in told):
            return None
        found: list[ValueRange] = []
        for (first, end), ranges in zip(pairwise(self._starts), told, strict=True):
            mine = [ValueRange(int(end - first))] if ranges is None else ranges
            found += [each._replace(stop=int(first) + each.stop) for each in mine]
        return found

    def select(self, names: Sequence[str]) -> Source:
        chosen = [source.select(names) for source in self._sources]
        return self._over(chosen, self._schema.select(names))

    @property
    def sources(self) -> Sequence[Source]:
        """The sources, in the order of their rows."""
        return self._sources

    def row_bytes(self) -> int:
        return self._sources[0].row_bytes()


def _shifted(stop: Callable[[], int | None], by: int) -> int | None:
    found = stop()
    return None if found is None else found + by


def _size(source: Source) -> int:
    """Return the bytes of the objects of a source. Those of a Zarr store do not count."""
    objects = [file for file in map(located, source.facts.files) if file.remote]
    return sum(file.stat().size for file in objects if not file.is_folder())


def _difference(a: Schema, b: Schema) -> str:
    differs = [f"{n!r} is {b[n]}, not {a[n]}" for n in a if n in b and a[n] != b[n]]
    lacks = [f"{n!r} is missing" for n in a if n not in b]
    extra = [f"{n!r} is new" for n in b if n not in a]
    return "; ".join(differs + lacks + extra) or "the columns come in another order"
