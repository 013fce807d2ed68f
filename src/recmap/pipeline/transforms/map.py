"""A user's function on rows or on batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError, OptionError, RecmapError
from recmap.model.casting import exact_array
from recmap.model.coerce import Given, as_columns, empty_column, fit, infer_schema
from recmap.model.schema import Batch, Field, Schema
from recmap.pipeline.transforms.base import Rowset, Step
from recmap.pipeline.transforms.column_builder import new_column
from recmap.pipeline.transforms.row_random import Chance

__all__ = ["Filter", "Function", "MapBatch", "MapRows"]


class Function:
    """A function that may take a random generator, ``rng``, beside its rows."""

    def __init__(self, fn: Callable[..., Any], seed: int, stage: int) -> None:
        if not callable(fn):
            raise OptionError(f"{fn!r} is not a function")
        self.fn, self.seed, self.stage = fn, seed, stage
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self._random = _takes_rng(fn)

    def calls(self, epoch: int) -> Callable[[Any, int], Any]:
        """The function of rows and their position, for one batch in one thread."""
        if not self._random:
            return lambda rows, _: self.fn(rows)
        # Of this thread alone: two cannot use one generator.
        chance = Chance(self.seed, self.stage, self.name)
        return lambda rows, position: self.fn(rows, rng=chance.at(epoch, position))

    def renumbered(self, by: int) -> Function:
        """The same as another function of a chain, which has other chances."""
        return Function(self.fn, self.seed, self.stage + by)

    def describe(self) -> list[Any]:
        return [self.name, self.seed, self.stage]


def _takes_rng(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # of a builtin
        return False
    return "rng" in parameters


@dataclass(frozen=True)
class _OfUser:
    """A step that calls a function of the user's."""

    function: Function
    verb: ClassVar[str] = "map"
    drops: ClassVar[bool] = False
    ours: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"{self.verb} {self.function.name}"

    def renumbered(self, by: int) -> Self:
        return replace(self, function=self.function.renumbered(by))

    def describe(self) -> list[Any]:
        return [type(self).__name__, *self.function.describe()]


@dataclass(frozen=True)
class MapRows(_OfUser):
    """The function of every row: a dict of values in, a dict of values out."""

    fields: Schema | None = None

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        if not len(sample.positions):
            found = self.fields or schema
        else:
            rows = [_copied(row) for row in self._made(sample)]
            found = _sample_schema(rows, schema, self.fields or Schema({}))
        return replace(self, fields=found), found

    def apply(self, rows: Rowset) -> Rowset:
        assert self.fields is not None
        count = len(rows.positions)
        columns = {name: new_column(name, field, count) for name, field in self.fields.items()}
        for i, row in enumerate(self._made(rows)):
            for name, column in columns.items():
                # At once: the function may use the same array for the next row.
                try:
                    column.put(i, row[name])
                except KeyError:
                    raise MapError(
                        f"{rows.whence(i)}: no {name!r} came out of {self.name}; {_REMEDY}"
                    ) from None
                except MapError as e:
                    raise MapError(f"{rows.whence(i)}: {e}") from None
            if len(row) != len(columns):
                extra = sorted(set(row) - set(columns))
                raise MapError(f"{rows.whence(i)}: {self.name} added {extra[0]!r}; {_REMEDY}")
        try:
            return replace(rows, batch={name: c.finish() for name, c in columns.items()})
        except RecmapError as e:
            raise MapError(f"{_stretch(rows)}: {self.name}: {e}") from e

    def _made(self, rows: Rowset) -> Iterator[Mapping[str, Any]]:
        call = self.function.calls(rows.epoch)
        names, columns = list(rows.batch), list(rows.batch.values())
        for i, position in enumerate(rows.positions.tolist()):
            row = dict(zip(names, [column[i] for column in columns], strict=True))
            try:
                result = call(row, position)
            except RecmapError:
                raise
            except Exception as e:
                raise _failed(self.name, rows.whence(i), e) from e
            if not isinstance(result, Mapping):
                raise MapError(
                    f"{rows.whence(i)}: {self.name} returned {type(result).__name__}; return a "
                    "dict of the values of the row"
                )
            yield result


