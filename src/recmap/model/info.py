"""Info: facts about the files of a dataset, as ``ds.info()`` and ``recmap info`` show them."""

from __future__ import annotations

from dataclasses import dataclass, field

from recmap.model.arguments import size_text
from recmap.model.preview import printable, quantity
from recmap.model.schema import Schema
from recmap.model.table import Column, Table

_THOUSAND = 1000


@dataclass(frozen=True)
class Info:
    """Facts about the files of a dataset, made to be printed.

    ``notes`` says what a field holds, how it is stored, or which type you could give it.
    """

    format: str
    files: list[str]
    size: int
    rows: int
    schema: Schema
    origin: str
    mapped: list[str]
    compression: list[str] = field(default_factory=list)
    record_size: int | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return what is known of the files as a whole, as pairs of a word and what it is."""
        compression = "".join(f", {name}" for name in self.compression)
        fixed = f", all records of {quantity(self.record_size, 'byte')}" if self.record_size else ""
        return [
            ("format", f"{self.format}{compression}"),
            ("size", size_fact(self.size)),
            ("rows", f"{self.rows:,}{fixed}"),
            ("schema", self.origin),
        ]

    def title(self) -> str:
        """Return the name of the file, or how many there are."""
        one = self.files[0] if self.files else "in memory"
        return one if len(self.files) <= 1 else f"{len(self.files):,} files from {one}"

    def fields(self) -> Table:
        """Return the table of fields."""
        columns = [
            Column("column", cut="middle", least=16),
            Column("type", meaning="type"),
            Column("notes", cut="end", least=16, meaning="aside"),
        ]
        rows = []
        for name, kind in self.schema.items():
            notes = ["mapped in place"] if name in self.mapped else []
            notes += [self.notes[name]] if name in self.notes else []
            rows.append([name, str(kind), "; ".join(notes)])
        return Table(columns, rows)

    def __str__(self) -> str:
        facts = [f"  {word:9}{what}" for word, what in self.facts()]
        width = max(map(len, self.schema), default=0)
        fields = [
            f"    {name:{width}}  {kind}{f'  ({note})' if note else ''}"
            for name, kind, note in self.fields().rows
        ]
        return "\n".join([printable(self.title()), *map(printable, facts), *fields])

    def _repr_html_(self) -> str:
        facts = ", ".join(f"{word} {what}" for word, what in self.facts())
        return self.fields().html(f"{self.title()}: {facts}")


def size_fact(size: int) -> str:
    """Return a size for people, and exactly.

    >>> size_fact(132), size_fact(1234567)
    ('132 B', '1.23 MB (1,234,567 bytes)')
    """
    return f"{size_text(size)} ({size:,} bytes)" if size >= _THOUSAND else size_text(size)
