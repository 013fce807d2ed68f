"""Zarr stores, versions 2 and 3: arrays of equal length are columns.

A damaged array does not affect the others. Values of types that Zarr does not have are stored
as unsigned integers of the same size, or as bytes along an extra axis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import zarr
import zarr.storage

from recmap.chunks.array import ChunkedArray
from recmap.chunks.codecs import CodecChain
from recmap.chunks.groups import ChunkCache, chunk_cache
from recmap.chunks.stored import Grid, LibraryChunks
from recmap.errors import DataError, OptionError, OptionTypeError, RecmapError
from recmap.formats.column_readers import DEFAULT_NAME, ColumnReader, decoded_columns
from recmap.formats.column_source import ColumnsSource, choose_columns
from recmap.formats.ragged_layout import VALUES, join, levels_of
from recmap.formats.stored_columns import native, viewed
from recmap.formats.zarr.attributes import ZarrColumn, read_columns, read_table_types
from recmap.formats.zarr.encoding import encoding_of
from recmap.formats.zarr.store import ZarrChunks, open_node
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.machine.cpus import pool_size, thread_count
from recmap.model.description import misfit, warn_of_notes
from recmap.model.field import Field
from recmap.model.table_notes import and_index, divided
from recmap.recognise.sniff import sniff, unknown_format
from recmap.store.object_address import store_of

_PICKLED = "is pickled, and a pickle can run any code; save it again as numbers or strings"
_NODES = ("zarr.json", ".zarray", ".zgroup")
_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
_UINTS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
# Opens an array by its name, and with the field that the store says it is.
_OpenArray: TypeAlias = "Callable[[str, Any, Field | None], _ZarrArray]"


def open_zarr(
    path: str, names: Sequence[str] | None, default: str = "", *, direct: bool = True
) -> ColumnsSource:
    """Open the arrays of equal length, or those in ``names``.

    A store that is a single array is one column, named ``default``, or else after its attribute
    ``name``. Without ``direct``, zarr reads all values.
    """
    packed = None if located(path).is_folder() else sniff(path)
    if packed is not None and packed.format is None:
        raise unknown_format(path, packed)
    attributes, every, broken = _read_store(path)
    open_array = partial(_ZarrArray, path, direct, chunk_cache())
    arrays = dict(every)
    found: dict[str, ColumnReader] = {}
    refused = dict(broken)
    for column in read_columns(path, attributes):
        keys = levels_of(column.field)
        paths = [f"{column.path}/{key}" for key in (VALUES, *keys)] if keys else [column.path]
        why = next((refused.pop(inner) for inner in paths if inner in refused), "")
        its_arrays = {inner: arrays.pop(inner, None) for inner in paths}
        if why:
            refused[column.name] = why
        elif keys:
            found[column.name] = _ragged(path, open_array, column, its_arrays)
        elif its_arrays[column.path] is not None:
            found |= _columns(open_array, column.name, its_arrays[column.path], column.field)
    only = default or str(attributes.get("name") or DEFAULT_NAME)
    _add_arrays(open_array, ((n or only, arrays[n]) for n in sorted(arrays)), found, refused)
    whats = {inner: f"{array.dtype} {array.shape}" for inner, array in every.items()}
    types = read_table_types(attributes)
    columns = choose_columns(path, found, refused, and_index(names, types, found), whats)
    columns, table = divided(columns, types, names)
    located(path).check_unchanged()
    # Reopen by name, so that the warning about arrays left out is not repeated.
    again = partial(open_zarr, path, list(columns), default, direct=direct)
    other = partial(open_zarr, path, list(columns), default, direct=False)
    return ColumnsSource("zarr", [path], columns, reopen=again, reference=other, table=table)


@dataclass(frozen=True)
class ZarrPlace:
    """An array or group in a folder on disk. Calling it opens its columns, in any process."""

    path: str
    name: str

    def __call__(self) -> ColumnsSource:
        # An array has the name that its group gives it.
        return open_zarr(self.path, None, self.name)


def open_held(node: Any) -> ColumnsSource:
    """Open an array or group in another store, such as one in memory, through its own object."""
    limit_threads()
    label = str(node.store)
    arrays = [(_name_of(node), node)] if isinstance(node, zarr.Array) else sorted(_members(node))
    found: dict[str, ColumnReader] = {}
    refused: dict[str, str] = {}
    _add_arrays(partial(_ZarrArray, label, True, chunk_cache()), arrays, found, refused)
    columns = choose_columns(label, found, refused, None)
    return ColumnsSource("zarr", [], columns, reopen=partial(open_held, node))


def zarr_place(node: Any) -> ZarrPlace | None:
    """Return where an array or a group of zarr is stored; None if not in a folder on disk."""
    if not isinstance(node, zarr.Array | zarr.Group):
        raise OptionTypeError(
            f"{type(node).__qualname__} cannot be opened; give an array or a group of zarr, or "
            "the path of the store"
        )
    root = getattr(node.store, "root", None)
    if not isinstance(node.store, zarr.storage.LocalStore) or root is None:
        return None
    folder = os.path.join(os.path.abspath(root), node.path)
    name = _name_of(node) if isinstance(node, zarr.Array) else ""
    return ZarrPlace(located(folder).found(), name)


def _name_of(array: Any) -> str:
    return array.path.rpartition("/")[2] or str(array.attrs.get("name") or DEFAULT_NAME)


def _add_arrays(
    open_array: _OpenArray,
    arrays: Iterable[tuple[str, Any]],
    found: dict[str, ColumnReader],
    refused: dict[str, str],
) -> None:
    """Add the columns of arrays that the store does not describe, or why they are not columns."""
    for name, array in arrays:
        if array.ndim == 0:
            refused[name] = "holds a single value, which has no rows"
        elif _is_too_large(array):
            refused[name] = f"cannot have the shape {tuple(array.shape)}"
        elif _is_pickled(array):
            refused[name] = _PICKLED
        elif name in found:
            refused[name] = "is also the name of another column"
        else:
            found |= _columns(open_array, name, array, None)


def _columns(
    open_array: _OpenArray, name: str, array: Any, field: Field | None
) -> dict[str, ColumnReader]:
    columns = decoded_columns("", open_array(name, array, field))
    return {f"{name}.{inner}" if inner else name: column for inner, column in columns.items()}


def _ragged(
    path: str, open_array: _OpenArray, column: ZarrColumn, arrays: dict[str, Any]
) -> ColumnReader:
    name, field = column.name, column.field
    missing = [inner for inner, array in arrays.items() if array is None]
    if missing:
        raise DataError(
            f"{path}: {name!r} is {field}, but {' and '.join(missing)} is missing",
            file=path,
            field=name,
        )
    values = Field("uint8") if field.is_bytes else Field(field.dtype, field.inner)
    readers = {}
    for inner, array in arrays.items():
        key = inner.rpartition("/")[2]
        told = values if key == VALUES else None
        decoded = open_array(f"{name}/{key}", array, told)
        (readers[key],) = decoded_columns(key, decoded).values()
    return join(path, name, readers.pop(VALUES), readers, field.is_bytes, field)


def limit_threads() -> None:
    """Limit zarr to as many threads as recmap uses, unless the user set a number.

    By default zarr uses more threads than there are CPUs, and fails if they cannot start.
    """
    if zarr.config.get("threading.max_workers") is None:
        zarr.config.set({"threading.max_workers": thread_count()})


def _read_store(path: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the attributes of a store, its arrays by path, and why others cannot be opened.

    If the store is a single array, its path is "".
    """
    limit_threads()
    try:
        node, arrays, broken = _open_arrays(located(path).absolute())
        return dict(node.attrs), arrays, broken
    except RecmapError:
        raise
    except Exception as e:  # damaged metadata may raise anything
        raise DataError(f"{path}: not a valid Zarr store: {e}", file=path) from e


