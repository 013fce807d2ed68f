"""``map``: call a function with every row, or with every batch, and a random generator if it asks.

``filter`` calls its functions the same way.
"""

from __future__ import annotations

import inspect
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, ClassVar, Self

import numpy as np

from recmap.errors import ColumnError, MapError, OptionError, RecmapError
from recmap.model.coerce import Given, fit, infer_schema
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.returned_values import (
    as_texts,
    is_text,
    keeps_arrays,
    keeps_result,
    kept,
    lost_in_column,
    misfit,
    new_column,
    own_columns,
    sample_schema,
    strings_misfit,
    widened,
)


def _not_a_function(value: Any) -> str:
    hint = "where takes conditions" if isinstance(value, str) else "select takes numbers and masks"
    return f"{reprlib.repr(value)} is not a function; {hint}"


class _Turns:
    """Lets one thread at a time call a function, if that is needed."""

    def __init__(self, needed: bool = False) -> None:
        self.needed, self.lock = needed, Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Turns, (self.needed,)


class Function:
    """A function that may take a random generator, ``rng``, besides its rows."""

    def __init__(self, fn: Callable[..., Any], seed: int, stage: int) -> None:
        if not callable(fn):
            raise OptionError(_not_a_function(fn))
        self.fn, self.seed, self.stage = fn, seed, stage
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        #: Whether it draws random numbers, which are new in every epoch.
        self.is_random = _takes_rng(fn)
        #: The columns that it made of the first rows, after it has been tried.
        self.made: Schema | None = None
        self._turns = _Turns()

    @property
    def keeps_arrays(self) -> bool:
        """Whether it keeps arrays that it returns, and may write into them again."""
        return self._turns.needed

    @keeps_arrays.setter
    def keeps_arrays(self, value: bool) -> None:
        self._turns.needed = value

    def turn(self) -> AbstractContextManager[object]:
        """Return what keeps other threads from calling it until its arrays have been copied."""
        return self._turns.lock if self._turns.needed else nullcontext()

    def take_turns_with(self, other: Function) -> None:
        """Never be called while ``other``, which calls the same function of the user, is."""
        other.keeps_arrays |= self.keeps_arrays
        self._turns = other._turns

    def calls(self, epoch: int) -> Callable[[Any, int], Any]:
        """Return a function of rows and their position, for one batch in one thread."""
        if not self.is_random:
            return lambda rows, _: self.fn(rows)
        # Threads cannot share a generator.
        generator_at = _row_generators(self.seed, self.stage, self.name)
        return lambda rows, position: self.fn(rows, rng=generator_at(epoch, position))

    def reseeded(self, by: int) -> Function:
        """Return it as another function of a pipeline, with other random numbers."""
        return Function(self.fn, self.seed, self.stage + by)


def take_turns(functions: Sequence[Function]) -> None:
    """Let those that call the same function of the user, which may have one buffer, take turns."""
    first: dict[int, Function] = {}
    for each in functions:
        # The methods of an object share what it holds. Each access makes a new one.
        owner = getattr(each.fn, "__self__", each.fn)
        if (other := first.setdefault(id(owner), each)) is not each:
            each.take_turns_with(other)


