"""The rows of a pipeline's batches, as a training loop would get them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import RLock
from typing import Any

from recmap.errors import OptionError, RecmapError
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.pipeline.pipeline import Pipeline, Verbs
from recmap.view.table import Count, Damage, TableRow

# Batches taken at a time, unless they are larger than this.
_BATCHES = 16
_SIZE = 64 << 20
# The rows of a batch if the pipeline has no batches.
_BATCH_ROWS = 32


def load_pipeline(name: str) -> Pipeline:
    """Import a pipeline, or a function that makes one, from ``module:attribute``."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise OptionError(f"--pipeline {name}: write module:name, such as train:pipeline")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the working directory, as `python -c` does
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as e:
        raise OptionError(f"--pipeline {name}: {e}") from None
    made: Any = found() if callable(found) and not isinstance(found, Verbs) else found
    if not isinstance(made, Verbs):
        raise OptionError(f"--pipeline {name} is a {type(made).__name__}, not a pipeline of recmap")
    return made.pipeline()


class BatchTable:
    """Some of the batches of a pipeline. ``advance`` takes the next ones.

    It has the members of a ``RowTable`` that the page needs.
    """

    format = "pipeline"
    size = None

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.name, self.labels = name, dict[str, Sequence[str]]()
        try:
            self._pipeline = pipeline.batch(_BATCH_ROWS)
        except RecmapError:
            self._pipeline = pipeline  # it has batches already
        self._lock = RLock()
        self._first = 0  # the number of the first batch held
        self._held: list[Batch] = []
        self._rest: Iterator[dict[str, Any]] = iter(self._pipeline)
        self.advance()

    @property
    def schema(self) -> Schema:
        return self._pipeline.schema

    @property
    def batches(self) -> tuple[int, int]:
        """The span of the batches held."""
        return self._first, self._first + len(self._held)

    def advance(self) -> None:
        """Replace the batches held by the next ones. After the last, begin the next epoch."""
        with self._lock:
            first = self._first + len(self._held)
            held = self._take()
            if not held:
                self._rest, first = iter(self._pipeline), 0
                held = self._take()
            self._first, self._held = first, held

    def _take(self) -> list[Batch]:
        held: list[Batch] = []
        size = 0
        for batch in islice(self._rest, _BATCHES):
            held.append({name: column[:] for name, column in batch.items()})
            size += measure(held[-1])[1]
            if size > _SIZE:
                break
        return held

    def count(self) -> Count:
        rows = sum(measure(batch)[0] for batch in self._held)
        return Count(rows, exact=True, found=rows)

    def find(self, row: int, seconds: float) -> bool:
        """Return True: all rows are held."""
        del row, seconds
        return True

    def rows(self, numbers: Iterable[int]) -> list[TableRow]:
        """Return rows by their place among those held."""
        with self._lock:
            found = []
            for number in numbers:
                batch, _, i = self._place(number)
                if batch is not None:
                    values = {name: column[i] for name, column in batch.items()}
                    found.append(TableRow(number, values))
            return found

    def row(self, number: int) -> TableRow | None:
        """Return one row, or None if there is none."""
        return next(iter(self.rows([number])), None)

    def title(self, number: int) -> str:
        """Return the batch of a row, and its place there."""
        _, batch, i = self._place(number)
        return f"{batch}:{i}"

    def read(
        self, columns: Sequence[str], start: int, stop: int, limit: int = 0
    ) -> tuple[Batch, Damage | None]:
        """Return rows of one batch."""
        del limit
        batch, _, i = self._place(start)
        if batch is None:
            return {name: column[:0] for name, column in self._held[0].items()}, None
        return {name: batch[name][i : i + stop - start] for name in columns}, None

    def _place(self, row: int) -> tuple[Batch | None, int, int]:
        for k, batch in enumerate(self._held):
            rows = measure(batch)[0]
            if row < rows:
                return batch, self._first + k, row
            row -= rows
        return None, 0, 0
