"""netCDF-4 files: variables with a dimension in common are columns, with a row for each step of it.

Values are decoded as the attributes of their variable say: packed numbers are unpacked, missing
values are NaN or null, times are dates, characters are joined to strings. Which dimensions a
variable has is in attributes of HDF5, its dimension scales, and of the netCDF library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldNotFoundError
from recmap.formats.column_readers import ColumnReader, ComputedColumn
from recmap.formats.column_source import ColumnsSource, choose_columns
from recmap.formats.hdf5.columns import columns_of, refusal
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.netcdf_times import TimeUnit
from recmap.formats.hdf5.source import DatasetColumns, items_of
from recmap.formats.hdf5.types import Leaf, text_of
from recmap.model.arguments import is_pattern, matching, no_column
from recmap.model.coerce import string_column
from recmap.model.facts import Meaning
from recmap.model.field import TEXT, Field
from recmap.model.null_columns import kept
from recmap.model.ragged import Column
from recmap.model.row_sizes import STRING

# The name of a dimension scale that stands for a dimension without a variable.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
# Begins the name in the file of a variable that is called like a dimension, but is not its own.
_HIDDEN = "_nc4_non_coord_"
# What the netCDF library stores where nothing was written. Integers may have that as a value.
_DEFAULT_FILL = 9.969209968386869e36
# Integers beyond this are not exact in float64.
_EXACT = 1 << 53
_MARKS = ("_FillValue", "missing_value")
_PACKED = ("scale_factor", "add_offset")


def open_netcdf(path: str, names: list[str] | None = None, *, direct: bool = True) -> ColumnsSource:
    """Open the variables along the main dimension, or those in ``names``.

    Without ``direct``, h5py reads all values.
    """
    contents = _Netcdf(path, direct)
    columns, along = contents.choose(names)
    again = partial(open_netcdf, path, list(columns))
    return ColumnsSource(
        "netcdf",
        [path],
        columns,
        f"from the file, a row for each step of {along!r}",
        reopen=again,
        mapped=contents.file.mapped,
        reference=partial(again, direct=False),
        notes=contents.units(),
        meaning=partial(meaning, path),
    )


def meaning(path: str, names: Sequence[str] | None) -> Meaning:
    """Return the units of the columns that are read, and the values of their other dimensions."""
    return _Netcdf(path, True).meaning(names)


@dataclass
class _Variable:
    """A variable: its columns, usually one, and the name of its first dimension.

    ``dimensions`` are all of them, as far as they have a name.
    """

    name: str
    path: str
    rows: int
    dimensions: list[str]
    scale: bool
    units: tuple[str, str]
    columns: dict[str, ColumnReader] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def along(self) -> str:
        return self.dimensions[0]

    @property
    def unit(self) -> str:
        """The unit of numbers, with the calendar of times."""
        unit, calendar = self.units
        return ", ".join(filter(None, (unit, calendar and f"calendar {calendar}")))


class _Netcdf:
    """The variables of a file."""

    def __init__(self, path: str, direct: bool) -> None:
        self.file = Hdf5File.of(path)
        self._direct = direct
        self._variables: list[_Variable] = []
        self._unlimited: set[str] = set()
        self._refused: dict[str, str] = {}
        self._whats: dict[str, str] = {}
        self._bounds: dict[str, tuple[str, str]] = {}
        items = []
        for name, item in items_of(self.file, ""):
            if isinstance(item, h5py.Dataset):
                items.append((name, item))
            elif isinstance(item, str):
                self._refused[name] = f"is left out: {item}"
        # By address: to tell the name of what is referred to, HDF5 searches all of the file.
        addresses: dict[int, str] = {}
        numbered: dict[int, str] = {}
        for name, item in items:
            with self.file.locked(name):
                addresses[_address(item)] = name
                bounds = text_of(item.attrs.get("bounds"))
                if bounds:  # have the units of what they are the bounds of
                    self._bounds[f"{name.rpartition('/')[0]}/{bounds}".lstrip("/")] = _units(item)
                number = item.attrs.get("_Netcdf4Dimid")
                if number is not None and _is_scale(item):
                    numbered[int(number)] = name
                if item.maxshape and item.maxshape[0] is None and _is_scale(item):
                    self._unlimited.add(name)
        for name, item in items:
            self._add(name, item, numbered, addresses)

    def _add(
        self, path: str, item: Any, numbered: dict[int, str], addresses: dict[int, str]
    ) -> None:
        group, _, last = path.rpartition("/")
        last = last.removeprefix(_HIDDEN)
        name = f"{group}/{last}" if group else last
        try:
            with self.file.locked(name):
                if text_of(item.attrs.get("NAME")).startswith(_NO_VARIABLE):
                    return
                self._whats[name] = f"{item.dtype} {item.shape}"
                why = refusal(self.file, item)
                if why:
                    self._refused[name] = f"cannot be a column: {why}"
                    return
                dimensions = _dimensions(path, item, numbered, addresses)
                units = _units(item)
                units = units if units[0] else self._bounds.get(path, units)
                scale = dimensions[0] == path
            found = _Variable(name, path, len(item), dimensions, scale, units)
            self._make_columns(found, item)
        except DataError as e:
            self._refused[name] = f"cannot be read: {e}"
            return
        self._variables.append(found)

    def _make_columns(self, variable: _Variable, item: Any) -> None:
        path, name = variable.path, variable.name
        with self.file.locked(name):
            dtype, inner = item.dtype, item.shape[1:]
            if dtype == "S1" and inner:
                letters = self._read_as(path, item, Field(np.uint8, inner))
                text = text_of(item.attrs.get("_Encoding")).lower() in ("utf-8", "utf8", "ascii")
                made = ComputedColumn(
                    [letters],
                    Field(TEXT if text else "bytes", inner[:-1]),
                    _joined,
                    int(np.prod(inner[:-1])) * STRING + int(np.prod(inner)),
                )
                variable.columns[name] = made
                return
            if dtype.kind in "biufc":
                decoding = _Decoding.of(item, variable.units)
                if isinstance(decoding, str):
                    variable.refused[name] = (
                        f'cannot be decoded: {decoding}; format="hdf5" reads the stored numbers'
                    )
                    return
                read = self._read_as(path, item, Field(decoding.stored, inner))
                if decoding.times is not None:
                    variable.units = ("", "")  # its dates mean the same in any unit
                variable.columns[name] = decoding.applied(self.file.path, name, read)
                return
            attributes = [key for key in (*_MARKS, *_PACKED) if key in item.attrs]
            if attributes and h5py.check_string_dtype(dtype) is None:
                variable.refused[name] = (
                    f"has the attribute {attributes[0]}, which recmap applies only to numbers; "
                    'format="hdf5" reads the stored values'
                )
                return
        found = DatasetColumns(self.file, path, item, self._direct, text=dtype.kind == "O")
        for column, each in found.columns.items():
            variable.columns[f"{name}{column.removeprefix(path)}"] = each
        for column, why in found.refused.items():
            variable.refused[f"{name}{column.removeprefix(path)}"] = f"cannot be a column: {why}"

    def _read_as(self, path: str, item: Any, kind: Field) -> ColumnReader:
        return columns_of(self.file, path, item, [Leaf((), kind)], self._direct)[0]

    def choose(self, names: Sequence[str] | None) -> tuple[dict[str, ColumnReader], str]:
        """Return the columns that are asked for, all of one dimension, and its name."""
        asked = self._asked(names)
        for variable in self._variables:
            self._refused |= variable.refused
        if not asked:  # so this says why
            return choose_columns(self.file.path, {}, self._refused, names, self._whats), ""
        along = self._main(asked)
        rows = max(each.rows for each in self._variables if each.along == along)
        found: dict[str, ColumnReader] = {}
        refused = dict(self._refused)
        for variable in self._variables:
            if variable.along != along:
                why = f"has its rows along {variable.along!r}, not {along!r}"
                refused |= dict.fromkeys(variable.columns, why)
            elif variable.rows != rows:
                why = f"has {variable.rows:,} of the {rows:,} rows of {along!r}"
                refused |= dict.fromkeys(variable.columns, why)
            else:
                found |= variable.columns
        whats = {name: self._what(name) for name in refused}
        return choose_columns(self.file.path, found, refused, names, whats), along

    def _what(self, name: str) -> str:
        owner = name
        while owner not in self._whats and "." in owner:
            owner = owner.rpartition(".")[0]
        return self._whats.get(owner, "")

    def _asked(self, names: Sequence[str] | None) -> list[_Variable]:
        """Return the variables with columns that are asked for."""
        if names is None:
            return [each for each in self._variables if each.columns]
        known = [name for each in self._variables for name in (*each.columns, *each.refused)]
        for name in names:
            there = name in known or name in self._refused
            if not there and not (is_pattern(name) and matching(name, [*known, *self._refused])):
                raise FieldNotFoundError(f"{self.file.path}: {no_column(name, known)}")
        wanted = {each for name in names for each in (name, *matching(name, known))}
        return [each for each in self._variables if wanted.intersection(each.columns)]

    def _main(self, variables: Sequence[_Variable]) -> str:
        """Return the dimension of most variables; one without end, if there is one."""
        counts: dict[str, tuple[bool, bool, int, int]] = {}
        for each in variables:
            _, _, count, rows = counts.get(each.along, (False, False, 0, 0))
            count += not each.scale
            unlimited = each.along in self._unlimited
            counts[each.along] = count > 0, unlimited, count, max(rows, each.rows)
        return max(counts, key=lambda name: counts[name])

    def units(self) -> dict[str, str]:
        """Return what the file says of the units of columns."""
        return {
            column: f"units {each.unit!r}"
            for each in self._variables
            for column in each.columns
            if each.unit
        }

    def meaning(self, names: Sequence[str] | None) -> dict[str, str | bytes]:
        """Return what must be the same in files whose rows are one dataset, by what it is."""
        asked = self._asked(names)
        if not asked:
            return {}
        along = self._main(asked)
        chosen = [each for each in asked if each.along == along]
        meaning: dict[str, str | bytes] = {
            f"the units of {each.name!r}": each.unit for each in chosen
        }
        others = {name for each in chosen for name in each.dimensions[1:]}
        for each in self._variables:
            if each.scale and each.along in others:
                for column, reader in each.columns.items():
                    read = reader.read(0, len(reader))
                    plain = isinstance(read, np.ndarray)
                    data = np.asarray(read).tobytes() if plain else repr(read.tolist()).encode()
                    meaning[f"the values of {column!r}"] = hashlib.sha256(data).digest()
        return meaning


def _is_scale(item: Any) -> bool:
    return bool(h5py.h5ds.is_scale(item.id))


def _address(item: Any) -> int:
    return int(h5py.h5o.get_info(item.id).addr)


def _dimensions(
    path: str, item: Any, numbered: dict[int, str], addresses: dict[int, str]
) -> list[str]:
    """Return the names of the dimensions of a variable. One without a name has its length."""
    numbers = item.attrs.get("_Netcdf4Coordinates")
    if numbers is not None and len(numbers) == item.ndim:
        return [numbered.get(int(each), f"{int(each)}") for each in numbers]
    if _is_scale(item):
        return [path, *(f"dimension of {size:,}" for size in item.shape[1:])]
    # Not item.dims: with a scale that is no longer there, it crashes in the HDF5 library.
    scales = item.attrs.get("DIMENSION_LIST")
    if not isinstance(scales, np.ndarray) or scales.shape != (item.ndim,):
        scales = [()] * item.ndim
    return [
        _scale_name(item, scale, addresses) or f"dimension of {size:,}"
        for scale, size in zip(scales, item.shape, strict=True)
    ]


def _scale_name(item: Any, scales: Any, addresses: dict[int, str]) -> str | None:
    """Return the name of the first of the scales of an axis; None if there is none."""
    first = scales[0] if isinstance(scales, np.ndarray) and len(scales) else None
    return addresses.get(_address(item.file[first])) if isinstance(first, h5py.Reference) else None


def _units(item: Any) -> tuple[str, str]:
    """Return the unit of numbers and the calendar of times."""
    return text_of(item.attrs.get("units")), text_of(item.attrs.get("calendar"))


def _joined(letters: npt.NDArray[np.uint8]) -> Column:
    """Join the characters along the last axis to strings, which end where only zeros follow."""
    width = letters.shape[-1]
    if not width:
        return string_column(np.empty(letters.shape[:-1], "S1"))
    return string_column(np.ascontiguousarray(letters).view(f"S{width}")[..., 0])


@dataclass(frozen=True)
class _Decoding:
    """How the numbers of a variable are decoded.

    ``stored`` is their dtype in the file, and ``dtype`` what they become. ``missing`` are the
    numbers that stand for no value. They become NaN or NaT, or null if ``nullable``.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    missing: tuple[Any, ...]
    scale: Any
    offset: Any
    nullable: bool
    times: TimeUnit | None
    unit: str

    @classmethod
    def of(cls, item: Any, units: tuple[str, str]) -> _Decoding | str:
        """Return what the attributes of a variable say, or why they cannot be followed."""
        given = {}
        for key in (*_MARKS, *_PACKED):
            if key in item.attrs:
                values = np.ravel(item.attrs[key])
                if values.dtype.kind not in "biufc":
                    told = text_of(item.attrs[key]) or item.attrs[key]
                    return f"its {key} is {told!r}, not a number"
                if key in _PACKED and len(values) != 1:
                    return f"its {key} is not one number"
                given[key] = values
        stored = np.dtype(item.dtype.str)
        unsigned = text_of(item.attrs.get("_Unsigned")).lower()
        if unsigned in ("true", "false") and stored.kind == {"true": "i", "false": "u"}[unsigned]:
            kind = {"true": "u", "false": "i"}[unsigned]
            stored = np.dtype(f"{stored.str[0]}{kind}{stored.itemsize}")
        marks = [v for key in _MARKS if key in given for v in given[key]]
        missing = [each for v in marks for each in _as_stored(v, stored)]
        if stored.kind == "f" and stored.itemsize > 2 and "_FillValue" not in given:
            fill = np.asarray(_DEFAULT_FILL, stored)
            if item.fillvalue == fill:
                missing.append(fill[()])
        scale, offset = (given[key][0] if key in given else None for key in _PACKED)
        if stored.kind in "fc" and scale in (None, 1) and offset in (None, 0):
            scale = offset = None  # which would only change the dtype
        packed = scale is not None or offset is not None
        boolean = stored.kind in "iu" and text_of(item.attrs.get("dtype")) == "bool" and not packed
        times = TimeUnit.parsed(*units) if stored.kind in "iuf" else None
        dtype = stored
        if packed:
            dtype = _unpacked_dtype(stored, [each for each in (scale, offset) if each is not None])
        elif boolean:
            dtype = np.dtype(np.bool_)
        if times is None and missing and dtype.kind not in "fc" and item.ndim > 1:
            dtype = np.dtype(np.float32 if stored.itemsize <= 2 else np.float64)
        nullable = times is None and bool(missing) and dtype.kind not in "fc"
        return cls(stored, dtype, tuple(missing), scale, offset, nullable, times, units[0])

    @property
    def _packed(self) -> bool:
        return self.scale is not None or self.offset is not None

    @property
    def note(self) -> str:
        """What to say about a column that is decoded."""
        packed = f"packed in {self.stored}" if self._packed else ""
        dates = f"decoded from {self.unit!r}" if self.times is not None else ""
        return ", ".join(filter(None, (dates, packed)))

    def applied(self, path: str, name: str, column: ColumnReader) -> ColumnReader:
        """Return the column of decoded numbers."""
        dtype = self.dtype if self.times is None else self.times.dtype
        if dtype == self.stored and not self.missing and not self._packed:
            return column

        def decode(values: npt.NDArray[Any]) -> Column:
            try:
                return self.decode(values)
            except ValueError as e:
                raise DataError(f"{path}: {name!r}: {e}", file=path, field=name) from None

        inner = column.field.inner
        size = int(np.prod(inner)) * (4 * dtype.itemsize + 2)
        made = Field(dtype, inner, nullable=self.nullable)
        return ComputedColumn([column], made, decode, size, self.note)

    def decode(self, values: npt.NDArray[Any]) -> Column:
        """Return decoded numbers. Raise ValueError if some cannot be decoded exactly."""
        gone = np.zeros(values.shape, np.bool_)
        for mark in self.missing:
            gone |= values == mark
        if self.times is not None:
            return self.times.decode(self._converted(values), gone)
        if self.nullable:
            return kept(self._converted(values), gone)
        if self.dtype == self.stored and not self._packed and not gone.any():
            return values
        converted = self._converted(np.where(gone, np.zeros((), values.dtype), values))
        converted[gone] = np.nan
        return converted

    def _converted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.dtype.kind == "b":
            return values.astype(np.bool_)
        wide = values.dtype.kind in "iu" and values.dtype.itemsize == 8
        exact = wide and self.dtype.kind == "f" and not self._packed
        if exact and bool(((values > _EXACT) | (values < -_EXACT)).any()):
            raise ValueError(
                "an integer in a row with missing values is beyond 2**53, so no float is exact; "
                'format="hdf5" reads the integers'
            )
        converted = values.astype(self.dtype)
        if self.scale is not None:
            converted *= self.scale
        if self.offset is not None:
            converted += self.offset
        return converted


