"""``map``: call a function with every row, or with every batch, and a random generator if it asks.

``filter`` calls its functions the same way.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError, OptionError, RecmapError
from recmap.model.casting import exact_array, first_lost
from recmap.model.coerce import Given, as_columns, empty_column, fit, infer_schema, text_column
from recmap.model.field import TEXT, Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.base import Block, Transform

__all__ = [
    "Function",
    "FunctionTransform",
    "MapBatch",
    "MapRows",
    "batch_text",
    "function_failed",
]


class Function:
    """A function that may take a random generator, ``rng``, besides its rows."""

    def __init__(self, fn: Callable[..., Any], seed: int, stage: int) -> None:
        if not callable(fn):
            raise OptionError(f"{fn!r} is not a function")
        self.fn, self.seed, self.stage = fn, seed, stage
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self._random = _takes_rng(fn)

    def calls(self, epoch: int) -> Callable[[Any, int], Any]:
        """Return a function of rows and their position, for one batch in one thread."""
        if not self._random:
            return lambda rows, _: self.fn(rows)
        # Threads cannot share a generator.
        generators = _RowGenerators(self.seed, self.stage, self.name)
        return lambda rows, position: self.fn(rows, rng=generators.at(epoch, position))

    def reseeded(self, by: int) -> Function:
        """Return it as another function of a pipeline, with other random numbers."""
        return Function(self.fn, self.seed, self.stage + by)

    def describe(self) -> list[Any]:
        return [self.name, self.seed, self.stage]


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
    calls_user_code = True

    @property
    def name(self) -> str:
        return f"{self.verb} {self.function.name}"

    def reseeded(self, by: int) -> Self:
        return replace(self, function=self.function.reseeded(by))

    def describe(self) -> list[Any]:
        # States of recmap 0.1 identify these transforms by their class names.
        return [type(self).__name__, *self.function.describe()]


class _RowGenerators:
    """Random generators by epoch and position: each row has its own, on any worker.

    One generator is set to the state of a row and handed out, which is many times cheaper
    than a new one for every row; use it before asking for the next. Philox, which can start
    at any position, gives the state; SFC64 draws the numbers, in half the time.
    """

    def __init__(self, seed: int, stage: int, name: str) -> None:
        entropy = [seed, stage, zlib.crc32(name.encode())]
        key = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        self._places = np.random.Philox(key=key)
        self._place = self._places.state
        self._bits = np.random.SFC64(0)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, epoch: int, position: int) -> np.random.Generator:
        """Return the generator of a row, at its start."""
        self._place["state"]["counter"][:] = (0, 0, position, epoch)
        self._places.state = self._place
        # SFC64's state is three random words, and a counter that starts at one.
        words = self._state["state"]["state"]
        words[:3] = self._places.random_raw(3)
        words[3] = 1
        self._bits.state = self._state
        return self._generator


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
    """Calls the function with every row: a dict of values in, a dict of values out."""

    fields: Schema | None = None

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        if not len(sample.positions):
            found = self.fields or schema
        else:
            rows = [_copied(row) for row in self._made(sample)]
            found = _sample_schema(rows, schema, self.fields or Schema({}))
        return replace(self, fields=found), found

    def apply(self, block: Block) -> Block:
        assert self.fields is not None
        count = len(block.positions)
        columns = {name: _new_column(name, field, count) for name, field in self.fields.items()}
        for i, row in enumerate(self._made(block)):
            for name, column in columns.items():
                # Copy at once: the function may use the same array for the next row.
                try:
                    column.put(i, row[name])
                except KeyError:
                    raise MapError(
                        f"{block.origin(i)}: no {name!r} came out of {self.name}; {_REMEDY}"
                    ) from None
                except MapError as e:
                    raise MapError(f"{block.origin(i)}: {e}") from None
            if len(row) != len(columns):
                extra = sorted(set(row) - set(columns))
                raise MapError(f"{block.origin(i)}: {self.name} added {extra[0]!r}; {_REMEDY}")
        try:
            return replace(block, batch={name: c.finish() for name, c in columns.items()})
        except RecmapError as e:
            raise MapError(f"{batch_text(block)}: {self.name}: {e}") from e

    def _made(self, block: Block) -> Iterator[Mapping[str, Any]]:
        call = self.function.calls(block.epoch)
        names, columns = list(block.batch), list(block.batch.values())
        for i, position in enumerate(block.positions.tolist()):
            row = dict(zip(names, [column[i] for column in columns], strict=True))
            try:
                result = call(row, position)
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

    With ``rows_stay``, the function must not change the number of rows.
    """

    fields: Schema | None = None
    rows_stay: bool = True
    # The columns of text, if ``fields`` does not give them. Their shapes are not enforced.
    texts: Schema | None = None

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        if not len(sample.positions):
            return self, self.fields or schema
        made = self._made(sample)
        given = self.fields or Schema({})
        found = Schema({**infer_schema(made), **given})
        texts = {
            n: Field(TEXT, field.shape)
            for n, field in found.items()
            if n not in given and _stays_text(made[n], schema.get(n))
        }
        found = Schema({**found, **texts})
        if not self.rows_stay:
            # Other batches may have other shapes, so these are not enforced.
            return replace(self, texts=Schema(texts)), found
        kept = {name: _widened(field, schema.get(name)) for name, field in found.items()}
        return replace(self, fields=Schema(kept)), Schema(kept)

    def apply(self, block: Block) -> Block:
        if not len(block.positions) and self.fields is not None:
            empty = {name: empty_column(field) for name, field in self.fields.items()}
            return replace(block, batch=empty)
        given = self._made(block)
        if self.fields is None:
            columns: Batch = {name: each.column for name, each in given.items()}
            columns |= {name: text_column(name, columns[name]) for name in self.texts or ()}
        else:
            columns, _ = fit(given, self.fields)
        counts = {len(column) for column in columns.values()}
        if self.rows_stay and columns and counts != {len(block.positions)}:
            raise MapError(
                f"{batch_text(block)}: {self.name} made columns of {_listed(counts)} rows of "
                f"{len(block.positions):,}; use filter to leave rows out"
            )
        return replace(block, batch=columns)

    def _made(self, block: Block) -> dict[str, Given]:
        call = self.function.calls(block.epoch)
        try:
            result = call(block.batch, int(block.positions[0]) if len(block.positions) else 0)
        except RecmapError:
            raise
        except Exception as e:
            raise function_failed(self.name, batch_text(block), e) from e
        if not isinstance(result, Mapping):
            raise MapError(
                f"{batch_text(block)}: {self.name} returned {type(result).__name__}; return a dict "
                "of columns"
            )
        return as_columns(result)


