"""rm.open, rm.from_arrays and rm.from_batches, which create datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, Never

import numpy as np
import numpy.typing as npt

from recmap.dataset.dataset import Dataset, opened_rows
from recmap.dataset.rows import OpenedRows, option_texts
from recmap.errors import FieldTextError, OptionError, OptionTypeError, PathNotFoundError
from recmap.files.inflate import CompressionOption
from recmap.files.paths import PathLike, PathsLike, absolute, as_path, given_paths
from recmap.files.storage import Storage
from recmap.formats.combined import SideBySideSource
from recmap.formats.memory import MemorySource, StreamSource
from recmap.formats.open_spec import Opening, OpenOptions, open_source, select
from recmap.formats.registry import FORMATS
from recmap.model.arguments import (
    as_dtype,
    as_list,
    as_mapping,
    as_whole,
    check_choice,
    check_column_name,
    check_flag,
    check_iterable,
    unknown_option,
)
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.field import FieldLike, as_field
from recmap.model.ragged import Ragged
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Errors, SelectedSource, Source
from recmap.pipeline.pipeline import Verbs

__all__ = ["from_arrays", "from_batches", "open"]

_OF_TFDS = ("split", "unit")


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
    split: str | None = None,
    unit: Literal["episodes", "steps"] | None = None,
    storage: Mapping[str, Any] | None = None,
    **unknown: Never,
) -> Dataset:
    """Open files as one dataset, without loading them.

    ``path`` is a file, a pattern, a folder, or a list of these; their rows are concatenated.
    Pass a dict to take columns from different files:
    ``{"image": "images.npy", "label": "labels.npy"}``. Here and everywhere else, a path is a
    ``str``, ``bytes`` or ``pathlib.Path``, and may begin with ``~`` or ``file://``. A path may
    also be the URL of an object, a pattern or a folder in S3 (``s3://bucket/x-*.tfrecord``),
    Google Cloud (``gs://``) or Azure (``az://``), or the URL of a file on an HTTP server.
    ``storage`` has the options of the store, such as ``{"region": "eu-west-1"}`` or
    ``{"anonymous": True}``; by default, they come from the environment.

    ``format`` is ``"tfrecord"``, ``"npy"``, ``"npz"``, ``"hdf5"``, ``"zarr"``, ``"raw"`` or
    ``"tfds"``. By default, recmap detects it from the file.

    ``fields`` selects columns, and gives types to TFRecord features that are stored as raw bytes:
    ``{"data": "float32[10]"}``. In files of any format, ``{"caption": "text"}`` reads byte strings
    as text, which is checked to be UTF-8. Add ``...: None`` to read all other columns as well.
    Without ``fields``, all columns are read, with the types found in a sample of the records, or in
    all of them by ``rm.index``. A feature that occurs only in later records is not read, and recmap
    issues an ``UnknownFeatureWarning``.

    A file without a header needs ``dtype`` and ``shape``. Use ``-1`` as the first axis for as many
    rows as the file has. ``offset`` skips bytes at the beginning.

    A folder of TFDS is opened by its version, with a ``split``:
    ``rm.open("~/tensorflow_datasets/mnist/3.0.1", split="train")``. The split may be a part,
    ``"train[:80%]"`` or ``"train[10:20]"``, several, ``"train+test"``, or ``"all"``. Columns are
    those of its metadata: nested features are called ``a/b``, images are encoded bytes, and the
    names of classes are in ``ds.labels``. For datasets of episodes (RLDS), ``unit="steps"`` makes
    every step a row, with the number of its ``episode``, its place ``step``, and the flags
    ``is_first`` and ``is_last``; ``unit="episodes"`` makes every episode a row.

    For TFRecord, ``errors="skip"`` leaves out bad records and lists them in ``ds.skipped``.
    ``verify=False`` skips the CRC checks of the data. ``index`` is a text index of offsets and
    sizes, as used by DALI.

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
    check_choice("unit", unit, ("episodes", "steps", None))
    if isinstance(path, Verbs):  # iterable, but over rows, not paths
        raise OptionTypeError(
            "give a path: a dataset is already open"
            if isinstance(path, Dataset)
            else "give a path, not a pipeline; to save its batches, rm.from_batches(pipeline)"
        )
    store = None if storage is None else Storage(storage)
    if not isinstance(path, Mapping):
        path = given_paths(path, store)
    elif store is not None:
        path = {name: _located(part, store) for name, part in path.items()}
    options = OpenOptions(
        format=format,
        errors=errors,
        verify=check_flag("verify", verify),
        compression=compression,
        index=None if index is None else _index_file(index),
        dtype=None if dtype is None else as_dtype("dtype", dtype),
        shape=None if shape is None else _shape(shape),
        offset=as_whole("offset", offset),
        split=None if split is None else _split(split),
        unit=unit,
    )
    fields = None if fields is None else _fields(fields)  # only once, because it may be a generator
    if isinstance(path, Mapping):
        return _open_columns(path, fields, options)
    source = open_source(path, fields, options)
    reopen = Opening(absolute(source.files), fields, options)
    return Dataset(OpenedRows(source, _how(options, fields), reopen=reopen))


def _open_columns(
    path: Mapping[str, Any], fields: FieldsLike | None, options: OpenOptions
) -> Dataset:
    """Open columns from different files, side by side."""
    if not path:
        raise OptionError("an empty dict of columns")
    for name in path:
        check_column_name(name)
    columns = {name: _open_column(name, part, options) for name, part in path.items()}
    beside = SideBySideSource({name: column.source for name, column in columns.items()})
    parts = {name: (column.source.files, dict(column.how)) for name, column in columns.items()}
    lasting_path = {name: _absolute(part) for name, part in path.items()}
    return Dataset(
        OpenedRows(
            beside if fields is None else select(beside, fields, "the columns"),
            _how(options, fields, parts=parts),
            all(column.lasting for column in columns.values()),
            partial(_reopen_columns, lasting_path, fields, options),
        )
    )


def _how(options: OpenOptions, fields: Any, **more: Any) -> dict[str, str]:
    given = asdict(options)
    # States and manifests of datasets without splits do not mention them.
    given = {n: value for n, value in given.items() if value is not None or n not in _OF_TFDS}
    return option_texts({**given, "fields": fields, **more})


def from_arrays(columns: Mapping[str, Any]) -> Dataset:
    """Make a dataset from columns in memory: a dict of arrays, or a DataFrame.

    >>> import recmap as rm
    >>> rm.from_arrays({"x": np.eye(3), "name": [b"a", b"b", b"c"]}).schema
    Schema(x: float64[3], name: bytes)
    """
    if hasattr(columns, "keys"):
        columns = dict(columns)
    given = as_columns(as_mapping("columns", columns, '{"x": array}'))
    schema = infer_schema(given)
    batch, _ = fit(given, schema)
    return Dataset(OpenedRows(MemorySource(batch, schema), lasting=False))


def from_batches(
    batches: Iterable[Mapping[str, Any]], schema: Mapping[str, FieldLike] | None = None
) -> Dataset:
    """Make a dataset from an iterable of batches, to save or to train on.

    It can be read only once, in order. ``schema`` defaults to that of the first batch.

    >>> import recmap as rm
    >>> ds = rm.from_batches({"i": np.arange(n, n + 2)} for n in (0, 2))
    >>> [batch["i"].tolist() for batch in ds.batches(3)]
    [[0, 1, 2], [3]]
    """
    check_iterable("batches", batches, '[{"x": array}, {"x": array}]')
    source = StreamSource(batches, None if schema is None else Schema(schema))
    return Dataset(OpenedRows(source, lasting=False))


def _open_column(name: str, part: Any, options: OpenOptions) -> OpenedRows:
    """Open one column from a file, a dataset or an array, and call it ``name``."""
    if isinstance(part, np.ndarray | Ragged):
        return opened_rows(from_arrays({name: part}))
    if isinstance(part, Dataset):
        rows = opened_rows(part)
    else:
        rows = OpenedRows(open_source(part, None, options.for_column(part)))
    columns = list(rows.source.schema)
    if columns == [name]:
        return rows
    if name not in columns and len(columns) != 1:
        file = rows.source.files[0] if rows.source.files else name
        raise OptionError(
            f"{file}: which of its columns is {name!r}? There are: {', '.join(columns)}; open it "
            "with fields=[...]"
        )
    old = name if name in columns else columns[0]
    how = {**rows.how, "column": old}
    return OpenedRows(SelectedSource(rows.source, {name: old}), how, rows.lasting)


def _index_file(index: Any) -> str:
    file = os.path.abspath(as_path(index, "index"))
    if not os.path.isfile(file):
        raise PathNotFoundError(
            f"index={index!r}: no such file; rm.index(path, text=True) makes it"
        )
    return file


def _split(split: Any) -> str:
    if not isinstance(split, str):
        raise OptionTypeError(f"split={split!r}: give text, such as 'train' or 'train[:80%]'")
    return str(split)


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


def _reopen_columns(
    path: Mapping[str, Any], fields: FieldsLike | None, options: OpenOptions
) -> Source:
    return opened_rows(open(path, fields, **asdict(options))).source


def _absolute(part: Any) -> Any:
    return part if _is_held(part) else absolute(part)


def _located(part: Any, storage: Storage) -> Any:
    return part if _is_held(part) else given_paths(part, storage)


def _is_held(part: Any) -> bool:
    """Return whether a column is given as an array or a dataset, not as a path."""
    return isinstance(part, np.ndarray | Ragged | Dataset)