@dataclass(frozen=True)
class MapBatch(_OfUser):
    """The function of a whole batch: a dict of columns in, a dict of columns out. With
    ``rows_stay`` there must be as many rows after it.
    """

    fields: Schema | None = None
    rows_stay: bool = True

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        if not len(sample.positions):
            return self, self.fields or schema
        found = Schema({**infer_schema(self._made(sample)), **(self.fields or {})})
        if not self.rows_stay:
            # Of a batch; another may be longer, so that this is not held to.
            return self, found
        kept = {name: _widened(field, schema.get(name)) for name, field in found.items()}
        return replace(self, fields=Schema(kept)), Schema(kept)

    def apply(self, rows: Rowset) -> Rowset:
        if not len(rows.positions) and self.fields is not None:
            empty = {name: empty_column(field) for name, field in self.fields.items()}
            return replace(rows, batch=empty)
        given = self._made(rows)
        if self.fields is None:
            columns: Batch = {name: each.column for name, each in given.items()}
        else:
            columns, _ = fit(given, self.fields)
        counts = {len(column) for column in columns.values()}
        if self.rows_stay and columns and counts != {len(rows.positions)}:
            raise MapError(
                f"{_stretch(rows)}: {self.name} made columns of {_listed(counts)} rows of "
                f"{len(rows.positions):,}; use filter to leave rows out"
            )
        return replace(rows, batch=columns)

    def _made(self, rows: Rowset) -> dict[str, Given]:
        call = self.function.calls(rows.epoch)
        try:
            result = call(rows.batch, int(rows.positions[0]) if len(rows.positions) else 0)
        except RecmapError:
            raise
        except Exception as e:
            raise _failed(self.name, _stretch(rows), e) from e
        if not isinstance(result, Mapping):
            raise MapError(
                f"{_stretch(rows)}: {self.name} returned {type(result).__name__}; return a dict "
                "of columns"
            )
        return as_columns(result)


@dataclass(frozen=True)
class Filter(_OfUser):
    """Leaves out the rows for which the function is false."""

    batched: bool
    verb = "filter"
    drops = True

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        return self, schema

    def apply(self, rows: Rowset) -> Rowset:
        call = self.function.calls(rows.epoch)
        if self.batched:
            return rows.kept(self._mask(call, rows))
        columns = rows.batch.items()
        mask = np.empty(len(rows.positions), bool)
        for i, position in enumerate(rows.positions.tolist()):
            try:
                mask[i] = bool(call({name: column[i] for name, column in columns}, position))
            except Exception as e:
                raise _failed(self.name, rows.whence(i), e) from e
        return rows.kept(mask)

    def _mask(self, call: Callable[[Any, int], Any], rows: Rowset) -> npt.NDArray[np.bool_]:
        first = int(rows.positions[0]) if len(rows.positions) else 0
        try:
            mask = exact_array(call(rows.batch, first))
        except Exception as e:
            raise _failed(self.name, _stretch(rows), e) from e
        if mask.dtype != bool or mask.shape != rows.positions.shape:
            raise MapError(
                f"{_stretch(rows)}: {self.name} returned {mask.dtype}{list(mask.shape)}; return "
                f"a mask: one bool for each of the {len(rows.positions):,} rows"
            )
        return mask


_REMEDY = "all rows must have the same columns"


def _failed(name: str, where: str, error: Exception) -> MapError:
    return MapError(
        f"{where}: {name} failed: {type(error).__name__}: {error}", cause_type=type(error).__name__
    )


def _stretch(rows: Rowset) -> str:
    if not len(rows.positions):
        return "no rows"
    return f"a batch of {len(rows.positions):,} rows from {rows.whence(0)} on"


def _listed(counts: set[int]) -> str:
    return " and ".join(f"{count:,}" for count in sorted(counts))


def _copied(row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: np.array(v) if isinstance(v, np.ndarray) else v for n, v in row.items()}


def _sample_schema(rows: Sequence[Mapping[str, Any]], before: Schema, said: Schema) -> Schema:
    """What the first rows show, but for what the user said. A column that was ragged
    before stays so, though the first rows may be of equal lengths.
    """
    unknown = sorted(set(said) - set(rows[0]))
    if unknown:
        raise MapError(f"fields names {unknown[0]!r}, but what came out has {', '.join(rows[0])}")
    seen = {name: [row[name] for row in rows if name in row] for name in rows[0]}
    found = infer_schema(as_columns({name: seen[name] for name in seen if name not in said}))
    return Schema({n: said[n] if n in said else _widened(found[n], before.get(n)) for n in seen})


def _widened(field: Field, before: Field | None) -> Field:
    if before is None or not before.ragged or field.ragged >= before.ragged:
        return field
    if field.dtype != before.dtype or len(field.shape) != len(before.shape):
        return field
    return Field(field.dtype, before.shape)
