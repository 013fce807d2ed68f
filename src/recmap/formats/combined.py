"""Several sources as one: their columns side by side, or their rows end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldMismatchError, MemoryLimitError
from recmap.files.mapped import guarded
from recmap.model.ragged import concatenate
from recmap.model.row_sizes import RowSizes, added, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Info, Skipped, Source, owned_rows, reference
from recmap.native import _core
from recmap.tfrecord.decoder import Allocate
from recmap.tfrecord.padded_decoder import PaddedRows

__all__ = [
    "BesideSource",
    "ChainSource",
    "SelectedSource",
    "can_pad",
    "check_sums",
    "gather_from",
    "padded_rows",
]

RowNumbers: TypeAlias = range | npt.NDArray[np.int64]


def check_sums(source: Source) -> None:
    """Check the checksums of columns that are mapped, which no read by number looks at."""
    check = getattr(source, "check_sums", None)
    if check is not None:
        check()


def can_pad(source: Source) -> bool:
    """Whether a source can pad rows while it reads them."""
    return bool(getattr(source, "pads", False))


def padded_rows(
    source: Source, rows: RowNumbers, pads: Mapping[str, _core.Pad], size: int, memory: Allocate
) -> PaddedRows | None:
    """Rows by number, those of ``pads`` padded while they are read, in an array for each
    ``size`` of them; None if the source cannot do that.
    """
    if not pads:
        return PaddedRows({}, source.gather(np.asarray(rows, np.int64)))
    read: PaddedRows | None = None
    if can_pad(source):
        read = source.read_padded(rows, pads, size, memory)  # type: ignore[attr-defined]
    return read


def _is_ragged(source: Source) -> bool:
    return any(field.ragged for field in source.schema.values())


class _Joined:
    """What both ways of joining share."""

    def __init__(self, parts: Sequence[Source], schema: Schema) -> None:
        self._parts = list(parts)
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def parts(self) -> list[Source]:
        """What is joined, in its order."""
        return list(self._parts)

    @property
    def files(self) -> list[str]:
        return [file for part in self._parts for file in part.files]

    @property
    def origin(self) -> str:
        return self._parts[0].origin

    @property
    def skipped(self) -> Sequence[Skipped]:
        return [skipped for part in self._parts for skipped in part.skipped]

    @property
    def chunk_rows(self) -> int:
        return max(part.chunk_rows for part in self._parts)

    @property
    def band_bytes(self) -> int:
        return max(part.band_bytes for part in self._parts)

    def check_sums(self) -> None:
        for part in self._parts:
            check_sums(part)

    @property
    def in_order(self) -> bool:
        """Whether a pass reads every row of the files in their order."""
        return all(getattr(part, "in_order", True) for part in self._parts)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def info(self) -> Info:
        infos = [part.info() for part in self._parts]
        return Info(
            format=" and ".join(sorted({info.format for info in infos})),
            files=self.files,
            size=sum(info.size for info in infos),
            rows=len(self),
            schema=self._schema,
            origin=self.origin,
            mapped=[name for name in self._schema if self.column(name) is not None],
            compression=sorted({name for info in infos for name in info.compression}),
            notes={name: note for info in reversed(infos) for name, note in info.notes.items()},
        )


class SelectedSource(_Joined):
    """Some columns of a source, under names of their own."""

    def __init__(self, source: Source, names: Mapping[str, str]) -> None:
        super().__init__([source], Schema({new: source.schema[old] for new, old in names.items()}))
        self._source, self._names = source, dict(names)

    def __len__(self) -> int:
        return len(self._source)

    def known_rows(self) -> int | None:
        return self._source.known_rows()

    def reference(self) -> Source:
        return SelectedSource(reference(self._source), self._names)

    def _renamed(self, batch: Batch) -> Batch:
        return {new: batch[old] for new, old in self._names.items()}

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._renamed(self._source.read(start, stop, limit))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._renamed(self._source.gather(rows))

    @property
    def pads(self) -> bool:
        # Not if one column has two names, which may be padded in two ways.
        return can_pad(self._source) and len(set(self._names.values())) == len(self._names)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, _core.Pad], size: int, memory: Allocate
    ) -> PaddedRows | None:
        there = {self._names[name]: pad for name, pad in pads.items()}
        read = padded_rows(self._source, rows, there, size, memory)
        if read is None:
            return None
        names = self._names.items()
        return PaddedRows(
            {new: read.padded[old] for new, old in names if old in read.padded},
            {new: read.others[old] for new, old in names if old in read.others},
        )

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._source.row_sizes(rows)

    def largest_row(self, above: int) -> tuple[int, int] | None:
        return self._source.largest_row(above)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._source.column(self._names[name])

    def select(self, names: Sequence[str]) -> Source:
        chosen = {name: self._names[name] for name in self._schema.select(names)}
        return SelectedSource(self._source.select(list(dict.fromkeys(chosen.values()))), chosen)

    def row_bytes(self) -> int:
        return self._source.row_bytes()


class BesideSource(_Joined):
    """Columns of sources of equal length."""

    def __init__(self, parts: Mapping[str, Source]) -> None:
        named: dict[str, Source] = {}
        for part in parts.values():
            for column in part.schema:
                if column in named:
                    raise FieldMismatchError(f"two of the files have a column {column!r}")
                named[column] = part
        super().__init__(list(parts.values()), Schema({n: p.schema[n] for n, p in named.items()}))
        self._owner = named
        rows = {name: len(part) for name, part in parts.items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name!r} has {count:,}" for name, count in rows.items())
            raise DataError(f"columns side by side must have equally many rows, but {listed}")
        self._rows = next(iter(rows.values()), 0)

    def reference(self) -> Source:
        # Each is known by one of its columns.
        beside = BesideSource({next(iter(p.schema)): reference(p) for p in self._parts})
        return SelectedSource(beside, {name: name for name in self._schema})

    @property
    def band_bytes(self) -> int:
        return sum(part.band_bytes for part in self._parts)

    def __len__(self) -> int:
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if limit is None:
            return {n: c for part in self._parts for n, c in part.read(start, stop).items()}
        try:
            return self._read(start, stop, limit // len(self._parts))
        except MemoryLimitError:
            return self._read_one(start, limit)

    def _read(self, start: int, stop: int, limit: int) -> Batch:
        """As many rows as all parts can give within a limit for each."""
        read = []
        for part in self._parts:
            read.append(part.read(start, stop, limit))
            stop = start + measure(read[-1])[0]
        return {n: c[: stop - start] for batch in read for n, c in batch.items()}

    def _read_one(self, start: int, limit: int) -> Batch:
        """A row of which one part takes much, and others perhaps little."""
        read: Batch = {}
        for part in self._parts:
            read |= part.read(start, start + 1, limit - measure(read)[1])
        return read

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return {n: c for part in self._parts for n, c in part.gather(rows).items()}

    @property
    def pads(self) -> bool:
        return all(can_pad(part) for part in self._parts if _is_ragged(part))

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, _core.Pad], size: int, memory: Allocate
    ) -> PaddedRows | None:
        together = PaddedRows({}, {})
        for part in self._parts:
            mine = {name: pad for name, pad in pads.items() if name in part.schema}
            read = padded_rows(part, rows, mine, size, memory)
            if read is None:
                return None
            together.padded.update(read.padded)
            together.others.update(read.others)
        return together

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        total: RowSizes = 0
        for part in self._parts:
            sizes = part.row_sizes(rows)
            if sizes is None:
                return None
            total = added(total, sizes)
        return total

    def largest_row(self, above: int) -> tuple[int, int] | None:
        # Of one part, which is a part of the row.
        found = (part.largest_row(above) for part in self._parts)
        return max((row for row in found if row), key=lambda row: row[1], default=None)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._owner[name].column(name)

    def select(self, names: Sequence[str]) -> Source:
        chosen: dict[str, Source] = {}
        for part in self._parts:
            if mine := [name for name in self._schema.select(names) if name in part.schema]:
                chosen[mine[0]] = part.select(mine)
        beside = BesideSource(chosen)
        if list(beside.schema) == list(names):
            return beside
        return SelectedSource(beside, {name: name for name in names})

    def row_bytes(self) -> int:
        return sum(part.row_bytes() for part in self._parts)


class ChainSource(_Joined):
    """Rows of sources of one schema, one source after the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        first = parts[0]
        for part in parts[1:]:
            if part.schema != first.schema:
                raise FieldMismatchError(
                    f"{part.files[0]} does not fit {first.files[0]}: "
                    f"{_difference(first.schema, part.schema)}",
                    file=part.files[0],
                )
        super().__init__(parts, first.schema)
        counts = np.array([len(part) for part in parts], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def known_rows(self) -> int | None:
        return len(self)

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        read: list[Batch] = []
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            first, end = int(self._starts[number]), int(self._starts[number + 1])
            try:
                batch = self._parts[number].read(start - first, min(stop, end) - first, limit)
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
        return _joined(read) if read else self._parts[0].read(0, 0)

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        if not len(rows):
            return self._parts[0].gather(rows)
        return gather_from(self._starts, rows, lambda i, mine: self._parts[i].gather(mine))

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        sizes = np.empty(len(rows), np.int64)
        for i, mine in owned_rows(self._starts, rows):
            found = self._parts[i].row_sizes(rows[mine] - self._starts[i])
            if found is None:
                return None
            sizes[mine] = found
        return sizes

    def largest_row(self, above: int) -> tuple[int, int] | None:
        found = None
        for part, first in zip(self._parts, self._starts, strict=False):
            row = part.largest_row(above)
            if row is not None:
                found, above = (int(first) + row[0], row[1]), row[1]
        return found

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._parts[0].column(name) if len(self._parts) == 1 else None

    def reference(self) -> Source:
        return ChainSource([reference(part) for part in self._parts])

    def select(self, names: Sequence[str]) -> Source:
        return ChainSource([part.select(names) for part in self._parts])

    def row_bytes(self) -> int:
        return self._parts[0].row_bytes()


def gather_from(
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    take: Callable[[int, npt.NDArray[np.int64]], Batch],
) -> Batch:
    """Rows of parts that follow each other, of which part ``i`` begins at ``starts[i]``:
    those of a part at a time, then put in order.
    """
    taken, order = [], []
    for i, mine in owned_rows(starts, rows):
        taken.append(take(i, rows[mine] - starts[i]))
        order.append(mine)
    back = np.empty(len(rows), np.int64)
    back[np.concatenate(order)] = np.arange(len(rows))
    return {name: column[back] for name, column in _joined(taken).items()}


def _joined(batches: list[Batch]) -> Batch:
    return {name: concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _difference(a: Schema, b: Schema) -> str:
    differs = [f"{n!r} is {b[n]}, not {a[n]}" for n in a if n in b and a[n] != b[n]]
    lacks = [f"{n!r} is missing" for n in a if n not in b]
    extra = [f"{n!r} is new" for n in b if n not in a]
    return "; ".join(differs + lacks + extra) or "the columns come in another order"
