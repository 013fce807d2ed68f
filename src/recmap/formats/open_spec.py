"""How files were opened, so that another process can open them, or some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recmap.files.paths import PathsLike
from recmap.formats.registry import OpenOptions, open_source
from recmap.formats.tfrecord_source import FieldsLike
from recmap.model.source import Source

__all__ = ["Opening"]


@dataclass(frozen=True)
class Opening:
    """The paths, and what ``rm.open`` was told. Calling it opens them."""

    paths: PathsLike
    fields: FieldsLike | None
    options: OpenOptions

    def __call__(self) -> Source:
        return open_source(self.paths, self.fields, self.options)

    def only(self, files: Sequence[str], columns: Sequence[str]) -> Opening:
        """Some of the files and columns. By name, so that nothing is warned of again."""
        return replace(self, paths=list(files), fields=list(columns))
