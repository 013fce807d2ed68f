"""``decode_image``: turn a column of encoded images into pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from recmap.errors import ImageError, OptionError
from recmap.model.field import Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.pipeline.transforms.image_decoder import ImageDecoder

__all__ = ["DecodeImages"]


@dataclass(frozen=True)
class DecodeImages(Transform):
    """Decodes a column of images."""

    decoder: ImageDecoder
    skips_bad: bool

    @property
    def name(self) -> str:
        return "decode_image"

    @property
    def drops(self) -> bool:
        return self.skips_bad

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        column = self.decoder.column
        if schema[column] != Field("bytes"):
            raise OptionError(f"decode_image: {column!r} is {schema[column]}, not bytes")
        return self, Schema({**schema, column: self.decoder.field})

    def apply(self, block: Block) -> Block:
        strings = block.batch[self.decoder.column]
        assert isinstance(strings, Ragged)
        try:
            pixels, good = self.decoder.decode(strings)
        except ImageError as e:
            if e.row is None:
                raise
            error = ImageError(f"{block.origin(e.row)}: {e}")
            error.row = e.row
            raise error from e
        made = replace(block, batch={**block.batch, self.decoder.column: pixels})
        return made.where(good) if self.drops else made

    def describe(self) -> list[Any]:
        return ["decode_image", self.decoder.column, str(self.decoder.field)]
