"""Schema, a mapping from names to fields, and Batch, a dict from names to columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from recmap.errors import FieldNotFoundError, FieldTextError, OptionError
from recmap.model.arguments import as_names, no_column
from recmap.model.field import Field, FieldLike, as_field
from recmap.model.preview import quantity
from recmap.model.ragged import Column
from recmap.model.table import html_table

Batch: TypeAlias = dict[str, Column]
"""A dict of columns of equal length."""

# Keys are names or an ellipsis. Mapping is invariant in its keys, so no narrower type fits both.
FieldsLike: TypeAlias = "Mapping[Any, FieldLike | None] | Iterable[str]"


class Schema(Mapping[str, Field]):
    """The columns of a dataset and their types, by name and in order.

    >>> Schema({"x": "float32[10]", "label": "int64"})
    Schema(x: float32[10], label: int64)
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, FieldLike]) -> None:
        if not isinstance(fields, Mapping):
            raise FieldTextError(
                f'a schema is a dict of types by name, such as {{"x": "float32[10]"}}, not '
                f"{type(fields).__name__}"
            )
        for name in fields:
            if not isinstance(name, str):
                raise FieldTextError(f"column {name!r}: the name of a column is text")
        self._fields = {name: as_field(field) for name, field in fields.items()}

    def __getitem__(self, name: str) -> Field:
        try:
            return self._fields[name]
        except (KeyError, TypeError):
            raise FieldNotFoundError(no_column(name, self._fields)) from None

    def select(self, names: Iterable[str]) -> Schema:
        """Return these fields, in this order."""
        return Schema({name: self[name] for name in as_names("names", names)})

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._fields

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        try:
            return self._fields == Schema(other)._fields
        except (OptionError, TypeError, AttributeError):  # a mapping, but not of fields
            return False

    def __hash__(self) -> int:
        # Equality ignores the order, so the hash must ignore it too.
        return hash(frozenset(self._fields))

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}: {field}' for name, field in self.items())})"

    def _repr_html_(self) -> str:
        return html_table(quantity(len(self), "column"), ["column", "type"], self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """Return names and types as the rows of a table."""
        return [(name, str(field)) for name, field in self.items()]
