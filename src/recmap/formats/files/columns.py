"""Labels as columns in memory, one row for each file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from recmap.formats.column_source import ColumnsSource
from recmap.formats.memory import MemoryColumn
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, owned
from recmap.model.source import Source, WithFacts

#: The corners of boxes, xmin, ymin, xmax and ymax, and the numbers of their classes.
BOXES, CLASSES = "boxes", "classes"


class LabelColumn(MemoryColumn):
    """A column of labels. They are copied, as what is read from files is."""

    def read(self, start: int, stop: int) -> Column:
        return owned(super().read(start, stop))

    def view(self) -> Column | None:
        return None


def labels_source(
    format: str, labels: str, columns: Mapping[str, Column], names: Sequence[str] | None
) -> Source:
    """Return columns of labels as a source, with the names of the classes if there are any."""
    readers = {name: LabelColumn(column, _field(column)) for name, column in columns.items()}
    source = ColumnsSource(format, [labels], readers, f"from {labels}")
    classes = {} if names is None or CLASSES not in columns else {CLASSES: list(names)}
    return WithFacts(source, labels=classes, digest=_digest(columns), owns_rows=True)


def _field(column: Column) -> Field:
    axes: list[int | None] = []
    while isinstance(column, Ragged) and not column.is_bytes:
        axes.append(None)
        column = column.values
    if isinstance(column, Ragged):
        return Field("text", tuple(axes))
    return Field(column.dtype, (*axes, *column.shape[1:]))


def _digest(columns: Mapping[str, Column]) -> str:
    """Return a digest of columns, which tells them from changed ones."""
    digest = sha256()
    for name, column in columns.items():
        digest.update(name.encode())
        inner = column
        while isinstance(inner, Ragged):
            digest.update(inner.offsets.tobytes())
            inner = inner.values
        digest.update(inner.tobytes())
    return digest.hexdigest()
