"""The table of formats, and the sinks that write them.

To add a format, write a module with a function that opens a file and a sink that writes one,
and add a line to ``FORMATS``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from recmap.errors import MissingPackageError
from recmap.files.object_path import ObjectPath
from recmap.files.output_file import choose_compression
from recmap.model.arguments import check_column_name, unknown_option
from recmap.model.schema import Schema
from recmap.model.sink import Sink
from recmap.model.source import Source

__all__ = [
    "FORMATS",
    "Format",
    "check_output",
    "column_bytes",
    "create_sink",
    "format_of",
    "known_to_sink",
    "parameters",
    "read_copies",
    "streams",
]

# Memory is counted only for columns beyond this number.
_FEW_COLUMNS = 100
# Maximum bytes of one column that wait to fill a chunk.
_WAITING = 24_000
# Maximum bytes that one column of an open file takes.
_OPENED = 11_000
# How many columns a library holds ready to read, beyond the first few.
_READY = 200


@dataclass(frozen=True)
class Format:
    """A format: its name, its suffixes, and the functions that open and write its files.

    ``opens`` and ``writes`` are ``"module:function"`` in this package. They are imported on
    first use, because a module may need a package that is not installed.

    The function in ``opens`` takes ``path``, or ``files`` if one source reads several files,
    and returns a ``Source``. It also gets ``names``, ``fields`` and the options of ``rm.open``
    by keyword, if it has parameters for them. The function in ``writes`` takes ``path``,
    ``schema`` and ``durable`` and returns a ``Sink``. Its other parameters are options of
    ``rm.convert``, except ``expected``, the number of rows that will be written, and ``room``,
    the bytes of rows that may be held in memory.
    """

    name: str
    suffixes: tuple[str, ...]
    opens: str
    writes: str
    #: The first bytes of a file, unless ``files.sniff`` detects the format.
    magic: bytes = b""
    #: Whether a file of the format is a folder.
    folder: bool = False
    #: The function that checks the checksums of a file, if reading does not check them all.
    checks: str = ""
    #: Whether ``rm.verify`` reads all values, so that the format's filters check them.
    verified_by_reading: bool = False
    #: The function that decodes every row group of a file, also what recmap cannot read.
    checks_groups: str = ""
    #: How many additional copies of lists the format's library holds while reading them.
    list_copies: int = 0
    #: The number of file descriptors that an open file takes.
    descriptors: int = 0
    #: The bytes per column, besides its rows, while a file is written and checked.
    column_bytes: int = 3_000
    #: The bytes that the format's library takes for each column that it holds ready to read.
    ready_bytes: int = 0
    #: The most bytes of rows that wait to fill chunks, including overhead.
    waiting: int = 0
    #: Whether an object is sent while it is written. If not, it is made on disk first.
    streams: bool = False
    #: Whether rows are collected in memory, to be written together.
    collects: bool = False
    #: The extra of recmap that installs what the format needs, if it is not called like it.
    extra: str = ""
    #: Whether even a single shard has a number in its name, at the end.
    numbered: bool = False
    #: The function that chooses the path of the shards, if that is not the one the user gives.
    places: str = ""
    #: Functions that are called before and after all shards of an output are written.
    begins: str = ""
    completes: str = ""

    def opener(self) -> Callable[..., Source]:
        """Return the function that opens files of this format."""
        opener: Callable[..., Source] = self._load(self.opens)
        return opener

    def creator(self) -> Callable[..., Sink]:
        """Return the function that creates a file of this format."""
        creator: Callable[..., Sink] = self._load(self.writes)
        return creator

    def checker(self) -> Callable[..., Any] | None:
        """Return the function that checks the checksums of a file; None if reading does."""
        return self._load(self.checks) if self.checks else None

    def group_checker(self) -> Callable[..., Any] | None:
        """Return the function that decodes every row group; None if the format has none."""
        return self._load(self.checks_groups) if self.checks_groups else None

    def place(self, path: str, options: Mapping[str, Any]) -> str:
        """Return the path of the shards, given that of the user."""
        placed: str = self._load(self.places)(path, options) if self.places else path
        return placed

    def check_start(
        self, path: str, schema: Schema, shards: Sequence[str], overwrite: bool
    ) -> None:
        """Refuse an output that could not be completed, before anything is written."""
        if self.begins:
            self._load(self.begins)(path, schema, shards, overwrite)

    def complete(
        self,
        path: str,
        schema: Schema,
        rows: Sequence[int],
        sizes: Sequence[int],
        options: Mapping[str, Any],
    ) -> None:
        """Write what the shards of an output have in common, given the rows and bytes of each."""
        if self.completes:
            self._load(self.completes)(path, schema, rows, sizes, options)

    def _load(self, place: str) -> Any:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(f"recmap.formats.{module}"), name)
        except ModuleNotFoundError as e:
            raise MissingPackageError(
                f"{self.name} files need the package {e.name}", extra=self.extra or self.name
            ) from e


FORMATS = {
    format.name: format
    for format in (
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords", ".tfr", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib"),
            "tfrecord_source:TFRecordSource",
            "tfrecord_sink:create_tfrecord",
            streams=True,
        ),
        Format("npy", (".npy",), "npy:open_npy", "npy:create_npy", streams=True),
        Format(
            "npz",
            (".npz",),
            "npz.source:open_npz",
            "npz.sink:NpzSink",
            checks="npz.source:check_members",
            column_bytes=5_000,
        ),
        Format(
            "hdf5",
            (".h5", ".hdf5", ".he5"),
            "hdf5.source:open_hdf5",
            "hdf5.sink:Hdf5Sink",
            verified_by_reading=True,
            list_copies=3,
            descriptors=2,
            column_bytes=6_000,
            ready_bytes=90_000,
            waiting=24 * 10**6,
        ),
        Format(
            "zarr",
            (".zarr",),
            "zarr.source:open_zarr",
            "zarr.sink:ZarrSink",
            folder=True,
            verified_by_reading=True,
            column_bytes=8_000,
        ),
        Format("raw", (".bin", ".dat", ".raw"), "raw:open_raw", "raw:RawSink", streams=True),
        Format(
            "parquet",
            (".parquet", ".pq"),
            "parquet:open_parquet",
            "parquet:ParquetSink",
            checks_groups="parquet:check_parquet",
            column_bytes=12_000,
            streams=True,
            collects=True,
            extra="arrow",
        ),
        Format(
            "arrow",
            (".arrow", ".arrows", ".feather", ".ipc"),
            "arrow_file:open_arrow",
            "arrow_file:ArrowFileSink",
            checks_groups="arrow_file:check_arrow",
            column_bytes=8_000,
            streams=True,
            collects=True,
            extra="arrow",
        ),
        Format(
            "tfds",
            (),
            "tfds.source:open_tfds",
            "tfds.sink:TfdsShard",
            streams=True,
            numbered=True,
            places="tfds.sink:split_path",
            begins="tfds.sink:check_folder",
            completes="tfds.sink:complete_folder",
        ),
    )
}


def format_of(path: str) -> str | None:
    """Return the format that matches the suffix of a path."""
    lower = path.lower().rstrip("/")
    for format in FORMATS.values():
        if lower.endswith(format.suffixes):
            return format.name
    return None


@cache
def parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the parameters of an opener or a creator."""
    return frozenset(inspect.signature(function).parameters)