def _open_arrays(path: Location) -> tuple[Any, dict[str, Any], dict[str, str]]:
    try:
        node = open_node(path)
        store = store_of(path)
        if isinstance(node, zarr.Array):
            return node, {"": node}, {}
        if store is not None and not store.listed and node.metadata.consolidated_metadata is None:
            return node, {inner: node[inner] for inner in _written_arrays(path, node)}, {}
        return node, dict(_members(node)), {}
    except RecmapError:
        raise
    except Exception:
        # The consolidated metadata or the metadata of an array is damaged.
        node = open_node(path, use_consolidated=False)
        if isinstance(node, zarr.Array):
            raise
        arrays: dict[str, Any] = {}
        broken: dict[str, str] = {}
        _walk(path, node, "", {path.real_path()}, arrays, broken)
        return node, arrays, broken


def _members(group: Any) -> list[tuple[str, Any]]:
    """Return the arrays in a group and below it, with their paths."""
    members = group.members(max_depth=None)
    return [(name, each) for name, each in members if isinstance(each, zarr.Array)]


def _walk(
    path: Location,
    root: Any,
    group: str,
    seen: set[str],
    arrays: dict[str, Any],
    broken: dict[str, str],
) -> None:
    """Find the arrays in a group one by one, and those that cannot be opened."""
    for entry in sorted(path.child(group).folders()):
        inner = f"{group}/{entry}" if group else entry
        folder = path.child(inner)
        # Links may lead in circles, also to the store itself.
        same = folder.real_path()
        if same in seen or set(folder.children()).isdisjoint(_NODES):
            continue
        seen.add(same)
        try:
            node = root[inner]
        except RecmapError:
            raise
        except Exception as e:  # damaged metadata may raise anything
            broken[inner] = f"cannot be opened: {type(e).__name__}: {e}"
            continue
        if isinstance(node, zarr.Array):
            arrays[inner] = node
        else:
            _walk(path, root, inner, seen, arrays, broken)


