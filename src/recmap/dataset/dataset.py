"""Dataset: rows and columns over any source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Never, overload

import numpy as np
import numpy.typing as npt

from recmap.conversion.progress import Report
from recmap.dataset.column_view import ColumnView
from recmap.dataset.stats import FieldCollector, FieldStats
from recmap.errors import (
    DataError,
    FieldTextError,
    MemoryLimitError,
    OptionError,
    OptionTypeError,
    PathNotFoundError,
    RowNotFoundError,
)
from recmap.files.mapped import guarded
from recmap.files.paths import PathLike, PathsLike, absolute, as_path, as_paths
from recmap.formats.combined import SideBySideSource
from recmap.formats.memory import MemorySource, StreamSource
from recmap.formats.open_spec import Opening, OpenOptions, open_source, select
from recmap.formats.registry import FORMATS
from recmap.model.arguments import (
    as_dtype,
    as_list,
    as_mapping,
    as_row,
    as_slice,
    as_whole,
    check_choice,
    check_column_name,
    check_flag,
    check_iterable,
    unknown_option,
)
from recmap.model.casting import exact_array
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.html import table
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.ragged import Ragged, concatenate
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, FieldLike, FieldsLike, Schema, as_field
from recmap.model.source import Errors, Info, SelectedSource, Skipped, Source
from recmap.pipeline.chain import Verbs
from recmap.tfrecord.byte_stream import CompressionOption

if TYPE_CHECKING:
    from recmap.pipeline.plan import Plan

__all__ = ["ColumnView", "Dataset", "from_arrays", "from_batches", "open"]

Rows = slice | npt.NDArray[Any] | list[int] | list[bool] | range

# Bytes of the rows read at a time by a pass in batches; small batches are cut from it. The
# first read is smaller: it tells what rows take in memory.
_READ_SIZE = 16 << 20
_FIRST_READ_SIZE = 1 << 20
# What rows that are much larger than those before may take. What they take is often not
# known exactly before they are read, and a read that is cut costs more than it saves.
_MOST_READ_SIZE = 2 * _READ_SIZE


def open(
    path: PathsLike | Mapping[str, Any],
    fields: FieldsLike | None = None,
    *,
    format: str | None = None,
    errors: Errors = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    index: PathLike | None = None,
    dtype: npt.DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    offset: int = 0,
    **unknown: Never,
) -> Dataset:
    """Opens files as one dataset, without loading them.

    ``path`` is a file, a pattern, a folder, or a list of them, whose rows follow each
    other; or a dict of columns from different files: ``{"image": "images.npy",
    "label": "labels.npy"}``. A path is a ``str``, ``bytes`` or a ``pathlib.Path``, here and
    wherever recmap takes one, and ``~`` is your home folder.

    The format is seen from the file, or given:
    ``"tfrecord"``, ``"npy"``, ``"npz"``, ``"hdf5"``, ``"zarr"`` or ``"raw"``.

    ``fields`` names the columns to read and gives types to TFRecord features stored
    as raw bytes (``{"data": "float32[10]"}``); ``{"data": "float32[10]", ...: None}`` gives
    one its type and reads all others as they are. Without it all are read, with the types
    their records show: those of a sample, unless ``rm.index`` has looked at every record.
    A feature that only other records have is not read, and an ``UnknownFeatureWarning`` says
    so. A file without a header needs ``dtype`` and ``shape``, whose
    first axis is -1 if the size of the file tells the rows, and perhaps an ``offset``.

    For TFRecord: bad records raise, or are left out and listed in ``.skipped`` with
    ``errors="skip"``. ``verify=False`` does not check the CRCs of the data. ``index`` is
    a text index of offsets and sizes, as DALI uses it.

    >>> import recmap as rm
    >>> with rm.TFRecordWriter("tour.tfrecord") as w:
    ...     w.write({"x": np.arange(6, dtype="float32").reshape(3, 2), "label": [7, 8, 9]})
    >>> ds = rm.open("tour.tfrecord")
    >>> len(ds), ds.schema
    (3, Schema(x: float32[2], label: int64))
    >>> ds[[2, 0]]["label"]
    array([9, 7])
    >>> np.arange(20, dtype="float32").tofile("numbers.bin")
    >>> rm.open("numbers.bin", dtype="float32", shape=(-1, 10))[1]["data"][:3]
    array([10., 11., 12.], dtype=float32)
    """
    for name in unknown:
        raise unknown_option(name, ["fields", *(open.__kwdefaults__ or ())], "rm.open: ")
    check_choice("errors", errors, ("raise", "skip"))
    check_choice("format", format, (*FORMATS, None))
    check_choice("compression", compression, ("auto", "gzip", "zlib", None))
    if isinstance(path, Verbs):  # which gives rows, not paths
        raise OptionTypeError(
            "give a path: a dataset is already open"
            if isinstance(path, Dataset)
            else "give a path, not a pipeline; to save its batches, rm.from_batches(pipeline)"
        )
    if not isinstance(path, Mapping):
        path = as_paths(path)
    options = OpenOptions(
        format=format,
        errors=errors,
        verify=check_flag("verify", verify),
        compression=compression,
        index=None if index is None else _index_file(index),
        dtype=None if dtype is None else as_dtype("dtype", dtype),
        shape=None if shape is None else _shape(shape),
        offset=as_whole("offset", offset),
    )
    fields = None if fields is None else _fields(fields)  # once: it may be a generator
    opened = {**asdict(options), "fields": fields}
    if isinstance(path, Mapping):
        if not path:
            raise OptionError("an empty dict of columns")
        for name in path:
            check_column_name(name)
        parts = {name: _one_column(name, part, options) for name, part in path.items()}
        beside = SideBySideSource({name: part.source for name, part in parts.items()})
        chosen = beside if fields is None else select(beside, fields, "the columns")
        opened["parts"] = {name: (part.files, part.opened) for name, part in parts.items()}
        lasting = all(part.lasting for part in parts.values())
        lasting_path = {name: _absolute(part) for name, part in path.items()}
        return Dataset(chosen, opened, lasting, partial(_reopened, lasting_path, fields, options))
    source = open_source(path, fields, options)
    return Dataset(source, opened, reopen=Opening(absolute(source.files), fields, options))


def _index_file(index: Any) -> str:
    file = os.path.abspath(as_path(index, "index"))
    if not os.path.isfile(file):
        raise PathNotFoundError(
            f"index={index!r}: no such file; rm.index(path, text=True) makes it"
        )
    return file


def _shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, int | np.integer):
        raise OptionError(f"shape={shape}: give all axes, rows first, such as (-1, {shape})")
    axes = as_list("shape", shape, "(-1, 10), all axes, rows first")
    return tuple(as_whole("an axis of shape", axis, least=-1) for axis in axes)


def _fields(fields: Any) -> Any:
    if isinstance(fields, str):
        return [fields]
    example = '["x", "label"], or a dict of types by name, {"x": "float32[10]"}'
    named = isinstance(fields, Mapping)
    names = list(fields) if named else as_list("fields", fields, example)
    if not all(isinstance(name, str) or name is ... for name in names):
        raise OptionTypeError(
            f'fields={fields!r}: give a list of names, ["x", "label"], or a dict of types by '
            'name, {"x": "float32[10]"}'
        )
    if not named:
        return names
    for name, field in fields.items():
        if field is not None:
            _field(name, field)
    return dict(fields)


def _field(name: Any, field: Any) -> None:
    try:
        as_field(field)
    except FieldTextError as e:
        raise FieldTextError(f"fields: {name!r}: {e}") from None


def _reopened(path: Mapping[str, Any], fields: FieldsLike | None, options: OpenOptions) -> Source:
    """The same columns once more, for another process."""
    return open(path, fields, **asdict(options)).source


def _absolute(part: Any) -> Any:
    held = isinstance(part, np.ndarray | Ragged | Dataset)
    return part if held else absolute(part)


def _given(source: Source) -> Source:
    return source


def _again(reopen: Callable[[], Source], opened: dict[str, str], lasting: bool) -> Dataset:
    """A dataset in another process, which opens its files there."""
    dataset = Dataset(reopen(), None, lasting, reopen)
    dataset.opened = opened
    return dataset


def from_arrays(columns: Mapping[str, Any]) -> Dataset:
    """Columns in memory as a dataset, so that they can be saved: a dict of arrays, or a
    DataFrame.

    >>> import recmap as rm
    >>> rm.from_arrays({"x": np.eye(3), "name": [b"a", b"b", b"c"]}).schema
    Schema(x: float64[3], name: bytes)
    """
    if hasattr(columns, "keys"):
        columns = dict(columns)
    given = as_columns(as_mapping("columns", columns, '{"x": array}'))
    schema = infer_schema(given)
    batch, _ = fit(given, schema)
    return Dataset(MemorySource(batch, schema), lasting=False)


def from_batches(
    batches: Iterable[Mapping[str, Any]], schema: Mapping[str, FieldLike] | None = None
) -> Dataset:
    """Batches as they come, as a dataset that can be read once, in order: to be saved.

    ``schema`` is that of the first batch if not given.

    >>> import recmap as rm
    >>> ds = rm.from_batches({"i": np.arange(n, n + 2)} for n in (0, 2))
    >>> [batch["i"].tolist() for batch in ds.batches(3)]
    [[0, 1, 2], [3]]
    """
    check_iterable("batches", batches, '[{"x": array}, {"x": array}]')
    return Dataset(StreamSource(batches, None if schema is None else Schema(schema)), lasting=False)


def _one_column(name: str, part: Any, options: OpenOptions) -> Dataset:
    """A column from a file, a dataset or an array, under the name it is given."""
    if isinstance(part, np.ndarray | Ragged):
        return from_arrays({name: part})
    if isinstance(part, Dataset):
        dataset = part
    else:
        dataset = Dataset(open_source(part, None, options.for_column(part)))
    columns = list(dataset.schema)
    if columns == [name]:
        return dataset
    if name not in columns and len(columns) != 1:
        raise OptionError(
            f"{dataset.files[0] if dataset.files else name}: which of its columns is {name!r}? "
            f"There are: {', '.join(columns)}; open it with fields=[...]"
        )
    old = name if name in columns else columns[0]
    chosen = Dataset(SelectedSource(dataset.source, {name: old}), lasting=dataset.lasting)
    chosen.opened = {**dataset.opened, "column": old}
    return chosen


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array[...]
    view.flags.writeable = False
    return view


def _row_array(key: Any) -> npt.NDArray[Any]:
    """The numbers or the mask of rows that an index means."""
    if isinstance(key, tuple):
        raise OptionError(
            f"rows are not indexed by a tuple, ds[{', '.join(map(repr, key))}]: for rows by number "
            f'use a list, ds[{list(key)!r}]; for values of a column, ds["name"][row, ...]'
        )
    try:
        numbers = exact_array(key)
    except (TypeError, ValueError) as e:
        raise OptionError(f"rows cannot be indexed by {type(key).__name__}: {e}") from None
    if numbers.ndim == 1 and numbers.dtype.kind in "iub":
        return numbers
    if numbers.ndim == 1 and numbers.size == 0 and not isinstance(key, np.ndarray):
        return numbers.astype(np.int64)
    names = numbers.ndim == 1 and numbers.dtype.kind == "U"
    hint = "; for some columns, use ds.select(*names)" if names else ""
    raise OptionError(
        "rows are indexed by a number, a slice, or a one-dimensional array of numbers or "
        f"booleans, not by {type(key).__name__}{hint}"
    )


class Dataset(Verbs):
    """Rows and columns of files, read when they are asked for.

    ``ds[7]`` is a row (a dict of values), ``ds[100:200]`` and ``ds[[5, 3, 9]]`` are
    batches (dicts of columns), ``ds["name"]`` is a column: a view of the mapped
    file where it lies there as an array, else a ``ColumnView`` that reads
    what is indexed.
    """

    def __init__(
        self,
        source: Source,
        opened: Mapping[str, Any] | None = None,
        lasting: bool = True,
        reopen: Callable[[], Source] | None = None,
    ) -> None:
        self._source, self._reopen = source, reopen
        #: Whether the same rows can be had another time: those in memory cannot.
        self.lasting = lasting
        #: How it was opened, as texts: two datasets of the same files may differ in that.
        self.opened = {name: repr(value) for name, value in sorted((opened or {}).items())}

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._reopen or partial(_given, self._source), self.opened, self.lasting)

    @cached_property
    def plan(self) -> Plan:
        from recmap.pipeline.plan import Plan
        from recmap.pipeline.row_source import Leaf
        from recmap.pipeline.signature import Said

        leaf = Leaf(self._source, self._reopen)
        said = (Said(self.opened["split"]),) if "split" in self.opened else ()
        return Plan(leaf, leaves=(leaf,), said=said)

    @property
    def source(self) -> Source:
        """What the rows are read from."""
        return self._source

    @property
    def reopen(self) -> Callable[[], Source] | None:
        """What opens the same files in another process; None if there are none."""
        return self._reopen

    @property
    def schema(self) -> Schema:
        """The fields and their types."""
        return self._source.schema

    @property
    def skipped(self) -> list[Skipped]:
        """The records that ``errors="skip"`` left out, with file, record, byte and reason."""
        return list(self._source.skipped)

    @property
    def files(self) -> list[str]:
        """The files, in the order of their rows."""
        return list(self._source.files)

    def info(self) -> Info:
        """What is known of the files: format, rows, fields, hints for raw bytes."""
        return self._source.info()

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: Rows) -> dict[str, Any]: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            field = self.schema[key]
            view = self._source.column(key)
            if view is not None:
                return view if not view.flags.writeable else _read_only(view)
            return ColumnView(Dataset(self._source.select([key])), key, field)
        number = as_row(key)
        if number is None:
            return self._rows(key)
        batch = self._source.gather(np.array([self._row_number(number)], dtype=np.int64))
        return {name: column[0] for name, column in batch.items()}

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self.schema

    def keys(self) -> list[str]:
        """The names of the columns, so that ``dict(ds)`` is a dict of columns."""
        return list(self.schema)

    def items(self) -> list[tuple[str, Any]]:
        """The columns with their names."""
        return [(name, self[name]) for name in self.schema]

    def _row_number(self, key: int) -> int:
        # A row from the front may be read without counting all of them.
        rows = self._source.known_rows()
        if key >= 0 and rows is None:
            if len(next(iter(self._source.read(key, key + 1).values()), ())) == 1:
                return key
        else:
            rows = len(self) if rows is None else rows
            if -rows <= key < rows:
                return key % rows
        raise RowNotFoundError(f"row {key:,} of {len(self):,}")

    def _rows(self, key: Any) -> Batch:
        if isinstance(key, slice):
            key = as_slice("rows", key)
            step = 1 if key.step is None else key.step
            plain = all(bound is None or bound >= 0 for bound in (key.start, key.stop))
            if step == 1 and plain and key.stop is not None:
                return self._source.read(key.start or 0, max(key.start or 0, key.stop))
            rows = range(*key.indices(len(self)))
            if rows.step == 1:
                return self._source.read(rows.start, max(rows.start, rows.stop))
            key = rows
        numbers = _row_array(key)
        if numbers.dtype.kind == "b":
            if len(numbers) != len(self):
                raise RowNotFoundError(f"a mask of {len(numbers):,} for {len(self):,} rows")
            numbers = np.flatnonzero(numbers)
        return self._source.gather(self._checked(numbers))

    def _checked(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        rows = numbers.astype(np.int64, copy=False)
        if not len(rows):
            return rows
        count = len(self)
        if numbers.dtype == np.uint64 and int(numbers.max()) >= count:
            raise RowNotFoundError(f"row {int(numbers.max()):,} of {count:,}")
        wrapped = np.where(rows < 0, rows + count, rows)
        wrong = (wrapped < 0) | (wrapped >= count)
        if wrong.any():
            raise RowNotFoundError(f"row {int(rows[wrong][0]):,} of {count:,}")
        return wrapped

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[dict[str, Any]]:
        """All rows in order, ``size`` at a time; the last batch may be smaller.

        >>> import recmap as rm
        >>> with rm.TFRecordWriter("tour.tfrecord", overwrite=True) as w:
        ...     w.write({"x": np.arange(5)})
        >>> [batch["x"].tolist() for batch in rm.open("tour.tfrecord").batches(2)]
        [[0, 1], [2, 3], [4]]
        """
        size, drop_last = as_whole("size", size, least=1), check_flag("drop_last", drop_last)
        return self._batches(size, drop_last)

    def _batches(self, size: int, drop_last: bool) -> Iterator[dict[str, Any]]:
        for read in self._reads(size):
            rows, _ = measure(read)
            for begin in range(0, rows, size):
                if begin + size <= rows or not drop_last:
                    yield {name: column[begin : begin + size] for name, column in read.items()}

    def _reads(self, multiple: int) -> Iterator[Batch]:
        """All rows in order, about as many at a time as fit, but for the last so many that
        ``multiple`` divides their number.
        """
        row_bytes = self._source.row_bytes()
        size, start = _FIRST_READ_SIZE, 0
        while True:
            wanted = max(1, size // row_bytes // multiple) * multiple
            read = self._read_within(start, start + wanted)
            rows, taken = measure(read)
            if not rows:
                return
            if rows % multiple and rows > multiple and self._source.files:
                # The rest is read again: to join it to what comes next would copy both.
                rows -= rows % multiple
                read = {name: column[:rows] for name, column in read.items()}
            failure = None
            whole = rows + -rows % multiple
            while rows < whole:
                try:
                    more = self._read_within(start + rows, start + whole)
                except DataError as e:
                    failure = e  # the rows in front of it are sound
                    break
                if not measure(more)[0]:
                    break
                read = {name: concatenate([read[name], more[name]]) for name in read}
                rows, taken = measure(read)
            yield read
            if failure is not None:
                raise failure
            start += rows
            size, row_bytes = _READ_SIZE, max(1, taken // rows)

    def _read_within(self, start: int, stop: int) -> Batch:
        try:
            return self._source.read(start, stop, _MOST_READ_SIZE)
        except MemoryLimitError:
            return self._source.read(start, start + 1)

    @guarded
    def stats(self, *, progress: ProgressOption = None) -> dict[str, FieldStats]:
        """Count, least, greatest, mean, deviation, NaN and a histogram of each field, and
        the lengths of its rows, in one pass and bounded memory.

        >>> import recmap as rm
        >>> found = rm.from_arrays({"x": np.array([1.0, np.nan, 4.0])}).stats()["x"].values
        >>> found.count, found.nan, found.min, found.max, found.mean, found.std
        (3, 1, 1.0, 4.0, 2.5, 1.5)
        """
        check_progress(progress)
        collectors = {name: FieldCollector(field) for name, field in self.schema.items()}
        counter = Counter(self._source.known_rows(), progress)
        for batch in self._reads(1):
            for name, column in batch.items():
                collectors[name].add(column)
            counter.add(*measure(batch))
        counter.finish()
        return {name: collector.result() for name, collector in collectors.items()}

    def split(
        self,
        parts: Mapping[str, float],
        *,
        seed: int = 0,
        by: str | None = None,
        stratify: str | None = None,
    ) -> dict[str, Dataset]:
        """Split the rows into disjoint datasets, at random but always alike.

        ``parts`` gives the share of each, or its number of rows. The counts are exact.
        With ``by``, rows that share a value of a column stay together: a hash of the value
        decides, so that data that is appended moves no old row, and the counts are only
        about right. With ``stratify``, each value of a column has its share in every part.

        >>> import recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(10)})
        >>> parts = ds.split({"train": 0.8, "val": 0.2}, seed=0)
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 8, 'val': 2}
        """
        from recmap.conversion.split import Part, again, split

        made = {}
        for name, order in split(self._source, parts, seed, by, stratify).items():
            reopen = None if self._reopen is None else partial(again, self._reopen, order)
            made[name] = Dataset(Part(self._source, order), None, self.lasting, reopen)
            given = f"split({dict(parts)}, seed={seed}, by={by!r}, stratify={stratify!r})[{name!r}]"
            before = f"{self.opened['split']}." if "split" in self.opened else ""
            made[name].opened = {**self.opened, "split": before + given}
        return made

    def save(self, dst: PathLike, **options: Any) -> Report:
        """Writes all rows to ``dst``, in any format and in bounded memory: the options
        are those of ``rm.convert``. ``dst`` is a ``str``, ``bytes`` or a ``pathlib.Path``.

        >>> import recmap as rm
        >>> rm.from_arrays({"x": np.arange(6.0).reshape(3, 2)}).save("x.npy").rows
        3
        >>> np.load("x.npy", mmap_mode="r").shape
        (3, 2)
        """
        from recmap.dataset.convert import convert

        return convert(self, dst, **options)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows in order, each a dict."""
        for batch in self.batches(1024):
            for i in range(len(next(iter(batch.values()), ()))):
                yield {name: column[i] for name, column in batch.items()}

    def __repr__(self) -> str:
        width = max(map(len, self.schema), default=0)
        fields = [f"  {name:{width}}  {kind}" for name, kind in self.schema.lines()]
        return "\n".join([f"Dataset({self._summary()})", *fields])

    def _repr_html_(self) -> str:
        return table(f"Dataset: {self._summary()}", ["field", "type"], self.schema.lines())

    def _summary(self) -> str:
        files = self._source.files
        rows = self._source.known_rows()
        count = "rows not counted yet" if rows is None else f"{rows:,} rows"
        name = f"{len(files):,} files, {files[0]}, ..." if len(files) > 1 else "".join(files)
        return f"{name or 'in memory'}: {count}, schema {self._source.origin}"
