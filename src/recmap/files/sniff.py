"""Detect what a file is by its content, and by its name only where the content is ambiguous.

Everything that opens a file uses this module, so that every call and every command describes
an unknown file in the same words. Only a few kilobytes are read or inflated.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from recmap.errors import Message, Option, RecmapError, UnknownFormatError
from recmap.files.foreign_formats import ZIP, FileKind, pandas_advice, recognise, recognise_zip
from recmap.files.gzip import inflater
from recmap.files.local_path import located
from recmap.files.mapped import Guard
from recmap.native import _core

__all__ = [
    "RAW_EXAMPLE",
    "FileKind",
    "holds_records",
    "is_record",
    "named_tfrecord",
    "size_hint",
    "sniff",
    "unknown_format",
]

# Bytes to look at from the beginning.
_HEAD = 1 << 13
# A damaged TFRecord file is recognised by a sound record within its first bytes.
_SEARCH = 16 << 20
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
# HDF5 may follow a block of other data, of 512, 1,024, 2,048 bytes and so on.
_HDF5_PLACES = [512 << i for i in range(18)]
_TFRECORD_NAME = re.compile(r"\.(tfrecords?|tfr)(?![a-z])", re.IGNORECASE)
_HINTED = (("float32", 4), ("float64", 8), ("int16", 2))
# Options that describe a file without a header, as an example for messages.
RAW_EXAMPLE = (Option("dtype", "float32"), ", ", Option("shape", (-1, 10)))
_TFRECORD = FileKind("TFRecord", format="tfrecord")
_HDF5 = FileKind("HDF5", format="hdf5")
_NPY = FileKind("npy", format="npy")
_NPZ = FileKind("npz", format="npz")
# The least share of ASCII in text that is not UTF-8.
_MOSTLY_ASCII = 0.7


def sniff(path: str) -> FileKind | None:
    """Return what the content of a file looks like; None if it is unknown."""
    if located(path).is_special():
        # Reading a pipe or a device could block forever.
        return FileKind("a pipe or a device, not a file", "Write it to a file first")
    with located(path).open() as file:
        size = file.size
        head = file.pread(_HEAD, 0)
        if not head:
            return FileKind("an empty file", "Check that it was written or downloaded completely")
        found = _content(path, head, lambda: file.pread(16, max(size - 16, 0)), size)
        if found is None:
            places = [(8, place) for place in _HDF5_PLACES if place < size]
            if _HDF5_MAGIC in file.pread_many(places):
                return _HDF5
    return found


def unknown_format(path: str, found: FileKind | None, records: bool = False) -> UnknownFormatError:
    """Make the error for a file that recmap does not read.

    With ``records``, the caller has already searched the file for TFRecord records.
    """
    if found is None and records:
        return UnknownFormatError(
            f"{path}: neither its name nor its first bytes tell its format, and no TFRecord "
            "records were found in it; if it is a damaged TFRecord file, end its name with "
            ".tfrecord",
            file=path,
        )
    if found is None:
        hint = size_hint(located(path).stat().size)
        return UnknownFormatError(
            Message(
                f"{path}: neither its name nor its first bytes tell its format; for numbers "
                "without a header give ",
                *RAW_EXAMPLE,
                f", for example: {hint}; for a damaged TFRecord file, ",
                Option("format", "tfrecord", of_input=True),
            ),
            file=path,
        )
    advice = found.advice
    if "{path}" in advice:
        advice = advice.replace("{path}", json.dumps(path, ensure_ascii=False))
    return UnknownFormatError(
        Message(
            f"{path}: not a format recmap reads (looks like {found.what})",
            *((". ", advice) if advice else ()),
        ),
        file=path,
    )


def holds_records(path: str) -> bool:
    """Return whether the first megabytes of a file contain a sound record.

    The file need not begin with one.
    """
    file = located(path).map()
    stop = min(file.size, _SEARCH)
    with Guard(path), file.hold(0, stop):
        return _core.find_record(file.bytes, 0, stop) < stop


def named_tfrecord(path: str) -> bool:
    """Return whether a name says TFRecord: ``x.tfrecord``, ``x.tfrecord-00000-of-00010``."""
    return _TFRECORD_NAME.search(os.path.basename(path)) is not None


def size_hint(size: int) -> str:
    """Describe how many numbers of common types a file of this size would hold."""
    fits = [f"{size // width:,} of {name}" for name, width in _HINTED if size and size % width == 0]
    return f"its {size:,} bytes would be {', '.join(fits)}" if fits else f"it has {size:,} bytes"


def _content(path: str, head: bytes, tail: Callable[[], bytes], size: int) -> FileKind | None:
    """Return what a file with this head, tail and size is.

    For the content of a compressed file, ``path`` is the name it would have when unpacked, and
    the size is 0, for unknown.
    """
    if is_record(head):
        return _TFRECORD
    if head.startswith(b"\x93NUMPY"):
        return _NPY
    if head.startswith(_HDF5_MAGIC) or head[512:520] == _HDF5_MAGIC:
        return _HDF5
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(path) if size else ZIP
    known = recognise(head, tail(), size)
    return known or _packed(path, head, size) or _guess_text(path, head, size)


def is_record(head: bytes) -> bool:
    """Return whether the bytes begin with the length of a record and its CRC."""
    if len(head) < _core.HEADER_SIZE:
        return False
    first = _core.scan(np.frombuffer(head, np.uint8), _core.ScanRequest(limit=1))
    fault = first.fault
    return first.records == 1 or (fault is not None and fault.code == _core.FaultCode.data_cut)


def _zip(path: str) -> FileKind:
    import zipfile

    try:
        with located(path).seekable() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except RecmapError:
        raise
    except Exception:  # zipfile raises a dozen kinds for damaged archives
        return _NPZ if path.lower().endswith(".npz") else ZIP
    suffixes = {os.path.splitext(name)[1] for name in names}
    if ".npy" in suffixes or not names or path.lower().endswith(".npz"):
        return _NPZ
    return recognise_zip(names)


def _packed(path: str, head: bytes, size: int) -> FileKind | None:
    """Recognise a compressed file, and its content as far as the beginning shows it."""
    for name, magic, command, unpack in _PACKERS:
        if not magic.match(head):
            continue
        plain, whole = unpack(head)
        if plain is None:
            continue
        stem, end = os.path.splitext(path)
        named = end.lower() in _PACKED_ENDS
        target = stem if named else path + ".plain"
        inner = _content(target, plain, bytes, 0) if plain else None
        if name in ("gzip", "zlib") and (inner == _TFRECORD or (whole and not plain)):
            return replace(_TFRECORD, packed=name)
        quoted = json.dumps(target, ensure_ascii=False)
        then = "open that file"
        if inner is not None and inner.advice.startswith("Try "):
            then = "try " + inner.advice[4:].replace("{path}", quoted)
        what = f"{inner.what}, compressed with {name}" if inner else f"data compressed with {name}"
        how = f" ({command} > {quoted})" if command else ""
        # A few raw numbers can look like the beginning of a truncated stream.
        certain = whole or named or size > len(head)
        advice = f"Decompress it first{how}, then {then}"
        return FileKind(what, advice, certain=certain, packed=name)
    return None


def _inflate(kind: Literal["gzip", "zlib"], head: bytes) -> tuple[bytes | None, bool]:
    engine, error = inflater(kind)
    try:
        return bytes(engine.decompress(head, _HEAD)), bool(engine.eof)
    except error:
        return None, False


def _unbz2(head: bytes) -> tuple[bytes | None, bool]:
    import bz2

    engine = bz2.BZ2Decompressor()
    try:
        return engine.decompress(head, _HEAD), engine.eof
    except (OSError, ValueError):
        return None, False


def _unxz(head: bytes) -> tuple[bytes | None, bool]:
    import lzma

    engine = lzma.LZMADecompressor(memlimit=128 << 20)
    try:
        return engine.decompress(head, _HEAD), engine.eof
    except lzma.LZMAError:
        return b"", True  # a large dictionary or damage, but the magic number is long enough


def _unread(head: bytes) -> tuple[bytes | None, bool]:
    del head
    return b"", True


_PACKED_ENDS = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".7z", ".zlib")
# For each name: how such a file begins, the command that unpacks it, and a function that
# unpacks its beginning. The function returns the plain bytes (None if the file is something
# else) and whether they are complete.
_PACKERS: Sequence[
    tuple[str, re.Pattern[bytes], str, Callable[[bytes], tuple[bytes | None, bool]]]
] = (
    ("gzip", re.compile(rb"\x1f\x8b\x08"), "gzip -dc {path}", partial(_inflate, "gzip")),
    ("bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bzip2 -dc {path}", _unbz2),
    ("xz", re.compile(rb"\xfd7zXZ\0"), "xz -dc {path}", _unxz),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd"), "zstd -dc {path}", _unread),
    ("lz4", re.compile(rb"\x04\x22\x4d\x18"), "lz4 -dc {path}", _unread),
    ("snappy", re.compile(rb"\xff\x06\0\0sNaPpY"), "snzip -dc {path}", _unread),
    ("7-Zip", re.compile(rb"7z\xbc\xaf\x27\x1c"), "7z e -so {path}", _unread),
    ("zlib", re.compile(rb"[\x08-\x78][\0-\xff]{7}", re.DOTALL), "", partial(_inflate, "zlib")),
)


def _guess_text(path: str, head: bytes, size: int) -> FileKind | None:
    """Guess the format of a text file that begins with ``head``; None if that is not text.

    The size is 0 if unknown.
    """
    text, encoding = _as_text(head, size)
    if text is None:
        return None
    option = "" if encoding is None else f'encoding="{encoding}"'
    more = f", {option}" if option else ""
    whole = bool(size) and size <= len(head)
    start, lower = text.lstrip(), path.lower()
    lines = [line for line in text.splitlines() if line.strip()]
    if not whole and len(lines) > 1:
        lines.pop()  # it may be incomplete
    if start[:15].lower().startswith(("<!doctype html", "<html")):
        return _guess("an HTML page", "Check the download: it may have failed")
    if start.startswith("<?xml"):
        return _guess("XML", pandas_advice("read_xml({path})"))
    if start[:1] in ("{", "["):
        return _guess_json(lines, lower, more)
    for delimiter, end, options in (
        (",", ".csv", ""),
        ("\t", ".tsv", r', sep="\t"'),
        (";", ".csv", ', sep=";"'),
    ):
        if _is_table(lines, delimiter) or (lower.endswith(end) and delimiter != ";"):
            call = f"read_csv({{path}}{options}{more})"
            return _guess("TSV" if delimiter == "\t" else "CSV", pandas_advice(call))
    read = f"pathlib.Path({{path}}).read_text({option}).splitlines()"
    return _guess("text", f'Try rm.from_arrays({{"text": {read}}})')


def _guess(what: str, advice: str) -> FileKind:
    return FileKind(what, advice, certain=False)


def _guess_json(lines: list[str], lower: str, more: str) -> FileKind:
    def parses(line: str) -> bool:
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            return False
        return True

    several = len(lines) > 1 and parses(lines[0]) and parses(lines[1])
    if several or lower.endswith((".jsonl", ".ndjson")):
        return _guess("JSON Lines", pandas_advice(f"read_json({{path}}, lines=True{more})"))
    return _guess("JSON", pandas_advice(f"read_json({{path}}{more})"))


def _as_text(head: bytes, size: int) -> tuple[str | None, str | None]:
    """Return the head as text, if it is text, and its encoding, if that is not UTF-8."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else None
    text = ""
    # The head may end in the middle of a character.
    for cut in range(4 if not size or size > len(head) else 1):
        try:
            text = head[: len(head) - cut].decode(encoding or "utf-8-sig")
            break
        except UnicodeDecodeError:
            continue
    if not text and sum(byte < 0x80 for byte in head) >= _MOSTLY_ASCII * len(head):
        encoding = "latin-1"  # as old programs write it
        text = head.decode("cp1252", "replace")
    if len(text.strip()) < 4:  # too little to tell
        return None, None
    sound = all(c.isprintable() or _is_space(c) for c in text)
    return (text, encoding) if sound else (None, None)


def _is_space(character: str) -> bool:
    """Return whether a character is white space or invisible, such as a zero-width joiner."""
    if character in "\t\n\r\f\v\x1b":
        return True
    return unicodedata.category(character) in ("Cf", "Zl", "Zp", "Zs")


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Return whether all lines have the same number of values, two or more."""
    if len(lines) < 2:
        return False
    import csv

    try:
        widths = {len(row) for row in csv.reader(lines[:50], delimiter=delimiter)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths.pop() > 1
