"""The formats, and which of them a file has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    MissingPackageError,
    OptionError,
)
from recmap.files.description import description_path
from recmap.files.paths import PathsLike, expand
from recmap.formats.joined import ChainSource
from recmap.formats.reopened import OpenSources, ReopenedSource, most_open
from recmap.formats.tfrecord import Errors, FieldsLike, TFRecordSource
from recmap.sources import Sink, Source
from recmap.tfrecord.inflate import CompressionOption
from recmap.types import Schema, as_field

__all__ = [
    "FORMATS",
    "Format",
    "OpenOptions",
    "create_sink",
    "detect",
    "for_column",
    "format_of",
    "open_source",
    "read_copies",
    "select",
]


@dataclass(frozen=True)
class Format:
    """A format: the ends of its names, and where its source and sink are. Modules are
    imported when they are used: some need packages that may not be installed.
    """

    name: str
    suffixes: tuple[str, ...]
    source: tuple[str, str]
    sink: tuple[str, str]
    #: Times a list is held, beside the one that is read, by the library that reads it.
    list_copies: int = 0
    #: Descriptors that an open file takes.
    descriptors: int = 0

    def opener(self) -> Callable[..., Source]:
        """Opens one file, with the names of the columns if some were asked for."""
        opener: Callable[..., Source] = self._load(self.source)
        return opener

    def creator(self) -> Callable[..., Sink]:
        """Begins one file."""
        creator: Callable[..., Sink] = self._load(self.sink)
        return creator

    def _load(self, place: tuple[str, str]) -> Any:
        module, name = place
        try:
            return getattr(import_module(f"recmap.formats.{module}"), name)
        except ModuleNotFoundError as e:
            raise MissingPackageError(
                f"{self.name} files need the package {e.name}: pip install recmap[{self.name}]"
            ) from e


FORMATS = {
    format.name: format
    for format in (
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords", ".tfr", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib"),
            ("tfrecord", "TFRecordSource"),
            ("tfrecord_sink", "create_tfrecord"),
        ),
        Format("npy", (".npy",), ("npy", "open_npy"), ("array_sink", "NpySink")),
        Format("npz", (".npz",), ("npz", "open_npz"), ("npz_sink", "NpzSink")),
        Format(
            "hdf5",
            (".h5", ".hdf5", ".he5"),
            ("hdf5.source", "open_hdf5"),
            ("hdf5.sink", "Hdf5Sink"),
            list_copies=3,
            descriptors=2,
        ),
        Format("zarr", (".zarr",), ("zarr.source", "open_zarr"), ("zarr.sink", "ZarrSink")),
        Format("raw", (".bin", ".dat", ".raw"), ("raw", "open_raw"), ("array_sink", "RawSink")),
    )
}

_HDF5 = b"\x89HDF\r\n\x1a\n"
# The last two of a zip, with and without members.
_MAGIC = {b"\x93NUMPY": "npy", _HDF5: "hdf5", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz"}
# HDF5 may begin after bytes of another kind: 512, 1,024, 2,048 and so on of them.
_HDF5_PLACES = [512 << i for i in range(18)]


@dataclass(frozen=True)
class OpenOptions:
    """What ``rm.open`` may be told, beside the path and the fields."""

    format: str | None = None
    errors: Errors = "raise"
    verify: bool = True
    compression: CompressionOption = "auto"
    index: Any = None
    dtype: npt.DTypeLike | None = None
    shape: tuple[int, ...] | None = None
    offset: int = 0


def format_of(path: str) -> str | None:
    """The format that the end of a name means."""
    lower = path.lower().rstrip("/")
    for format in FORMATS.values():
        if lower.endswith(format.suffixes):
            return format.name
    return None


def detect(path: str) -> str:
    """The format of a file: by its first bytes, else by its name; else TFRecord."""
    if os.path.isdir(path):
        return "zarr"
    with open(path, "rb") as file:
        head = file.read(8)
        for magic, name in _MAGIC.items():
            if head.startswith(magic):
                return name
    if os.path.exists(description_path(path)):
        return "raw"
    return format_of(path) or ("hdf5" if _is_late_hdf5(path) else "tfrecord")


def for_column(paths: PathsLike, options: OpenOptions) -> OpenOptions:
    """The options for one of several files side by side: what is said of numbers without a
    header is said of those files that are such.
    """
    if options.dtype is None or options.format is not None:
        return options
    file = expand(paths)[0]
    known = format_of(file) or detect(file)
    if known == "raw" or (known == "tfrecord" and format_of(file) is None):
        return options
    return replace(options, dtype=None, shape=None, offset=0)


def _is_late_hdf5(path: str) -> bool:
    with open(path, "rb", buffering=0) as file:
        return any(os.pread(file.fileno(), 8, place) == _HDF5 for place in _HDF5_PLACES)


def open_source(paths: PathsLike, fields: FieldsLike | None, options: OpenOptions) -> Source:
    """The files as one source."""
    files = expand(paths)
    given = options.format or ("raw" if options.dtype is not None else None)
    if given is not None and given not in FORMATS:
        raise OptionError(f"format={given!r} is not one of {', '.join(FORMATS)}")
    formats = [given or detect(file) for file in files]
    if len(set(formats)) > 1:
        other = next(i for i, format in enumerate(formats) if format != formats[0])
        raise DataError(
            f"{files[0]} is {formats[0]}, but {files[other]} is {formats[other]}: rows end to end "
            "come from files of one format; open them apart",
            file=files[other],
        )
    format = formats[0]
    if format != "raw" and (options.shape is not None or options.offset):
        raise OptionError(
            f"shape and offset are for files without a header; {files[0]} is {format}"
        )
    if format == "tfrecord":
        return TFRecordSource(
            files,
            fields,
            errors=options.errors,
            verify=options.verify,
            compression=options.compression,
            index=options.index,
        )
    if len(files) > most_open(FORMATS[format].descriptors):
        return ChainSource(_open_many(files, format, fields, options))
    parts = [_open_one(file, format, fields, options) for file in files]
    return parts[0] if len(parts) == 1 else ChainSource(parts)


def _open_many(
    files: list[str], format: str, fields: FieldsLike | None, options: OpenOptions
) -> list[Source]:
    """Files that are looked at one by one, and opened again when they are read."""
    kept = OpenSources()
    parts: list[Source] = []
    for file in files:
        source = _open_one(file, format, fields, options)
        reopen = partial(_open_again, file, format, fields, options)
        parts.append(ReopenedSource(source, reopen, kept))
    return parts


def _open_again(
    file: str, format: str, fields: FieldsLike | None, options: OpenOptions, schema: Schema
) -> Source:
    # The columns by name, so that what was left out is not warned of again.
    return _open_one(file, format, list(schema) if fields is None else fields, options)


def _open_one(path: str, format: str, fields: FieldsLike | None, options: OpenOptions) -> Source:
    opener = FORMATS[format].opener()
    if format == "raw":
        source = opener(path, options.dtype, options.shape, options.offset)
    elif format == "npy":
        source = opener(path)
    elif format == "npz":
        source = opener(path, None if fields is None else list(fields), verify=options.verify)
    else:
        source = opener(path, None if fields is None else list(fields))
    return source if fields is None else select(source, fields, path)


def select(source: Source, fields: FieldsLike, path: str) -> Source:
    """The columns asked for, whose types must be those they have."""
    asked = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    for name, field in asked.items():
        if name not in source.schema:
            raise FieldNotFoundError(
                f"{path}: no column {name!r}; there are: {', '.join(source.schema)}"
            )
        if field is not None and as_field(field) != source.schema[name]:
            raise FieldMismatchError(
                f"{path}: column {name!r} is {source.schema[name]}, not {as_field(field)}",
                file=path,
                field=name,
            )
    if list(asked) == list(source.schema):
        return source
    return source.select(list(asked))


def create_sink(path: str, format: str, schema: Schema, **options: Any) -> Sink:
    """Begins a file of a format; its options are those of the format's sink."""
    creator = FORMATS[format].creator()
    try:
        return creator(path, schema, **options)
    except TypeError as e:
        known = "unexpected keyword argument" in str(e)
        if not known:
            raise
        raise OptionError(f"{path}: {format} files have no such option: {e}") from None


def read_copies(format: str, schema: Schema) -> int:
    """Times that rows are held more than once when a file of this format is read."""
    lists = any(field.is_bytes or field.ragged for field in schema.values())
    return FORMATS[format].list_copies if lists else 0
