"""Predicate: says which rows of a batch are wanted.

An expression becomes a predicate for the columns of one schema. Comparisons with a null are
neither true nor false, as in SQL: a null fails a test and its opposite. So negation is not a
predicate of its own. Every test knows which of its answers is wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.nulls import values_and_validity
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.value_test import ValueRange, ValueTest

Bits: TypeAlias = npt.NDArray[np.bool_]


class Predicate(ABC):
    """Tells which rows are wanted."""

    @abstractmethod
    def rows(self, batch: Batch) -> Bits:
        """Tell which rows of a batch are wanted."""

    @abstractmethod
    def possible(self, ranges: Mapping[str, ValueRange]) -> bool:
        """Return False if no row is wanted where columns have values in these ranges."""


@dataclass(frozen=True)
class Together(Predicate):
    """Several predicates: every one of them must hold, or any."""

    parts: Sequence[Predicate]
    every: bool

    def rows(self, batch: Batch) -> Bits:
        found = self.parts[0].rows(batch)
        for part in self.parts[1:]:
            if self.every:
                if not found.any():
                    break
                found &= part.rows(batch)
            else:
                found |= part.rows(batch)
        return found

    def possible(self, ranges: Mapping[str, ValueRange]) -> bool:
        return (all if self.every else any)(part.possible(ranges) for part in self.parts)


@dataclass(frozen=True)
class ColumnPredicate(Predicate):
    """A test of one column, which must pass, or fail. A null does neither.

    ``mask`` is the name of the column that says which rows are null, if there is one.
    """

    name: str
    mask: str | None
    test: ValueTest
    wanted: bool

    def rows(self, batch: Batch) -> Bits:
        values, valid = _column(batch, self.name, self.mask)
        found = self.test.passing(values)
        found = found if self.wanted else ~found
        return found if valid is None else found & valid

    def possible(self, ranges: Mapping[str, ValueRange]) -> bool:
        known = ranges.get(self.name)
        if known is None or known.least is None or known.greatest is None:
            return True
        return self.test.possible(known.least, known.greatest, self.wanted)


@dataclass(frozen=True)
class NullPredicate(Predicate):
    """Whether a row is null, or is not if that is ``wanted``."""

    name: str
    mask: str | None
    wanted: bool

    def rows(self, batch: Batch) -> Bits:
        _, valid = _column(batch, self.name, self.mask)
        if valid is None:
            return np.full(measure(batch)[0], not self.wanted)
        return ~valid if self.wanted else valid

    def possible(self, ranges: Mapping[str, ValueRange]) -> bool:
        known = ranges.get(self.name)
        return not self.wanted or known is None or known.nulls


def _column(batch: Batch, name: str, mask: str | None) -> tuple[Any, Bits | None]:
    is_null = None if mask is None else np.asarray(batch[mask], np.bool_)
    return values_and_validity(batch[name], is_null)
