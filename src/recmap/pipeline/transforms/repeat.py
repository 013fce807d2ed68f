"""``repeat``: the same rows, several times or without end."""

from __future__ import annotations

import numpy as np

from recmap.errors import OptionError
from recmap.model.batch import Positions, interleave
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.schema import Batch
from recmap.pipeline.row_source import Rows
from recmap.pipeline.transforms.base import WrappedRows


class RepeatedRows(WrappedRows):
    """All rows, ``times`` times or without end; each time is a separate epoch."""

    def __init__(self, rows: Rows, times: int | None) -> None:
        if rows.count is None:
            raise OptionError("endless rows cannot be repeated")
        if times is not None and times < 0:
            raise OptionError(f"repeat({times}): give a number of times, or nothing for no end")
        endless = times is None and rows.count > 0
        super().__init__(rows, None if endless else rows.count * (times or 0))
        self._times, self._each = times, rows.count

    def _over(self, rows: Rows) -> Rows:
        return RepeatedRows(rows, self._times)

    def gather(self, positions: Positions, epoch: int) -> Batch:
        # A batch has rows of at most two epochs, unless epochs are tiny.
        turns = positions // max(self._each, 1)
        parts, places = [], []
        for turn in np.unique(turns):
            mine = np.flatnonzero(turns == turn)
            within = positions[mine] - turn * self._each
            parts.append(self._rows.gather(within, self._epoch(int(turn), epoch)))
            places.append(mine)
        return interleave(parts, places) if parts else self._rows.gather(positions, epoch)

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        turns = positions // max(self._each, 1)
        return fetching_all(
            self._rows.fetch_ahead(
                positions[turns == turn] - turn * self._each, self._epoch(int(turn), epoch)
            )
            for turn in np.unique(turns)
        )

    def _epoch(self, turn: int, epoch: int) -> int:
        return epoch * (self._times or 1) + turn

    def origin(self, position: int, epoch: int) -> str:
        turn, within = divmod(position, max(self._each, 1))
        return self._rows.origin(within, self._epoch(turn, epoch))
