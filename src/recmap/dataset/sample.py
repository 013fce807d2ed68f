"""ds.sample: rows drawn at random, by weight or evenly from classes.

Which row is at a position is computed from the seed, the epoch and the position, so ranks,
workers and resumed runs agree, and a draw can begin anywhere. Only the column of weights or
classes is read beforehand, once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import check_reread, from_rows, refuse_nulls, scan_column
from recmap.errors import DataError, OptionError, OptionTypeError, RecmapError
from recmap.machine.cpus import thread_share
from recmap.machine.mapped import guarded
from recmap.model.arguments import as_whole
from recmap.model.batch import Positions, RowArray
from recmap.model.casting import exact_array
from recmap.model.draws import AliasTable, Arrivals, Classes, below, key_of
from recmap.model.order import Order, counted_order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.permutation import Permutation
from recmap.model.preview import quantity
from recmap.model.progress import ProgressOption
from recmap.model.ragged import Column, Ragged
from recmap.model.ranks import byte_ranks
from recmap.model.remembered import Remembered
from recmap.model.source import Source, row_name
from recmap.pipeline.signature import Seed

# Makes a sample independent of a shuffle and of a split with the same seed.
_SALT = 0x5A3917
# A larger number of rows would stand for no end.
_MOST = 2**62 - 1

Weights: TypeAlias = npt.NDArray[np.float64]
Drawn: TypeAlias = Callable[[Positions], RowArray]
# Draws so many rows of an epoch, given its seed, and returns them as a function of their positions.
Draw: TypeAlias = Callable[[int, list[int]], Drawn]


def sampled(
    source: Source,
    n: int | None,
    weights: Any,
    balance: str | None,
    replace: bool,
    seed: Seed,
    progress: ProgressOption = None,
) -> OrderedRows:
    """Return ``n`` rows of a source, drawn at random."""
    check_reread("sample", source)
    n = None if n is None else as_whole("n", n, most=_MOST)
    if weights is not None and balance is not None:
        raise OptionError("sample: weights and balance both say how often rows come; give one")
    if balance is not None:
        _check_classes(source, balance)
    elif isinstance(weights, str):
        _check_numbers(source, weights)
    elif weights is not None:
        weights = _given_weights(weights)
    make = partial(_sampling, source, n, weights, balance, replace, seed, progress)
    return OrderedRows(source, counted_order(source, make, varies=True))


def _sampling(
    source: Source,
    n: int | None,
    weights: str | Weights | None,
    balance: str | None,
    replace: bool,
    seed: Seed,
    progress: ProgressOption,
    rows: int,
) -> Sampling:
    count = rows if n is None else n
    if not replace and count > rows:
        raise OptionError(
            f"sample: {quantity(count, 'row')} without replacement, but there are only {rows:,}; "
            "give a smaller n, or replace=True to draw rows more than once"
        )
    if count and not rows:
        raise OptionError(f"sample: n={count}, but there are no rows to draw from")
    draw = from_rows(source, _draw(rows, weights, balance, count, replace, progress))
    order = Sampling(count, seed, draw)
    if weights is None and balance is None:
        order.prepare()  # nothing is read for it
    return order


class Sampling(Order):
    """Rows that are drawn anew in every epoch."""

    def __init__(self, count: int, seed: Seed, draw: Remembered[int, Draw]) -> None:
        self._count, self._seed, self._draw = count, seed, draw
        # Two, because the last batches of one epoch are read together with the first of the next.
        self._epochs = Remembered(self._of_epoch, (0, 0), keep=2, pickled=False)

    @property
    def count(self) -> int:
        return self._count

    @property
    def searched(self) -> bool:
        return self._draw.known(0) is not None

    @property
    def varies(self) -> bool:
        return True

    def prepare(self) -> None:
        if self._count:
            self._draw.at(0)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        if not len(positions):
            return np.empty(0, np.int64)
        return self._epochs.at((self._seed.value, epoch))(positions)

    def _of_epoch(self, key: tuple[int, int]) -> Drawn:
        return self._draw.at(key[1])(self._count, [*key, _SALT])


def _draw_any(rows: int, replace: bool, count: int, seed: list[int]) -> Drawn:
    """Draw from all rows, which are equally likely."""
    del count  # without replacement, these are the first of all rows, shuffled
    if replace:
        return partial(below, rows, key=key_of(seed))
    return partial(_permuted, Permutation(rows, seed))


def _permuted(order: Permutation, positions: Positions) -> RowArray:
    return order.at(positions, thread_share())


def _draw_again_by_weight(table: AliasTable, count: int, seed: list[int]) -> Drawn:
    """Draw by weight; a row may come again."""
    del count
    return partial(_weighted, table, key_of(seed))


def _weighted(table: AliasTable, key: np.uint64, positions: Positions) -> RowArray:
    return table.at(positions, key, thread_share())


def _draw_again_by_class(classes: Classes, count: int, seed: list[int]) -> Drawn:
    """Draw from classes that come equally often; a row may come again."""
    del count
    return partial(classes.at, key=key_of(seed))


def _draw_by_weight(arrivals: Arrivals, count: int, seed: list[int]) -> Drawn:
    """Draw by weight, each row once."""
    return partial(_picked, arrivals.first(count, key_of(seed)))


def _draw_by_class(classes: Classes, count: int, seed: list[int]) -> Drawn:
    """Draw from classes that come equally often, each row once."""
    return partial(_picked, classes.evenly(count, seed))


def _picked(rows: RowArray, positions: Positions) -> RowArray:
    return rows[positions].astype(np.int64, copy=False)


def _draw(
    rows: int,
    weights: str | Weights | None,
    balance: str | None,
    count: int,
    replace: bool,
    progress: ProgressOption,
) -> Callable[[Source], Draw]:
    """Return what makes the function that draws from the rows of an epoch."""
    if balance is not None:
        return partial(_of_classes, name=balance, count=count, replace=replace, progress=progress)
    if isinstance(weights, str):
        return partial(_of_column, name=weights, count=count, replace=replace, progress=progress)
    if weights is None:
        return partial(_of_all, rows, replace)
    if len(weights) != rows:
        raise OptionError(f"sample: {len(weights):,} weights for {quantity(rows, 'row')}")
    if count:
        _check_drawable(weights, count, replace, _bad_array)
    return partial(_of_array, weights, replace)


def _check_numbers(source: Source, name: str) -> None:
    field = source.schema[name]
    if field.ragged or math.prod(field.inner) != 1 or field.dtype.kind not in "biuf":
        raise OptionError(
            f"sample: weights={name!r}: the column is {field}; weights are one number per row"
        )


def _check_classes(source: Source, name: Any) -> None:
    if not isinstance(name, str):
        raise OptionTypeError(f"sample: balance={name!r}: give the name of the column of classes")
    field = source.schema[name]
    known = field.is_bytes or field.dtype.kind in "biu"
    if field.ragged or math.prod(field.inner) != 1 or not known:
        raise OptionError(
            f"sample: balance={name!r}: the column is {field}; classes are one integer, boolean, "
            "text or byte string per row"
        )


# What went wrong, and in which row, as an error.
_Bad: TypeAlias = Callable[[str, int | None], RecmapError]


def _bad_array(what: str, row: int | None) -> RecmapError:
    return OptionError(f"sample: weights: {'' if row is None else f'row {row:,} '}{what}")


def _bad_column(source: Source, name: str, what: str, row: int | None) -> RecmapError:
    where = "" if row is None else f"{row_name(source, row)} "
    return DataError(f"sample: weights={name!r}: {where}{what}", field=name, record=row)


def _given_weights(weights: Any) -> Weights:
    try:
        array = exact_array(weights)
    except RecmapError:
        raise
    except (TypeError, ValueError) as e:
        raise OptionTypeError(f"sample: weights: not an array of numbers: {e}") from None
    if array.ndim != 1 or (array.dtype.kind not in "biuf" and array.size):
        raise OptionTypeError(
            "sample: weights: give the name of a column, or an array with one number per row, not "
            f"{array.dtype} of shape {array.shape}"
        )
    return _checked(array, 0, _bad_array)


def _checked(values: npt.NDArray[Any], start: int, bad: _Bad) -> Weights:
    """Return weights as new floats; refuse negative ones, NaN and infinity."""
    with np.errstate(over="ignore", invalid="ignore"):  # of long doubles
        weights = np.array(values, np.float64).reshape(-1)
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        row = int(np.argmax(wrong))
        value = values.reshape(-1)[row].item()
        raise bad(f"is {value}; weights are finite numbers of 0 or more", start + row)
    return weights


@guarded
def _of_column(
    source: Source, name: str, count: int, replace: bool, progress: ProgressOption
) -> Draw:
    weights, bad = np.empty(len(source), np.float64), partial(_bad_column, source, name)
    for block in scan_column(source, name, progress):
        refuse_nulls("sample", source, name, block)
        assert isinstance(block.values, np.ndarray)
        end = block.start + len(block.values)
        weights[block.start : end] = _checked(block.values, block.start, bad)
    _check_drawable(weights, count, replace, bad)
    return _of_array(weights, replace, source)


def _check_drawable(weights: Weights, count: int, replace: bool, bad: _Bad) -> None:
    """Refuse to draw more rows than have a weight."""
    if len(weights) >= AliasTable.MOST_ROWS:
        raise bad(
            f"{len(weights):,} weights are too many: at most 4,294,967,295 are possible", None
        )
    drawable = int(np.count_nonzero(weights))
    if not drawable:
        raise bad("all weights are 0, so no row can be drawn", None)
    if not replace and count > drawable:
        raise bad(
            f"{quantity(count, 'row')} without replacement, but only {drawable:,} have a weight "
            "above 0; give a smaller n, or replace=True",
            None,
        )


def _of_all(rows: int, replace: bool, source: Source) -> Draw:
    del source
    return partial(_draw_any, rows, replace)


def _of_array(weights: Weights, replace: bool, source: Source) -> Draw:
    del source
    if replace:
        return partial(_draw_again_by_weight, AliasTable(weights))
    return partial(_draw_by_weight, Arrivals(weights))


@guarded
def _of_classes(
    source: Source, name: str, count: int, replace: bool, progress: ProgressOption
) -> Draw:
    numbers: dict[Any, int] = {}
    codes = np.empty(len(source), np.int32)
    for block in scan_column(source, name, progress):
        refuse_nulls("sample", source, name, block)
        values, which = _distinct(block.values)
        known = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)
        codes[block.start : block.start + len(which)] = known[which]
    classes = Classes(codes, len(numbers))
    smallest, needed = int(classes.sizes.min()), -(-count // len(numbers))
    if not replace and needed > smallest:
        value = list(numbers)[int(np.argmin(classes.sizes))]
        raise DataError(
            f"sample: balance={name!r}: {quantity(count, 'row')} of {len(numbers):,} classes "
            f"without replacement, but class {value!r} has only {smallest:,}; give n="
            f"{smallest * len(numbers)} or less, or replace=True",
            field=name,
        )
    return partial(_draw_again_by_class if replace else _draw_by_class, classes)


def _distinct(column: Column) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Return the distinct values of a column, and which of them each row has."""
    if isinstance(column, Ragged):
        if isinstance(column.values, Ragged):  # lists of one string each
            column = column.flat
            assert isinstance(column, Ragged)
        _, first, which = np.unique(byte_ranks(column), return_index=True, return_inverse=True)
        return [column[int(row)] for row in first], which.reshape(-1)
    values, which = np.unique(column.reshape(-1), return_inverse=True)
    return values.tolist(), which.reshape(-1)


def described(n: int | None, weights: Any, balance: str | None, replace: bool) -> str:
    """Return the verb as states have it, with ``{seed}`` for the seed."""
    text = "sample(seed={seed}"
    text += "" if n is None else f", n={n}"
    if isinstance(weights, str):
        text += f", weights={weights!r}"
    elif weights is not None:
        digest = hashlib.sha256(np.asarray(weights).astype("<f8").tobytes()).hexdigest()[:12]
        text += f", weights={digest}"
    text += "" if balance is None else f", balance={balance!r}"
    return f"{text}{'' if replace else ', replace=False'})"
