"""Random generators of rows: each row has its own, whoever works on it."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["Chance"]


class Chance:
    """Generators by epoch and position.

    One generator is set to the place of a row and handed out, which is many times
    cheaper than a new one for every row; so it is to be used before the next is asked
    for.
    """

    def __init__(self, seed: int, stage: int, name: str) -> None:
        entropy = [seed, stage, zlib.crc32(name.encode())]
        self._key = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=self._key)
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def at(self, epoch: int, position: int) -> np.random.Generator:
        """The generator of a row, at its beginning."""
        counter = self._state["state"]["counter"]
        counter[:] = (0, 0, position, epoch)
        self._bits.state = self._state
        return self._generator
