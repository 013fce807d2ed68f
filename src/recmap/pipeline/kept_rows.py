"""Which rows filters keep: found once, in a pass over all rows, when that is first needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.batch import Positions, RowArray
from recmap.model.field import Field
from recmap.model.order import Order, finite
from recmap.model.schema import Schema
from recmap.pipeline.feed import PipelineFeed
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.batch import Batches
from recmap.pipeline.transforms.select import Slice

Numbers: TypeAlias = npt.NDArray[np.integer[Any]]

# Row numbers that are handed on at a time.
_TOGETHER = 1 << 12


def with_kept(plan: Plan) -> Plan:
    """Return a plan that can tell the rows which its filters keep by number."""
    if not plan.drops or plan.kept is not None:
        return plan
    return replace(plan, kept=Kept(plan, plan.kept_among), kept_among=None)


class Kept(Order):
    """The rows that a plan with filters keeps, in their order."""

    _among: tuple[Order, Slice] | None = None

    def __init__(self, plan: Plan, among: tuple[Order, Slice] | None = None) -> None:
        """``among`` are the rows before the last slice of the plan, and that slice."""
        self._plan, self._among = plan, among

    @cached_property
    def _facts(self) -> tuple[bool, bool]:
        """Whether the rows vary by epoch, and whether transforms change them."""
        plan = self._plan
        return plan.varies, any(each.changes for each in plan.transforms)

    @cached_property
    def _rows(self) -> Numbers:
        """Run the plan, and note the numbers of the rows that come out."""
        if self._among is not None and self._among[0].counted:
            kept, places = self._among
            return kept.numbers(np.arange(finite(kept.count))[places.skip : places.stop])
        plan = self._plan
        transforms = (*plan.transforms, NumberRows())
        # Those of one epoch: the plan repeats what is found.
        search = replace(plan, transforms=transforms, grouping=Batches(_TOGETHER), repeat=1)
        found = [batch["row"] for batch in PipelineFeed(search).run(1, None)]
        numbers: Numbers = np.concatenate([np.empty(0, np.int64), *found])
        small = not len(numbers) or int(numbers.max()) < 1 << 32
        return numbers.astype(np.uint32) if small else numbers

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def counted(self) -> bool:
        return "_rows" in self.__dict__ or (self._among is not None and self._among[0].counted)

    @property
    def endless(self) -> bool:
        return False

    @property
    def varies(self) -> bool:
        return self._facts[0]

    @property
    def gap(self) -> int:
        # Rows in between may be read along with these, but not if functions would see them.
        return 0 if self._facts[1] else 1

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        if epoch and self.varies:
            raise OptionError(
                "rows that are filtered and differ from epoch to epoch have numbers only in the "
                "first; put filter before shuffle"
            )
        return self._rows[positions].astype(np.int64)

    def prepare(self) -> None:
        self._rows  # noqa: B018  # found when it is first asked for

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not search again.
        found = {"_facts": self._facts, "_rows": self._rows} if self.counted else None
        return found or {"_plan": self._plan}


@dataclass(frozen=True)
class NumberRows(Transform):
    """Replaces rows by their numbers."""

    name = "number"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        del schema, sample
        return self, Schema({"row": Field("int64")})

    def apply(self, block: Block) -> Block:
        return replace(block, batch={"row": block.positions})
