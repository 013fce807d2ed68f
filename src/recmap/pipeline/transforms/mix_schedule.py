"""``rm.mix(schedule=...)``: weights that change with the position, for a curriculum.

The shares of the branches go in straight lines from one point of the schedule to the next. Each
line is divided into a few dozen pieces, in which the shares are those of its middle; so the rows
taken at the end of a piece are those of the line, to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import as_list, as_whole

# Pieces of a line between two points.
_PIECES = 64
_EXAMPLE = "[(0, [0.9, 0.1]), (1_000_000, [0.5, 0.5])]"
# Rows are counted in 64 bits.
_MOST = 2**62


def checked_schedule(schedule: Any, branches: int) -> list[tuple[int, list[float]]]:
    """Check positions and weights, and return them."""
    points = []
    for point in as_list("schedule", schedule, _EXAMPLE):
        if not isinstance(point, tuple | list) or len(point) != 2:
            raise OptionTypeError(
                f"schedule: {point!r} is not a position and weights, as in {_EXAMPLE}"
            )
        position = as_whole("schedule", point[0], most=_MOST)
        weights = as_list("schedule", point[1], "[0.9, 0.1]")
        if len(weights) != branches:
            raise OptionError(f"schedule: {len(weights)} weights for {branches} datasets")
        if not all(isinstance(each, Real) for each in weights):
            raise OptionTypeError(f"schedule: {weights!r} are not numbers")
        if not all(0 <= each < float("inf") for each in weights) or not any(weights):
            raise OptionError(f"schedule: {weights}: numbers of 0 or more, not all 0")
        points.append((position, [float(each) for each in weights]))
    positions = [position for position, _ in points]
    if not points or positions != sorted(set(positions)):
        raise OptionError(f"schedule: give points at increasing positions, as in {_EXAMPLE}")
    return points


def pieces(
    points: Sequence[tuple[int, Sequence[float]]],
) -> list[tuple[int | None, Sequence[Fraction]]]:
    """Return the pieces of all lines: the positions of each, and the weights there.

    Before the first point and after the last, weights stay; the last piece, without a number of
    positions, has no end.
    """
    exact = [(position, _shares(weights)) for position, weights in points]
    made: list[tuple[int | None, Sequence[Fraction]]] = []
    if exact[0][0]:
        made.append(exact[0])
    for (start, before), (stop, after) in pairwise(exact):
        count = min(_PIECES, stop - start)
        edges = [start + (stop - start) * i // count for i in range(count + 1)]
        for a, b in pairwise(edges):
            part = Fraction(a + b - 2 * start, 2 * (stop - start))
            weights = [x + (y - x) * part for x, y in zip(before, after, strict=True)]
            made.append((b - a, weights))
    return [*made, (None, exact[-1][1])]


def _shares(weights: Sequence[float]) -> list[Fraction]:
    """Return weights as parts of 1. They are taken as written: 0.7 is exactly seven tenths."""
    exact = [Fraction(repr(weight)) for weight in weights]
    return [each / sum(exact) for each in exact]
