"""``flat_map``: call a function with every row; it returns any number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recmap.errors import MapError, RecmapError
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.map import FunctionTransform, MapRows, function_failed
from recmap.pipeline.transforms.returned_values import keeps_arrays, kept, sample_schema


def _returned(
    transform: FunctionTransform, block: Block
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Call the function with every row; yield what it returns, with the place of its row."""
    call = transform.function.calls(block.epoch)
    columns = block.batch.items()
    for i, position in enumerate(block.positions.tolist()):
        try:
            rows = call({name: column[i] for name, column in columns}, position)
            wrong = _wrong_rows(rows)
            for row in () if wrong else rows:
                if not isinstance(row, Mapping):
                    wrong = f"{type(row).__name__} in its list; each row is a dict of values"
                    break
                yield i, row
            if wrong:
                raise MapError(f"{block.origin(i)}: {transform.name} returned {wrong}")
        except RecmapError:
            raise
        except Exception as e:
            raise function_failed(transform.name, block.origin(i), e) from e


def _wrong_rows(rows: Any) -> str | None:
    """Say what is wrong with what should be a list of rows; None if nothing is."""
    if isinstance(rows, Mapping):
        return "a dict; return a list of dicts, of one if there is one row"
    if isinstance(rows, str | bytes) or not hasattr(rows, "__iter__"):
        return f"{type(rows).__name__}; return a list of dicts, empty if there are no rows"
    return None


@dataclass(frozen=True)
class FlatMapRows(MapRows):
    """Calls the function with every row: a dict of values in, any number of dicts out."""

    verb = "flat_map"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        rows = []
        for _, row in _returned(self, sample):
            self.function.keeps_arrays |= keeps_arrays(row, sample.batch)
            rows.append(kept(dict(row)))
        found = self.fields or schema
        if rows:
            found = sample_schema(rows, schema, self.fields or Schema({}))
        return replace(self, found=found), found

    def _apply(self, block: Block) -> Block:
        places, rows = [], []
        for place, row in _returned(self, block):
            places.append(place)
            # Copy at once: the function may use the same array for the next row.
            rows.append(kept(dict(row)))
        made = replace(block, positions=block.positions[np.array(places, np.int64)])
        return replace(made, batch=self._columns(rows, made))


@dataclass(frozen=True)
class CountReturnedRows(FunctionTransform):
    """Replaces rows by the number of rows that the function returns for each."""

    verb = "flat_map"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        del schema, sample
        return self, Schema({"rows": Field("int64")})

    def apply(self, block: Block) -> Block:
        with self.function.turn():
            places = [place for place, _ in _returned(self, block)]
        counts = np.bincount(np.array(places, np.int64), minlength=len(block.positions))
        return replace(block, batch={"rows": counts})
