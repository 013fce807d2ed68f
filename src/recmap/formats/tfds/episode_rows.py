"""Episodes as rows, made of steps: what RLDS has in a record.

Columns of steps become lists in the group ``steps``. Names that LeRobot writes with dots are groups
in RLDS: ``observation.state`` becomes ``steps/observation/state``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from recmap.errors import ColumnError, MemoryLimitError
from recmap.formats.episodes import as_png, is_frame
from recmap.formats.tfds.feature import Feature
from recmap.formats.tfds.features_json import described_image
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers, join, pick
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Coming, Fetching
from recmap.model.field import BYTES, Field
from recmap.model.info import Info
from recmap.model.media import media_kind
from recmap.model.null_columns import empty_column
from recmap.model.preview import quantity
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource, renamed, row_name

STEPS = "steps"
_FIRST, _LAST = f"{STEPS}/is_first", f"{STEPS}/is_last"


class EpisodeRows(WrappedSource):
    """A row for each episode of a source, whose rows are the steps.

    ``starts`` has the first step of each episode, and the number of steps. ``column`` tells the
    episodes apart, and is not one of steps. RLDS needs ``is_first`` and ``is_last``, which are
    computed if there are none.
    """

    def __init__(self, source: Source, starts: RowArray, column: str) -> None:
        super().__init__(source)
        self._starts, self._column = starts, column
        steps = {name: _name(name) for name in source.schema if name != column}
        own = [column, *steps.values()]
        double = next((name for name in own if own.count(name) > 1), None)
        if double is not None:
            raise ColumnError(f"two columns would be {double!r} in a TFDS dataset; rename one")
        if not steps:
            raise ColumnError(f"the steps have no columns but {column!r}")
        self._steps = steps

    @cached_property
    def schema(self) -> Schema:
        fields = self._source.schema
        made = {self._column: fields[self._column]}
        for name, own in self._steps.items():
            field = Field(BYTES) if is_frame(fields[name]) else fields[name]
            made[own] = Field(field.dtype, (None, *field.shape))
        computed = {name: Field("bool", (None,)) for name in (_FIRST, _LAST) if name not in made}
        return Schema({**made, **computed})

    def __len__(self) -> int:
        return len(self._starts) - 1

    def known_rows(self) -> int:
        return len(self)

    @property
    def facts(self) -> SourceFacts:
        told = super().facts
        return SourceFacts(
            format=told.format,
            files=told.files,
            origin=told.origin,
            in_order=told.in_order,
            functions=told.functions,
            remote=told.remote,
            skipped=told.skipped,
            checksums=told.checksums,
            descriptions=self._descriptions,
        )

    @cached_property
    def _descriptions(self) -> dict[str, object]:
        """The descriptions of the columns of images, going by the first step."""
        fields = self._source.schema
        kinds = {name: "png" for name in self._steps if is_frame(fields[name])}
        strings = [name for name in self._steps if fields[name] == Field(BYTES)]
        if strings and len(self):
            first = self._source.select(strings).gather(np.zeros(1, np.int64))
            for name in strings:
                found = media_kind(first[name][0])
                if found is not None and found.name in ("PNG", "JPEG"):
                    kinds[name] = found.name.lower()
        made: dict[str, object] = {}
        for name, kind in kinds.items():
            own = self._steps[name]
            feature = Feature(tuple(own.split("/")), lengths=(None,), steps=STEPS)
            made[own] = described_image(feature, kind)
        return made

    def info(self) -> Info:
        return replace(super().info(), notes={})

    def row_name(self, row: int) -> str:
        return f"the episode that begins with {row_name(self._source, int(self._starts[row]))}"

    # Reading.

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        if start >= stop:
            return {name: empty_column(field) for name, field in self.schema.items()}
        first, last = int(self._starts[start]), int(self._starts[stop])
        parts: list[Batch] = []
        # Frames are in memory together with the images that are made of them.
        frames = any(map(is_frame, self._source.schema.values()))
        room = None if limit is None else limit // (2 if frames else 1)
        at, left, whole = first, room, start
        while at < last:
            part = self._part(start, at, last, left, room)
            rows, size = measure(part)
            parts.append(part)
            at += rows
            whole = int(np.searchsorted(self._starts, at, side="right")) - 1
            if left is not None:
                left = max(1, left - size)
                if whole > start:
                    break
        steps = join(parts)
        del parts
        return self._rows(pick(steps, slice(int(self._starts[whole]) - first)), start, whole)

    def _part(self, episode: int, at: int, last: int, left: int | None, room: int | None) -> Batch:
        """Read some steps of an episode and those after it, within the memory that is left."""
        try:
            return self._source.read(at, last, left)
        except MemoryLimitError as e:
            if room is None or at == self._starts[episode]:
                raise
            first, end = self._starts[episode : episode + 2].tolist()
            count, size = end - first, room * (end - first) // (at - first)
            raise MemoryLimitError(
                f"{self.row_name(episode)}, of {quantity(count, 'step')}, takes about {size:,} "
                f"bytes of memory, but only {room:,} may be used for it; a record holds a whole "
                "episode",
                size=size,
                limit=room,
            ) from e

    def _rows(self, steps: Batch, start: int, stop: int) -> Batch:
        """Return episodes, given all of their steps."""
        offsets = self._starts[start : stop + 1] - self._starts[start]
        first, last = np.zeros((2, int(offsets[-1])), np.bool_)
        first[offsets[:-1]] = last[offsets[1:] - 1] = True
        made: Batch = {
            self._column: steps[self._column][offsets[:-1]],
            _FIRST: Ragged(first, offsets),
            _LAST: Ragged(last, offsets),
        }
        for name, own in self._steps.items():
            column = steps[name]
            if is_frame(self._source.schema[name]):
                column = as_png(np.asarray(column))
            made[own] = Ragged(column, offsets)
        return {name: made[name] for name in self.schema}

    def gather(self, rows: RowArray) -> Batch:
        parts = [self.read(row, row + 1) for row in rows.tolist()]
        return join(parts) if parts else self.read(0, 0)

    def column(self, name: str) -> Column | None:
        return None

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return None

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if not len(rows):
            return None
        spans = [range(*self._starts[row : row + 2].tolist()) for row in rows]
        if isinstance(rows, range):
            return self._source.fetch_ahead(range(spans[0].start, spans[-1].stop))
        return self._source.fetch_ahead(np.concatenate([np.arange(s.start, s.stop) for s in spans]))

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        first = start if start < 0 else int(self._starts[min(start, len(self))])
        last = None if stop is None else int(self._starts[min(stop, len(self))])
        return self._source.coming(first, last)

    def row_bytes(self) -> int:
        return self._source.row_bytes() * max(1, int(self._starts[-1]) // max(1, len(self)))

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        return None

    def select(self, names: Sequence[str]) -> Source:
        return renamed(self, {name: name for name in names})


def _name(column: str) -> str:
    return f"{STEPS}/{column.replace('.', '/')}"
