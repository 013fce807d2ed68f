"""The formats, and which of them a file has."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    IndexFileError,
    MissingPackageError,
    OptionError,
    UnknownFormatError,
)
from recmap.files.array_sidecar import description_path, load_description
from recmap.files.mapped import guarded
from recmap.files.paths import PathsLike, expand
from recmap.files.sniff import Look, holds_records, look, named_tfrecord, unknown_format
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.lazy_files import LazySource, OpenFiles, max_open_files
from recmap.formats.tfrecord_source import Errors, FieldsLike, TFRecordSource
from recmap.model.arguments import check_column_name, unknown_option
from recmap.model.schema import FieldLike, Schema, as_field
from recmap.model.sink import Sink
from recmap.model.source import Source
from recmap.tfrecord.inflate import CompressionOption

__all__ = [
    "FORMATS",
    "Format",
    "OpenOptions",
    "check_output",
    "column_bytes",
    "create_sink",
    "detect",
    "for_column",
    "format_of",
    "open_source",
    "read_copies",
    "select",
]


# So many columns take little enough not to be counted.
_FEW_COLUMNS = 100
# Bytes of one column that wait, if the columns are few.
_WAITING = 24_000
# Bytes that a column of an open file takes, at most, be it mapped or read by a library.
_OPENED = 11_000


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
    #: Bytes that a column takes while a file is written and checked, whatever its rows are.
    column_bytes: int = 3_000
    #: Bytes that rows waiting to fill chunks take, at most, with what is held around them.
    waiting: int = 0
    #: Whether the sink wants to know how many rows will come.
    counts_rows: bool = False

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
            ("tfrecord_source", "TFRecordSource"),
            ("tfrecord_sink", "create_tfrecord"),
        ),
        Format("npy", (".npy",), ("npy", "open_npy"), ("fixed_sink", "create_npy")),
        Format(
            "npz",
            (".npz",),
            ("npz.source", "open_npz"),
            ("npz.sink", "NpzSink"),
            column_bytes=5_000,
        ),
        Format(
            "hdf5",
            (".h5", ".hdf5", ".he5"),
            ("hdf5.source", "open_hdf5"),
            ("hdf5.sink", "Hdf5Sink"),
            list_copies=3,
            descriptors=2,
            column_bytes=6_000,
            waiting=24 * 10**6,
            counts_rows=True,
        ),
        Format(
            "zarr",
            (".zarr",),
            ("zarr.source", "open_zarr"),
            ("zarr.sink", "ZarrSink"),
            column_bytes=8_000,
            counts_rows=True,
        ),
        Format("raw", (".bin", ".dat", ".raw"), ("raw", "open_raw"), ("fixed_sink", "RawSink")),
    )
}


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
    """The format of a file: by its content, else by its description or its name."""
    if os.path.isdir(path):
        return "zarr"
    named = "tfrecord" if named_tfrecord(path) else format_of(path)
    found = look(path)
    described = named != "npy" and os.path.isfile(description_path(path))
    if found is not None and found.format is not None and not (described and _is_raw(path)):
        return found.format
    if described:
        return "raw"
    if os.path.getsize(path) == 0 and named in ("tfrecord", "raw"):
        return named
    if found is not None and not (named == "tfrecord" and found.packed in ("gzip", "zlib")):
        raise unknown_format(path, found)
    if named not in (None, "raw"):
        return str(named)  # damaged: its reader says how
    if found is None and holds_records(path):
        return "tfrecord"
    if named is None:
        raise unknown_format(path, found)
    return named


def _is_raw(path: str) -> bool:
    """Whether a file was written without a header, whatever its bytes look like."""
    try:
        described = load_description(path)
    except IndexFileError:
        return False
    return described is not None and described.bound and not described.mismatch(path)


def for_column(paths: PathsLike, options: OpenOptions) -> OpenOptions:
    """The options for one of several files side by side: what is said of numbers without a
    header is said of those files that are such.
    """
    if options.dtype is None or options.format is not None:
        return options
    file = expand(paths)[0]
    if os.path.isdir(file) or _header_of(file) is not None:
        return replace(options, dtype=None, shape=None, offset=0)
    return options


def _header_of(path: str) -> str | None:
    """The format of a file whose dtype and shape are told by the file itself."""
    found = look(path)
    if found is not None and found.format is not None:
        return found.format
    # Without its magic a .npy is what np.memmap writes: numbers without a header.
    named = "tfrecord" if named_tfrecord(path) else format_of(path)
    return None if named in ("raw", "npy") else named


def _as_raw(path: str, options: OpenOptions) -> None:
    """Refuses to read a file as numbers without a header if it is anything else."""
    if os.path.isdir(path):
        raise OptionError(f"{path} is a folder: dtype and shape are for files without a header")
    found = look(path)
    if options.compression is not None:
        _refuse_packed(path, found)
    if options.format == "raw":
        return
    header = _header_of(path)
    if header is not None:
        raise OptionError(
            f"{path} is {header}, which tells the types and shapes of its columns: leave out "
            'dtype, shape and offset, or give format="raw" to read its bytes as they are'
        )
    if found is None or not os.path.getsize(path):
        return
    # A text file is a fine array of bytes, but not of wider numbers if its name says CSV.
    text = _named_text(path) and np.dtype(options.dtype).itemsize > 1
    if found.certain or text:
        raise OptionError(
            f"{path} looks like {found.what}, not like numbers without a header "
            '(format="raw" reads its bytes as they are)'
        )


def _refuse_packed(path: str, found: Look | None) -> None:
    if found is None or found.packed is None or found.format is not None or not found.certain:
        return
    advice = found.advice.replace("{path}", json.dumps(path, ensure_ascii=False))
    raise DataError(
        f"{path}: looks like {found.what}, and only plain files can be mapped. {advice}; "
        'format="raw", compression=None reads the bytes as they are',
        file=path,
    )


def _named_text(path: str) -> bool:
    return path.lower().endswith((".csv", ".tsv", ".json", ".jsonl", ".ndjson"))


@guarded
def open_source(paths: PathsLike, fields: FieldsLike | None, options: OpenOptions) -> Source:
    """The files as one source."""
    files = expand(paths)
    given = options.format or ("raw" if options.dtype is not None else None)
    if given is not None and given not in FORMATS:
        raise OptionError(f"format={given!r} is not one of {', '.join(FORMATS)}")
    if options.compression not in ("auto", "gzip", "zlib", None):
        raise OptionError(
            f'compression={options.compression!r}: use "auto", "gzip", "zlib" or None'
        )
    if given == "raw":
        for file in files:
            _as_raw(file, options)
    formats = [given] * len(files) if given is not None else _detect_all(files)
    if len(set(formats)) > 1:
        other = next(i for i, format in enumerate(formats) if format != formats[0])
        raise DataError(
            f"{files[0]} is {formats[0]}, but {files[other]} is {formats[other]}: rows end to end "
            "come from files of one format; open them apart",
            file=files[other],
        )
    format = formats[0]
    if format == "raw" and given is None:
        for file in files:
            _refuse_packed(file, look(file))
    raw = options.dtype is not None or options.shape is not None or options.offset
    if format != "raw" and raw:
        raise OptionError(
            f"dtype, shape and offset are for files without a header; {files[0]} is {format}"
        )
    if format != "tfrecord" and options.compression in ("gzip", "zlib"):
        raise OptionError(
            f"compression={options.compression!r} tells how TFRecord files that are read were "
            f"compressed, but {files[0]} is {format}; to compress what is written: "
            f'options={{"compression": "{options.compression}"}}'
            + (", which is mapped: decompress it first" if format == "raw" else "")
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
    if len(files) > max_open_files(FORMATS[format].descriptors):
        return ConcatenatedSource(_open_many(files, format, fields, options))
    parts = [_open_one(file, format, fields, options) for file in files]
    return parts[0] if len(parts) == 1 else ConcatenatedSource(parts)


def _detect_all(files: list[str]) -> list[str]:
    formats: list[str | None] = []
    unknown: UnknownFormatError | None = None
    for file in files:
        try:
            formats.append(detect(file))
        except UnknownFormatError as e:
            formats.append(None)
            unknown = unknown or e
    if unknown is None:
        return [str(format) for format in formats]
    known = [file for file, format in zip(files, formats, strict=True) if format is not None]
    if not known:
        raise unknown
    # A folder of data often holds notes as well, such as those of TFDS.
    folder, name = os.path.split(known[0])
    end = ".tfrecord*" if named_tfrecord(name) else os.path.splitext(name)[1]
    pattern = os.path.join(folder, f"*{end}")
    raise UnknownFormatError(
        f"{unknown}; to open the other files alone, rm.open({pattern!r})", file=unknown.file
    )


def _open_many(
    files: list[str], format: str, fields: FieldsLike | None, options: OpenOptions
) -> list[Source]:
    """Files that are looked at one by one, and opened again when they are read."""
    kept = OpenFiles()
    parts: list[Source] = []
    for file in files:
        source = _open_one(file, format, fields, options)
        reopen = partial(_open_again, file, format, fields, options)
        parts.append(LazySource(source, reopen, kept))
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
    else:
        # Behind the dots are all other columns.
        every = fields is None or ... in (listed := list(fields))
        checks = {"verify": options.verify} if format == "npz" else {}
        source = opener(path, None if every else listed, **checks)
    return source if fields is None else select(source, fields, path)


def select(source: Source, fields: FieldsLike, path: str) -> Source:
    """The columns asked for, whose types must be those they have."""
    given: dict[Any, Any] = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    others = source.schema if ... in given else ()
    given.pop(..., None)
    asked: dict[str, FieldLike | None] = {**dict.fromkeys(others), **given}
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


def create_sink(
    path: str, format: str, schema: Schema, *, expected: int | None = None, **options: Any
) -> Sink:
    """Begins a file of a format for so many rows, if their number is known; its options
    are those of the format's sink.
    """
    creator = FORMATS[format].creator()
    if FORMATS[format].counts_rows:
        creator = partial(creator, expected=expected)
    return creator(path, schema, **options)


def check_output(path: str, format: str, schema: Schema, options: Mapping[str, Any]) -> None:
    """Refuses names that cannot be stored, and options that the format does not have."""
    for name in schema:
        check_column_name(name)
    if not options:
        return
    known = inspect.signature(FORMATS[format].creator()).parameters
    users = set(known) - {"path", "schema", "durable", "expected"}
    for name in options:
        if name not in users:
            raise unknown_option(name, users, f"{path}: options of {format} files: ")


def column_bytes(format: str, schema: Schema, opened: int) -> int:
    """What the columns take by themselves in a file of this format that is written, and in
    so many that are ``opened``, if they are many.
    """
    many, kind = max(0, len(schema) - _FEW_COLUMNS), FORMATS[format]
    written = many * kind.column_bytes + min(many * _WAITING, kind.waiting)
    return written + opened * many * _OPENED


def read_copies(format: str, schema: Schema) -> int:
    """Times that rows are held more than once when a file of this format is read."""
    lists = any(field.is_bytes or field.ragged for field in schema.values())
    return FORMATS[format].list_copies if lists else 0
