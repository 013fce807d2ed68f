"""CostCuts: where the batches of an epoch begin and end, if batches are cut by what rows cost.

All ranks compute the same cuts, from one pass over what rows cost. Costs are kept: two bytes for
most rows. If rows are only shuffled, they are the same in every epoch, in another order, and
are read once, in the order of the files. The cuts of one epoch are remembered: 8 bytes a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.machine.mapped import guarded
from recmap.model.batch import RowArray
from recmap.model.order import Order
from recmap.model.ordered_rows import unshuffled
from recmap.model.ragged import Ragged
from recmap.model.remembered import Remembered
from recmap.model.source import Source, at_epoch, row_name
from recmap.native import _core
from recmap.pipeline.feed import PipelineFeed
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.batch import BatchCuts, Batches, EpochCuts
from recmap.pipeline.transforms.bucket import Buckets
from recmap.pipeline.transforms.cost_batches import (
    CostBatches,
    CostLimits,
    MeasureCosts,
    compact,
    unfit,
)
from recmap.pipeline.transforms.select import Slice

# Rows and bytes to read at once, and rows to cut at once.
_READ_ROWS, _READ_BYTES, _CUT_ROWS = 1 << 14, 16 << 20, 1 << 20
_SAMPLE = 4


class RowCosts(NamedTuple):
    """What rows cost, and the bucket of each, if there are buckets."""

    costs: npt.NDArray[Any]
    buckets: npt.NDArray[Any] | None


def batched_by_cost(plan: Plan, limits: CostLimits, buckets: Buckets | None) -> Plan:
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
        MeasureCosts(limits, buckets).output(schema)  # refuses what has no cost
    return replace(plan, grouping=CostBatches(CostCuts(plan, limits, buckets)), bucket=None)


class CostCuts(BatchCuts):
    """The cuts of each epoch, by what rows cost."""

    def __init__(self, plan: Plan, limits: CostLimits, buckets: Buckets | None) -> None:
        self._plan = replace(plan, rank=None, bucket=None, prefetch=None)
        self._limits, self._buckets = limits, buckets
        # If nothing but the order varies, the costs are those of the rows before the shuffle.
        self._shuffled = plan.varies and self._unshuffled(0) is not None
        varies = plan.varies and not self._shuffled
        self._costs = Remembered(self._measured, 0, only=not varies)
        self._varies = varies
        self._cuts = Remembered(self._cut, 0, keep=2)

    def _unshuffled(self, epoch: int) -> tuple[Source, Order] | None:
        found = unshuffled(at_epoch(self._plan.rows, epoch))
        varies = any(each.varies for each in self._plan.transforms)
        return None if found is None or varies or found[0].facts.varies else found

    def at(self, epoch: int) -> EpochCuts:
        return self._cuts.at(epoch if self._plan.varies else 0)

    def prepare(self) -> None:
        self._costs.at(0)

    @property
    def mean_rows(self) -> int:
        ends = self.at(0).ends
        return max(1, int(ends[-1]) // len(ends)) if len(ends) else 1

    def __getstate__(self) -> dict[str, Any]:
        # Other processes compute the cuts of the epochs that they read.
        return {**self.__dict__, "_cuts": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cuts = Remembered(self._cut, 0, keep=2)

    def _cut(self, epoch: int) -> EpochCuts:
        rows = self._costs.at(epoch if self._varies else 0)
        order = None
        if self._shuffled and (found := self._unshuffled(epoch)) is not None:
            order = found[1]
        if rows.buckets is not None:
            return _cut_by_bucket(rows.costs, rows.buckets, order, self._limits)
        return _cut_in_order(rows.costs, order, self._limits)

    def _measured(self, epoch: int) -> RowCosts:
        """Return the costs of rows, in their order before they are shuffled."""
        source = at_epoch(self._plan.rows, epoch)
        if self._shuffled and (found := self._unshuffled(epoch)) is not None:
            source = found[0]
        stored = None
        if self._buckets is None and not self._needs_transforms(source):
            stored = _stored_lengths(source, self._limits)
        if stored is not None:
            return RowCosts(stored, None)
        parts = list(self._parts(source, epoch))
        costs = np.concatenate([np.empty(0, np.uint16), *(each.costs for each in parts)])
        buckets = [each.buckets for each in parts if each.buckets is not None]
        if self._buckets is None:
            return RowCosts(costs, None)
        return RowCosts(costs, np.concatenate([np.empty(0, np.uint16), *buckets]))

    def _parts(self, source: Source, epoch: int) -> Iterator[RowCosts]:
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
            bucket = None if self._buckets is None else compact(np.asarray(batch["bucket"]))
            yield RowCosts(compact(np.asarray(batch["cost"])), bucket)

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
        raise unfit(row_name(source, row), float(lengths[row]), limits)
    return compact(lengths)


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
    return EpochCuts(np.concatenate(ends), None)


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
    return EpochCuts(np.asarray(ends), np.asarray(positions))
