"""``batch(cost=..., limit=...)``: batches that differ in rows, but not in the work they are.

All ranks compute the same cuts, from one pass over what rows cost. Costs are kept: two bytes for
most rows. If rows are only shuffled, they are the same in every epoch, in another order, and
are read once, in the order of the files. The cuts of one epoch are remembered: 8 bytes a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MapError, OptionError, OptionTypeError
from recmap.machine.mapped import guarded
from recmap.model.arguments import as_whole
from recmap.model.batch import RowArray
from recmap.model.field import Field
from recmap.model.order import Order
from recmap.model.ordered_rows import unshuffled
from recmap.model.ragged import Column, Ragged
from recmap.model.remembered import Remembered
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, at_epoch, row_name
from recmap.native import _core
from recmap.pipeline.feed import PipelineFeed
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.batch import (
    Batches,
    EpochCuts,
    Grouper,
    Grouping,
    check_one_size,
)
from recmap.pipeline.transforms.bucket import Buckets, name_of
from recmap.pipeline.transforms.select import Slice

Costs: TypeAlias = npt.NDArray[np.float64]
CostLike: TypeAlias = str | Callable[[Mapping[str, npt.NDArray[Any]]], npt.ArrayLike]
# What rows cost, and the bucket of each, if there are buckets.
_RowCosts: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any] | None]

# Sums up to here are exact in float64.
_MOST_COST = 2.0**53
_MOST_ROWS = 2**62
# Rows and bytes to read at once, and rows to cut at once.
_READ_ROWS, _READ_BYTES, _CUT_ROWS = 1 << 14, 16 << 20, 1 << 20
_SAMPLE = 4


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

    def of(self, batch: Batch, lengths: LengthsOfRows | None = None) -> Costs:
        """Return what each row costs."""
        if isinstance(self.cost, str):
            return np.asarray(_sizes(batch[self.cost]), np.float64)
        count = len(next(iter(batch.values()), ()))
        try:
            made = np.asarray(self.cost(LengthsOfRows(batch) if lengths is None else lengths))
        except Exception as e:
            raise MapError(
                f"batch(cost=...): {name_of(self.cost)} raised {type(e).__name__}: {e}",
                cause_type=type(e).__name__,
            ) from e
        if made.shape != (count,) or made.dtype.kind not in "iuf":
            raise MapError(
                f"batch(cost=...): {name_of(self.cost)} must return one number for each of the "
                f"{count:,} rows, but returned {made.dtype} of shape {made.shape}"
            )
        return made.astype(np.float64)

    def columns(self, sample: Batch) -> list[str]:
        """Return the columns that the cost depends on."""
        if isinstance(self.cost, str):
            return [self.cost]
        lengths = LengthsOfRows(sample)
        self.of(sample, lengths)
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


@dataclass(frozen=True)
class MeasureCosts(Transform):
    """Replaces rows by what they cost and, with ``buckets``, the bucket of each."""

    limits: CostLimits
    buckets: Buckets | None
    name = "cost"

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
            raise _unfit(block.origin(row), float(costs[row]), self.limits)
        made: Batch = {"cost": costs}
        if self.buckets is not None:
            made["bucket"] = self.buckets.bucket_of(block.batch).astype(np.int64)
        return replace(block, batch=made)


def _unfit(row: str, cost: float, limits: CostLimits) -> DataError:
    """Return the error of a row that no batch can hold."""
    field = limits.cost if isinstance(limits.cost, str) else None
    if not cost >= 0:
        return DataError(f"{row}: costs {cost}; a cost is a number of 0 or more", field=field)
    return DataError(
        f"{row}: costs {cost:,.15g}, and a batch may cost {limits.limit:,.15g}; raise limit=, or "
        "leave out or cut such rows first",
        field=field,
    )


def batched_by_cost(plan: Plan, limits: CostLimits) -> Plan:
    """Return a plan with batches by cost."""
    if plan.drops:
        assert plan.kept is not None
        if plan.kept.varies:
            raise OptionError(
                "batch(cost=...) after a filter of rows that differ from epoch to epoch would have "
                "to run it over all rows in each; put filter before shuffle"
            )
        plan = plan.with_rows(plan.numbered())
    if plan.rows.facts.endless:
        raise OptionError("batch(cost=...): the rows have no end; put repeat after batch")
    if (schema := plan.seen_schema) is not None:
        MeasureCosts(limits, plan.bucket).output(schema)  # refuses what has no cost
    return replace(plan, grouping=CostBatches(plan, limits), bucket=None)


class CostBatches(Grouping):
    """Batches of rows that together cost at most so much.

    The cuts are those of all ranks together, and are computed when they are first needed. A
    block that is read is a batch, so what other groupings count in rows is counted in batches here.
    """

    plain = True
    block = 1
    rows_per_group = 1
    full_size = None

    def __init__(self, plan: Plan, limits: CostLimits) -> None:
        self._plan = replace(plan, rank=None, bucket=None, prefetch=None)
        self._limits, self._buckets = limits, plan.bucket
        # If nothing but the order varies, the costs are those of the rows before the shuffle.
        self._shuffled = plan.varies and self._unshuffled(0) is not None
        varies = plan.varies and not self._shuffled
        self._costs = Remembered(self._measured, 0, only=not varies)
        self._varies = varies
        self._cuts = Remembered(self._cut, 0, keep=2, pickled=False)

    def _unshuffled(self, epoch: int) -> tuple[Source, Order] | None:
        found = unshuffled(at_epoch(self._plan.rows, epoch))
        varies = any(each.varies for each in self._plan.transforms)
        return None if found is None or varies or found[0].facts.varies else found

    def by_cost(self, epoch: int) -> EpochCuts:
        return self._cuts.at(epoch if self._plan.varies else 0)

    def prepare(self) -> None:
        self._costs.at(0)

    @property
    def mean_rows(self) -> int:
        ends, _ = self.by_cost(0)
        return max(1, int(ends[-1]) // len(ends)) if len(ends) else 1

    def start(self) -> Grouper:
        raise AssertionError("a block that is read is a batch already")

    def _cut(self, epoch: int) -> EpochCuts:
        costs, buckets = self._costs.at(epoch if self._varies else 0)
        order = None
        if self._shuffled and (found := self._unshuffled(epoch)) is not None:
            order = found[1]
        if buckets is not None:
            return _cut_by_bucket(costs, buckets, order, self._limits)
        return _cut_in_order(costs, order, self._limits)

    def _measured(self, epoch: int) -> _RowCosts:
        """Return the costs of rows, in their order before they are shuffled."""
        source = at_epoch(self._plan.rows, epoch)
        if self._shuffled and (found := self._unshuffled(epoch)) is not None:
            source = found[0]
        stored = None
        if self._buckets is None and not self._needs_transforms(source):
            stored = _stored_lengths(source, self._limits)
        if stored is not None:
            return stored, None
        parts = list(self._parts(source, epoch))
        costs = np.concatenate([np.empty(0, np.uint16), *(cost for cost, _ in parts)])
        if self._buckets is None:
            return costs, None
        buckets = [bucket for _, bucket in parts if bucket is not None]
        return costs, np.concatenate([np.empty(0, np.uint16), *buckets])

    def _parts(self, source: Source, epoch: int) -> Iterator[_RowCosts]:
        transforms = self._plan.transforms if self._needs_transforms(source) else ()
        if not transforms:
            source = source.select(self._columns(source))
        size = max(1, min(_READ_ROWS, _READ_BYTES // source.row_bytes()))
        search = replace(
            self._plan,
            rows=source,
            transforms=(*transforms, MeasureCosts(self._limits, self._buckets)),
            grouping=Batches(size, keeps_nulls=True),
            batch_transforms=(),
            batch_slice=Slice(),
            part=(0, 1),
            repeat=1,
        )
        feed = PipelineFeed(search)
        feed.epoch = epoch
        for batch in feed.run(1, None):
            bucket = None if self._buckets is None else _compact(np.asarray(batch["bucket"]))
            yield _compact(np.asarray(batch["cost"])), bucket

    def _columns(self, source: Source) -> list[str]:
        """Return the columns to read."""
        if isinstance(self._limits.cost, str):
            names = [self._limits.cost]
        else:
            names = self._limits.columns(source.gather(np.arange(source.up_to(_SAMPLE))))
        if self._buckets is None:
            return names
        by = self._buckets.by
        more = [by] if isinstance(by, str) else list(source.schema)
        return list(dict.fromkeys([*names, *more]))

    def _needs_transforms(self, source: Source) -> bool:
        """Whether the cost is of what transforms make, and not of what is stored."""
        by = None if self._buckets is None else self._buckets.by
        names = [each for each in (self._limits.cost, by) if each is not None]
        known = all(isinstance(name, str) and name in source.schema for name in names)
        return not all(
            known and all(each.leaves(str(name)) for name in names)
            for each in self._plan.transforms
        )


@guarded
def _stored_lengths(source: Source, limits: CostLimits) -> npt.NDArray[Any] | None:
    """Return the lengths of a column whose offsets lie in a file, without reading its values."""
    stored = source.column(limits.cost) if isinstance(limits.cost, str) else None
    if not isinstance(stored, Ragged):
        return None
    lengths = np.diff(stored.offsets)
    if bool((lengths < 0).any()):
        return None  # reading the rows says what is wrong with them
    if int(lengths.max(initial=0)) > limits.limit:
        row = int(np.argmax(lengths > limits.limit))
        raise _unfit(row_name(source, row), float(lengths[row]), limits)
    return _compact(lengths)


def _cut_in_order(costs: npt.NDArray[Any], order: Order | None, limits: CostLimits) -> EpochCuts:
    ends, last = list[RowArray](), (0, 0.0, 0.0)
    for start in range(0, len(costs), _CUT_ROWS):
        some = np.arange(start, min(start + _CUT_ROWS, len(costs)))
        here = costs[some if order is None else order.numbers(some)].astype(np.float64)
        found, last = _core.cut_batches(
            here, limits.limit, limits.most_rows, limits.padded, start, last
        )
        ends.append(np.asarray(found))
    ends.append(np.full(min(1, len(costs)), len(costs)))
    return np.concatenate(ends), None


def _cut_by_bucket(
    costs: npt.NDArray[Any], buckets: npt.NDArray[Any], order: Order | None, limits: CostLimits
) -> EpochCuts:
    numbers = np.arange(len(costs))
    numbers = numbers if order is None else order.numbers(numbers)
    positions, ends = _core.cut_buckets(
        costs[numbers].astype(np.float64),
        buckets[numbers].astype(np.int64),
        1 + int(buckets.max(initial=0)),
        limits.limit,
        limits.most_rows,
        limits.padded,
    )
    return np.asarray(ends), np.asarray(positions)


def _compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in the smallest type that holds them; most lengths take two bytes."""
    for kind in (np.uint16, np.uint32):
        small = values.astype(kind)
        if (small == values).all():
            return small
    return values
