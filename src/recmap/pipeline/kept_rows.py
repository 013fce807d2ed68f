"""Which rows filters keep: found once, in a pass over all rows, when that is first needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.batch import Positions, RowArray
from recmap.model.field import Field
from recmap.model.order import Order
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.batch import Batches

if TYPE_CHECKING:
    from recmap.pipeline.plan import Plan

# Row numbers that are handed on at a time.
_TOGETHER = 1 << 12


class Kept(Order):
    """The rows that the filters of a plan keep, in their order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @cached_property
    def _rows(self) -> npt.NDArray[np.integer[Any]]:
        """Run the plan up to its last filter, and note the numbers of the rows that it keeps."""
        from recmap.pipeline.feed import PipelineFeed

        plan, drops = self._plan, [each.drops for each in self._plan.transforms]
        last = max((i + 1 for i, each in enumerate(drops) if each), default=0)
        end = max([last, *(at for at, _ in plan.row_slices)])
        search = replace(
            plan,
            transforms=(*plan.transforms[:end], NumberRows()),
            repeat=1,
            total_slice=type(plan.total_slice)(),
            grouping=Batches(_TOGETHER),
        )
        found = [batch["row"] for batch in PipelineFeed(search).run(1, None)]
        numbers: npt.NDArray[Any] = np.concatenate([np.empty(0, np.int64), *found])
        small = not len(numbers) or int(numbers.max()) < 1 << 32
        return numbers.astype(np.uint32) if small else numbers

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def counted(self) -> bool:
        return "_rows" in self.__dict__

    @property
    def endless(self) -> bool:
        return False

    @property
    def gap(self) -> int:
        return 1

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        if epoch and self._plan.varies:
            raise OptionError(
                "rows that are filtered and differ from epoch to epoch have numbers only in the "
                "first; put filter before shuffle"
            )
        return self._rows[positions].astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not search again.
        return {"_plan": self._plan, "_rows": self._rows}


@dataclass(frozen=True)
class NumberRows(Transform):
    """Replaces rows by their numbers."""

    @property
    def name(self) -> str:
        return "number"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        del schema, sample
        return self, Schema({"row": Field("int64")})

    def apply(self, block: Block) -> Block:
        return replace(block, batch={"row": block.positions})
