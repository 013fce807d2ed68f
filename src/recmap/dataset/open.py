"""rm.open, rm.from_arrays and rm.from_batches, which create datasets."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import numpy.typing as npt

from recmap.dataset.dataset import Dataset, is_derived, opened_rows
from recmap.dataset.objects import blaming, held_columns, open_object, settled
from recmap.dataset.rows import OpenedRows, verbs_of
from recmap.dataset.tables import Wanted
from recmap.errors import (
    ColumnError,
    FieldTextError,
    OptionError,
    OptionTypeError,
    PathNotFoundError,
)
from recmap.formats.combined import SideBySideSource, check_equal_lengths
from recmap.formats.memory import StreamSource
from recmap.formats.open_spec import Opening, OpenOptions, open_source, select
from recmap.formats.registry import FORMATS
from recmap.local.inflate import CompressionOption
from recmap.model.arguments import (
    as_list,
    as_mapping,
    check_column_name,
    check_iterable,
    checked,
    is_pattern,
    with_matches,
)
from recmap.model.field import FieldLike, as_field
from recmap.model.fill_null import decided
from recmap.model.habits import helpful, no_option
from recmap.model.nulls import NULL_SUFFIX, Nulls, with_masks
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Errors, Source, renamed
from recmap.pipeline.stream import Stream
from recmap.store.paths import PathLike, absolute, as_location, given_paths
from recmap.store.storage import Storage

# Newer options. States and manifests that mention none of them still compare equal.
_NEW_OPTIONS = {
    "delimiter": None,
    "group": None,
    "header": True,
    "labels": None,
    "nulls": "keep",
    "split": None,
    "unit": None,
}


class OldNames(TypedDict, total=False):
    """The earlier names of options, which still work."""

    fields: FieldsLike | None


def open(
    path: Any,
    columns: FieldsLike | None = None,
    *,
    format: str | None = None,
    errors: Errors = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    index: PathLike | None = None,
    dtype: npt.DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    offset: int = 0,
    nulls: Nulls = "keep",
    group: str | None = None,
    split: str | None = None,
    unit: Literal["episodes", "steps"] | None = None,
    delimiter: str | None = None,
    header: bool = True,
    labels: PathLike | None = None,
    storage: Mapping[str, Any] | None = None,
    **old: Unpack[OldNames],
) -> Dataset:
    """Open files, or objects in memory, as one dataset, without loading them.

    ``path`` is a file, a pattern, a folder, or a list of these; their rows are concatenated.
    Pass a dict to take columns from different files:
    ``{"image": "images.npy", "label": "labels.npy"}``. Here and everywhere else, a path is a
    ``str``, ``bytes`` or ``pathlib.Path``, and may begin with ``~`` or ``file://``. A path may
    also be the URL of an object, a pattern or a folder in S3 (``s3://bucket/x-*.tfrecord``),
    Google Cloud (``gs://``) or Azure (``az://``), or the URL of a file on an HTTP server.
    ``storage`` has the options of the store, such as ``{"region": "eu-west-1"}`` or
    ``{"anonymous": True}``; by default, they come from the environment.

    ``path`` may also be an object: an array or a memmap of any layout, a dict of arrays, a list of
    dicts (rows), a DataFrame, an Arrow table or anything else with ``__arrow_c_stream__``, a
    Hugging Face dataset, a CPU tensor, an h5py dataset or group, a Zarr array or group, or a
    recmap dataset. A plain array becomes the column ``data``; pass
    ``{"x": array}`` to call it ``x``. Nothing is copied where the memory allows it. A memmap stays
    mapped, and worker processes map its file themselves.

    Missing values are nulls: a field that has some is ``int64?``, and its rows are None. ``nulls``
    is a short form of ``ds.fill_null``, ``ds.mask_null`` and so on: raise an ``"error"``;
    ``"fill"`` nulls with the value of ``columns={"x": "int64 = 0"}``, or else NaN or nothing; or do
    so and add a ``"mask"``, the column ``x/is_null``, which comes with ``x`` if you select that.

    By default, recmap detects the format from the file. ``format`` sets it: ``"tfrecord"``, ...

    ``columns`` selects columns, and gives types to TFRecord features that are stored as raw bytes:
    ``{"data": "float32[10]"}``. In files of any format, ``{"caption": "text"}`` reads byte strings
    as text, which is checked to be UTF-8. Add ``...: None`` to read all other columns as well.
    A name may be a pattern: ``["train/*"]``. ``group="train"`` reads the columns of a group of an
    HDF5 or Zarr file, and calls them ``x`` instead of ``train/x``.
    Without ``columns``, all are read, with the types found in a sample of the records, or in all of
    them by ``rm.index``. A feature that occurs only in later records is not read, and recmap issues
    an ``UnknownFeatureWarning``.

    A file without a header needs ``dtype`` and ``shape``. Use ``-1`` as the first axis for as many
    rows as the file has. ``offset`` skips bytes at the beginning.

    A folder of TFDS is opened by its version, with a ``split``:
    ``rm.open("~/tensorflow_datasets/mnist/3.0.1", split="train")``. The split may be a part,
    ``"train[:80%]"`` or ``"train[10:20]"``, several, ``"train+test"``, or ``"all"``. Columns are
    those of its metadata: nested features are called ``a/b``, images are encoded bytes, and the
    names of classes are in ``ds.labels``. For datasets of episodes (RLDS), ``unit="steps"`` makes
    every step a row, with the number of its ``episode``, its place ``step``, and the flags
    ``is_first`` and ``is_last``; ``unit="episodes"`` makes every episode a row.

    The types of CSV and JSON Lines are inferred from the first rows and checked on every row;
    ``columns={"x": "float64"}`` gives them. ``delimiter`` separates the values of CSV, and with
    ``header=False``, its first line is a row.

    ``rm.open("photos/", labels="instances.json")`` makes a row of each file in a folder, with its
    labels: a JSON file of COCO, a folder of YOLO text files, or a table, such as CSV, with a column
    that names the files. ``format="files"`` reads a folder without labels, or with its folders as
    classes. ``errors="skip"`` leaves out files without labels, and labels without files.

    For TFRecord, ``errors="skip"`` leaves out bad records and lists them in ``ds.skipped``.
    ``verify=False`` skips the CRC checks of the data. ``compression`` is ``"gzip"``, ``"zlib"`` or
    None; by default, recmap detects it. ``index`` is a text index of offsets and sizes, as used by
    DALI.

    >>> import numpy as np, recmap as rm
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
    >>> rm.open(np.memmap("numbers.bin", "float32", "r", shape=(2, 10))).schema
    Schema(data: float32[10])
    >>> rm.open([{"id": 1, "at": {"x": 0.5}}, {"id": 2, "at": {"x": 1.5}}])["at/x"]
    array([0.5, 1.5])
    """
    options = checked(OpenOptions, locals())
    fields = _columns(columns, dict(old))
    store = None if storage is None else Storage(storage)
    if labels is not None and store is not None:
        options = replace(options, labels=as_location(labels, "labels", store))
    if isinstance(path, Stream):  # iterable, but over rows, not paths
        return _already_open(path, fields, options)
    if not isinstance(path, str | bytes | os.PathLike):
        with blaming(path):
            path = settled(path)
            held = open_object(path, _wanted(nulls, fields))
        if held is not None:
            _refuse_file_options(path, options)
            opened = _decided(Dataset(held), nulls)
            return _selected(opened, fields, type(path).__qualname__)
        if isinstance(path, Mapping):
            with blaming(path):
                return _open_columns(path, fields, options, store)
    try:
        source = open_source(given_paths(path, store), fields, options)
    except PathNotFoundError as e:
        if isinstance(path, str | bytes | os.PathLike | list | tuple):
            raise
        raise PathNotFoundError(
            f"{e}; the text in {type(path).__qualname__} was taken for paths: for a column of "
            'text, rm.open({"text": x})'
        ) from None
    fields = with_matches(fields, source.schema)
    reopen = Opening(absolute(source.facts.files), fields, options)
    return Dataset(OpenedRows(source, _how(options, fields), reopen=reopen))


def _with_formats(text: str) -> str:
    """Return a docstring with all formats of the table."""
    listed = textwrap.fill(", ".join(f'``"{name}"``' for name in FORMATS), 92)
    return text.replace(
        'sets it: ``"tfrecord"``, ...', f"sets it:\n{listed}.".replace("\n", "\n    ")
    )


open.__doc__ = _with_formats(open.__doc__ or "")


def _already_open(dataset: Stream, fields: FieldsLike | None, options: OpenOptions) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise OptionTypeError(
            "give a path or a dataset, not a stream; to save its batches, rm.from_batches(stream)"
        )
    _refuse_file_options(dataset, options)
    return _selected(_decided(dataset, options.nulls), fields, "the dataset")


def _decided(dataset: Dataset, nulls: Nulls) -> Dataset:
    """Apply the option ``nulls`` to what is open already."""
    if nulls == "keep" or not any(field.has_nulls for field in dataset.schema.values()):
        return dataset
    change = partial(decided, nulls=nulls)
    return dataset._changed(f"nulls={nulls!r}", change)  # noqa: SLF001  # users do not see it


def _selected(dataset: Dataset, fields: FieldsLike | None, where: str) -> Dataset:
    """Return the columns of an object that ``fields`` names."""
    if fields is None:
        return dataset
    change = partial(select, fields=fields, path=where)
    return dataset._changed(f"select({fields!r})", change)  # noqa: SLF001  # users do not see it


def _refuse_file_options(x: Any, options: OpenOptions) -> None:
    """Refuse options that say how to read a file, for an object that is already open."""
    for name, default in asdict(OpenOptions()).items():
        if name != "nulls" and getattr(options, name) != default:
            raise OptionError(
                f"{name}= says how to read a file, but {type(x).__qualname__} is already open; "
                "leave it out"
            )


def _wanted(nulls: Nulls, fields: FieldsLike | None) -> Wanted:
    """Return what is wanted of a table. Fields given with a type may have fill values."""
    given = fields if isinstance(fields, Mapping) else {}
    types = {str(n): as_field(field) for n, field in given.items() if field is not None}
    every = fields is None or any(name is ... or is_pattern(name) for name in fields)
    names = None if every else [str(name) for name in fields or ()]
    return Wanted(nulls, types, names)


def _open_columns(
    path: Mapping[str, Any],
    fields: FieldsLike | None,
    options: OpenOptions,
    storage: Storage | None,
) -> Dataset:
    """Open columns from different files and objects, side by side."""
    listed = list(_parts(path))
    parts = dict(listed)
    if len(parts) < len(listed):
        raise ColumnError("two columns have the same name, as {'a/b': x, 'a': {'b': y}} has")
    if not parts:
        raise OptionError("an empty dict of columns")
    _refuse_mixed_dimensions(parts)
    given = {name: _open_column(name, part, options, storage) for name, part in parts.items()}
    if any(map(is_derived, given.values())):
        return _decided(_zipped(given, fields), options.nulls)
    columns = {name: opened_rows(column) for name, column in given.items()}
    how = {name: (column.source.facts.files, dict(column.how)) for name, column in columns.items()}
    again = {name: column.again for name, column in columns.items()}
    beside = OpenedRows(
        _side_by_side({name: column.source for name, column in columns.items()}, fields),
        {**_how(options, fields, parts=how), **verbs_of(columns)},
        all(column.lasting for column in columns.values()),
        partial(_reopen_columns, again, fields),
    )
    return _decided(Dataset(beside), options.nulls)


def _zipped(columns: Mapping[str, Dataset], fields: FieldsLike | None) -> Dataset:
    """Return columns side by side of which some are made by verbs, and may differ by epoch."""
    from recmap.pipeline.combine import zip

    check_equal_lengths({name: len(column) for name, column in columns.items()})
    return _selected(zip(*columns.values()), fields, "the columns")


def _parts(columns: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the columns by name; those of a dict inside are called ``outer/inner``."""
    for name, part in columns.items():
        check_column_name(name)
        if type(part) is dict:
            yield from _parts(part, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", part


def _refuse_mixed_dimensions(parts: Mapping[str, Any]) -> None:
    """Refuse arrays of xarray whose rows are along different dimensions."""
    # A dataset of h5py has dimensions as well, but those have no names to compare.
    dimensions = {
        name: part.dims[0]
        for name, part in parts.items()
        if not isinstance(part, Dataset)
        and isinstance(getattr(part, "dims", None), tuple)
        and part.dims
    }
    if len(set(dimensions.values())) > 1:
        listed = ", ".join(f"{name!r} along {axis!r}" for name, axis in dimensions.items())
        raise OptionError(
            f"rows are along different dimensions: {listed}; choose variables with one in common, "
            "or transpose them"
        )


def _side_by_side(sources: Mapping[str, Source], fields: FieldsLike | None) -> Source:
    beside = SideBySideSource(sources)
    return beside if fields is None else select(beside, fields, "the columns")


def _how(options: OpenOptions, fields: Any, **more: Any) -> dict[str, str]:
    """Return the options as text, for comparison."""
    given = dict(vars(options))
    for name, usual in _NEW_OPTIONS.items():
        if given[name] == usual:
            del given[name]
    given |= {"fields": fields, **more}
    return {name: repr(value) for name, value in sorted(given.items())}


@helpful
def from_arrays(columns: Mapping[str, Any]) -> Dataset:
    """Make a dataset from columns in memory: a dict of arrays, or a DataFrame.

    >>> import numpy as np, recmap as rm
    >>> rm.from_arrays({"x": np.eye(3), "name": [b"a", b"b", b"c"]}).schema
    Schema(x: float64[3], name: bytes)
    """
    if hasattr(columns, "keys"):
        columns = dict(columns)
    return Dataset(held_columns(as_mapping("columns", columns, '{"x": array}')))


@helpful
def from_batches(
    batches: Iterable[Mapping[str, Any]], schema: Mapping[str, FieldLike] | None = None
) -> Dataset:
    """Make a dataset from an iterable of batches, to save or to train on.

    It can be read only once, in order. ``schema`` defaults to that of the first batch.

    >>> import numpy as np, recmap as rm
    >>> ds = rm.from_batches({"i": np.arange(n, n + 2)} for n in (0, 2))
    >>> [batch["i"].tolist() for batch in ds.batches(3)]
    [[0, 1, 2], [3]]
    """
    check_iterable("batches", batches, '[{"x": array}, {"x": array}]')
    source = StreamSource(batches, None if schema is None else Schema(schema))
    return Dataset(OpenedRows(source, lasting=False))


def _open_column(name: str, part: Any, options: OpenOptions, storage: Storage | None) -> Dataset:
    """Open one column from a file, a dataset or an array, and call it ``name``."""
    with blaming(part):
        part = settled(part)
        is_dataset = isinstance(part, Dataset)
        held = None if is_dataset else open_object(part, Wanted(options.nulls, {}), name)
    if isinstance(part, Dataset):
        rows = part
    else:
        rows = Dataset(_open_named(part, options, storage) if held is None else held)
    columns = rows.columns
    masks = {each + NULL_SUFFIX for each in columns}
    plain = [each for each in columns if each not in masks]
    if name not in columns and len(plain) != 1:
        file = rows.files[0] if rows.files else name
        raise OptionError(
            f"{file}: which of its columns is {name!r}? There are: {', '.join(columns)}; open it "
            "with columns=[...]"
        )
    if columns == [name]:
        return rows
    old = name if name in columns else plain[0]
    names = {name + each.removeprefix(old): each for each in with_masks([old], columns)}
    if columns == list(names):
        return rows
    change = partial(_renamed, names=names)
    if is_derived(rows):
        return rows._changed(f"column({old!r})", change)  # noqa: SLF001  # users do not see it
    return Dataset(opened_rows(rows).changed(change, column=old))


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    """Return some columns by their new names; the others are not read."""
    return renamed(source.select(list(names.values())), names)


def _open_named(part: Any, options: OpenOptions, storage: Storage | None) -> OpenedRows:
    """Open the file of a column, or the files."""
    try:
        files = part if storage is None else given_paths(part, storage)
        chosen = options.for_column(files)
        source = open_source(files, None, chosen)
    except PathNotFoundError as e:
        if not isinstance(part, list | tuple):
            raise
        raise PathNotFoundError(
            f"{e}; text in a list was taken for paths: for a column of text, numpy.array(x)"
        ) from None
    return OpenedRows(source, reopen=Opening(absolute(source.facts.files), None, chosen))


def _columns(columns: Any, old: Mapping[str, Any]) -> Any:
    """Return the columns that were given, by this name or an earlier one."""
    for name, value in old.items():
        if name != "fields":
            raise no_option("rm.open", name, {"columns", *(open.__kwdefaults__ or ())}, value)
        if columns is not None and value is not None:
            raise OptionTypeError(
                "rm.open: fields= is the old name of columns=; give only one of them"
            )
    given, columns = ("columns", columns) if columns is not None else ("fields", old.get("fields"))
    # Read it only once, because it may be a generator.
    return None if columns is None else _checked_columns(given, columns)


def _checked_columns(given: str, columns: Any) -> Any:
    if isinstance(columns, str):
        return [columns]
    example = '["x", "label"], or a dict of types by name, {"x": "float32[10]"}'
    named = isinstance(columns, Mapping)
    names = list(columns) if named else as_list(given, columns, example)
    if not all(isinstance(name, str) or name is ... for name in names):
        raise OptionTypeError(
            f'{given}={columns!r}: give a list of names, ["x", "label"], or a dict of types by '
            'name, {"x": "float32[10]"}'
        )
    if not named:
        return names
    for name, field in columns.items():
        if field is not None:
            _check_field(f"{given}: {name!r}", field)
    return dict(columns)


def _check_field(where: str, field: Any) -> None:
    try:
        as_field(field)
    except FieldTextError as e:
        raise FieldTextError(f"{where}: {e}") from None


def _reopen_columns(again: Mapping[str, Callable[[], Source]], fields: FieldsLike | None) -> Source:
    return _side_by_side({name: reopen() for name, reopen in again.items()}, fields)