def _written_arrays(path: str, group: Any) -> list[str]:
    """Return the arrays that recmap wrote, for a store that cannot be listed."""
    columns = read_columns(path, group.attrs)
    if not columns:
        raise OptionError(
            f"{path}: an HTTP server does not list its files, so that only a Zarr store with "
            "consolidated metadata can be read from it; zarr.consolidate_metadata adds it"
        )
    parts = {column.path: levels_of(column.field) for column in columns}
    inside = [f"{inner}/{key}" for inner, keys in parts.items() if keys for key in (VALUES, *keys)]
    return [inner for inner, keys in parts.items() if not keys] + inside


class _ZarrArray:
    """An array read by rows: recmap decodes its chunks or, where it cannot, the zarr package.

    ``field`` says what its values are, in a store that recmap wrote. The arrays of a store share
    a ``cache`` of decoded row groups.
    """

    def __init__(
        self,
        path: str,
        direct: bool,
        cache: ChunkCache,
        name: str,
        array: Any,
        field: Field | None,
    ) -> None:
        self._path, self._name, self._array = path, name, array
        # zarr opens chunks by their names, and those of another store may take their place.
        self._place = _place_of_array(path, array)
        if _is_too_large(array):
            raise _wrong(path, name, f"cannot have the shape {tuple(array.shape)}")
        if _is_pickled(array):
            raise _wrong(self._path, self._name, _PICKLED)
        self.shape: tuple[int, ...] = tuple(array.shape)
        # Variable-length strings.
        self._strings = array.dtype.kind in "OT"
        self._stored = np.dtype("O") if self._strings else np.dtype(array.dtype)
        self.dtype: np.dtype[Any] = self._stored
        if field is not None:
            self._take_for(field)
        self._encoding = encoding_of(array) if direct and not self._strings else None
        self._rows = self._chunked(cache)
        self.chunk_rows = self._rows.chunk_rows
        self.stored_rows = max(1, int(array.chunks[0]))
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        # A chunk is stored whole, even if it has few rows.
        self.chunk_bytes = 0 if self._rows.mapped else self.chunk_rows * row

    def _chunked(self, cache: ChunkCache) -> ChunkedArray:
        encoding, dtype = self._encoding, self._stored
        fill = np.zeros((), dtype)[()] if self._array.fill_value is None else self._array.fill_value
        if encoding is not None:
            chunks = ZarrChunks(self._path, self._name, self._array, encoding, self._place)
            layout = encoding.layout
            return ChunkedArray(
                chunks, encoding.grid, dtype, encoding.chain, fill, cache, self._name, layout
            )
        # All chunks of a row group at once, because zarr decodes them in parallel.
        shape: tuple[int, ...] = tuple(self._array.shape)
        group = min(int(self._array.chunks[0]), shape[0]), *shape[1:]
        grid = Grid(shape, tuple(max(1, axis) for axis in group))
        wrong = partial(_wrong, self._path, self._name)
        library = LibraryChunks(grid, partial(_load, self._array, self._place, wrong), wrong)
        return ChunkedArray(library, grid, dtype, CodecChain([], 0), fill, cache, self._name)

    def _take_for(self, field: Field) -> None:
        """Take values for those of a field that is stored in this way; warn if it is not."""
        dtype, more = stored_as(field.dtype)
        found = self.dtype, self.shape[1:]
        if found == (dtype, (*field.inner, *more)):
            self.dtype, self.shape = field.dtype, (self.shape[0], *field.inner)
        elif found != (field.dtype, field.inner):
            stored = f"{self.dtype} in rows of shape {self.shape[1:]}"
            warn_of_notes(self._path, [misfit(self._name, field, stored)])

    def keep(self, groups: int | None) -> None:
        # More are of no use to a read that has a limit.
        self._rows.keep(None if groups is None else min(groups, pool_size()))

    @property
    def note(self) -> str:
        chunks = " x ".join(f"{axis:,}" for axis in self._array.chunks)
        codecs = [_codec_name(codec) for codec in self._array.compressors]
        how = "" if self._encoding is not None or 0 in self.shape else ", read through zarr"
        return f"chunks of {chunks}, {' and '.join(codecs) or 'not compressed'}{how}"

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self._restored(self._rows.read(start, stop))

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._restored(self._rows.gather(rows))

    def _restored(self, read: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values as what they are, if they are stored as something else."""
        if self._strings and not all(isinstance(item, str | bytes) for item in read.flat):
            raise _wrong(self._path, self._name, "holds objects that are not strings")
        if self.dtype == self._stored:
            return read
        shape = (len(read), *self.shape[1:])
        values = viewed(np.ascontiguousarray(read), native(self.dtype), shape)
        return values.astype(self.dtype, copy=False)


def _wrong(path: str, name: str, why: str) -> DataError:
    return DataError(f"{path}: {name!r} {why}", file=path, field=name)


def _load(
    array: Any, place: Location, error: Callable[[str], DataError], start: int, stop: int
) -> npt.NDArray[Any]:
    """Read rows through zarr."""
    try:
        read = np.asarray(array[start:stop])
        place.check_unchanged()
    except RecmapError:
        raise
    except Exception as e:  # codecs may raise anything
        raise error(f"cannot be read: {type(e).__name__}: {e}") from e
    return read


def _place_of_array(path: str, array: Any) -> Location:
    """Return the folder of an array, which remembers what was there if it is on disk."""
    folder = located(path).absolute().child(array.path)
    return folder.found() if folder.is_folder() else folder


def _is_too_large(array: Any) -> bool:
    """Tell whether rows cannot be numbered, or one of them is more than can be addressed."""
    row = math.prod(array.shape[1:]) * max(1, np.dtype(array.dtype).itemsize)
    return max(int(array.shape[0]), int(row)) >= 1 << 62


def _is_pickled(array: Any) -> bool:
    """Tell whether decoding the array would unpickle it."""
    codecs = [*array.filters, *array.compressors]
    return any("pickle" in _codec_name(codec) for codec in codecs)


def _codec_name(codec: Any) -> str:
    """Return the name of a codec, from numcodecs or zarr."""
    name = getattr(codec, "codec_id", None) or type(codec).__name__.removesuffix("Codec")
    return str(name).lower()


def stored_as(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype that a store uses for this one, and the extra axis, if any."""
    known = dtype.kind in "biu" or (dtype.kind in "fc" and dtype.name in _FLOATS)
    dated = dtype.kind in "mM" and np.datetime_data(dtype)[0] != "generic"
    if known or dated:
        return native(dtype), ()
    if dtype.itemsize in _UINTS:
        return np.dtype(_UINTS[dtype.itemsize]), ()
    return np.dtype(np.uint8), (dtype.itemsize,)


def stored(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert values to the dtype they are stored in."""
    dtype, more = stored_as(values.dtype)
    return viewed(np.ascontiguousarray(values, native(values.dtype)), dtype, (*values.shape, *more))