def _takes_rng(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # builtins may have no signature
        return False
    return "rng" in parameters


@dataclass(frozen=True)
class FunctionTransform(Transform):
    """A transform that calls a user's function."""

    function: Function
    verb: ClassVar[str] = "map"

    @property
    def functions(self) -> tuple[Function]:
        return (self.function,)

    @property
    def name(self) -> str:
        return f"{self.verb} {self.function.name}"

    @property
    def varies(self) -> bool:
        return self.function.is_random

    def output(self, schema: Schema) -> Schema | None:
        return None if self.changes else schema

    def seen(self, schema: Schema | None) -> Schema | None:
        return self.function.made if self.changes else schema

    def reseeded(self, by: int) -> Self:
        return replace(self, function=self.function.reseeded(by))


def note_columns(transforms: Iterable[Transform]) -> None:
    """Let functions that another process has tried know the columns that they made."""
    for each in transforms:
        if isinstance(each, MapRows | MapBatch):
            each.function.made = each.found


def _row_generators(seed: int, stage: int, name: str) -> Callable[[int, int], np.random.Generator]:
    """Return a function of epoch and position: each row has its own generator, on any worker.

    One generator is set to the state of a row and handed out, which is many times cheaper
    than a new one for every row; use it before asking for the next. Philox, which can start
    at any position, gives the state; SFC64 draws the numbers, in half the time.
    """
    entropy = [seed, stage, zlib.crc32(name.encode())]
    places = np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))
    place, bits = places.state, np.random.SFC64(0)
    state, generator = bits.state, np.random.Generator(bits)

    def at(epoch: int, position: int) -> np.random.Generator:
        place["state"]["counter"][:] = (0, 0, position, epoch)
        places.state = place
        # SFC64's state is three random words, and a counter that starts at one.
        words = state["state"]["state"]
        words[:3] = places.random_raw(3)
        words[3] = 1
        bits.state = state
        return generator

    return at


def function_failed(name: str, where: str, error: Exception) -> MapError:
    """Return the error to raise when a user's function has raised one."""
    return MapError(
        f"{where}: {name} failed: {type(error).__name__}: {error}", cause_type=type(error).__name__
    )


def batch_text(block: Block) -> str:
    """Say where a batch comes from, for error messages."""
    if not len(block.positions):
        return "no rows"
    return f"a batch of {len(block.positions):,} rows from {block.origin(0)} on"


@dataclass(frozen=True)
class MapRows(FunctionTransform):
    """Calls the function with every row: a dict of values in, a dict of values out.

    ``fields`` are the types that the user gave, ``found`` those of all columns.
    """

    fields: Schema | None = None
    found: Schema | None = None

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        if not len(sample.positions):
            found = self.fields or schema
        else:
            rows = []
            for row in self._made(sample):
                self.function.keeps_arrays |= keeps_arrays(row, sample.batch)
                self.function.keeps_arrays |= keeps_result(row, held=2)
                rows.append(kept(dict(row)))
            found = sample_schema(rows, schema, self.fields or Schema({}))
            self.function.made = found
        return replace(self, found=found), found

    def apply(self, block: Block) -> Block:
        with self.function.turn():
            return self._apply(block)

    def _apply(self, block: Block) -> Block:
        return replace(block, batch=self._columns(self._made(block), block))

    def _columns(self, rows: Iterable[Mapping[str, Any]], block: Block) -> Batch:
        """Return the columns of rows, one for each position of a block."""
        assert self.found is not None
        count, given = len(block.positions), self.fields or Schema({})
        columns = {
            name: new_column(name, field, count, given=name in given)
            for name, field in self.found.items()
        }
        for i, row in enumerate(rows):
            for name, column in columns.items():
                # Copy at once: the function may use the same array for the next row.
                try:
                    column.put(i, row[name])
                except KeyError:
                    raise MapError(
                        f"{block.origin(i)}: {self.name} returned no {name!r}; {_REMEDY}"
                    ) from None
                except MapError as e:
                    raise MapError(f"{block.origin(i)}: {e}") from None
            if len(row) != len(columns):
                extra = sorted(set(row) - set(columns))
                raise MapError(f"{block.origin(i)}: {self.name} added {extra[0]!r}; {_REMEDY}")
        try:
            return {name: column.finish() for name, column in columns.items()}
        except RecmapError as e:
            raise MapError(f"{batch_text(block)}: {self.name}: {e}") from e

    def _made(self, block: Block) -> Iterator[Mapping[str, Any]]:
        call = self.function.calls(block.epoch)
        names, columns = list(block.batch), list(block.batch.values())
        for i, position in enumerate(block.positions.tolist()):
            try:
                # No variable for the row: its values are the function's to keep or to return.
                result = call(
                    dict(zip(names, [column[i] for column in columns], strict=True)), position
                )
            except RecmapError:
                raise
            except Exception as e:
                raise function_failed(self.name, block.origin(i), e) from e
            if not isinstance(result, Mapping):
                raise MapError(
                    f"{block.origin(i)}: {self.name} returned {type(result).__name__}; return a "
                    "dict of the values of the row"
                )
            yield result


