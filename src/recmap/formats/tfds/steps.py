"""The steps of episodes as rows.

A record holds an episode: for each column, a list of the values of all its steps. To read a step,
the native core takes its values out of the lists, so that nothing but these is decoded, whatever
order steps are read in. Only columns whose steps differ in length need whole episodes.

The number of steps of each episode is counted once, from one of the columns. The CRC of an
episode is checked when it is first read, not for each of its steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MemoryLimitError
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.memory import memory_source
from recmap.formats.tfds.feature import LENGTHS, Feature, record_decoder
from recmap.model.batch import RowArray, RowNumbers, interleave, join, pick
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Fetching
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.ragged import Column, Ragged, offsets_of
from recmap.model.row_sizes import RowSizes, added, column_sizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.tfrecord.decoder import ExampleDecoder, StepNumbers

EPISODE, STEP, FIRST, LAST = "episode", "step", "is_first", "is_last"
_PLACES = {
    EPISODE: Field(np.int64),
    STEP: Field(np.int64),
    FIRST: Field(np.bool_),
    LAST: Field(np.bool_),
}
# Bytes of episodes that are decoded at a time, to take steps of different lengths out of them.
_TOGETHER = 32 << 20
# Episodes, and bytes of their lists, counted at a time.
_COUNTED, _COUNTED_BYTES = 1 << 14, 8 << 20


def open_steps(
    parts: Sequence[tuple[EpisodeRecords, range]], columns: Mapping[str, Feature], verify: bool
) -> Source:
    """Return the steps of episodes as rows.

    ``parts`` are the records of episodes, and which of them to read. Episodes are numbered across
    all parts.
    """
    steps = _step_columns(columns)
    sources: list[Source] = []
    first = 0
    for records, episodes in parts:
        index = EpisodeIndex(records, episodes, _step_lists(columns), verify)
        sources.append(StepsSource(index, steps, first))
        first += len(episodes)
    if not sources:
        schema = Schema({name: step.field for name, step in steps.items()})
        return memory_source({name: empty_column(field) for name, field in schema.items()}, schema)
    return sources[0] if len(sources) == 1 else ConcatenatedSource(sources)


class EpisodeRecords(Source):
    """Records of episodes: a source that can also read single steps of them."""

    @abstractmethod
    def gather_steps(self, decoder: ExampleDecoder, rows: RowArray, steps: StepNumbers) -> Batch:
        """Return one step of each of these episodes. No CRC is checked."""

    @abstractmethod
    def unverified(self) -> EpisodeRecords:
        """Return the same records, read without checking their CRCs."""


@dataclass(frozen=True)
class StepColumn:
    """A column of steps, and how it is read.

    ``stored`` is None for the places of steps, which are computed.
    """

    field: Field
    stored: Feature | None = None
    #: Whether the record has one value for each step, not one for the episode.
    per_step: bool = False

    @property
    def nested(self) -> bool:
        """Whether the steps of an episode differ in length, so that it is decoded as a whole."""
        return self.stored is not None and self.per_step and bool(self.stored.lengths[1:])

    @property
    def of_one_step(self) -> Feature:
        """How a step, or what an episode has once, is decoded."""
        assert self.stored is not None
        if not self.per_step:
            return self.stored
        return replace(self.stored, lengths=self.stored.lengths[1:])


def _step_columns(columns: Mapping[str, Feature]) -> dict[str, StepColumn]:
    """Return the columns of steps by name.

    Those of the nested dataset lose its name, ``steps/``, unless that makes two of one name.
    """
    steps = {name: each for name, each in columns.items() if each.steps}
    outer = {name: each for name, each in columns.items() if name not in steps}
    taken = {*outer, EPISODE, STEP}
    short: dict[str, StepColumn] = {}
    for name, each in steps.items():
        cut = name.removeprefix(f"{each.steps}/")
        one = replace(each, lengths=each.lengths[1:])
        short[name if cut in taken else cut] = StepColumn(one.field, each, per_step=True)
    places = {name: StepColumn(field) for name, field in _PLACES.items() if name not in short}
    rest = {name: StepColumn(each.field, each) for name, each in outer.items()}
    return {**places, **short, **rest}


def _step_lists(columns: Mapping[str, Feature]) -> list[str]:
    """Return features of a record with an item for each step, the fastest to be counted first."""
    listed: dict[str, int] = {}
    for feature in columns.values():
        fields = feature.stored_fields
        if not feature.steps:
            continue
        if len(feature.lengths) > 1:
            listed[f"{feature.name}/{LENGTHS}0"] = 8
        elif len(fields) == 1 and not feature.is_string and feature.encoding == "none":
            listed[feature.name] = fields[feature.name].count * feature.dtype.itemsize
        else:
            listed[next(iter(fields))] = 1 << 30
    return sorted(listed, key=lambda name: listed[name])


class EpisodeIndex:
    """How many steps each episode has, and whose CRC was checked."""

    def __init__(
        self, records: EpisodeRecords, episodes: range, lists: Sequence[str], verify: bool
    ) -> None:
        self.records, self.episodes = records, episodes
        self.unverified = records.unverified()
        self._lists = lists
        self._starts: npt.NDArray[np.int64] | None = None
        self._checked = np.full(len(episodes), not verify)

    @property
    def known(self) -> bool:
        """Whether the steps have been counted."""
        return self._starts is not None

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The number of steps before each episode, and of all. They are counted once."""
        if self._starts is None:
            len(self.unverified)  # the records must be counted
            counts = []
            at, some = self.episodes.start, 1
            while at < self.episodes.stop:
                rows = np.arange(at, min(at + some, self.episodes.stop), dtype=np.int64)
                found, size = self._counts(rows, self._lists[:2])
                # A list that records lack altogether looks empty.
                empty = rows[found == 0]
                if len(empty):
                    self._counts(empty, self._lists)
                counts.append(found)
                at += len(rows)
                # Lists are decoded to be counted, and the next are probably as long.
                fit = _COUNTED_BYTES * len(rows) // max(1, size)
                some = max(1, min(_COUNTED, 4 * some, fit))
            self._starts = offsets_of(np.concatenate(counts) if counts else [])
        return self._starts

    def _counts(
        self, rows: npt.NDArray[np.int64], lists: Sequence[str]
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Return how many steps episodes have, and the bytes of the lists, which must agree."""
        found = self.unverified.select(lists).gather(rows)
        counts = {name: _lengths(column) for name, column in found.items()}
        first, *others = counts
        for other in others:
            wrong = np.flatnonzero(counts[first] != counts[other])
            if len(wrong):
                row, files = int(rows[wrong[0]]), self.records.facts.files
                raise DataError(
                    f"{files[0]}: record {row:,} of this split has "
                    f"{int(counts[first][wrong[0]]):,} steps in {first!r}, but "
                    f"{int(counts[other][wrong[0]]):,} in {other!r}",
                    file=files[0],
                    field=other,
                )
        return counts[first], measure(found)[1]

    def check(self, episodes: npt.NDArray[np.int64]) -> None:
        """Check the CRCs of those episodes that were not checked yet."""
        if self._checked.all():
            return
        new = np.unique(episodes[~self._checked[episodes]])
        if len(new):
            self.records.select(self._lists[:1]).gather(new + self.episodes.start)
            self._checked[new] = True


def _lengths(column: Column) -> npt.NDArray[np.int64]:
    if isinstance(column, Ragged):
        return column.lengths
    return np.full(len(column), column.shape[1], np.int64)


class StepsSource(Source):
    """The steps of all episodes, end to end."""

    def __init__(
        self, index: EpisodeIndex, columns: Mapping[str, StepColumn], first_episode: int
    ) -> None:
        self._index, self._columns, self._first = index, dict(columns), first_episode
        self._files, self._remote = index.records.facts.files, index.records.facts.remote
        self._schema = Schema({name: column.field for name, column in columns.items()})
        read = {n: c for n, c in self._columns.items() if c.stored is not None and not c.nested}
        self._read = {name: column.of_one_step for name, column in read.items()}
        self._decoder = record_decoder(self._read)
        stepped = {f for n, c in read.items() if c.per_step for f in self._read[n].stored_fields}
        self._stepped = tuple(name in stepped for name in self._decoder.schema)
        self._nested = {name: column for name, column in self._columns.items() if column.nested}
        # The size of a row that was read last, to read as many as fit.
        self._row_bytes = 0

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        return int(self._index.starts[-1])

    def known_rows(self) -> int | None:
        return len(self) if self._index.known else None

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(files=self._files, owns_rows=True, remote=self._remote)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, min(stop, len(self)))
        if limit is None:
            return self.gather(np.arange(start, stop, dtype=np.int64))
        parts: list[Batch] = []
        at, count = start, max(1, limit // (2 * self._row_bytes) if self._row_bytes else 1)
        while at < stop:
            some = self.gather(np.arange(at, min(at + count, stop), dtype=np.int64))
            rows, size = measure(some)
            self._row_bytes = -(-size // rows)
            if size > limit:
                fit = _fitting(some, rows, limit, bool(parts))
                if fit:
                    parts.append(pick(some, slice(0, fit)))
                break
            parts.append(some)
            at, limit = at + rows, limit - size
            # The next rows are probably like these.
            count = min(4 * rows, limit * rows // max(size, 1))
            if not count:
                break
        return join(parts) if parts else self.gather(np.empty(0, np.int64))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        starts = self._index.starts
        episodes = np.searchsorted(starts, rows, side="right") - 1
        steps = rows - starts[episodes]
        self._index.check(episodes)
        numbers = episodes + self._index.episodes.start
        made: Batch = {}
        if self._read:
            stored = self._index.unverified.gather_steps(
                self._decoder, numbers, StepNumbers(steps, self._stepped)
            )
            for name, column in self._read.items():
                made[name] = column.assemble(stored, self._files[0])
        if self._nested:
            made |= self._nested_steps(episodes, steps)
        counts = np.diff(starts)[episodes]
        for name, values in (
            (EPISODE, episodes + self._first),
            (STEP, steps),
            (FIRST, steps == 0),
            (LAST, steps == counts - 1),
        ):
            if name in self._columns and self._columns[name].stored is None:
                made[name] = values
        return {name: made[name] for name in self._columns}

    def _nested_steps(self, episodes: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> Batch:
        """Return the columns whose steps differ in length."""
        stored = [f for c in self._nested.values() if c.stored for f in c.stored.stored_fields]
        source = self._index.unverified.select(stored)
        parts: list[Batch] = []
        places: list[npt.NDArray[np.int64]] = []
        for some in self._groups(source, np.unique(episodes)):
            mine = np.flatnonzero(np.isin(episodes, some))
            decoded = source.gather(some + self._index.episodes.start)
            within = np.searchsorted(some, episodes[mine])
            parts.append(
                {
                    name: self._steps_of(name, decoded, some, within, steps[mine])
                    for name in self._nested
                }
            )
            places.append(mine)
        if not parts:
            return {name: empty_column(column.field) for name, column in self._nested.items()}
        return interleave(parts, places)

    def _steps_of(
        self,
        name: str,
        decoded: Batch,
        episodes: npt.NDArray[np.int64],
        within: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
    ) -> Column:
        stored = self._nested[name].stored
        assert stored is not None
        column = stored.assemble(decoded, self._files[0])
        assert isinstance(column, Ragged)
        counts = np.diff(self._index.starts)[episodes]
        wrong = np.flatnonzero(column.lengths != counts)
        if len(wrong):
            raise DataError(
                f"{self._files[0]}: feature {stored.name!r}: episode "
                f"{int(episodes[wrong[0]]) + self._first:,} has {int(counts[wrong[0]]):,} steps, "
                f"but {int(column.lengths[wrong[0]]):,} values",
                field=stored.name,
            )
        begins = column.offsets - column.offsets[0]
        values: Column = column.flat[begins[within] + steps]
        return values

    def _groups(
        self, source: Source, episodes: npt.NDArray[np.int64]
    ) -> Iterator[npt.NDArray[np.int64]]:
        """Divide episodes into groups that are small enough to be decoded together."""
        sizes = source.row_sizes(episodes + self._index.episodes.start)
        if sizes is None or isinstance(sizes, int):
            together = max(1, _TOGETHER // max(sizes or _TOGETHER, 1))
            yield from np.split(episodes, range(together, len(episodes), together))
            return
        group = np.cumsum(sizes) // _TOGETHER
        edges = np.flatnonzero(np.diff(group)) + 1
        yield from np.split(episodes, edges)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if not self._index.known:
            return None
        starts = self._index.starts
        episodes = np.searchsorted(starts, np.asarray(rows, np.int64), side="right") - 1
        return self._index.records.fetch_ahead(np.unique(episodes) + self._index.episodes.start)

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        del rows
        sizes = [field.row_bytes for field in self._schema.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def select(self, names: Sequence[str]) -> Source:
        chosen = {name: self._columns[name] for name in self._schema.select(names)}
        return StepsSource(self._index, chosen, self._first)


def _fitting(batch: Batch, rows: int, limit: int, some: bool) -> int:
    """Return how many rows fit; raise if none does, unless there are ``some`` already."""
    sizes: RowSizes = 0
    for column in batch.values():
        sizes = added(sizes, column_sizes(column))
    try:
        return fitting(sizes, rows, limit)
    except MemoryLimitError:
        if some:
            return 0
        raise
