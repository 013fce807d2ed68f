"""``filter``: the rows for which a function is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError
from recmap.model.casting import exact_array
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.map import FunctionTransform, batch_text, function_failed
from recmap.pipeline.transforms.returned_values import own_columns


@dataclass(frozen=True)
class KeepRows(Transform):
    """Keeps rows at positions that filters were found to keep; the functions are not called."""

    verb: str
    positions: npt.NDArray[np.integer[Any]]
    drops = True
    changes = False

    @property
    def name(self) -> str:
        return self.verb

    def apply(self, block: Block) -> Block:
        places = np.searchsorted(self.positions, block.positions)
        found = places < len(self.positions)
        found[found] = self.positions[places[found]] == block.positions[found]
        return block.where(found)


@dataclass(frozen=True)
class Filter(FunctionTransform):
    """Drops the rows for which the function is false."""

    batched: bool
    verb = "filter"
    drops = True
    changes = False

    def apply(self, block: Block) -> Block:
        call = self.function.calls(block.epoch)
        if self.batched:
            with self.function.turn():
                return block.where(self._mask(call, block))
        columns = block.batch.items()
        mask = np.empty(len(block.positions), bool)
        for i, position in enumerate(block.positions.tolist()):
            try:
                mask[i] = bool(call({name: column[i] for name, column in columns}, position))
            except Exception as e:
                raise function_failed(self.name, block.origin(i), e) from e
        return block.where(mask)

    def _mask(self, call: Callable[[Any, int], Any], block: Block) -> npt.NDArray[np.bool_]:
        first = int(block.positions[0]) if len(block.positions) else 0
        try:
            # No variable for the mask yet: its references tell whether the function keeps it.
            made, is_kept = own_columns(
                {"mask": exact_array(call(block.batch, first))}, block.batch
            )
        except Exception as e:
            raise function_failed(self.name, batch_text(block), e) from e
        if is_kept:  # seen in the trial at the latest, before several threads call it
            self.function.keeps_arrays = True
        mask = np.asarray(made["mask"])
        if mask.dtype != bool or mask.shape != block.positions.shape:
            raise MapError(
                f"{batch_text(block)}: {self.name} returned {mask.dtype}{list(mask.shape)}; return "
                f"a mask: one bool for each of the {len(block.positions):,} rows"
            )
        return mask