def _as_stored(mark: Any, stored: np.dtype[Any]) -> list[Any]:
    """Return a number that stands for a missing value as it is stored, if it can be."""
    if stored.kind in "fc":
        with np.errstate(over="ignore"):
            number = stored.type(mark)
        return [number] if np.isfinite(number) or np.isinf(mark) else []
    if stored.kind == "b" or mark.dtype.kind == "c" or not np.isfinite(mark) or mark != int(mark):
        return []
    limits, whole = np.iinfo(stored), int(mark)
    if stored.kind == "u" and whole < 0 and mark.dtype.itemsize == stored.itemsize:
        whole += 1 << 8 * stored.itemsize  # of what is marked as unsigned
    elif stored.kind == "i" and whole > limits.max and mark.dtype.itemsize == stored.itemsize:
        whole -= 1 << 8 * stored.itemsize
    return [stored.type(whole)] if limits.min <= whole <= limits.max else []


def _unpacked_dtype(stored: np.dtype[Any], factors: Sequence[Any]) -> np.dtype[Any]:
    """Return the dtype that holds unpacked numbers as exactly as their factors are."""
    if stored.kind == "c":
        return stored.newbyteorder("=")
    narrow = stored.itemsize <= 2 or stored == np.float32
    single = all(each.dtype in (np.float32, np.float16) for each in factors)
    return np.dtype(np.float32 if narrow and single else np.float64)
