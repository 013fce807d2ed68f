"""ds.sort: the rows in the order of a column, by number; nothing else is read or moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import check_reread, from_rows, scan_column
from recmap.errors import OptionError
from recmap.machine.mapped import guarded
from recmap.model.batch import Positions, RowArray
from recmap.model.order import Order
from recmap.model.progress import ProgressOption
from recmap.model.ragged import Column, Ragged, concatenate
from recmap.model.ranks import byte_ranks
from recmap.model.source import Source
from recmap.model.table_notes import decimals_as_text


class Sorted(Order):
    """Rows in the order of a column; rows with equal values stay in their order."""

    def __init__(
        self,
        source: Source,
        column: str,
        descending: bool,
        progress: ProgressOption,
        reopen: Callable[[], Source] | None,
    ) -> None:
        check_reread("sort", source)
        _check(source, column)
        self._varies = source.facts.varies
        compute = partial(_sorted, name=column, descending=descending, progress=progress)
        self._rows = from_rows(source, compute, reopen)
        self._known: int | None = source.known_rows()

    @property
    def count(self) -> int:
        if self._known is None:
            self._known = len(self._rows.at(0))
        return self._known

    @property
    def counted(self) -> bool:
        return self._known is not None

    @property
    def searched(self) -> bool:
        return self._rows.known(0) is not None

    @property
    def endless(self) -> bool:
        return False

    @property
    def varies(self) -> bool:
        return self._varies

    def prepare(self) -> None:
        self._rows.at(0)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        if not len(positions):
            return np.empty(0, np.int64)
        return self._rows.at(epoch)[positions].astype(np.int64, copy=False)


def _check(source: Source, name: str) -> None:
    field = source.schema[name]
    known = field.is_bytes or field.dtype.kind in "biufmM"
    if field.ragged or math.prod(field.inner) != 1 or not known:
        raise OptionError(
            f"sort: column {name!r} is {field}; rows are sorted by one number, date, text or byte "
            "string each"
        )
    if decimals_as_text(source.facts, name, field):
        raise OptionError(
            f"sort: {name!r} has decimal numbers of more digits than float64 keeps, which are read "
            'as text, and as text "10" comes before "9"; round them: '
            f'ds.map(lambda row: {{**row, "{name}": float(row["{name}"])}}).sort("{name}")'
        )


@guarded
def _sorted(source: Source, name: str, descending: bool, progress: ProgressOption) -> RowArray:
    """Return the row numbers in the order of a column."""
    blocks = list[Column]()
    missing = np.zeros(len(source), bool)
    for block in scan_column(source, name, progress):
        blocks.append(_owned(block.values))
        if block.missing is not None:
            missing[block.start : block.start + len(block.missing)] = block.missing
    if not blocks:
        return np.empty(0, np.int64)
    keys, last = _keys(blocks)
    missing |= last
    if descending:
        keys = _reversed(keys)
    order = np.argsort(keys, kind="stable")
    small: npt.NDArray[Any] = order.astype(np.min_scalar_type(len(order)))
    if not missing.any():
        return small
    gone = missing[small]
    return np.concatenate([small[~gone], small[gone]])


def _owned(values: Column) -> Column:
    """Return values that take no more memory than they need, and are not views of a file."""
    if isinstance(values, Ragged):
        flat = values.flat
        if isinstance(flat, Ragged):  # lists of one string each
            return _owned(flat)
        return Ragged(flat.copy(), values.offsets - values.offsets[0])
    return values.reshape(-1).astype(values.dtype.newbyteorder("="))


def _keys(blocks: list[Column]) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    """Return what to sort rows by, and which of them come last because they are NaN or NaT."""
    values = concatenate(blocks)
    blocks.clear()
    if isinstance(values, Ragged):
        return byte_ranks(values), np.zeros(len(values), bool)
    if values.dtype.kind in "mM":
        return values.view(np.int64), np.isnat(values)
    last = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    return values, last


def _reversed(keys: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return keys in the opposite order; rows with equal ones stay in their order."""
    if keys.dtype.kind == "f":
        negative: npt.NDArray[np.generic] = np.negative(keys)
        return negative
    inverted: npt.NDArray[np.generic] = np.invert(keys)  # -1 - n, which no integer is too large for
    return inverted
