"""Images that are stored as arrays, cropped while they are gathered.

Only the bytes of the crop are read, once. A transform would get copies of whole images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.machine.mapped import Guard
from recmap.model.batch import RowArray
from recmap.model.schema import Batch
from recmap.model.source import Source, at_epoch, reseeded, stored_rows
from recmap.native import _core
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.decode_image import DecodeImages, ImageDecoder
from recmap.pipeline.transforms.image_crop import RowCrops
from recmap.pipeline.trial import TransformedRows, Trial


def with_images_cropped(plan: Plan, transform: DecodeImages) -> Plan:
    """Add ``decode_image`` to a plan; images that are arrays are cropped as rows are gathered."""
    first = plan.grouping is None and not plan.transforms and not plan.row_slices
    schema = plan.known_schema if first else None
    column = transform.decoder.column
    if schema is None or schema[column].is_bytes:
        return plan.with_transform(transform)
    after = plan.with_transform(transform)  # which checks what the verb may follow
    return replace(after, rows=CroppedRows(plan.rows, transform), transforms=())


class CroppedRows(TransformedRows):
    """Rows with a column of images that are cropped."""

    def __init__(self, rows: Source, transform: DecodeImages) -> None:
        super().__init__(rows, [transform])
        self._transform = transform

    @property
    def _decoder(self) -> ImageDecoder:
        return self._transform.decoder

    @cached_property
    def _trial(self) -> Trial:
        schema = self._transform.output(self._source.schema)
        field = schema[self._decoder.column]
        image = field.dtype.itemsize * math.prod(side or 1 for side in field.shape)
        return Trial((self._transform,), schema, {}, self._source.row_bytes() + image)

    @cached_property
    def _others(self) -> Source | None:
        """The rows without their images; None if there is nothing else."""
        names = [name for name in self._source.schema if name != self._decoder.column]
        return self._source.select(names) if names else None

    def at_epoch(self, epoch: int) -> Source:
        self._others  # noqa: B018  # selected once, and not again for every batch
        return super().at_epoch(epoch)

    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        return CroppedRows(change(self._source), self._transform)

    def gather(self, rows: RowArray) -> Batch:
        rows = np.ascontiguousarray(rows, np.int64)
        source, numbers = stored_rows(self._source, rows)
        images = source.column(self._decoder.column) if len(rows) else None
        if not isinstance(images, np.ndarray) or not images.flags.c_contiguous:
            return super().gather(rows)
        made = self._cropped(source, images, numbers, rows)
        others = {}
        if self._others is not None:
            others = at_epoch(self._others, self._epoch).gather(rows)
        return {
            name: made if name == self._decoder.column else others[name]
            for name in self._source.schema
        }

    def _cropped(
        self, source: Source, images: npt.NDArray[Any], numbers: RowArray, positions: RowArray
    ) -> npt.NDArray[Any]:
        crops = RowCrops(self._decoder.crop, positions, self._epoch)
        with Guard(source):
            if source.facts.files:
                _core.prefetch_rows(images.reshape(-1), images[0].nbytes, numbers)
            return self._decoder.crop_arrays(images, crops, numbers)

    def reseeded(self, by: int) -> Source:
        return CroppedRows(reseeded(self._source, by), self._transform.reseeded(by))
