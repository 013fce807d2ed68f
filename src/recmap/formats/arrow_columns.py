"""The columns of an Arrow schema, for files that pyarrow reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from recmap.errors import (
    DataError,
    FieldNotFoundError,
    LeftOut,
    Message,
    Option,
    OptionError,
    RecmapError,
)
from recmap.formats.column_source import warn_of_left_out
from recmap.formats.row_group_file import GroupDecoding, RowGroupFile, even_cuts
from recmap.formats.stored_columns import (
    fits,
    is_stored_as,
    loses,
    restore,
    stored_field,
)
from recmap.model.arguments import no_column
from recmap.model.arrow import ArrowReader
from recmap.model.description import misfit, warn_of_notes
from recmap.model.facts import Alternative
from recmap.model.field import Field, as_field
from recmap.model.null_columns import either
from recmap.model.nulls import NULL_SUFFIX, Nulls, mask_taken, with_masks
from recmap.model.preview import listed
from recmap.model.ragged import Column
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.text import is_string_type

#: What pyarrow raises for damaged files.
ARROW_FAILURES = (
    *(pa.ArrowException, OSError, ValueError),
    *(MemoryError, OverflowError, RuntimeError),
)
_LOOSE = re.compile("date64|time32|time64|decimal|union")
# Rows that are looked at when a file is opened, to see whether a note fits them, and how many at
# once.
_CHECKED, _TOGETHER = 1 << 20, 1 << 14


class ArrowColumns:
    """The columns that recmap reads, and those it cannot.

    A column of the file is one here, or several if it is a struct: ``a/b``.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[tuple[str, Any]],
        noted: Mapping[str, Field] | None,
        nulls: Nulls,
        fields: FieldsLike | None,
    ) -> None:
        """``columns`` has the name of each column, and an empty Arrow stream of it alone.

        What these declare nullable may really have nulls. ``noted`` is the note of its columns;
        None if it cannot be read.
        """
        self._path, self._nulls = path, nulls
        self._noted = noted
        self._asked = {
            name: as_field(field)
            for name, field in (fields.items() if isinstance(fields, Mapping) else ())
            if field is not None
        }
        self._refused: dict[str, RecmapError] = {}
        # What the readers of Arrow have to know: fill values, and the types of null columns.
        self._told: dict[str, Field] = {}
        # Notes that do not fit what is stored, and those that have to be compared with values.
        self._ignored: dict[str, Field] = {}
        self._doubted: dict[str, Field] = {}
        self._found: dict[str, Field] = {}
        # What is stored, with the nulls that the file may have.
        self._stored: dict[str, Field] = {}
        #: What else columns may be read as.
        self.alternatives: dict[str, Alternative] = {}
        #: The number of the column of the file that each column is in.
        self.owners: dict[str, int] = {}
        for number, (name, stream) in enumerate(columns):
            self._add(number, name, stream)
        for name in self._refused:
            self._found.pop(name, None)
            if nulls == "mask":
                self._found.pop(name + NULL_SUFFIX, None)
        if nulls == "mask":
            self._add_masks(fields or ())
        self.schema = Schema(self._found)

    def _add_masks(self, names: Iterable[Any]) -> None:
        """Add the masks that were asked for by name, because other files have them."""
        for name in names:
            column = str(name).removesuffix(NULL_SUFFIX)
            if column != name and column in self._found and name not in self._found:
                self._found[name], self.owners[name] = Field(np.bool_), self.owners[column]

    def _add(self, number: int, column: str, table: Any) -> None:
        try:
            reader = ArrowReader(table, self._nulls, lenient=True, known="type")
            told = self._telling(reader)
            if told:
                reader = ArrowReader(table, self._nulls, fields=told, lenient=True, known="type")
                self._told.update(told)
        except (DataError, OptionError) as e:
            self._refused[column] = e
            return
        self._refused.update(reader.refused)
        self.alternatives |= reader.alternatives
        for name, field in reader.schema.items():
            if name not in self._found and name not in self._refused:
                self._found[name] = self._restored(name, field)
                self.owners[name] = number
                # The reader makes masks, of columns with this suffix, too.
                if self._nulls != "mask" or not name.endswith(NULL_SUFFIX):
                    self._stored[name] = either(field.without_nulls(), self._found[name])
            elif self._nulls != "mask" or not name.endswith(NULL_SUFFIX):
                self._refused[name] = DataError(f"two columns with the name {name!r}; rename one")
            elif name.removesuffix(NULL_SUFFIX) not in self._refused:
                raise mask_taken(name)

    def _telling(self, reader: ArrowReader) -> dict[str, Field]:
        """Return the fields that were asked for and that its reader has to know."""
        return {
            name: field
            for name, field in self._asked.items()
            if name in reader.refused
            or (name in reader.schema and not self._is_as_asked(reader.schema[name], name))
        }

    def _is_as_asked(self, stored: Field, name: str) -> bool:
        """Return whether a column needs at most to be restored, or read as bytes or text."""
        asked, noted = self._asked[name], (self._noted or {}).get(name)
        if stored == asked or (noted == asked and is_stored_as(asked, stored)):
            return True
        return is_string_type(stored, asked) and asked.fill is None

    def _restored(self, name: str, stored: Field) -> Field:
        """Return the field of a column, as the file notes it if that fits."""
        noted = (self._noted or {}).get(name)
        if noted is None or self._asked.get(name) == stored:
            return stored
        if 0 in noted.shape and stored.has_nulls:  # no values, so none of recmap is null
            self._ignored[name] = noted
            return stored
        # Values tell whether there are nulls. If the note says so, too, there may have been some.
        noted = either(noted, stored) if self._nulls == "keep" else noted.without_nulls()
        if not is_stored_as(noted, either(stored, noted)):
            if name not in self._told:
                self._ignored[name] = noted
            return stored
        if loses(noted):
            self._doubted[name] = noted
            return stored
        return noted

    def compare_notes(self, file: RowGroupFile) -> None:
        """Compare notes with values that recmap may not have written, and ignore misfits."""
        for name, noted in self._doubted.items():
            if all(fits(column, noted) for column in _some(file, name)):
                self._found[name] = noted
            else:
                self._ignored[name] = noted
        self.schema = Schema(self._found)

    def fields(self, names: Sequence[str]) -> dict[str, Field]:
        """Return what to ask for to read the same columns again."""
        return {name: self._told.get(name, self.schema[name]) for name in names}

    def choose(self, fields: FieldsLike | None, hidden: Sequence[str] = ()) -> list[str]:
        """Return the names of the requested columns, or of all that can be read and not hidden.

        A warning names those left out.
        """
        names = None if fields is None else list(fields)
        if names is None or ... in names:
            self._warn()
            names = [n for n in self.schema if n not in hidden or len(hidden) == len(self.schema)]
        for name in names:
            if name in self._refused:
                raise DataError(
                    Message(
                        f"{self._path}: {name!r} cannot be a column: ", self._refused[name].wording
                    ),
                    file=self._path,
                    field=name,
                )
            if name not in self.schema:
                raise FieldNotFoundError(f"{self._path}: {no_column(name, self.schema)}")
        self._warn_of_notes(names)
        return with_masks(names, self.schema) if self._nulls == "mask" else names

    def _warn_of_notes(self, names: Sequence[str]) -> None:
        """Warn of notes that are ignored, unless the columns were asked for as they are."""
        found = [
            misfit(name, noted, self.schema[name])
            for name, noted in self._ignored.items()
            if name in names and name not in self._asked
        ]
        unread = ["something that cannot be read"] if self._noted is None else []
        warn_of_notes(self._path, unread or found)

    def _warn(self) -> None:
        left_out = {name: LeftOut(str(why)) for name, why in self._refused.items()}
        left = [f"{name!r}: {why}" for name, (why, _) in left_out.items()]
        if not self.schema:
            raise DataError(
                f"{self._path}: no column can be read ({'; '.join(left) or 'there are none'})",
                file=self._path,
                left_out=left_out,
            )
        if left:
            warn_of_left_out(f"{self._path}: left out: {listed(left)}", left_out)

    def batch(self, arrow: Any, names: Sequence[str], first_row: int) -> Batch:
        """Convert an Arrow record batch that has these columns, and perhaps others.

        Errors count rows from ``first_row``.
        """
        known = self._stored | self._told
        told = {n: f for n, f in known.items() if n in names or self._makes_mask(n, names)}
        try:
            reader = ArrowReader(arrow, self._nulls, fields=told, names=names)
            (found,) = reader.batches(first_row=first_row)
        except DataError as e:
            raise DataError(
                Message(f"{self._path}: ", e.wording),
                file=self._path,
                field=e.field,
                record=e.record,
            ) from e
        for name in names:
            if name not in found:  # a mask of a column that has no nulls here
                found[name] = np.zeros(arrow.num_rows, np.bool_)
        return {name: self._restore(name, found[name], first_row) for name in names}

    def _makes_mask(self, name: str, names: Sequence[str]) -> bool:
        """Return whether one of these is a mask made from a column, and not one of the file."""
        mask = name + NULL_SUFFIX
        return mask in names and self.owners[mask] == self.owners.get(name)

    def _restore(self, name: str, column: Column, first_row: int) -> Column:
        field = self.schema[name]
        if not fits(column, field):
            stored = {name: str(stored_field(field)), ...: None}
            raise DataError(
                Message(
                    f"{self._path}: column {name!r}: in row {first_row:,} or later, a value is not "
                    f"{field}, although the note of its columns says so: another program has "
                    "changed the file",
                    hint=("read what is stored, ", Option("fields", stored)),
                ),
                file=self._path,
                field=name,
            )
        return restore(column, field)


