"""MegatronOrder: documents and samples in the order of Megatron-LM, to continue a run of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from recmap.errors import OptionError
from recmap.model.arguments import as_mapping, as_whole
from recmap.model.batch import RowArray


class MegatronOrder(NamedTuple):
    """The order in which Megatron-LM reads samples: documents are shuffled, then samples."""

    seed: int
    samples: int

    @classmethod
    def checked(cls, given: Any) -> MegatronOrder:
        options = as_mapping("megatron", given, '{"seed": 1234, "samples": 1_000_000}')
        if options.keys() != {"seed", "samples"}:
            raise OptionError(
                f"megatron={given!r}: give the seed of the run and the number of its samples: "
                '{"seed": 1234, "samples": 1_000_000}'
            )
        return cls(
            as_whole("seed", options["seed"], 0, 2**32 - 1),
            as_whole("samples", options["samples"], 1),
        )

    def of(self, starts: RowArray, length: int, extra: int) -> tuple[RowArray, RowArray]:
        """Return the documents of all epochs that so many samples take, and their samples.

        Document ``i`` has tokens ``starts[i]`` to ``starts[i + 1]``. A sample has ``length``
        tokens, and ends ``extra`` later.

        As in ``GPTDataset`` of Megatron-LM: all epochs are shuffled as one, except for the last
        one if less than 80% of it is needed.
        """
        tokens = int(starts[-1])
        if tokens < 1:
            return np.arange(len(starts) - 1), np.empty(0, np.int64)
        epochs = max(1, -(-(self.samples * length + extra) // tokens))
        before = max(0, (epochs - 1) * tokens - extra) // length
        last_alone = epochs > 1 and self.samples - before < int(0.8 * ((tokens - extra) // length))
        random = np.random.RandomState(self.seed)
        parts = [epochs - 1, 1] if last_alone else [epochs]
        rows = np.concatenate(
            [_shuffled(random, np.tile(np.arange(len(starts) - 1), part)) for part in parts]
        )
        count = max(0, epochs * tokens - extra) // length
        edges = [0, before, count] if last_alone else [0, count]
        samples = [_shuffled(random, np.arange(a, b)) for a, b in pairwise(edges)]
        return rows, np.concatenate(samples)


def _shuffled(random: np.random.RandomState, numbers: RowArray) -> RowArray:
    random.shuffle(numbers)
    return numbers
