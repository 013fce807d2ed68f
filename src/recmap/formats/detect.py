"""Format detection: by the content of a file, or else by its sidecar or its name."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    IndexFileError,
    Message,
    Option,
    OptionError,
    UnknownFormatError,
)
from recmap.formats.array_sidecar import description_path, load_description
from recmap.formats.registry import (
    FOLDER,
    FORMATS,
    HEADERLESS,
    RECORDS,
    TEXTS,
    Format,
    format_of,
)
from recmap.local.local_path import located
from recmap.recognise.file_kinds import FileKind
from recmap.recognise.sniff import holds_records, named_tfrecord, sniff, unknown_format
from recmap.store.paths import for_each_file

_AS_RAW = Option("format", HEADERLESS, of_input=True)
# Objects looked at, of many.
_EXAMINED = 16
_TEXT = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


def detect(path: str) -> str:
    """Return the format of a file."""
    file = located(path)
    if file.is_folder():
        return folder_format(path).name
    magic = by_magic(path)
    if magic is not None:
        return magic
    named = _named(path)
    found = sniff(path)
    # A .npy file is described by its header, or not at all.
    bare = named is not None and FORMATS[named].header == "usually"
    described = not bare and description_path(path).is_file()
    if found is not None and found.format is not None and not (described and _written_raw(path)):
        told = named is not None and FORMATS[named].within == found.format
        return str(named) if told else found.format
    if described:
        return HEADERLESS
    if named in (RECORDS, HEADERLESS, *TEXTS) and file.stat().size == 0:
        return str(named)
    packings = {RECORDS: ("gzip", "zlib"), **dict.fromkeys(TEXTS, ("gzip", "zstd"))}
    if found is not None and found.packed not in packings.get(str(named), ()):
        raise unknown_format(path, found)
    if named not in (None, HEADERLESS):
        return str(named)  # damaged: the reader will say how
    if found is None and holds_records(path):
        return RECORDS
    if named is None:
        raise unknown_format(path, found)
    return named


def folder_format(path: str) -> Format:
    """Return the format of a folder."""
    for format in FORMATS.values():
        if any(located(path).child(name).is_file() for name in format.marks):
            return format
    return FORMATS[FOLDER]


def by_magic(path: str) -> str | None:
    """Return the format that a file's magic bytes identify, if any."""
    marked = [format for format in FORMATS.values() if format.magic]
    if not marked:
        return None
    with located(path).open() as file:
        found = file.pread_many([(len(each.magic), each.magic_offset) for each in marked])
    return next((f.name for f, begin in zip(marked, found, strict=True) if begin == f.magic), None)


def _named(path: str) -> str | None:
    return RECORDS if named_tfrecord(path) else format_of(path)


def _written_raw(path: str) -> bool:
    """Tell whether recmap wrote the file without a header, whatever its bytes look like."""
    try:
        described = load_description(path)
    except IndexFileError:
        return False
    return described is not None and described.bound and not described.mismatch(path)


def detect_all(files: list[str]) -> list[str]:
    """Return the format of each file."""
    if len(files) > _EXAMINED and located(files[0]).remote:
        # One request for each of thousands of objects would take long. The others are looked at
        # when they are read.
        step = -(-len(files) // _EXAMINED)
        found = detect_all([*files[::step], files[-1]])
        return [*found, *found[-1:] * (len(files) - len(found))]
    formats = for_each_file(_detected, files)
    unknown = [format for format in formats if isinstance(format, UnknownFormatError)]
    if not unknown:
        return [str(format) for format in formats]
    known = [file for file, format in zip(files, formats, strict=True) if isinstance(format, str)]
    if not known:
        raise unknown[0]
    # A folder of data often holds other files too, such as the metadata of TFDS.
    folder, name = os.path.split(known[0])
    end = ".tfrecord*" if named_tfrecord(name) else os.path.splitext(name)[1]
    pattern = os.path.join(folder, f"*{end}")
    raise UnknownFormatError(
        f"{unknown[0]}; to open only the other files, rm.open({pattern!r})", file=unknown[0].file
    )


def _detected(path: str) -> str | UnknownFormatError:
    try:
        return detect(path)
    except UnknownFormatError as e:
        return e


def has_header(path: str) -> bool:
    """Tell whether the file itself describes the types and shapes of its columns."""
    if located(path).is_folder():
        return True
    found = sniff(path)
    told = found is not None and found.format is not None
    return told or _header_format(path, found) is not None


def _header_format(path: str, found: FileKind | None) -> str | None:
    if found is not None and found.format is not None and found.certain:
        return found.format
    # A .npy file without the magic bytes comes from np.memmap: numbers without a header.
    named = _named(path)
    return named if named is not None and FORMATS[named].header == "always" else None


def check_raw(path: str, format: str | None, dtype: npt.DTypeLike | None, *, packed: bool) -> None:
    """Refuse to read a file as numbers without a header if it looks like anything else.

    ``format="raw"`` accepts any file, and ``packed`` accepts compressed files.
    """
    if located(path).is_folder():
        raise OptionError(f"{path} is a folder: dtype and shape are for files without a header")
    found = sniff(path)
    if not packed:
        refuse_packed(path, found)
    if format is not None:
        return
    header = _header_format(path, found)
    if header is not None:
        raise OptionError(
            Message(
                f"{path} is {header}, which states the types and shapes of its columns: leave out "
                "dtype, shape and offset, or give ",
                _AS_RAW,
                " to read its bytes as they are",
            )
        )
    if found is None or not located(path).stat().size:
        return
    # Text may be read as bytes, but not as wider numbers if its name ends with .csv or similar.
    text = path.lower().endswith(_TEXT) and np.dtype(dtype).itemsize > 1
    if found.certain or text:
        raise OptionError(
            Message(
                f"{path} looks like {found.what}, not like numbers without a header (",
                _AS_RAW,
                " reads its bytes as they are)",
            )
        )


def refuse_packed(path: str, found: FileKind | None) -> None:
    """Refuse a compressed file, because its contents cannot be mapped."""
    if found is None or found.packed is None or found.format is not None or not found.certain:
        return
    raise DataError(
        f"{path}: looks like {found.what}, and only plain files can be mapped. {found.advice}; "
        'format="raw", compression=None reads the bytes as they are',
        file=path,
    )