@dataclass(frozen=True)
class MapBatch(FunctionTransform):
    """Calls the function with a batch: a dict of columns in, a dict of columns out.

    ``fields`` are the types that the user gave, ``found`` those of all columns. With
    ``rows_stay``, the function must not change the number of rows. Without, other batches may
    have other columns and shapes, and only the dtypes in ``found`` are enforced.
    """

    fields: Schema | None = None
    rows_stay: bool = True
    found: Schema | None = None

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        if not len(sample.positions):
            return self, self.fields or schema
        found = Schema({**infer_schema(self._made(sample)), **(self.fields or {})})
        if self.rows_stay:
            found = Schema({name: widened(f, schema.get(name)) for name, f in found.items()})
        self.function.made = found
        return replace(self, found=found), found

    def apply(self, block: Block) -> Block:
        types = self.found or self.fields
        if not len(block.positions) and types is not None:
            empty = {name: empty_column(field) for name, field in types.items()}
            return replace(block, batch=empty)
        with self.function.turn():
            columns = self._owned(block)
        counts = {len(column) for column in columns.values()}
        if self.rows_stay and columns and counts != {len(block.positions)}:
            raise MapError(
                f"{batch_text(block)}: {self.name} returned columns of {_listed(counts)} rows, "
                f"not {len(block.positions):,}; use filter to leave rows out"
            )
        return replace(block, batch=columns)

    def _owned(self, block: Block) -> Batch:
        try:
            columns, kept_arrays = own_columns(self._columns(block), block.batch)
        except ColumnError as e:
            raise MapError(f"{batch_text(block)}: {self.name}: {e}") from e
        if kept_arrays:  # seen in the trial at the latest, before several threads call it
            self.function.keeps_arrays = True
        return columns

    def _columns(self, block: Block) -> Batch:
        made, found = self._made(block), self.found or self.fields or Schema({})
        for name in made.keys() & found.keys() - (self.fields or {}).keys():
            self._refuse_changed(block, name, made[name].column, found[name])
            made[name] = replace(made[name], exact=False)
        if self.rows_stay and self.found is not None:
            return fit(made, found)[0]
        return {name: self._fitted(name, each, found.get(name)) for name, each in made.items()}

    def _fitted(self, name: str, made: Given, field: Field | None) -> Column:
        """Return a column of the type that the user gave, or the dtype of the first batch."""
        if field is None:
            return made.column
        if name not in (self.fields or {}):
            field = Field(field.dtype, infer_schema({name: made})[name].shape)
        return fit({name: made}, Schema({name: field}))[0][name]

    def _refuse_changed(self, block: Block, name: str, column: Column, field: Field) -> None:
        """Refuse a column of another type than the first batch had, unless it holds the same."""
        row, wrong = 0, None
        if not field.is_bytes:
            lost = lost_in_column(column, field.dtype)
            if lost is not None:
                row, wrong = lost[0], misfit(name, column.dtype, field, lost[1])
        elif isinstance(column, Ragged):
            wrong = strings_misfit(name, {is_text(column)}, field)
        if wrong is not None:
            where = block.origin(row) if row < len(block.positions) else batch_text(block)
            raise MapError(f"{where}: {wrong}")

    def _made(self, block: Block) -> dict[str, Given]:
        call = self.function.calls(block.epoch)
        try:
            # The function may change the dict that it gets.
            batch = dict(block.batch)
            result = call(batch, int(block.positions[0]) if len(block.positions) else 0)
        except RecmapError:
            raise
        except Exception as e:
            raise function_failed(self.name, batch_text(block), e) from e
        if not isinstance(result, Mapping):
            raise MapError(
                f"{batch_text(block)}: {self.name} returned {type(result).__name__}; return a dict "
                "of columns"
            )
        del batch  # which may be the result
        if not self.function.keeps_arrays and keeps_result(result):
            self.function.keeps_arrays = True
        return as_texts(result)


_REMEDY = "all rows must have the same columns"


def _listed(counts: set[int]) -> str:
    return " and ".join(f"{count:,}" for count in sorted(counts))