def create_sink(
    path: str,
    format: str,
    schema: Schema,
    *,
    expected: int | None = None,
    room: int | None = None,
    **options: Any,
) -> Sink:
    """Create a file of a format.

    ``expected`` is the number of rows, if known. ``room`` is how many bytes of rows a sink that
    collects them may hold.
    """
    creator = FORMATS[format].creator()
    known = {"expected": expected, "room": room}
    options.update({name: fact for name, fact in known.items() if name in parameters(creator)})
    if isinstance(path, ObjectPath) and not streams(path, format, schema, options):
        from recmap.formats.staged_sink import StagedSink

        return StagedSink(path, lambda local: creator(local, schema, **options))
    return creator(path, schema, **options)


def streams(path: str, format: str, schema: Schema, options: Mapping[str, Any]) -> bool:
    """Return whether an object of this format is sent while it is written.

    Others are made on disk first: the length of the longest string, which is in the header of a
    .npy file, is known last, and compressed records have to be checked before they are sent.
    """
    if format == "npy":
        return not any(field.is_bytes for field in schema.values())
    if format == "tfrecord":
        return choose_compression(path, options.get("compression")) is None
    return FORMATS[format].streams


def known_to_sink(format: str, source: Source) -> dict[str, Any]:
    """Return what a source says about its columns, if a sink of the format stores it."""
    labels = {column: list(names) for column, names in source.labels.items()}
    known = {"labels": labels, "descriptions": dict(source.descriptions)}
    taken = parameters(FORMATS[format].creator())
    return {name: facts for name, facts in known.items() if name in taken}


def check_output(path: str, format: str, schema: Schema, options: Mapping[str, Any]) -> None:
    """Refuse names that cannot be stored, and options that the format does not have."""
    for name in schema:
        check_column_name(name)
    if not options:
        return
    given = {"path", "schema", "durable", "expected", "room"}
    known = parameters(FORMATS[format].creator()) - given
    for name in options:
        if name not in known:
            raise unknown_option(name, known, f"{path}: options of {format} files: ")


def column_bytes(format: str, schema: Schema, opened: int) -> int:
    """Return the memory that many columns take in addition to their rows.

    This counts the file being written and each of the ``opened`` files.
    """
    many, written = max(0, len(schema) - _FEW_COLUMNS), FORMATS[format]
    waiting = min(many * _WAITING, written.waiting)
    ready = min(many, _READY) * written.ready_bytes
    return many * written.column_bytes + waiting + ready + opened * many * _OPENED


def read_copies(format: str, schema: Schema) -> int:
    """Return how many additional copies of rows are held while a file of the format is read."""
    lists = any(field.is_bytes or field.ragged for field in schema.values())
    return FORMATS[format].list_copies if lists else 0
