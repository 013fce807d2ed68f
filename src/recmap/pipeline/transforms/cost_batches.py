"""``batch(cost=..., limit=...)``: batches that differ in rows, but not in the work they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MapError, OptionError, OptionTypeError
from recmap.model.arguments import as_whole
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.batch import (
    BatchCuts,
    Group,
    Grouper,
    Grouping,
    GroupInput,
    check_one_size,
)
from recmap.pipeline.transforms.bucket import Boundaries, Buckets

Costs: TypeAlias = npt.NDArray[np.float64]
CostLike: TypeAlias = str | Callable[[Mapping[str, npt.NDArray[Any]]], npt.ArrayLike]

# Sums up to here are exact in float64.
_MOST_COST = 2.0**53
_MOST_ROWS = 2**62


@dataclass(frozen=True)
class CostLimits:
    """What a batch may cost: the user's arguments, checked."""

    cost: CostLike
    limit: float
    padded: bool
    most_rows: int = _MOST_ROWS

    @classmethod
    def checked(cls, cost: Any, limit: Any, padded: bool, size: Any, drop_last: bool) -> CostLimits:
        if not isinstance(cost, str) and not callable(cost):
            raise OptionTypeError(
                f"batch(cost={cost!r}): give the name of a column, or a function of lengths"
            )
        number = isinstance(limit, int | float | np.integer | np.floating)
        if not number or isinstance(limit, bool) or not 0 < limit <= _MOST_COST:
            raise OptionError(
                f"batch(cost=..., limit={limit!r}): give the most that a batch may cost, such as "
                "limit=32_000"
            )
        if drop_last:
            raise OptionError(
                "batch(cost=..., drop_last=True): batches by cost have no full size, so none is "
                'incomplete; shard(..., even="drop") leaves out the last round of all ranks'
            )
        check_one_size(size)
        most = _MOST_ROWS if size is None else as_whole("size", size, 1, _MOST_ROWS)
        return cls(cost, float(limit), padded, most)

    def check(self, schema: Schema) -> None:
        """Refuse a column that has no cost."""
        if not isinstance(self.cost, str):
            return
        field = schema[self.cost]
        sized = field.ragged or field.is_bytes or (not field.shape and field.dtype.kind in "iuf")
        if field.has_nulls or not sized:
            raise OptionError(
                f"batch(cost={self.cost!r}): the column is {field}; give one of lists, of text or "
                "of numbers, without nulls"
            )

    def of(self, batch: Batch) -> Costs:
        """Return what each row costs."""
        if isinstance(self.cost, str):
            return np.asarray(_sizes(batch[self.cost]), np.float64)
        count = len(next(iter(batch.values()), ()))
        try:
            made = np.asarray(self.cost(LengthsOfRows(batch)))
        except Exception as e:
            raise MapError(
                f"batch(cost=...): {_name(self.cost)} raised {type(e).__name__}: {e}",
                cause_type=type(e).__name__,
            ) from e
        if made.shape != (count,) or made.dtype.kind not in "iuf":
            raise MapError(
                f"batch(cost=...): {_name(self.cost)} must return one number for each of the "
                f"{count:,} rows, but returned {made.dtype} of shape {made.shape}"
            )
        return made.astype(np.float64)

    def columns(self, sample: Batch) -> list[str]:
        """Return the columns that the cost depends on."""
        if isinstance(self.cost, str):
            return [self.cost]
        lengths = LengthsOfRows(sample)
        replace(self, cost=lambda _: self.cost(lengths)).of(sample)  # type: ignore[operator]
        return [name for name in sample if name in lengths.seen] or list(sample)[:1]


class LengthsOfRows(Mapping[str, Any]):
    """For a function of costs: the lengths of each column, or its values if it holds numbers."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        self.seen.add(name)
        return _sizes(self._batch[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch)

    def __len__(self) -> int:
        return len(self._batch)


def _sizes(column: Column) -> npt.NDArray[Any]:
    return column.lengths if isinstance(column, Ragged) else column


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__name__))


@dataclass(frozen=True)
class MeasureCosts(Transform):
    """Replaces rows by what they cost and, with ``buckets``, the bucket of each."""

    limits: CostLimits
    buckets: Buckets | None

    @property
    def name(self) -> str:
        return "cost"

    def output(self, schema: Schema) -> Schema:
        self.limits.check(schema)
        if self.buckets is not None:
            self.buckets.schema(schema)
        bucket = {} if self.buckets is None else {"bucket": Field("int64")}
        return Schema({"cost": Field("float64"), **bucket})

    def apply(self, block: Block) -> Block:
        costs = self.limits.of(block.batch)
        wrong = ~(costs >= 0) | (costs > self.limits.limit)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise unfit(block.origin(row), float(costs[row]), self.limits)
        made: Batch = {"cost": costs}
        if self.buckets is not None:
            made["bucket"] = self.buckets.bucket_of(block.batch).astype(np.int64)
        return replace(block, batch=made)


def unfit(row: str, cost: float, limits: CostLimits) -> DataError:
    """Return the error of a row that no batch can hold."""
    field = limits.cost if isinstance(limits.cost, str) else None
    if not cost >= 0:
        return DataError(f"{row}: costs {cost}; a cost is a number from 0 on", field=field)
    return DataError(
        f"{row}: costs {cost:,.15g}, and a batch may cost {limits.limit:,.15g}; raise limit=, or "
        "leave out or cut such rows first",
        field=field,
    )


@dataclass(frozen=True)
class CostBatches(Grouping):
    """Batches of rows that together cost at most so much.

    The cuts are those of all ranks together. A block that is read is a batch, so what other
    groupings count in rows is counted in batches here.
    """

    cuts: BatchCuts
    plain = True
    block = 1
    rows_per_group = 1
    full_size = None

    @property
    def by_cost(self) -> BatchCuts:
        return self.cuts

    def start(self) -> Grouper:
        return _AsTheyCome()

    def prepare(self) -> None:
        self.cuts.prepare()


class _AsTheyCome(Grouper):
    def add(self, rows: GroupInput) -> Iterator[Group]:
        if len(rows.numbers):
            yield Group(rows.batch, rows.numbers, int(rows.numbers[-1]) + 1)


def cost_buckets(bucket: Boundaries | None) -> Buckets | None:
    """Return the buckets that a batch by cost is made of."""
    return None if bucket is None else bucket.batched(1, drop_last=False)


def compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in the smallest type that holds them; most lengths take two bytes."""
    for kind in (np.uint16, np.uint32):
        small = values.astype(kind)
        if (small == values).all():
            return small
    return values
