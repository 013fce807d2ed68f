"""The user's functions, called with rows or batches and, if they ask, a random generator."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from recmap.errors import MapError, OptionError
from recmap.pipeline.transforms.base import Block, Transform

__all__ = ["Function", "FunctionTransform", "batch_text", "function_failed"]


class Function:
    """A function that may take a random generator, ``rng``, besides its rows."""

    def __init__(self, fn: Callable[..., Any], seed: int, stage: int) -> None:
        if not callable(fn):
            raise OptionError(f"{fn!r} is not a function")
        self.fn, self.seed, self.stage = fn, seed, stage
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self._random = _takes_rng(fn)

    def calls(self, epoch: int) -> Callable[[Any, int], Any]:
        """Return a function of rows and their position, for one batch in one thread."""
        if not self._random:
            return lambda rows, _: self.fn(rows)
        # Threads cannot share a generator.
        generators = RowGenerators(self.seed, self.stage, self.name)
        return lambda rows, position: self.fn(rows, rng=generators.at(epoch, position))

    def reseeded(self, by: int) -> Function:
        """Return it as another function of a pipeline, with other random numbers."""
        return Function(self.fn, self.seed, self.stage + by)

    def describe(self) -> list[Any]:
        return [self.name, self.seed, self.stage]


def _takes_rng(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # builtins may have no signature
        return False
    return "rng" in parameters


@dataclass(frozen=True)
class FunctionTransform(Transform):
    """A transform that calls a user's function."""

    function: Function
    verb: ClassVar[str] = "map"
    calls_user_code = True

    @property
    def name(self) -> str:
        return f"{self.verb} {self.function.name}"

    def reseeded(self, by: int) -> Self:
        return replace(self, function=self.function.reseeded(by))

    def describe(self) -> list[Any]:
        # States of recmap 0.1 identify these transforms by their class names.
        return [type(self).__name__, *self.function.describe()]


class RowGenerators:
    """Random generators by epoch and position: each row has its own, on any worker.

    One generator is set to the state of a row and handed out, which is many times cheaper
    than a new one for every row; use it before asking for the next. Philox, which can start
    at any position, gives the state; SFC64 draws the numbers, in half the time.
    """

    def __init__(self, seed: int, stage: int, name: str) -> None:
        entropy = [seed, stage, zlib.crc32(name.encode())]
        key = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        self._places = np.random.Philox(key=key)
        self._place = self._places.state
        self._bits = np.random.SFC64(0)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, epoch: int, position: int) -> np.random.Generator:
        """Return the generator of a row, at its start."""
        self._place["state"]["counter"][:] = (0, 0, position, epoch)
        self._places.state = self._place
        # SFC64's state is three random words, and a counter that starts at one.
        words = self._state["state"]["state"]
        words[:3] = self._places.random_raw(3)
        words[3] = 1
        self._bits.state = self._state
        return self._generator


def function_failed(name: str, where: str, error: Exception) -> MapError:
    """Return the error to raise when a user's function has raised one."""
    return MapError(
        f"{where}: {name} failed: {type(error).__name__}: {error}", cause_type=type(error).__name__
    )


def batch_text(block: Block) -> str:
    """Say where a batch comes from, for error messages."""
    if not len(block.positions):
        return "no rows"
    return f"a batch of {len(block.positions):,} rows from {block.origin(0)} on"
