"""The columns of an Arrow schema, for files that pyarrow reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recmap.errors import (
    DataError,
    FieldNotFoundError,
    LeftOut,
    Message,
    OptionError,
    RecmapError,
)
from recmap.formats.left_out import listed, warn_of_left_out
from recmap.formats.stored_columns import restore, restored_schema
from recmap.formats.string_types import is_string_type
from recmap.model.arrow import ArrowReader
from recmap.model.field import Field, as_field
from recmap.model.nulls import Nulls
from recmap.model.schema import Batch, FieldsLike, Schema

__all__ = ["ArrowColumns"]

# Maximum number of columns named in a warning.


class ArrowColumns:
    """The columns that recmap reads, and those it cannot.

    A column of the file is one here, or several if it is a struct: ``a/b``.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[tuple[str, Any]],
        metadata: Mapping[bytes, bytes] | None,
        nulls: Nulls,
        fields: FieldsLike | None,
    ) -> None:
        """``columns`` has the name of each column, and an empty Arrow stream of it alone."""
        self._path, self._nulls, self._metadata = path, nulls, metadata
        asked = {
            name: as_field(field)
            for name, field in (fields.items() if isinstance(fields, Mapping) else ())
            if field is not None
        }
        self._refused: dict[str, str] = {}
        # What the readers of Arrow have to know: fill values, and the types of null columns.
        self._told: dict[str, Field] = {}
        found: dict[str, Field] = {}
        #: The number of the column of the file that each column is in.
        self.owners: dict[str, int] = {}
        for number, (name, stream) in enumerate(columns):
            inside = {n: f for n, f in asked.items() if n == name or n.startswith(f"{name}/")}
            try:
                schema = self._schema_of(stream, inside)
            except (DataError, OptionError) as e:
                self._refused[name] = str(e)
                continue
            taken = [each for each in schema if each in found]
            if taken:
                self._refused[name] = f"another column is called {taken[0]!r}, too"
                continue
            found.update(schema)
            self.owners.update(dict.fromkeys(schema, number))
        self.schema = Schema(found)

    def _schema_of(self, table: Any, asked: Mapping[str, Field]) -> Schema:
        try:
            stored = ArrowReader(table, self._nulls).schema
            schema = restored_schema(stored, self._metadata)
        except RecmapError:
            if not asked:
                raise
            schema = Schema({})
        told = {
            name: field
            for name, field in asked.items()
            if name not in schema or not _is_same(schema[name], field)
        }
        if not told:
            return schema
        stored = ArrowReader(table, self._nulls, fields=told).schema
        self._told.update(told)
        return restored_schema(stored, self._metadata)

    def choose(self, fields: FieldsLike | None) -> list[str]:
        """Return the names of the requested columns, or of all that can be read.

        A warning names those left out.
        """
        names = None if fields is None else list(fields)
        if names is None or ... in names:
            self._warn()
            return list(self.schema)
        for name in names:
            if name in self._refused:
                raise DataError(
                    f"{self._path}: {name!r} cannot be a column: {self._refused[name]}",
                    file=self._path,
                    field=name,
                )
            if name not in self.schema:
                raise FieldNotFoundError(
                    f"{self._path}: no column {name!r}; there are: {', '.join(self.schema)}"
                )
        return names

    def _warn(self) -> None:
        if not self.schema:
            why = "; ".join(f"{name!r}: {why}" for name, why in self._refused.items())
            raise DataError(
                f"{self._path}: no column can be read ({why or 'there are none'})",
                file=self._path,
                left_out=self._left_out(),
            )
        if left := [f"{name!r}: {why}" for name, why in self._refused.items()]:
            warn_of_left_out(f"{self._path}: left out: {listed(left)}", self._left_out())

    def _left_out(self) -> dict[str, LeftOut]:
        return {name: LeftOut(why) for name, why in self._refused.items()}

    def batch(self, arrow: Any, names: Sequence[str], first_row: int) -> Batch:
        """Convert an Arrow record batch that has these columns, and perhaps others.

        Errors count rows from ``first_row``.
        """
        told = {name: self._told[name] for name in names if name in self._told}
        try:
            reader = ArrowReader(arrow, self._nulls, fields=told)
            (found,) = reader.batches(first_row=first_row)
        except DataError as e:
            raise DataError(
                Message(f"{self._path}: ", e.wording),
                file=self._path,
                field=e.field,
                record=e.record,
            ) from e
        return {name: restore(found[name], self.schema[name]) for name in names}


def _is_same(found: Field, asked: Field) -> bool:
    """Return whether a column is as asked for, or needs only to be read as bytes or text."""
    return found == asked or (is_string_type(found, asked) and asked.fill is None)
