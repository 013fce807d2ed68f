"""The table of formats, and the sinks that write them.

To add a format, write a module with a function that opens a file and a sink that writes one,
and add a line to ``FORMATS``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal

from recmap.errors import MissingPackageError
from recmap.formats.sink import Sink, SinkKind
from recmap.local.file_state import LEROBOT_FILE, TFDS_FILE, TFDS_INFO
from recmap.local.local_path import located
from recmap.model.arguments import check_column_name, unknown_option
from recmap.model.nulls import refuse_null_items, refuse_nulls
from recmap.model.schema import Schema
from recmap.model.source import Source
from recmap.model.table_notes import encode_types, table_note


@dataclass(frozen=True)
class Format:
    """A format: its name, its suffixes, and the functions that open and write its files.

    ``opens`` and ``writes`` are ``"module:function"`` in this package. They are imported on
    first use, because a module may need a package that is not installed.

    The function in ``opens`` takes ``path``, or ``files`` if one source reads several files,
    and returns a ``Source``. It also gets ``names``, ``fields`` and the options of ``rm.open``
    by keyword, if it has parameters for them. ``writes`` names a ``SinkKind``, or only the
    ``create`` of one. It is empty if files of the format are only read.
    """

    name: str
    suffixes: tuple[str, ...]
    opens: str
    writes: str = ""
    #: Bytes that a file has at ``magic_offset``, unless ``recognise.sniff`` detects the format.
    magic: bytes = b""
    magic_offset: int = 0
    #: Whether a file of the format is a folder.
    folder: bool = False
    #: Whether its opener lists what is in a folder itself, and is only called if asked for.
    lists: bool = False
    #: Files that tell a folder of the format from other folders.
    marks: tuple[str, ...] = ()
    #: The function that lists the files in a folder that are checked one by one.
    parts: str = ""
    #: Whether a file is records, end to end. One is recognised by any of them, may be empty or
    #: compressed, and may have an index.
    records: bool = False
    #: Whether files tell the types and shapes of their columns, or are numbers and nothing else.
    header: Literal["always", "usually", "never"] = "always"
    #: Whether columns can be inside groups.
    groups: bool = False
    #: Whether a damaged file can be told from a sound one.
    checksums: bool = True
    #: The function that checks the checksums of a file, if reading does not check them all. It
    #: returns None for a file that has none.
    checks: str = ""
    #: Whether ``rm.verify`` reads all values, so that the format's filters check them.
    verified_by_reading: bool = False
    #: The function that decodes every row group of a file, also what recmap cannot read.
    checks_groups: str = ""
    #: The number of file descriptors that an open file takes.
    descriptors: int = 0
    #: The function that writes an index, given where a file is and what it will be called.
    indexes: str = ""
    #: The format of the files, of which only their names tell them apart.
    within: str = ""
    #: The function that returns what several files must agree on, given one of them and the names
    #: of the columns, or None for all.
    meaning: str = ""
    #: The extra of recmap that installs what the format needs, if it is not called like it.
    extra: str = ""

    def opener(self) -> Callable[..., Source]:
        """Return the function that opens files of this format."""
        opener: Callable[..., Source] = self.load(self.opens)
        return opener

    def sink_kind(self) -> SinkKind:
        """Return how files of this format are written."""
        found = self.load(self.writes)
        return found if isinstance(found, SinkKind) else SinkKind(found)

    def load(self, place: str) -> Any:
        """Import a ``"module:function"`` of the format; None if it has none."""
        module, _, name = place.partition(":")
        if not name:
            return None
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
            "tfrecord_sink:SINK",
            records=True,
        ),
        Format(
            "npy", (".npy",), "npy:open_npy", "npy:SINK",
            header="usually", checksums=False,  # np.memmap writes none
        ),
        Format(
            "npz", (".npz",), "npz.source:open_npz", "npz.sink:SINK",
            checks="npz.source:check_members",
        ),
        Format(
            "hdf5", (".h5", ".hdf5", ".he5"), "hdf5.source:open_hdf5", "hdf5.sink:SINK",
            verified_by_reading=True, descriptors=2, groups=True,
        ),
        Format(
            "anndata", (".h5ad",), "hdf5.anndata:open_anndata", within="hdf5",
            verified_by_reading=True, descriptors=2, groups=True, extra="hdf5",
            meaning="hdf5.anndata:meaning",
        ),
        Format(
            "netcdf", (".nc", ".nc4"), "hdf5.netcdf:open_netcdf", within="hdf5",
            verified_by_reading=True, descriptors=2, groups=True, extra="hdf5",
            meaning="hdf5.netcdf:meaning",
        ),
        Format(
            "zarr", (".zarr",), "zarr.source:open_zarr", "zarr.sink:SINK",
            folder=True, verified_by_reading=True, groups=True,
        ),
        Format("raw", (".bin", ".dat", ".raw"), "raw:open_raw", "raw:SINK", header="never"),
        Format(
            "parquet", (".parquet", ".pq"), "parquet:open_parquet", "parquet:SINK",
            checks_groups="parquet:check_parquet", extra="arrow",
        ),
        Format(
            "arrow", (".arrow", ".arrows", ".feather", ".ipc"), "arrow_file:open_arrow",
            "arrow_file:SINK", checks_groups="arrow_file:check_arrow", extra="arrow",
        ),
        *(
            Format(
                name, tuple(end + packed for end in ends for packed in ("", ".gz", ".zst")),
                f"text.{module}:open_{name}", f"text.sink:{name.upper()}",
                header="usually", checksums=False, verified_by_reading=True, extra="arrow",
                indexes="text.open_files:save_index",
            )
            for name, module, ends in (
                ("csv", "csv", (".csv",)), ("tsv", "csv", (".tsv",)),
                ("jsonl", "jsonl", (".jsonl", ".ndjson")),
            )
        ),
        Format(
            "megatron", (".idx",), "megatron:open_megatron", "megatron:SINK",
            magic=b"MMIDIDX\0\0", checksums=False,
        ),
        Format("llmc", (".bin",), "llmc:open_llmc", "llmc:SINK", checksums=False),
        Format(
            "safetensors", (".safetensors",), "safetensors:open_safetensors", "safetensors:SINK",
            checksums=False, checks_groups="safetensors:check_tensors",
        ),
        Format(
            "webdataset", (".tar", ".tar.gz", ".tgz"), "webdataset.source:open_webdataset",
            "webdataset.sink:SINK", checksums=False, indexes="webdataset.tar_index:save_index",
        ),
        Format("files", (), "files.open_files:open_files", checksums=False, lists=True),
        Format(
            "array_record", (".array_record", ".arrayrecord"), "array_record:open_array_record",
            "array_record:SINK", verified_by_reading=True, extra="arrayrecord",
        ),
        Format(
            "mds", (), "mds:MdsSource", checks="mds:check_shards", verified_by_reading=True,
        ),
        Format(
            "tfds", (), "tfds.source:open_tfds", "tfds.sink:SINK", marks=(TFDS_FILE, TFDS_INFO),
            parts="tfds.metadata:shard_files",
        ),
        Format(
            "lerobot", (), "lerobot.source:open_lerobot", "lerobot.sink:SINK",
            marks=(LEROBOT_FILE,), extra="arrow",
        ),
    )
}  # fmt: skip
# The formats of what nothing else identifies: records, numbers without a header, text, folders, and
# folders of other files.
RECORDS = next(name for name, format in FORMATS.items() if format.records)
HEADERLESS = next(name for name, format in FORMATS.items() if format.header == "never")
TEXTS = [name for name, format in FORMATS.items() if format.opens.startswith("text.")]
FOLDER = next(name for name, format in FORMATS.items() if format.folder)
LISTED = next(name for name, format in FORMATS.items() if format.lists)
# Parameters of sinks that note the types of tables: all of them, or those that fields do not tell.
_TABLES = ("table_types", "table_note")


def written_formats() -> list[str]:
    """Return the names of the formats that recmap writes, too."""
    return [format.name for format in FORMATS.values() if format.writes]


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
    durable: bool = True,
    expected: int | None = None,
    room: int | None = None,
    **options: Any,
) -> Sink:
    """Create a file of a format.

    ``expected`` is the number of rows, if known. ``room`` is how many bytes of rows a sink that
    collects them may hold.
    """
    kind = FORMATS[format].sink_kind()
    known = {"expected": expected, "room": room}
    options.update({name: fact for name, fact in known.items() if name in parameters(kind.create)})
    seekable = not kind.sends(path, schema, options)
    output = located(path).create(seekable=seekable, durable=durable)
    try:
        if kind.nulls != "masks" or not _has_nulls(schema):
            return kind.create(output, schema, **options)
        from recmap.formats.null_masks import MaskingSink, stored_schema

        return MaskingSink(kind.create(output, stored_schema(schema), **options), schema)
    except BaseException:
        output.abort()
        raise


def _has_nulls(schema: Schema) -> bool:
    return any(field.has_nulls for field in schema.values())


def known_to_sink(format: str, source: Source) -> dict[str, Any]:
    """Return what a source says about its columns, if a sink of the format stores it."""
    facts = source.facts
    labels = {column: list(names) for column, names in facts.labels.items()}
    known = {"labels": labels, "descriptions": dict(facts.descriptions)}
    if facts.table_types:
        known["table_types"] = encode_types(facts.table_types)
    note = table_note(facts.table_types)
    if note:
        known["table_note"] = note
    taken = parameters(FORMATS[format].sink_kind().create)
    return {name: each for name, each in known.items() if name in taken}


def notes_types(format: str, options: Mapping[str, Any]) -> bool:
    """Return whether files of a format, written with these options, note the types of tables."""
    taken = parameters(FORMATS[format].sink_kind().create)
    return options.get("describe") is not False and not taken.isdisjoint(_TABLES)


def check_output(path: str, format: str, schema: Schema, options: Mapping[str, Any]) -> None:
    """Refuse names that cannot be stored, and options that the format does not have."""
    for name in schema:
        check_column_name(name)
    kind = FORMATS[format].sink_kind()
    if kind.nulls is None:
        refuse_nulls(schema, f"{path}: {format} files cannot hold nulls")
    elif kind.nulls == "rows":
        refuse_null_items(schema, f"{path}: lists in {format} files cannot hold nulls")
    elif kind.nulls == "masks":
        from recmap.formats.null_masks import check_masks

        check_masks(path, schema)
    if not options:
        return
    given = {"output", "schema", "expected", "room"}
    known = parameters(FORMATS[format].sink_kind().create) - given
    for name in options:
        if name not in known:
            raise unknown_option(name, known, f"{path}: options of {format} files: ")
