"""Decode records and pad their ragged rows in the same step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recmap.model.batch import Allocate, PaddedColumn, PaddedRows, PadSpec
from recmap.model.field import Field
from recmap.native import _core
from recmap.tfrecord.decoder import ExampleDecoder, Records, assemble
from recmap.tfrecord.unknown_features import Where

__all__ = ["PaddedDecoder"]


class PaddedDecoder:
    """Decodes records as ``decoder`` does, but pads the fields in ``pads``.

    Each ``size`` rows of a padded field become one array of equally long rows, in memory from
    ``memory``.
    """

    def __init__(
        self, decoder: ExampleDecoder, pads: Mapping[str, PadSpec], size: int, memory: Allocate
    ) -> None:
        self.schema, self.error = decoder.schema, decoder.error
        self._decoder, self._size, self._memory = decoder, size, memory
        self._pads = [_core.Pad(*pads[n]) if n in pads else None for n in decoder.schema]

    def decode(
        self, records: Records, verify: bool, threads: int, where: Where
    ) -> tuple[PaddedRows, _core.Fault | None]:
        """Decode records, or return the fault of the first bad one."""
        made, fault = self._decoder.parts(
            records, verify, threads, where, self._pads, self._size, self._memory
        )
        rows = PaddedRows({}, {})
        for name, parts in made.items():
            field = self.schema[name]
            if isinstance(parts, tuple) and len(parts) == 2:
                rows.padded[name] = self._column(field, parts)
            else:
                rows.others[name] = assemble(field, parts)
        return rows, fault

    def _column(self, field: Field, parts: _core.Padded) -> PaddedColumn:
        raws, offsets = parts
        count, dtype, inner = len(offsets) - 1, field.dtype, field.inner
        item = dtype.itemsize * field.count
        arrays = []
        for start, raw in zip(range(0, count, self._size), raws, strict=True):
            rows = min(self._size, count - start)
            arrays.append(raw.view(dtype).reshape(rows, raw.nbytes // (rows * item), *inner))
        return PaddedColumn(arrays, np.diff(offsets))
