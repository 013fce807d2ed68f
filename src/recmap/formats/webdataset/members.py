"""Columns of members: as bytes or text, as whole numbers, and as arrays. Extensions tell which."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError
from recmap.formats.column_readers import ColumnReader, Which
from recmap.formats.inflated_file import InflatedFile
from recmap.formats.npy import NpyHeader, parse_header
from recmap.formats.webdataset.tar_index import Members, Numbers, TarIndex
from recmap.formats.webdataset.tar_members import BLOCK
from recmap.machine.mapped import MappedFile
from recmap.machine.memory import empty, empty_bytes
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.model.field import Field
from recmap.model.ragged import (
    BYTE,
    Column,
    Ragged,
    concatenate,
    masked,
    offsets_of,
    raw_bytes,
)
from recmap.model.row_places import copy_boxes
from recmap.model.row_sizes import OFFSET, RowSizes
from recmap.model.text import as_strings_of, first_not_text
from recmap.native import _core
from recmap.store.mapped_files import fetch_ahead

KEY = "__key__"
TEXT = ("txt", "text", "transcript", "json", "jsn")
NUMBERS = ("cls", "cls2", "index", "inx", "id")
ARRAY = "npy"
PICKLES = ("pyd", "pkl", "pickle", "pth", "pt", "joblib")
NO_PICKLES = (
    "is a pickle or may hold one, and a pickle can run any code; save it as .npy, .json, .txt or "
    ".cls"
)

# Empty lists take memory too, and no bytes in a member prove that there are so many.
_MOST_EMPTY = 1 << 16
# Of so many files, it takes longer to find out which have some of the rows than to look at all.
_FEW = 16
_WHOLE = re.compile(rb"\s*[+-]?[0-9]{1,20}\s*")


def ending(name: str) -> str:
    """Return the last part of an extension, which tells the type: ``seg.npy`` is ``npy``."""
    return name.rpartition(".")[2]


def extension_of(name: str, field: Field) -> str:
    """Return the extension of the members of a column.

    One that tells the type is added to the name, unless it ends with one already. WebDataset reads
    all extensions in lower case, and a slash would make a folder.

    >>> extension_of("jpg", Field("bytes")), extension_of("label", Field("int64"))
    ('jpg', 'label.cls')
    """
    name = name.lower().replace("/", ".")
    if field.is_bytes and not field.shape:
        known, added = (TEXT, ".txt") if field.is_text else ((ending(name),), "")
    elif field.dtype.kind in "iu" and not field.shape:
        known, added = NUMBERS, ".cls"
    else:
        known, added = (ARRAY,), ".npy"
    return name if ending(name) in known else f"{name}{added}"


class KeyColumn(ColumnReader):
    """The keys of samples, which are in memory."""

    joins = True

    def __init__(self, keys: Ragged, field: Field) -> None:
        self.keys, self.field = keys, field

    @cached_property
    def _keys(self) -> Ragged:
        """The keys as text, if all of them are: it is faster to check them once."""
        is_text = self.field.is_text and first_not_text(self.keys) is None
        return as_strings_of(self.field, self.keys) if is_text else self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, start: int, stop: int) -> Column:
        return self._keys[start:stop]

    def gather(self, rows: Numbers) -> Column:
        return self._keys[rows]

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        del limit
        if self._length is not None:
            return self._length + OFFSET
        begins, ends = self.keys.offsets[:-1], self.keys.offsets[1:]
        return ends[rows] - begins[rows] + OFFSET

    @cached_property
    def _length(self) -> int | None:
        """The length of each key if they are equally long, as numbers with leading zeros are."""
        lengths = self.keys.lengths
        return int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else None

    def joined(self, columns: Sequence[Self]) -> ColumnReader:
        keys = concatenate([column.keys for column in columns])
        assert isinstance(keys, Ragged)
        return KeyColumn(keys, self.field)


class MemberColumn(ColumnReader):
    """The members with one extension: as the bytes they are, or as whole numbers in text.

    Text is checked by the source.
    """

    def __init__(
        self, file: MappedFile, index: TarIndex, name: str, field: Field, members: Members
    ) -> None:
        self.field, self._file, self._index = field, file, index
        self._name, self.members = name, members
        if isinstance(file, InflatedFile):
            self.chunk_rows = self.stored_rows = max(1, len(index) // file.chunks)

    def __len__(self) -> int:
        return len(self._index)

    def _fail(self, row: int, why: str) -> NoReturn:
        byte = int(self.members.at(range(row, row + 1))[0][0])
        path, key = self._file.path, self._index.key(row).decode("utf-8", "replace")
        raise DataError(
            f"{path}: sample {row:,}, {key!r}: {self._name!r} at byte {byte:,} {why}",
            file=path,
            record=row,
            byte=byte,
            field=self._name,
        )

    def read(self, start: int, stop: int) -> Column:
        return self._column(range(start, stop))

    def gather(self, rows: Numbers) -> Column:
        return self._column(rows)

    def _column(self, rows: RowNumbers) -> Column:
        values, offsets = self._content(rows, *self.members.at(rows))
        if not self.field.is_bytes:
            return self._nullable(self._whole_numbers(rows, values.tobytes(), offsets), rows)
        return self._nullable(Ragged(values.view(BYTE), offsets), rows)

    def _whole_numbers(
        self, rows: RowNumbers, content: bytes, offsets: Numbers
    ) -> npt.NDArray[Any]:
        """Read members that are whole numbers in text, such as .cls."""
        missing = self.members.missing(rows)
        out = np.zeros(len(rows), self.field.dtype)
        low, high = np.iinfo(self.field.dtype).min, np.iinfo(self.field.dtype).max
        ends = offsets.tolist()
        for i in range(len(rows)):
            text = content[ends[i] : ends[i + 1]]
            if _WHOLE.fullmatch(text) and low <= (number := int(text)) <= high:
                out[i] = number
            elif not missing[i]:
                self._fail(
                    int(rows[i]),
                    f"is {text[:40]!r}, not a number of {self.field.dtype}; read it as text: "
                    f'columns={{"{self._name}": "text", ...: None}}',
                )
        return out

    def _content(
        self, rows: RowNumbers, starts: Numbers, sizes: Numbers
    ) -> tuple[npt.NDArray[np.uint8], Numbers]:
        """Return the bytes of spans of the file end to end, and their offsets."""
        offsets = offsets_of(sizes)
        out = empty_bytes(int(offsets[-1]))
        filled = np.flatnonzero(sizes)
        if not len(filled):
            return out, offsets
        begins, ends = starts[filled], starts[filled] + sizes[filled]
        file = self.settled()
        if isinstance(rows, range):
            file.will_read(int(begins.min()), int(ends.max()), int(offsets[-1]))
        with file.hold(begins, ends):
            _core.copy_sequences(file.bytes, starts, offsets[:-1], sizes, 1, out, 1)
        return out, offsets

    def settled(self) -> MappedFile:
        """Return what to read: a mapped file from now on, if the cache has all of the object."""
        if not self._file.whole:
            self._file = self._file.current()
        return self._file

    def _nullable(self, column: Column, rows: RowNumbers) -> Column:
        return masked(column, self.members.missing(rows)) if self.field.nullable else column

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if self.field.row_bytes is not None:
            return self.field.row_bytes + self.field.nullable
        return np.minimum(self.members.at(rows)[1], limit + 1) + OFFSET + self.field.nullable

    def row_bytes(self) -> int:
        return max(1, int(self.members.sizes.sum(dtype=np.int64)) // max(1, len(self)))

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        file = self.settled()
        if file.whole or not len(rows):
            return None
        starts, sizes = self.members.at(rows)
        filled = np.flatnonzero(sizes)
        return fetch_ahead(file, starts[filled], (starts + sizes)[filled]) if len(filled) else None

    @property
    def remote(self) -> bool:
        return not self._file.whole


class ArrayMember(MemberColumn):
    """Members that are .npy files. All have one dtype; axes whose length varies are ragged."""

    def __init__(
        self,
        file: MappedFile,
        index: TarIndex,
        name: str,
        field: Field,
        members: Members,
        headers: Sequence[NpyHeader | None],
    ) -> None:
        """``headers`` are those of the file by number; None stands for those of other columns."""
        super().__init__(file, index, name, field, members)
        if not len(members.heads):  # none has one
            headers = [None]
        axes = len(field.shape)
        # By number of the header: its size, where the array ends, and its shape.
        self._heads = np.array([0 if each is None else each.size for each in headers], np.int64)
        self._ends = np.array([_end(each) for each in headers], np.int64)
        shapes = [(0,) * axes if each is None else each.shape for each in headers]
        self._shapes = np.array(shapes, np.int64).reshape(len(headers), axes)
        # The size of all headers; 0 if they differ.
        self._head = len({each.size for each in headers if each}) == 1 and int(self._heads.max())
        self._run = field.row_bytes or 0
        self.joins = not field.ragged and not field.nullable
        self._check(np.arange(len(self)))

    def _check(self, rows: Numbers) -> None:
        """Refuse members that end before their arrays."""
        sizes = self.members.at(rows)[1]
        needed = self._ends[self._numbers(rows)]
        cut = np.flatnonzero((sizes < needed) & ~self.members.missing(rows))
        if len(cut):
            row = int(cut[0])
            self._fail(
                row,
                f"is cut: its array takes {int(needed[row]):,} bytes of {int(sizes[row]):,}",
            )

    def begins(self, rows: RowNumbers) -> Numbers:
        """Return where arrays begin, after their headers."""
        key: Any = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        starts: Numbers = self.members.blocks[key].astype(np.int64) * BLOCK
        return starts + (self._head or self._heads[self._numbers(rows)])

    def _numbers(self, rows: RowNumbers) -> Numbers:
        key: Any = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        if not len(self.members.heads):
            return np.zeros(len(rows), np.int64)
        numbers: Numbers = self.members.heads[key].astype(np.int64)
        return numbers

    def _column(self, rows: RowNumbers) -> Column:
        if not self.field.ragged:
            return self._nullable(self._dense(rows, self.begins(rows)), rows)
        heads, starts = self._numbers(rows), self.begins(rows)
        missing = self.members.missing(rows)
        sizes = np.where(missing, 0, self._ends[heads] - self._heads[heads])
        values, _ = self._content(rows, starts, sizes)
        inner = self.field.shape[self.field.ragged :]
        column: Column = values.view(self.field.dtype).reshape(-1, *inner)
        shapes = np.where(missing[:, None], 0, self._shapes[heads])
        for axis in reversed(range(self.field.ragged)):
            # Each item of the axes before has a row of this one.
            lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
            column = Ragged(column, offsets_of(lengths))
        return self._nullable(column, rows)

    def _dense(self, rows: RowNumbers, starts: Numbers) -> npt.NDArray[Any]:
        out = empty((len(rows), *self.field.inner), self.field.dtype)
        if not out.size:
            return out
        run, begins = self._run, starts
        if self.field.nullable:
            missing = self.members.missing(rows)
            raw_bytes(out)[:] = 0
            starts = np.where(missing, -1, starts)
            begins = starts[~missing]
        if not len(begins):
            return out
        file = self.settled()
        with file.hold(begins, begins + run):
            files = [file] if file.whole else []
            copy_boxes([file.bytes], files, None, starts, [], run, out, run)
        return out

    def joined(self, columns: Sequence[Self]) -> ColumnReader:
        return ArraysOfFiles(columns)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        sizes = super().sizes(rows, limit)
        if not self.field.ragged or sizes is None:
            return sizes
        every = range(rows.start, rows.stop) if isinstance(rows, slice) else rows
        lists = self._shapes[self._numbers(every), : self.field.ragged - 1].cumprod(axis=1)
        total: Numbers = sizes + OFFSET * lists.sum(axis=1)
        return total

    def view(self) -> Column | None:
        """Return the column as a view, if the arrays are equally far from each other."""
        file, rows = self.settled(), len(self)
        if not (file.whole and file.lends) or self.field.ragged or not rows or not self._run:
            return None
        every = range(rows)
        if self.field.nullable:
            return None
        starts = self.begins(every)
        steps = np.diff(starts)
        if len(steps) and bool((steps != steps[0]).any()):
            return None
        stride = int(steps[0]) if len(steps) else self._run
        view: Column = file.view(
            int(starts[0]), (rows, *self.field.inner), self.field.dtype, stride
        )
        return view


class ArraysOfFiles(ColumnReader):
    """The arrays of several mapped tar files, which are gathered from all of them at once."""

    def __init__(self, columns: Sequence[ArrayMember]) -> None:
        self.field = columns[0].field
        self._files = [column.settled() for column in columns]
        self._ends = np.cumsum([len(column) for column in columns])
        self._begins = np.concatenate([column.begins(range(len(column))) for column in columns])

    def __len__(self) -> int:
        return len(self._begins)

    def read(self, start: int, stop: int) -> Column:
        return self.gather(np.arange(start, stop))

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        del rows, limit
        return self.field.row_bytes

    def gather(self, rows: Numbers) -> Column:
        begins, owners = self._begins[rows], self._ends.searchsorted(rows, "right")
        files = self._files
        if len(files) > _FEW:
            used, owners = np.unique(owners, return_inverse=True)
            files = [files[number] for number in used.tolist()]
        MappedFile.check_sizes(files)
        out = empty((len(rows), *self.field.inner), self.field.dtype)
        if out.size:
            sources, run = [file.bytes for file in files], out.nbytes // len(rows)
            copy_boxes(sources, files, owners.astype(np.uint32), begins, [], run, out, run)
        return out


def _end(header: NpyHeader | None) -> int:
    if header is None:
        return 0
    return header.size + math.prod(header.shape) * header.dtype.itemsize


def used_headers(index: TarIndex, name: str, members: Members) -> list[NpyHeader | None]:
    """Parse the headers that members with one extension have; None stands for others.

    Raise ValueError if one is not a header, or its array cannot be read.
    """
    if not len(members.heads):
        return []
    there = ~members.missing(slice(None))
    used = np.unique(members.heads[there]).tolist()
    headers: list[NpyHeader | None] = [None] * len(index.heads)
    for number in used:
        try:
            header = parse_header(index.heads[number], name)
        except DataError as e:
            row = int(np.flatnonzero((members.heads == number) & there)[0])
            key = index.key(row).decode("utf-8", "replace")
            raise ValueError(f"has a damaged header in sample {row:,}, {key!r}: {e}") from e
        if why := _refusal(header):
            raise ValueError(why)
        headers[number] = header
    return headers


def _refusal(header: NpyHeader) -> str:
    if header.dtype.hasobject:
        return "holds Python objects, which only pickle could read, and a pickle can run any code"
    if header.dtype.names is not None or header.dtype.kind in "SU" or not header.dtype.itemsize:
        return f"holds arrays of {header.dtype}, which are not numbers"
    if 0 in header.shape and max(header.shape) > _MOST_EMPTY:
        return f"holds an empty array of shape {header.shape}"
    if header.fortran and len(header.shape) > 1:
        return "holds arrays in Fortran order; save them in C order, with numpy.ascontiguousarray"
    return ""


def array_field(headers: Sequence[NpyHeader]) -> Field:
    """Return the field of arrays; raise ValueError if they differ in more than their lengths."""
    dtypes = {header.dtype.str for header in headers}
    axes = {len(header.shape) for header in headers}
    if len(dtypes) > 1 or len(axes) > 1:
        what = sorted({f"{header.dtype.str} of {len(header.shape)} axes" for header in headers})
        raise ValueError(f"holds arrays of different types: {', '.join(what[:5])}")
    first = headers[0]
    lengths = [{header.shape[axis] for header in headers} for axis in range(len(first.shape))]
    ragged = max((axis + 1 for axis, found in enumerate(lengths) if len(found) > 1), default=0)
    fixed = [next(iter(found)) for found in lengths[ragged:]]
    try:
        return Field(first.dtype, (*[None] * ragged, *fixed))
    except ColumnError as e:
        raise ValueError(str(e)) from e
