"""Random generators of rows: each row has its own, whoever works on it."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["Chance"]


class Chance:
    """Generators by epoch and position.

    One generator is set to the place of a row and handed out, which is many times
    cheaper than a new one for every row; so it is to be used before the next is asked
    for. Philox, which can begin at any place, says where; SFC64 draws, for it takes half
    the time: what functions of rows draw is often noise for every value.
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
        """The generator of a row, at its beginning."""
        self._place["state"]["counter"][:] = (0, 0, position, epoch)
        self._places.state = self._place
        # Three words by lot, and a counter, which begins at one.
        words = self._state["state"]["state"]
        words[:3] = self._places.random_raw(3)
        words[3] = 1
        self._bits.state = self._state
        return self._generator
