"""HDF5 files: datasets of equal length are columns.

A column is named after the path of its dataset, ``group/x``. Each field of a compound dataset
is a column, ``table.field``; a nested field is ``table.outer.inner``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from recmap.errors import (
    DataError,
    FieldNotFoundError,
    LeftOut,
    OptionError,
)
from recmap.formats.column_readers import ColumnReader
from recmap.formats.column_source import ColumnsSource, common_length, warn_of_left_out
from recmap.formats.hdf5.columns import columns_of, nested_column, nested_field, refusal
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.types import ORDER_ATTRIBUTE, TABLE_ATTRIBUTE, leaves
from recmap.formats.null_masks import mask_names, with_nulls
from recmap.local.local_path import located
from recmap.model.arguments import did_you_mean, is_pattern, matching
from recmap.model.facts import TableType
from recmap.model.source import Source, renamed
from recmap.model.table_notes import and_index, decode_note, divided

# Drivers of files that are not on disk under their name.
_IN_MEMORY = ("core", "fileobj", "ros3")
# Maximum number of names listed in a message.
_LISTED = 20
# Groups that programs use internally: the prefix of the name, the attribute that marks files
# of the program, and what the group is.
_PRIVATE = (
    ("_i_", "PYTABLES_FORMAT_VERSION", "an index of PyTables"),
    ("_p_", "PYTABLES_FORMAT_VERSION", "internal data of PyTables"),
    ("#refs#", None, "the contents of MATLAB cells"),
    ("#subsystem#", None, "internal data of MATLAB"),
)


def open_hdf5(
    path: str, names: list[str] | None = None, *, direct: bool = True, inside: str = ""
) -> ColumnsSource:
    """Open the datasets of a file, or only those in ``names``.

    Without names, open all datasets, or those with the most common number of rows if the
    numbers differ; a LeftOutWarning names the others. ``inside`` is the only dataset or group
    to look into. Without ``direct``, h5py reads all values. A name may be a pattern.
    """
    file = Hdf5File.of(path)
    types = _table_types(file) if not inside else {}
    asked = and_index(names, types, file.root)
    columns = with_nulls(_all(file, inside) if asked is None else _asked(file, asked, direct))
    columns, table = divided(columns, types, names)
    # Reopen by name, so that the warning about datasets left out is not repeated.
    again = partial(open_hdf5, path, list(columns), direct=direct)
    other = partial(open_hdf5, path, list(columns), direct=False)
    return ColumnsSource(
        "hdf5", [path], columns, reopen=again, mapped=file.mapped, reference=other, table=table
    )


def _table_types(file: Hdf5File) -> dict[str, TableType]:
    """Return what columns were in the table that was saved, as far as the file says."""
    with file.locked():
        note = file.root.attrs.get(TABLE_ATTRIBUTE)
    return decode_note(note) if isinstance(note, str) else {}


class DatasetColumns:
    """The columns of a dataset, or of a group that is a column.

    ``refused`` says why the other fields are not columns. With ``text``, strings are text even if
    recmap did not write them.
    """

    def __init__(
        self, file: Hdf5File, name: str, dataset: Any, direct: bool = True, *, text: bool = False
    ) -> None:
        self.name = name
        self.columns: dict[str, ColumnReader] = {}
        self.refused: dict[str, str] = {}
        with file.locked(name):
            self.order = dataset.attrs.get(ORDER_ATTRIBUTE)
        if isinstance(dataset, h5py.Group):
            self.columns[name] = nested_column(file, name, dataset, direct)
            return
        with file.locked(name):
            why = refusal(file, dataset)
            if why:
                self.refused[name] = why
                return
            readable = []
            for leaf in leaves(dataset):
                column = ".".join([name, *leaf.path])
                if leaf.reason:
                    self.refused[column] = leaf.reason
                else:
                    readable.append((column, leaf.as_text() if text else leaf))
            readers = columns_of(file, name, dataset, [leaf for _, leaf in readable], direct)
            for (column, _), reader in zip(readable, readers, strict=True):
                self.columns[column] = reader

    def keep(self, pattern: str) -> None:
        """Keep what matches a pattern."""
        self.columns = {name: self.columns[name] for name in matching(pattern, self.columns)}
        self.refused = {name: self.refused[name] for name in matching(pattern, self.refused)}


@dataclass(frozen=True)
class Hdf5Place:
    """A dataset or group in a file. Calling it opens its columns, in any process.

    ``prefix`` is what their names begin with in the file, but not here.
    """

    path: str
    name: str
    prefix: str

    def __call__(self) -> Source:
        source = open_hdf5(self.path, inside=self.name)
        names = {name.removeprefix(self.prefix): name for name in source.schema}
        return renamed(source, names) if self.prefix else source


def hdf5_place(item: Any) -> Hdf5Place | None:
    """Return where an object of h5py lies; None for a dataset that exists only in memory."""
    if not item:
        raise OptionError(f"{item!r}: its file was closed; give the path to rm.open instead")
    file, is_group = item.file, isinstance(item, h5py.Group)
    if file.driver in _IN_MEMORY or item.name is None:
        if is_group:
            raise OptionError(
                f"{item!r} exists only in memory; give its datasets one by one: "
                'rm.open({"x": group["x"]})'
            )
        return None
    if file.mode != "r":
        raise OptionError(
            f"{file.filename} is open for writing, so what is on disk may be old; close it, or "
            'open it with h5py.File(path, "r")'
        )
    if not os.path.isfile(file.filename):
        raise OptionError(
            f"{file.filename}, the file of {item!r}, is no longer on disk; read the dataset "
            "into memory, rm.open(dataset[()])"
        )
    name = item.name.strip("/")
    group = name if is_group else name.rpartition("/")[0]
    path = _path_of(file)
    return Hdf5Place(path, name, f"{group}/" if group else "")


def _path_of(file: Any) -> str:
    """Return the path of an open file; raise if another file has taken its place."""
    path = located(os.path.abspath(file.filename)).found()
    if file.driver == "sec2":
        located(path).check_unchanged(os.fstat(file.id.get_vfd_handle()))
    return path


def _asked(file: Hdf5File, names: list[str], direct: bool) -> dict[str, ColumnReader]:
    """Return the columns that are named, and those of datasets that match a pattern."""
    columns: dict[str, ColumnReader] = {}
    plain: list[str] = []
    for name in names:
        with file.locked(name):
            literal = not is_pattern(name) or _is_column(file.root.get(name.strip("/")))
        if literal:
            plain.append(name)
        else:
            columns |= _all(file, "", name.lstrip("/"))
            # Keep the order in which columns are asked for.
            plain += [each for each in columns if each not in plain]
    named = _named(file, [name for name in plain if name not in columns], direct)
    every = {**columns, **named}
    return {name: every[name] for name in dict.fromkeys([*plain, *every])}


def _all(file: Hdf5File, inside: str, pattern: str = "*") -> dict[str, ColumnReader]:
    """Return the columns in a group that match a pattern and have equally many rows."""
    tables: list[DatasetColumns] = []
    refused: dict[str, str] = {}
    whats: dict[str, str] = {}
    for name, item in items_of(file, inside):
        if isinstance(item, str):
            refused |= dict.fromkeys(matching(pattern, [name]), item)
            continue
        with file.locked(name):
            whats[name] = _what(item)
        try:
            table = DatasetColumns(file, name, item)
        except DataError as e:
            refused |= dict.fromkeys(matching(pattern, [name]), str(e))
            continue
        table.keep(pattern)
        refused.update(table.refused)
        if table.columns:
            tables.append(table)
    if not tables and not refused and pattern != "*":
        raise FieldNotFoundError(f"{file.path}: no column matches {pattern!r}{_available(file)}")
    if not tables:
        raise DataError(
            f"{file.path}: no dataset can be a column{_listing(refused)}"
            if refused
            else f"{file.path}: {repr(inside) if inside else 'the HDF5 file'} holds no datasets",
            file=file.path,
            left_out=_left_out(refused, whats),
        )
    if all(isinstance(table.order, np.integer) for table in tables):
        tables.sort(key=lambda table: table.order)
    columns = _of_equal_length(tables, refused)
    if refused:
        told = f"{file.path}: not all of it is read{_listing(refused)}"
        warn_of_left_out(told, _left_out(refused, whats))
    return columns


def _what(item: Any) -> str:
    """Return the type and shape of a dataset, or of a group that is a column, as text."""
    try:
        if isinstance(item, h5py.Group):
            return str(nested_field(item))
        return f"{item.dtype.name if item.dtype.names is None else 'compound'} {item.shape}"
    except Exception:  # a type that NumPy does not have
        return ""


def _left_out(refused: Mapping[str, str], whats: Mapping[str, str]) -> dict[str, LeftOut]:
    """Say what each part is. A field of a compound dataset is what its dataset is."""
    found = {}
    for name, why in refused.items():
        owner = name
        while owner not in whats and "." in owner:
            owner = owner.rpartition(".")[0]
        found[name] = LeftOut(why, whats.get(owner, ""))
    return found


def items_of(file: Hdf5File, inside: str) -> Iterator[tuple[str, Any]]:
    """Walk the tree of the file, holding the lock only to open the next item."""
    entries = _walk(file.root, inside)
    while True:
        with file.locked():
            entry = next(entries, None)
        if entry is None:
            return
        yield entry


def _of_equal_length(
    tables: list[DatasetColumns], refused: dict[str, str]
) -> dict[str, ColumnReader]:
    lengths = [len(next(iter(table.columns.values()))) for table in tables]
    rows = common_length(lengths)
    columns: dict[str, ColumnReader] = {}
    datasets = {table.name for table in tables}
    for table, length in zip(tables, lengths, strict=True):
        for name, column in table.columns.items():
            if length != rows:
                refused[name] = f"it has {length:,} rows, not {rows:,}"
            # A dataset "a.b" wins over field "b" of "a", as it does when requested by name.
            elif name in columns or (name != table.name and name in datasets):
                refused[name] = "another column has that name"
            else:
                columns[name] = column
    return columns


def _named(file: Hdf5File, names: list[str], direct: bool) -> dict[str, ColumnReader]:
    tables: dict[str, DatasetColumns] = {}
    columns: dict[str, ColumnReader] = {}
    for name in names:
        with file.locked(name):
            found = _find(file.root, name.strip("/"))
        if found is None:
            raise FieldNotFoundError(f"{file.path}: no dataset {name!r}{_available(file, name)}")
        path, dataset = found
        if path not in tables:
            tables[path] = DatasetColumns(file, path, dataset, direct)
        columns[name] = _column(file, tables[path], name)
        for mask in mask_names(name):
            with file.locked(name):
                stored = _find(file.root, mask.strip("/"))
            # Only a dataset of its own, not the member of a table.
            if stored is not None and stored[0] == mask.strip("/") and mask not in names:
                columns |= DatasetColumns(file, mask, stored[1], direct).columns
    return columns


def _column(file: Hdf5File, table: DatasetColumns, name: str) -> ColumnReader:
    plain = name.strip("/")
    if plain in table.columns:
        return table.columns[plain]
    why = table.refused.get(plain)
    if why is not None:
        raise DataError(
            f"{file.path}: {name!r} cannot be a column: {why}", file=file.path, field=name
        )
    listed = ", ".join(map(repr, [*table.columns, *table.refused]))
    raise FieldNotFoundError(f"{file.path}: no column {name!r}; its table has: {listed}")


def _available(file: Hdf5File, wanted: str = "") -> str:
    with file.locked():
        names = [name for name, item in _walk(file.root) if not isinstance(item, str)]
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    if not names:
        return "; there are none"
    return (
        f"; there are: {', '.join(names[:_LISTED])}{more}{did_you_mean(wanted.strip('/'), names)}"
    )


def _listing(refused: Mapping[str, str]) -> str:
    reasons: dict[str, list[str]] = {}
    for name, why in list(refused.items())[:_LISTED]:
        reasons.setdefault(why, []).append(repr(name))
    some = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
    more = f" and {len(refused) - _LISTED:,} more" if len(refused) > _LISTED else ""
    return f"; left out: {', '.join(some)}{more}"


def _walk(root: Any, inside: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each dataset or group that is a column once, with its path.

    ``inside`` is where to begin. For an item that cannot or should not be opened, yield a string
    with the reason instead.
    """
    start = root[inside] if inside else root
    if _is_column(start):
        yield inside, start
        return
    seen = {h5py.h5o.get_info(start.id).addr}
    below = f"{inside}/" if inside else ""
    pending = [(f"{below}{_text(name)}", start, name) for name in reversed(list(start))]
    while pending:
        path, group, name = pending.pop()
        if isinstance(name, bytes):
            yield path, "its name is not UTF-8"
            continue
        try:
            why = _not_followed(group, name)
            if why is not None:
                if why:
                    yield path, why
                continue
            item = group[name]
            column = _is_column(item)
            why = "" if column else _private(root, name)
            members = list(item) if isinstance(item, h5py.Group) and not column else []
        except (KeyError, OSError, RuntimeError, TypeError, ValueError) as e:
            yield path, f"it cannot be opened: {e}"
            continue
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if column or why:
            yield path, why or item
        else:
            pending += [(f"{path}/{_text(inner)}", item, inner) for inner in reversed(members)]


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _not_followed(group: Any, name: str) -> str | None:
    """Say why not to follow a link; "" if its target is in the tree anyway, None to follow."""
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.HardLink):
        return None
    if isinstance(link, h5py.ExternalLink):
        return f"it is in another file, {link.filename}; open that one"
    return (
        "" if group.get(name) is not None else f"it is a link to {link.path}, which does not exist"
    )


def _private(root: Any, name: str) -> str:
    for prefix, attribute, what in _PRIVATE:
        if name.startswith(prefix) and (attribute is None or attribute in root.attrs):
            return what
    return ""


def _find(root: Any, name: str) -> tuple[str, Any] | None:
    """Find the dataset of a column: the longest prefix of the name that is a dataset."""
    names = name.split(".")
    for end in range(len(names), 0, -1):
        path = ".".join(names[:end])
        item = root.get(path) if path else None
        if _is_column(item):
            return path, item
    return None


def _is_column(item: Any) -> bool:
    if isinstance(item, h5py.Group):
        return nested_field(item) is not None
    return isinstance(item, h5py.Dataset)
