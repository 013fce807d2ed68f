"""AnnData files (.h5ad): matrices and tables of single cells, with a row for each cell.

A column is named by its path in the file: ``X``, ``obs/cell_type``, ``obsm/X_pca``. A sparse matrix
in rows (CSR) is two ragged columns, ``X/data`` and ``X/indices``. The tables of genes have rows of
their own: ``group="var"``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldNotFoundError, Message, Option
from recmap.formats.column_readers import ColumnReader, ComputedColumn
from recmap.formats.column_source import ColumnsSource, choose_columns
from recmap.formats.hdf5.columns import array_column
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.source import DatasetColumns
from recmap.formats.hdf5.types import text_of
from recmap.formats.ragged_layout import OFFSETS, join
from recmap.model.arguments import is_pattern, matching, no_column
from recmap.model.facts import Meaning, NotedType, TableType
from recmap.model.field import Field
from recmap.model.null_columns import emptied, kept
from recmap.model.ragged import Column, Ragged, concatenate, masked
from recmap.model.row_sizes import OFFSET

# What shares its rows with each table. The rows of a dataset are those of the first.
_TABLES = {
    "obs": ("X", "obs", "layers", "obsm", "obsp", "raw/X"),
    "var": ("var", "varm", "varp"),
    "raw/var": ("raw/var", "raw/varm"),
}
# The matrices whose columns are the rows of a table.
_MATRICES = {"var": ("X", "layers"), "raw/var": ("raw/X",)}
# Before anndata 0.7, tables are datasets with fields, some are called otherwise, and the names of
# categories are in "uns".
_FORMER = {"raw/X": "raw.X", "raw/var": "raw.var"}
_TABLES_OF_FIELDS = ("obs", "var", "obsm", "varm", "raw/var")
_BY_COLUMN = (
    "is stored by column (CSC), so reading one row would mean reading all of them; store it by "
    "row: adata.X = adata.X.tocsr(); adata.write_h5ad(new)"
)
# Codes, or values of a mask, that are looked at together.
_SPAN = 1 << 20
# More categories are not noted, and longer ones are gathered without a list of their bytes.
_MOST_NOTED, _SHORT = 10_000, 64


def open_anndata(
    path: str,
    names: list[str] | None = None,
    *,
    direct: bool = True,
    nullable: Mapping[str, bool] | None = None,
) -> ColumnsSource:
    """Open the columns of the cells, or those in ``names``, which may be those of genes.

    Without ``direct``, h5py reads all values. ``nullable`` says which columns have nulls, as far as
    that is known.
    """
    contents = _AnnData(path, direct, nullable or {})
    columns = contents.choose(names)
    again = partial(open_anndata, path, list(columns), nullable=contents.nullable)
    types = {name: each for name, each in contents.types.items() if name in columns}
    return ColumnsSource(
        "anndata",
        [path],
        columns,
        contents.shape(),
        reopen=again,
        mapped=contents.file.mapped,
        reference=partial(again, direct=False),
        table=(types, {}),
        notes=contents.notes,
        meaning=partial(meaning, path),
    )


def meaning(path: str, names: Sequence[str] | None) -> Meaning:
    """Return which genes the columns of matrices are, for the matrices that are read."""
    read = {
        table: matrices[0]
        for table, matrices in _MATRICES.items()
        if names is None or any(_may_name(each, matrices) for each in names)
    }
    return {f"the genes of {name!r}": _names_in(path, table) for table, name in read.items()}


def _may_name(name: str, elements: Sequence[str]) -> bool:
    """Return whether a name, which may be a pattern, may be a column of one of some elements."""
    if is_pattern(name):
        others = {each for tables in _TABLES.values() for each in tables} - set(elements)
        return not any(name.startswith(f"{each}/") for each in others)
    return any(name == each or name.startswith(f"{each}/") for each in elements)


def _names_in(path: str, table: str) -> bytes:
    """Return a hash of the names of the rows of a table, which may not be there."""
    contents = _AnnData(path, True, {})
    with contents.file.locked(table):
        group = contents.item(table)
        index = "index" if group is None else text_of(group.attrs.get("_index")) or "index"
    name = f"{table}/{index}"
    if name not in contents.makers:
        return b""
    column = contents.makers[name]()
    read = column.read(0, len(column))
    parts = [read.flat, read.offsets] if isinstance(read, Ragged) else [read]
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in parts)).digest()


class _AnnData:
    """The columns that a file has. ``makers`` makes a reader of each when it is needed."""

    def __init__(self, path: str, direct: bool, nullable: Mapping[str, bool]) -> None:
        self.file = Hdf5File.of(path)
        self._direct = direct
        self.makers: dict[str, Callable[[], ColumnReader]] = {}
        #: The codes of categories, which are read only by name.
        self.codes: dict[str, Callable[[], ColumnReader]] = {}
        #: Why others are not columns.
        self.refused: dict[str, str] = {}
        #: Which columns have nulls.
        self.nullable = dict(nullable)
        self.types: dict[str, TableType] = {}
        #: What to say about columns.
        self.notes: dict[str, str] = {}
        self._check()
        with self.file.locked():
            self._former = {name: each for name, each in _FORMER.items() if each in self.file.root}
        for elements in _TABLES.values():
            for name in elements:
                self._add(name)

    def _check(self) -> None:
        with self.file.locked():
            cells, genes = (self.file.root.get(name) for name in ("obs", "var"))
            if cells is None or genes is None:
                missing = "obs" if cells is None else "var"
                raise DataError(
                    Message(
                        f"{self.file.path}: not an AnnData file: it has no {missing!r}; ",
                        Option("format", "hdf5", of_input=True),
                        " reads the datasets of any HDF5 file",
                    ),
                    file=self.file.path,
                )

    def _path(self, name: str) -> str:
        """Return where an element or a part of one is in the file."""
        for element, former in self._former.items():
            if name == element or name.startswith(f"{element}/"):
                return former + name.removeprefix(element)
        return name

    def item(self, name: str) -> Any:
        """Return what is stored under a name; None if there is nothing. Calls h5py."""
        return self.file.root.get(self._path(name))

    def shape(self) -> str:
        """Return where the columns come from, and how many cells and genes there are."""
        sizes = []
        for table in ("obs", "var"):
            with self.file.locked(table):
                group = self.file.root[table]
                if isinstance(group, h5py.Group):
                    group = group.get(text_of(group.attrs.get("_index")) or "_index")
                if isinstance(group, h5py.Group):  # strings with a mask
                    group = group.get("values")
                sizes.append(f"{len(group):,}" if isinstance(group, h5py.Dataset) else "?")
        return f"from the file, which has {' x '.join(sizes)} (obs x var)"

    def _add(self, name: str) -> None:
        """Add the columns of an element and of those in it."""
        try:
            with self.file.locked(name):
                item = self.item(name)
                if isinstance(item, h5py.Group):
                    self._add_group(name, item)
                elif isinstance(item, h5py.Dataset):
                    self._add_dataset(name, item)
        except DataError as e:
            self.refused[name] = f"cannot be read: {e}"

    def _add_dataset(self, name: str, item: Any) -> None:
        if text_of(item.attrs.get("encoding-type")) == "null":
            return
        categories = item.attrs.get("categories")
        if isinstance(categories, h5py.Reference):  # before anndata 0.8
            values = self.file.root[categories]
            ordered = bool(values.attrs.get("ordered", False))
            self._add_categories(name, partial(self._array, name), values.name.strip("/"), ordered)
            return
        path = self._path(name)
        found = DatasetColumns(self.file, path, item, self._direct, text=True)
        fields = name in _TABLES_OF_FIELDS
        for column, why in found.refused.items():
            self.refused[_named(name, path, column, fields)] = f"cannot be a column: {why}"
        for column, reader in found.columns.items():
            shown, read = _named(name, path, column, fields), partial(_given, reader)
            kinds = f"uns/{shown.partition('/')[2]}_categories"
            # Those of a column of cells, if genes have one of that name, too.
            of_cells = name == "var" and f"obs/{shown.removeprefix('var/')}" in self.makers
            if name in ("obs", "var") and not of_cells and kinds in self.file.root:
                self._add_categories(shown, read, kinds, ordered=False)
            else:
                self.makers[shown] = read

    def _add_group(self, name: str, group: Any) -> None:
        kind = text_of(group.attrs.get("encoding-type")) or text_of(
            group.attrs.get("h5sparse_format")
        )
        if kind.startswith("csr"):
            shape = group.attrs["shape" if "shape" in group.attrs else "h5sparse_shape"]
            for part in ("data", "indices"):
                self.notes[f"{name}/{part}"] = f"of a sparse matrix with {int(shape[1]):,} columns"
                self.makers[f"{name}/{part}"] = partial(self._sparse, name, part, int(shape[0]))
        elif kind.startswith("csc"):
            self.refused[name] = _BY_COLUMN
        elif kind == "categorical":
            ordered = bool(group.attrs.get("ordered", False))
            codes = partial(self._array, f"{name}/codes")
            self._add_categories(name, codes, f"{name}/categories", ordered)
        elif kind.startswith("nullable-"):
            self.makers[name] = partial(self._nullable, name)
        elif kind in ("dataframe", "dict", ""):
            for each in _members(group, kind):
                if each in group:
                    self._add(f"{name}/{each}")
                else:
                    self.refused[f"{name}/{each}"] = "is not there, although its table lists it"
        elif kind != "null":
            self.refused[name] = f"has the encoding {kind!r}, which recmap does not read"

    def _add_categories(
        self, name: str, codes: Callable[[], ColumnReader], values: str, ordered: bool
    ) -> None:
        self.makers[name] = partial(self._categories, name, codes, values, ordered)
        self.codes[f"{name}/codes"] = codes

    def _array(self, name: str) -> ColumnReader:
        with self.file.locked(name):
            path = self._path(name)
            return array_column(self.file, path, self.file.root[path], self._direct)

    def _values(self, name: str) -> ColumnReader:
        """Return the only column of a dataset, with strings as text."""
        with self.file.locked(name):
            item = self.file.root[name]
            if isinstance(item, h5py.Group):
                raise self._error(name, "is a group, not an array")
            found = DatasetColumns(self.file, name, item, self._direct, text=True)
        if list(found.columns) != [name]:
            why = "; ".join(found.refused.values()) or "it has fields"
            raise self._error(name, f"cannot be a part of a column: {why}")
        return found.columns[name]

    def _sparse(self, name: str, part: str, rows: int) -> ColumnReader:
        values, ends = (self._array(f"{name}/{each}") for each in (part, "indptr"))
        with self.file.locked(name):
            lengths = {len(self.item(f"{name}/{each}")) for each in ("data", "indices")}
        if len(ends) != rows + 1 or len(lengths) != 1:
            raise self._error(
                name,
                f"is damaged: a matrix of {rows:,} rows has {len(ends):,} offsets, and its data "
                f"and indices have lengths of {sorted(lengths)}",
            )
        return join(self.file.path, f"{name}/{part}", values, {OFFSETS: ends}, False, None)

    def _nullable(self, name: str) -> ColumnReader:
        values, missing = self._values(f"{name}/values"), self._array(f"{name}/mask")
        if missing.field != Field(np.bool_) or len(missing) != len(values):
            raise self._error(name, "has a mask that does not fit its values")
        if not values.field.is_bytes:
            kind = values.field.dtype.name.replace("int", "Int").replace("u", "U")
            noted = NotedType("pandas", "boolean" if kind == "bool" else kind)
            self.types[name] = TableType(values.field, noted)
        if not self._has_nulls(name, missing, np.any):
            return values
        size = values.row_bytes() + OFFSET
        return ComputedColumn(
            [values, missing], replace(values.field, nullable=True), _with_nulls, size
        )

    def _has_nulls(
        self, name: str, column: ColumnReader, found: Callable[[npt.NDArray[Any]], Any]
    ) -> bool:
        """Return whether a column has nulls: whether some of its codes, or of its mask, say so."""
        if name not in self.nullable:
            self.nullable[name] = any(
                bool(found(np.asarray(column.read(at, min(at + _SPAN, len(column))))))
                for at in range(0, len(column), _SPAN)
            )
        return self.nullable[name]

    def _categories(
        self, name: str, codes: Callable[[], ColumnReader], values: str, ordered: bool
    ) -> ColumnReader:
        read, stored = codes(), self._category_values(values)
        if read.field.dtype.kind not in "iu" or read.field.shape or stored.field.shape:
            raise self._error(name, f"has codes that are {read.field} for {stored.field}")
        categories = stored.read(0, len(stored))
        nullable = self._has_nulls(name, read, lambda numbers: (numbers < 0).any())
        field = replace(stored.field, nullable=nullable)
        noted = _plain(categories)
        if noted is not None:
            kind = NotedType("pandas", "category", noted, ordered)
            self.types[name] = TableType(field.without_nulls(), kind)
        decode = _Categories(self.file.path, name, categories, field.nullable)
        return ComputedColumn([read], field, decode, decode.row_size, f"{len(stored):,} categories")

    def _category_values(self, name: str) -> ColumnReader:
        """Return the categories. Those that are strings of pandas 3 are stored with a mask."""
        with self.file.locked(name):
            grouped = isinstance(self.file.root[name], h5py.Group)
        if not grouped:
            return self._values(name)
        missing = self._array(f"{name}/mask")
        if missing.field != Field(np.bool_) or np.asarray(missing.read(0, len(missing))).any():
            raise self._error(name, "has a null among its categories")
        return self._values(f"{name}/values")

    def _error(self, name: str, why: str) -> DataError:
        return DataError(f"{self.file.path}: {name!r} {why}", file=self.file.path, field=name)

    def choose(self, names: Sequence[str] | None) -> dict[str, ColumnReader]:
        """Make readers of the columns that are asked for, all of one table."""
        if names is None:
            table = "obs"
            if "X" in self.refused:
                raise DataError(
                    Message(
                        f"{self.file.path}: X {self.refused['X']}; or leave it out, ",
                        Option("fields", ["obs/*"]),
                    ),
                    file=self.file.path,
                    field="X",
                )
            asked = [name for name in self.makers if _table_of(name) == table]
        else:
            asked = [each for name in names for each in self._asked(name)]
            table = next((t for t in _TABLES if any(_table_of(each) == t for each in asked)), "obs")
        makers = self.makers | self.codes
        found = {n: makers[n]() for n in asked if n in makers and _table_of(n) == table}
        refused = {n: why for n, why in self.refused.items() if names or _table_of(n) == table}
        for name in asked:
            if name in makers and _table_of(name) != table:
                refused[name] = (
                    f"has a row for each row of {_table_of(name)!r}, not of {table!r}; open it by "
                    "itself"
                )
        return choose_columns(self.file.path, found, refused, names)

    def _asked(self, name: str) -> list[str]:
        """Return the columns of a name, or those that match a pattern."""
        known = {**self.makers, **self.codes, **self.refused}
        if name in known:
            return [name]
        found = matching(name, self.makers) if is_pattern(name) else []
        refused = matching(name, self.refused) if is_pattern(name) else []
        if not found and refused:
            raise self._error(refused[0], self.refused[refused[0]])
        if not found:
            raise FieldNotFoundError(f"{self.file.path}: {no_column(name, self.makers)}")
        return found


def _named(name: str, path: str, column: str, fields: bool) -> str:
    """Return the name of a column of a dataset. The fields of a table are columns in a group."""
    rest = column.removeprefix(path)
    return name + (rest.replace(".", "/", 1) if fields else rest)


def _table_of(name: str) -> str:
    """Return the table whose rows an element or a column has."""
    for table, elements in _TABLES.items():
        if any(name == each or name.startswith(f"{each}/") for each in elements):
            return table
    return ""


def _members(group: Any, kind: str) -> Iterator[str]:
    """Yield the names of the columns of a table, the index first, or of what is in a group."""
    if kind != "dataframe":
        # A table of anndata 0.7 keeps the names of categories in it.
        yield from (name for name in group if name != "__categories")
        return
    yield text_of(group.attrs.get("_index")) or "_index"
    yield from map(text_of, group.attrs.get("column-order", ()))


def _given(column: ColumnReader) -> ColumnReader:
    return column


def _with_nulls(values: Column, missing: npt.NDArray[np.bool_]) -> Column:
    return kept(emptied(values, missing) if isinstance(values, Ragged) else values, missing)


def _plain(categories: Column) -> list[Any] | None:
    """Return categories as plain values; None if they are too many, or not text."""
    if len(categories) > _MOST_NOTED:
        return None
    if not isinstance(categories, Ragged):
        return categories.tolist() if categories.dtype.kind in "biuf" else None
    try:
        return [bytes(each).decode() for each in categories]
    except UnicodeDecodeError:
        return None  # reading the column says so


class _Categories:
    """Decodes codes: their categories, and nulls for -1."""

    def __init__(self, path: str, name: str, categories: Column, nullable: bool) -> None:
        self._path, self._name, self._nullable = path, name, nullable
        self._count = len(categories)
        if isinstance(categories, Ragged):
            nothing: Column = Ragged(categories.flat[:0], [0, 0])
            longest = int(categories.lengths.max(initial=0))
            # Short strings are gathered by the numbers of their bytes.
            self.row_size = OFFSET + longest + 24 * min(longest, _SHORT)
        else:
            nothing = np.zeros(1, categories.dtype)
            self.row_size = 2 * categories.dtype.itemsize + OFFSET
        self._categories = concatenate([categories, nothing])

    def __call__(self, codes: npt.NDArray[Any]) -> Column:
        numbers = np.asarray(codes).astype(np.int64)
        if numbers.size and not -1 <= int(numbers.min()) <= int(numbers.max()) < self._count:
            raise DataError(
                f"{self._path}: {self._name!r} has codes from {numbers.min():,} to "
                f"{numbers.max():,}, and {self._count:,} categories",
                file=self._path,
                field=self._name,
            )
        missing = numbers < 0
        column = self._categories[np.where(missing, self._count, numbers)]
        return masked(column, missing) if self._nullable else column