_REMEDY = "all rows must have the same columns"


def _listed(counts: set[int]) -> str:
    return " and ".join(f"{count:,}" for count in sorted(counts))


def _copied(row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: np.array(v) if isinstance(v, np.ndarray) else v for n, v in row.items()}


def _sample_schema(rows: Sequence[Mapping[str, Any]], before: Schema, given: Schema) -> Schema:
    """Return the types of the first rows, except where the user gave types.

    A column that was ragged before stays ragged, even if the first rows have equal lengths, and
    one that was text stays text if its values are ``str``.
    """
    unknown = sorted(set(given) - set(rows[0]))
    if unknown:
        raise MapError(f"fields names {unknown[0]!r}, but what came out has {', '.join(rows[0])}")
    seen = {name: [row[name] for row in rows if name in row] for name in rows[0]}
    made = as_columns({name: seen[name] for name in seen if name not in given})
    found = dict(infer_schema(made))
    for name, each in made.items():
        if _stays_text(each, before.get(name)):
            found[name] = Field(TEXT, found[name].shape)
    return Schema({n: given[n] if n in given else _widened(found[n], before.get(n)) for n in seen})


def _stays_text(made: Given, before: Field | None) -> bool:
    """Return whether a function made ``str`` of a column of text. Other ``str`` become bytes."""
    return made.text and before is not None and before.is_text


def _widened(field: Field, before: Field | None) -> Field:
    if before is None or not before.ragged or field.ragged >= before.ragged:
        return field
    if field.dtype != before.dtype or len(field.shape) != len(before.shape):
        return field
    return Field(field.dtype, before.shape)


class ColumnBuilder(Protocol):
    """A column that is built value by value."""

    def put(self, row: int, value: Any) -> None:
        """Copy the value of the next row."""
        ...

    def finish(self) -> Column:
        """Return the column after all rows have been put."""
        ...


def _new_column(name: str, field: Field, rows: int) -> ColumnBuilder:
    """Return a builder for a column of ``rows`` rows."""
    if field.ragged or field.is_bytes:
        return _ListBuilder(name, field)
    return _DenseBuilder(name, field, rows)


class _DenseBuilder:
    """Values of one shape."""

    def __init__(self, name: str, field: Field, rows: int) -> None:
        self._name, self._field, self._inner = name, field, field.inner
        self._out: npt.NDArray[Any] = np.empty((rows, *field.inner), field.dtype)

    def put(self, row: int, value: Any) -> None:
        array = _exact(self._name, value)
        if array.shape != self._inner:
            field = self._field
            ragged = Field(field.dtype, (None, *field.inner[1:]))
            raise MapError(
                f"{self._name!r} has shape {list(array.shape)}, not {list(field.inner)}; if its "
                f'length differs from row to row, say so: fields={{"{self._name}": "{ragged}"}}'
            )
        _check(self._name, array, self._out.dtype)
        self._out[row] = array

    def finish(self) -> Column:
        return self._out


class _ListBuilder:
    """Values of different lengths, or strings."""

    def __init__(self, name: str, field: Field) -> None:
        self._name, self._field = name, field
        self._values: list[Any] = []
        # The common case, which does not need to inspect nested lists.
        self._simple = field.ragged == 1 and len(field.shape) == 1 and not field.is_bytes

    def put(self, row: int, value: Any) -> None:
        del row  # rows come in order
        if self._simple:
            array = _exact(self._name, value)
            if array.size:
                _check(self._name, array, self._field.dtype)
            value = array.astype(self._field.dtype)
        elif isinstance(value, np.ndarray):
            value = np.array(value)
        self._values.append(value)

    def finish(self) -> Column:
        if not self._values:
            return empty_column(self._field)
        if self._simple:
            given = Given(Ragged.from_rows(self._values), exact=False)
        else:
            given = as_columns({self._name: self._values})[self._name]
        column, _ = fit({self._name: given}, Schema({self._name: self._field}))
        return column[self._name]


def _check(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Refuse values that a column cannot hold; floats may lose digits."""
    if array.dtype == dtype:
        return
    lost = first_lost(array, dtype, rounds=True)
    if lost is None and array.dtype.kind == "c" and dtype.kind != "c":
        lost = 0, array.reshape(-1)[0]
    if lost is not None:
        raise MapError(
            f"{name!r} is {array.dtype}, which does not fit {dtype}: {lost[1]!r}; cast it in the "
            "function, or say what it is: fields={...}"
        )


def _exact(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return exact_array(value)
    except (TypeError, ValueError) as e:
        raise MapError(f"{name!r}: {e}") from None
