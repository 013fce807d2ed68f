"""Decoding of images as a step of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from recmap.errors import ImageError, OptionError
from recmap.model.ragged import Ragged
from recmap.model.schema import Field, Schema
from recmap.pipeline.transforms.base import Rowset, Step
from recmap.pipeline.transforms.image_decoder import ImageDecoder

__all__ = ["DecodeImages"]


@dataclass(frozen=True)
class DecodeImages:
    """A column of encoded images becomes one of pixels."""

    decoder: ImageDecoder
    drops: bool
    ours = True

    @property
    def name(self) -> str:
        return "decode_image"

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        column = self.decoder.column
        if schema[column] != Field("bytes"):
            raise OptionError(f"decode_image: {column!r} is {schema[column]}, not bytes")
        return self, Schema({**schema, column: self.decoder.field})

    def apply(self, rows: Rowset) -> Rowset:
        strings = rows.batch[self.decoder.column]
        assert isinstance(strings, Ragged)
        try:
            pixels, good = self.decoder.decode(strings)
        except ImageError as e:
            if e.row is None:
                raise
            error = ImageError(f"{rows.whence(e.row)}: {e}")
            error.row = e.row
            raise error from e
        made = replace(rows, batch={**rows.batch, self.decoder.column: pixels})
        return made.kept(good) if self.drops else made

    def renumbered(self, by: int) -> Step:
        del by  # nothing here is left to chance
        return self

    def describe(self) -> list[Any]:
        return ["decode_image", self.decoder.column, str(self.decoder.field)]
