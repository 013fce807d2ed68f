"""Try functions on the first rows, to see the types of what they return.

Functions are tried where they are going to run. Trying a function may start threads, such as
those that OpenMP keeps for PyTorch, and a process forked from one with such threads can
hang. So if functions run in worker processes, a worker tries them, and this process never
calls them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from recmap.errors import DataError, MemoryLimitError, OptionError
from recmap.model.arguments import Workers
from recmap.model.batch import Positions, RowArray
from recmap.model.facts import SourceFacts, unknown_row, with_facts
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource, at_epoch, reseeded
from recmap.pipeline.row_source import count_sound, only_a_few_rows
from recmap.pipeline.transforms.base import Block, Transform, prepared
from recmap.pipeline.transforms.map import note_columns
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.column_message import copied
from recmap.pipeline.workers.pool import Request, Result, UnpicklableError, Work

# How many rows to try; the larger numbers are for filters that keep none of the first rows.
_SAMPLES = (4, 64, 1024)


@dataclass(frozen=True)
class Trial:
    """The outcome of trying transforms on the first rows.

    ``transforms`` now have the types they return, ``schema`` is the schema after the last of
    them, and ``sample`` is what they made of the first rows.
    """

    transforms: tuple[Transform, ...]
    schema: Schema
    sample: Batch
    row_bytes: int = 0


def known_schema(rows: Source, transforms: Sequence[Transform]) -> Schema | None:
    """Return the columns that transforms make; None if functions must be tried to find them."""
    schema = None if rows.facts.calls_user_code else rows.schema
    for transform in transforms:
        schema = schema and transform.output(schema)
    return schema


def try_rows(
    rows: Source, transforms: Sequence[Transform]
) -> tuple[list[Transform], Schema, Block]:
    """Try transforms on the first rows: as many as it takes for a filter to keep one.

    Return the prepared transforms, the schema of what they make, and what they made.
    """
    for size in _SAMPLES:
        first = _first_rows(rows, size)
        prepared, schema, sample = _prepare(first, transforms)
        if len(sample.positions) or len(first.positions) < size or rows.up_to(size + 1) == size:
            return prepared, schema, sample
    raise OptionError(
        f"filters or flat_map left nothing of the first {_SAMPLES[-1]:,} rows, so the verbs "
        "after them cannot be tried; put filter last, or give the types: map(..., columns=...)"
    )


def try_transforms(rows: Source, transforms: Sequence[Transform]) -> Trial:
    """Try transforms on the first rows; what they made of these is not kept."""
    prepared_ones, schema, sample = try_rows(rows, transforms)
    count, size = measure(sample.batch)
    return Trial(tuple(prepared_ones), schema, {}, size // max(1, count))


def _prepare(
    sample: Block, transforms: Sequence[Transform]
) -> tuple[list[Transform], Schema, Block]:
    found: list[Transform] = []
    schema = sample.rows.schema
    for transform in transforms:
        ready, schema = prepared(transform, schema, sample)
        found.append(ready)
        sample = ready.apply(sample)
    return found, schema, sample


def _first_rows(rows: Source, size: int) -> Block:
    """Read the first rows, up to a bad one."""
    return read_block(rows, np.arange(rows.up_to(size), dtype=np.int64))


def read_block(rows: Source, positions: Positions, epoch: int = 0) -> Block:
    """Read rows of an epoch, up to a bad one. Raise if the first row is bad."""
    try:
        return Block(rows.gather(positions), positions, epoch, rows)
    except DataError:
        positions = positions[: count_sound(rows, positions)]
        if not len(positions):
            raise
        return Block(rows.gather(positions), positions, epoch, rows)


def tried(
    find: Callable[[], Trial], transforms: Sequence[Transform], workers: Workers | None
) -> Trial:
    """Return what ``find`` finds out about ``transforms``.

    If the workers are processes, run it in one.
    """
    try:
        made = run_once(workers, partial(_trial, find), Request(0, 0, np.empty(0, np.int64)))
    except UnpicklableError:
        # Only a process that is not forked needs to pickle the functions, and calling them
        # here does it no harm. Starting the workers will show whether they can be pickled.
        made = None
    if made is None:
        return find()
    sample, about = made.batches
    text = about["json"]
    assert isinstance(text, np.ndarray)
    found = json.loads(text.tobytes())
    ready = tuple(map(_with_schemas, transforms, found["transforms"]))
    note_columns(ready)
    return Trial(
        ready,
        Schema(found["schema"]),
        {name: copied(column) for name, column in sample.items()},
        found["row_bytes"],
    )


def run_once(workers: Workers | None, work: Work, request: Request) -> Result | None:
    """Do one piece of work in a process that ends afterwards.

    Return None if the workers are not processes, or if this process is one of them.
    """
    if workers is None or workers.kind != "processes":
        return None
    # Imported late, like everything that concerns processes.
    import multiprocessing

    if multiprocessing.current_process().daemon:
        return None
    with closing(open_pool(work, replace(workers, count=1))) as pool:
        for _, result in pool.run([request], 0):
            return result
    raise OptionError("the pool of workers is closed; open another one")


def _trial(find: Callable[[], Trial], _: Request) -> Result:
    """Return the sample, then everything else that was found."""
    with only_a_few_rows():
        trial = find()
    text = json.dumps(
        {
            "transforms": [_schemas(transform) for transform in trial.transforms],
            "schema": _texts(trial.schema),
            "row_bytes": trial.row_bytes,
        }
    )
    return Result([trial.sample, {"json": np.frombuffer(text.encode(), np.uint8)}])


def _schemas(transform: Any) -> dict[str, dict[str, str]]:
    """Return the schemas in the fields of a transform, which is a dataclass."""
    known = {field.name: getattr(transform, field.name) for field in fields(transform)}
    return {name: _texts(value) for name, value in known.items() if isinstance(value, Schema)}


def _with_schemas(transform: Any, schemas: Mapping[str, Mapping[str, str]]) -> Transform:
    made: Transform = replace(transform, **{name: Schema(each) for name, each in schemas.items()})
    return made


def _texts(schema: Schema) -> dict[str, str]:
    return {name: str(field) for name, field in schema.items()}


class TransformedRows(WrappedSource):
    """Rows by number, with transforms.

    Those that drop rows do not do so here: only the numbers of rows that they keep are asked
    for. ``workers`` are where the functions among them are tried.
    """

    keeps_rows = True

    def __init__(
        self, rows: Source, transforms: Sequence[Transform], workers: Workers | None = None
    ) -> None:
        super().__init__(rows)
        self._transforms, self._workers, self._epoch = list(transforms), workers, 0
        self._largest = 0

    @cached_property
    def _trial(self) -> Trial:
        """The prepared transforms. They are tried on the first rows when first needed."""
        workers = self._workers if self.facts.calls_user_code else None
        find = partial(try_transforms, self._source, self._transforms)
        return tried(find, self._transforms, workers)

    @cached_property
    def schema(self) -> Schema:
        return known_schema(self._source, self._transforms) or self._trial.schema

    @property
    def facts(self) -> SourceFacts:
        facts = self._source.facts
        mine = [function for each in self._transforms for function in each.functions]
        varies = any(each.varies for each in self._transforms)
        return with_facts(
            facts.after_functions() if mine else facts,
            owns_rows=True,
            can_pad=False,
            sized=False,  # row_sizes is a guess here
            functions=(*facts.functions, *mine),
            varies=facts.varies or varies,
            descriptions={},
            largest_row=unknown_row,
        )

    def row_bytes(self) -> int:
        return max(self._source.row_bytes(), self._trial.row_bytes)

    @property
    def _row_size(self) -> int:
        """The bytes of a row in memory: as many as the largest so far, on average of a read."""
        return max(1, self._largest, self._trial.row_bytes)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if limit is not None:
            # What functions make may be larger than what they get.
            stop = min(stop, start + max(1, limit // self._row_size))
        batch = self._source.read(start, stop, limit)
        made = self._transformed(batch, np.arange(start, start + measure(batch)[0]))
        count, size = measure(made)
        if limit is None or size <= limit or not count:
            return made
        if count == 1:
            raise MemoryLimitError(
                f"{self.row_name(start)} takes {size:,} bytes of memory after "
                f"{', '.join(each.name for each in self._transforms)}, but only {limit:,} may "
                "be used for it",
                size=size,
                limit=limit,
            )
        del made, batch
        return self.read(start, start + count // 2, limit)

    def gather(self, rows: RowArray) -> Batch:
        return self._transformed(self._source.gather(rows), rows)

    def row_sizes(self, rows: RowArray) -> RowSizes:
        return np.full(len(rows), self._row_size)

    def _transformed(self, batch: Batch, positions: Positions) -> Batch:
        block = Block(batch, positions, self._epoch, self._source)
        for transform in self._trial.transforms:
            if transform.changes:
                block = transform.apply(block)
        count, size = measure(block.batch)
        self._largest = max(self._largest, size // max(1, count))
        return block.batch

    def at_epoch(self, epoch: int) -> Source:
        if epoch == self._epoch:
            return self
        self._trial  # noqa: B018  # tried once, and not again in every epoch
        other = self._over(at_epoch(self._source, epoch))
        other._epoch = epoch  # noqa: SLF001  # a copy of this one
        return other

    def uncopied(self) -> Source:
        return self  # functions may change what they get

    def reseeded(self, by: int) -> Source:
        transforms = [transform.reseeded(by) for transform in self._transforms]
        return TransformedRows(reseeded(self._source, by), transforms, self._workers)

    # The transforms may need all columns, and make others.
    select = Source.select
    column, read_padded = Source.column, Source.read_padded
