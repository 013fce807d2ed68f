"""Format detection: by the content of a file, or else by its sidecar or its name."""

from __future__ import annotations

import json
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
from recmap.files.array_sidecar import description_path, load_description
from recmap.files.file_state import TFDS_FILE, TFDS_INFO
from recmap.files.local_path import located
from recmap.files.paths import for_each_file
from recmap.files.sniff import FileKind, holds_records, named_tfrecord, sniff, unknown_format
from recmap.formats.registry import FORMATS, format_of

_AS_RAW = Option("format", "raw", of_input=True)

_FOLDER = next(format.name for format in FORMATS.values() if format.folder)
# Objects looked at, of many.
_EXAMINED = 16
_TEXT = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


def detect(path: str) -> str:
    """Return the format of a file."""
    if located(path).is_folder():
        of_tfds = any(located(path).child(name).is_file() for name in (TFDS_FILE, TFDS_INFO))
        return "tfds" if of_tfds else _FOLDER
    magic = _by_magic(path)
    if magic is not None:
        return magic
    named = _named(path)
    found = sniff(path)
    described = named != "npy" and located(description_path(path)).is_file()
    if found is not None and found.format is not None and not (described and _written_raw(path)):
        return found.format
    if described:
        return "raw"
    if located(path).stat().size == 0 and named in ("tfrecord", "raw"):
        return named
    if found is not None and not (named == "tfrecord" and found.packed in ("gzip", "zlib")):
        raise unknown_format(path, found)
    if named not in (None, "raw"):
        return str(named)  # damaged: the reader will say how
    if found is None and holds_records(path):
        return "tfrecord"
    if named is None:
        raise unknown_format(path, found)
    return named


def _by_magic(path: str) -> str | None:
    """Return the format that a file's magic bytes identify, if any."""
    for format in FORMATS.values():
        if format.magic:
            with located(path).open() as file:
                if file.pread(len(format.magic), format.magic_offset) == format.magic:
                    return format.name
    return None


def _named(path: str) -> str | None:
    return "tfrecord" if named_tfrecord(path) else format_of(path)


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


def has_header(path: str) -> bool:
    """Tell whether the file itself describes the types and shapes of its columns."""
    return located(path).is_folder() or _header_format(path) is not None


def _header_format(path: str) -> str | None:
    found = sniff(path)
    if found is not None and found.format is not None:
        return found.format
    # A .npy file without the magic bytes comes from np.memmap: numbers without a header.
    named = _named(path)
    return None if named in ("raw", "npy") else named


def _detected(path: str) -> str | UnknownFormatError:
    try:
        return detect(path)
    except UnknownFormatError as e:
        return e


def check_raw(path: str, format: str | None, dtype: npt.DTypeLike | None, *, packed: bool) -> None:
    """Refuse to read a file as numbers without a header if it looks like anything else.

    ``format="raw"`` accepts any file, and ``packed`` accepts compressed files.
    """
    if located(path).is_folder():
        raise OptionError(f"{path} is a folder: dtype and shape are for files without a header")
    found = sniff(path)
    if not packed:
        refuse_packed(path, found)
    if format == "raw":
        return
    header = _header_format(path)
    if header is not None:
        raise OptionError(
            Message(
                f"{path} is {header}, which tells the types and shapes of its columns: leave out "
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
    advice = found.advice.replace("{path}", json.dumps(path, ensure_ascii=False))
    raise DataError(
        f"{path}: looks like {found.what}, and only plain files can be mapped. {advice}; "
        'format="raw", compression=None reads the bytes as they are',
        file=path,
    )