@contextmanager
def decoding(file: RowGroupFile, group: int) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged row group into an error that names it."""
    try:
        yield
    except RecmapError:
        raise
    except ARROW_FAILURES as e:
        raise file.damaged(group, f"{e}{_advice(e)}") from e


def _advice(error: BaseException) -> str:
    # Older releases cannot read back what they write themselves.
    old = int(pa.__version__.split(".")[0]) < 26
    if not old or not str(error).startswith("Expected all lists to be of size"):
        return ""
    return " (pyarrow decodes null lists of a fixed size since release 26: pip install -U pyarrow)"


def check_values(table: Any) -> None:
    """Check the values of an Arrow record batch: offsets, and that text is UTF-8.

    Times out of range and decimals with too many digits are read as they are.
    """
    for number in range(table.num_columns):
        with suppress(KeyError):  # pyarrow has no such type, but could decode it
            column = table.column(number)
            column.validate(full=not _LOOSE.search(str(column.type)))


def _some(file: RowGroupFile, name: str) -> Iterator[Column]:
    """Yield the first rows of a column, some at a time."""
    left = _CHECKED
    for group, rows in enumerate(file.group_rows.tolist()):
        if left > 0 and rows:
            with suppress(DataError):  # raised when these rows are asked for
                cuts = even_cuts(rows, 1, _TOGETHER)
                cursor = GroupDecoding(file, group, cuts, (name,))
                while not cursor.ended and left > int(cuts.starts[cursor.number]):
                    yield cursor.piece(cursor.number)[name]
        left -= rows
