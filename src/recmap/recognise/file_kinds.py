"""The table of files that are recognised by their content, and of what to do with other formats.

Only a few kilobytes are read or inflated, and nothing is unpickled. To recognise another kind of
file, add a row to ``_KINDS``.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import struct
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from recmap.errors import Message, Option, RecmapError
from recmap.local.file_state import ZARR_FILES
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.native import _core
from recmap.recognise.unpacked import begin_of

# Bytes to look at from the beginning.
HEAD = 1 << 13
_PACKED_ENDS = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".7z", ".zlib")


@dataclass(frozen=True)
class Content:
    """The beginning of a file, or of what is inside a compressed one.

    The latter has no ``file``, the size 0, for unknown, and the name of the unpacked file.
    """

    path: str
    head: bytes
    size: int = 0
    file: OpenFile | None = None

    @cached_property
    def tail(self) -> bytes:
        """The last bytes."""
        return b"" if self.file is None else self.file.pread(16, max(self.size - 16, 0))

    @cached_property
    def members(self) -> list[str] | None:
        """The names in a zip archive; None if they cannot be read."""
        import zipfile

        if self.file is None:
            return None
        try:
            with located(self.path).seekable() as file, zipfile.ZipFile(file) as archive:
                return archive.namelist()
        except RecmapError:
            raise
        except Exception:  # zipfile raises a dozen kinds for damaged archives
            return None

    @property
    def whole(self) -> bool:
        """Whether the head is all of the file."""
        return 0 < self.size <= len(self.head)

    @cached_property
    def decoded(self) -> tuple[str, str | None]:
        """The head as text, "" if it is not text, and its encoding, if that is not UTF-8."""
        encoding = "utf-16" if self.head[:2] in (b"\xff\xfe", b"\xfe\xff") else None
        decoder = codecs.getincrementaldecoder(encoding or "utf-8-sig")()
        text = ""
        with suppress(UnicodeDecodeError):
            # The head may end in the middle of a character.
            text = decoder.decode(self.head, final=self.whole)
        if not text and sum(byte < 0x80 for byte in self.head) >= 0.7 * len(self.head):
            encoding = "latin-1"  # as old programs write it
            text = self.head.decode("cp1252", "replace")
        if len(text.strip()) < 4:  # too little to tell
            return "", None
        return (text, encoding) if all(map(_is_text, text)) else ("", None)

    @cached_property
    def text(self) -> str:
        """The head as text, without white space before it; "" if it is not text."""
        return self.decoded[0].lstrip()

    @cached_property
    def lines(self) -> list[str]:
        """The lines of text that are not empty."""
        lines = [line for line in self.decoded[0].splitlines() if line.strip()]
        return lines if self.whole or len(lines) < 2 else lines[:-1]  # the last may be incomplete


def _is_text(character: str) -> bool:
    """Return whether a character is printed, white space, or invisible, as a zero-width joiner."""
    if character.isprintable() or character in "\t\n\r\f\v\x1b":
        return True
    return unicodedata.category(character) in ("Cf", "Zl", "Zp", "Zs")


def _with_advice(kind: FileKind, content: Content) -> FileKind:
    """Name the file in the advice, and say so if it is text that is not UTF-8."""
    if not kind.advice:
        return kind
    encoding = content.decoded[1] if "{encoding}" in kind.advice else None
    option = "" if encoding is None else f', encoding="{encoding}"'
    advice = kind.advice.replace(", {encoding}", option).replace("{encoding}", option[2:])
    what = kind.what if encoding is None else f"{kind.what} that is not UTF-8"
    return replace(kind, what=what, advice=advice.replace("{path}", _quoted(content.path)))


def _quoted(path: str) -> str:
    return json.dumps(path, ensure_ascii=False)


@dataclass(frozen=True)
class FileKind:
    """What a file looks like: a row of the table.

    A file is of the kind if it ``begins`` as the regular expression says, and ``check`` agrees.
    ``format`` is the recmap format that reads it, if there is one. Otherwise, ``advice`` says what
    to do, with ``{path}`` for the quoted name of the file, and ``{encoding}`` for an option of text
    that is not UTF-8. ``certain`` is false for a guess, such as CSV, that raw numbers could also
    match. ``packed`` names the compression around it. ``detail`` completes the row with what is in
    the file, or returns None if it is something else.
    """

    what: str
    begins: bytes = b""
    advice: str = ""
    check: Callable[[Content], Any] | None = None
    format: str | None = None
    certain: bool = True
    packed: str | None = None
    detail: Callable[[FileKind, Content], FileKind | None] = _with_advice


def recognise(content: Content) -> FileKind | None:
    """Return the first row of the table that describes a file; None if there is none."""
    for kind in _KINDS:
        begins = re.match(kind.begins, content.head, re.DOTALL)
        if begins and (kind.check is None or kind.check(content)):
            found = kind.detail(kind, content)
            if found is not None:
                return found
    return None


def is_record(head: bytes) -> bool:
    """Return whether the bytes begin with the length of a record and its CRC."""
    if len(head) < _core.HEADER_SIZE:
        return False
    first = _core.scan(np.frombuffer(head, np.uint8), _core.ScanRequest(limit=1))
    fault = first.fault
    return first.records == 1 or (fault is not None and fault.code == _core.FaultCode.data_cut)


def _unpacked(kind: FileKind, content: Content) -> FileKind | None:
    """Complete the row of a compressed file with what is inside, as far as its head shows it."""
    plain, whole = begin_of(kind.what, content.head, HEAD)
    if plain is None:
        return None
    stem, end = os.path.splitext(content.path)
    named = end.lower() in _PACKED_ENDS
    target = stem if named else content.path + ".plain"
    inner = recognise(Content(target, plain)) if plain else None
    records = inner.format == "tfrecord" if inner is not None else whole and not plain
    if records and kind.what in ("gzip", "zlib"):
        return FileKind("TFRecord", format="tfrecord", packed=kind.what)
    if inner is not None and inner.format in _IN_GZIP and kind.what == "gzip":
        return replace(inner, packed=kind.what)
    then = "open that file"
    if inner is not None and inner.advice.startswith("Try "):
        then = "try " + inner.advice.removeprefix("Try ")
    command = kind.advice.replace("{path}", _quoted(content.path))
    how = f" ({command} > {_quoted(target)})" if command else ""
    return FileKind(
        f"{'data' if inner is None else f'{inner.what},'} compressed with {kind.what}",
        advice=f"Decompress it first{how}, then {then}",
        # A few raw numbers can look like the beginning of a truncated stream.
        certain=whole or named or content.size > len(content.head),
        packed=kind.what,
    )


def _in_utf8(kind: FileKind, content: Content) -> FileKind:
    """Complete the row of a format of text, which recmap reads only as UTF-8."""
    if content.decoded[1] is None:
        return replace(kind, advice="")
    return _with_advice(replace(kind, format=None), content)


def _is_npz(content: Content) -> bool:
    if content.file is None:
        return False
    if content.members is None or content.path.lower().endswith(".npz"):
        return content.path.lower().endswith(".npz")
    return not content.members or any(name.endswith(".npy") for name in content.members)


def _zips(*names: str) -> Callable[[Content], bool]:
    """Check that a zip archive has a file with one of these names, in any folder."""
    return lambda content: any(os.path.basename(name) in names for name in content.members or ())


def _is_parquet(content: Content) -> bool:
    # The header of a page begins with its type, and two sizes.
    page = rb"PAR.\x15[\0\x02\x04\x06]\x15[\x80-\xff]{0,4}[\0-\x7f]\x15"
    ends = content.tail[-4:] in (b"PAR1", b"PARE")
    return not content.size or ends or bool(re.match(page, content.head, re.DOTALL))


def _is_bmp(content: Content) -> bool:
    stored, _, start, header = struct.unpack_from("<4I", content.head, 2)
    known = header in (12, 16, 40, 52, 56, 64, 108, 124)
    return known and start >= 14 + header and content.size in (0, stored)


def _is_tiff(content: Content) -> bool:
    (at,) = struct.unpack_from("<I" if content.head[:1] == b"I" else ">I", content.head, 4)
    return at >= 8 and at % 2 == 0 and (not content.size or at + 2 <= content.size)


def _is_ico(content: Content) -> bool:
    count, length, start = struct.unpack_from("<H8xII", content.head, 4)
    fits = not content.size or start + length <= content.size
    return bool(count) and start == 6 + 16 * count and fits


def _is_old_mat(content: Content) -> bool:
    """Check for MATLAB 4: type, rows, columns, complex flag, length of the name."""
    sizes = (8, 4, 4, 2, 2, 1)  # bytes per value, by type number
    for order in "<>":
        kind, rows, columns, complex_, length = struct.unpack_from(f"{order}5I", content.head)
        number, precision = divmod(kind, 100)
        known = number in (0, 10) and precision % 10 <= 2 and precision // 10 < len(sizes)
        if not known or complex_ > 1 or not 2 <= length <= 64:
            continue
        whole = 20 + length + rows * columns * sizes[precision // 10] * (1 + complex_)
        fits = precision % 10 == 2 or not content.size or whole <= content.size  # 2: sparse
        if fits and re.fullmatch(rb"[A-Za-z_][A-Za-z0-9_]*\0", content.head[20 : 20 + length]):
            return True
    return False


def _is_safetensors(content: Content) -> bool:
    (length,) = struct.unpack_from("<Q", content.head)
    if not 2 <= length <= (content.size - 8 if content.size else 100 << 20):
        return False
    text = content.head[8 : 8 + length]
    return b'"dtype"' in text or b'"__metadata__"' in text or text.strip() == b"{}"


def _is_arrow_stream(content: Content) -> bool:
    """Check for an Arrow message: -1, its size, and a flatbuffer with a schema header."""
    head, size = content.head, content.size
    # Before Arrow 0.15, there was no -1.
    first = 8 if head[:4] == b"\xff\xff\xff\xff" else 4
    length, root = struct.unpack_from("<iI", head, first - 4)
    at = first + root
    whole = (first + length) % 8 == 0
    if length <= 0 or not whole or (size and first + length > size) or at + 4 > len(head):
        return False
    table = at - struct.unpack_from("<i", head, at)[0]
    if not 8 <= table <= len(head) - 8:
        return False
    entries, _, version, kind = struct.unpack_from("<4H", head, table)
    if entries < 8 or not version or not kind or at + max(version, kind) + 2 > len(head):
        return False
    return head[at + version] in (3, 4) and head[at + kind] == 1


def _is_pickle(content: Content) -> bool:
    """Check that valid pickle operations come first, and STOP last."""
    import pickletools

    head, size = content.head, content.size
    if size and content.tail[-1:] != b".":
        return False
    if re.match(rb"\x80[\x04\x05]\x95.{8}", head, re.DOTALL):
        (frame,) = struct.unpack_from("<Q", head, 3)
        return bool(frame) and (11 + frame <= size if size else frame < 1 << 40)
    operations = end = 0
    try:
        for _, _, place in pickletools.genops(head):
            operations, end = operations + 1, (place or 0) + 1
    except Exception as e:  # the head may end within an operation
        return "unknown" not in str(e) and operations >= 8 and not content.whole
    # One of protocol 0 or 1 has no magic number.
    return operations >= (2 if head[:1] == b"\x80" else 4) and end == (size or len(head))


def _is_mxnet(content: Content) -> bool:
    length = struct.unpack_from("<I", content.head, 4)[0] & ((1 << 29) - 1)
    return not content.size or 8 + length <= content.size


def _idx_options(kind: FileKind, content: Content) -> FileKind | None:
    """Advise which options IDX needs: it has a type, the number of axes, and big-endian axes."""
    kinds = {8: "uint8", 9: "int8", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    dtype, axes = kinds.get(content.head[2]), content.head[3]
    start = 4 + 4 * axes
    if dtype is None or len(content.head) < start:
        return None
    shape = struct.unpack_from(f">{axes}I", content.head, 4)
    size = start + int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if content.size not in (0, size):
        return None
    options = Option("dtype", dtype), ", ", Option("shape", shape), ", ", Option("offset", start)
    return replace(kind, advice=Message("Give ", *options, " to read its numbers"))


def _is_tar(content: Content) -> bool:
    head = content.head
    try:
        stored = int(head[148:156].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    # The checksum treats its own field as spaces.
    return stored == sum(head[:148]) + sum(head[156:512]) + 8 * 32


def _is_json_lines(content: Content) -> bool:
    if not content.text.startswith(("{", "[")):
        return False
    if content.path.lower().endswith((".jsonl", ".ndjson")):
        return True
    try:
        return len([json.loads(line) for line in content.lines[:2]]) == 2
    except (ValueError, RecursionError):
        return False


def _is_table(content: Content, delimiter: str, end: str | None = None) -> bool:
    """Check that all lines have the same number of values, two or more, unless the name tells."""
    if content.text and end is not None and content.path.lower().endswith(end):
        return True
    try:
        widths = {len(row) for row in csv.reader(content.lines[:50], delimiter=delimiter)}
    except csv.Error:
        return False
    return len(content.lines) > 1 and len(widths) == 1 and widths.pop() > 1


def _is_late_hdf5(content: Content) -> bool:
    """Check for HDF5 behind a block of other data, of 512, 1,024, 2,048 bytes and so on."""
    places = [(8, 512 << i) for i in range(18) if 512 << i < content.size]
    return content.file is not None and _HDF5 in content.file.pread_many(places)


_guess = partial(FileKind, certain=False)
_text = partial(_guess, detail=_in_utf8)
_IN_GZIP = ("csv", "tsv", "jsonl", "webdataset")
_packed = partial(FileKind, detail=_unpacked)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP, _PARQUET = rb"PK(\x03\x04|\x05\x06)", rb"PAR[1E]"
_CUT = "Check that it was written or downloaded completely"
_UNPACK = "Unpack it, and open the files in it"
_TORCH = (
    'Try rm.from_arrays({"x": torch.load({path}, weights_only=True)["x"].numpy()}), with '
    "the names of its tensors"
)
_MATLAB = (
    'Try rm.from_arrays({"x": scipy.io.loadmat({path})["x"]}), with the names of its '
    "variables; files saved with -v7.3 are HDF5 and open as they are"
)
_PICKLE = (
    "recmap never loads pickles, because they can run any code. If you trust it, load it "
    "yourself and give its arrays to rm.from_arrays"
)
_IMAGE = (
    'Try rm.from_arrays({"image": [pathlib.Path({path}).read_bytes()]}).decode_image("image"), '
    "with one entry for each image"
)
# For images that decode_image does not read.
_PILLOW = 'Try rm.from_arrays({"image": numpy.array(PIL.Image.open({path}))[None]})'

# The first row that matches is it. Those that few other files match come first; then compressed
# files, whose advice is the command that unpacks them; then text.
_KINDS = (
    FileKind("an empty file", rb"\Z", _CUT),
    FileKind("TFRecord", check=lambda content: is_record(content.head), format="tfrecord"),
    FileKind("npy", rb"\x93NUMPY", format="npy"),
    FileKind("HDF5", b"(.{512})?" + _HDF5, format="hdf5"),
    FileKind("npz", _ZIP, check=_is_npz, format="npz"),
    FileKind("a PyTorch file", _ZIP, _TORCH, _zips("data.pkl")),
    FileKind("a Keras model", _ZIP, "Load it with keras.models.load_model({path})",
        _zips("model.weights.h5")),
    FileKind("an Excel file", _ZIP, "Try rm.open(pandas.read_excel({path}))",
        lambda content: "xl/workbook.xml" in (content.members or ())),
    FileKind("a zipped Zarr store", _ZIP,
        'Unpack it, and open the folder: unzip {path} -d data.zarr, then rm.open("data.zarr")',
        _zips(*ZARR_FILES)),
    FileKind("a zip archive", _ZIP, _UNPACK),
    FileKind("an Arrow file", rb"ARROW1\0\0", format="arrow"),
    FileKind("Feather of version 1", rb"FEA1", "Try rm.open(pandas.read_feather({path}))"),
    FileKind("netCDF-3", rb"CDF[\x01\x02\x05]",
        'Turn it into netCDF-4, which recmap reads: nccopy -k nc4 IN OUT, or in Python '
        'xarray.open_dataset({path}).to_netcdf("new.nc", engine="h5netcdf")'),
    FileKind("ArrayRecord", rb"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f\0{8}", format="array_record"),
    FileKind("tokens of llm.c", rb"(\x88\xd8\x34\x01\x01|\xa1\xd9\x34\x01\x07)\0{3}",
        format="llmc"),
    FileKind("an SQLite database", rb"SQLite format 3\0",
        'Try rm.open(pandas.read_sql("select ...", connection))'),
    FileKind("a PNG image", rb"\x89PNG\r\n\x1a\n", _IMAGE),
    FileKind("a GIF image", rb"GIF8[79]a", _IMAGE),
    FileKind("a JPEG 2000 image", rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", _PILLOW),
    FileKind("an old PyTorch file", rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.", _TORCH),
    FileKind("Avro", rb"Obj\x01", "Read it with fastavro, and give its columns to rm.from_arrays"),
    FileKind("PDF", rb"%PDF-"),
    FileKind("a program", rb"\x7fELF"),
    FileKind("a Git LFS pointer, not the data itself",
        rb"version https://git-lfs\.github\.com/spec/", "Run git lfs pull"),
    _guess("a Parquet file that was cut or damaged", _PARQUET, _CUT,
        lambda content: content.size == 4),
    FileKind("encrypted Parquet", _PARQUET, "Decrypt it: write it again with pyarrow.parquet",
        lambda content: _is_parquet(content) and b"PARE" in (content.head[:4], content.tail[-4:])),
    FileKind("Parquet", _PARQUET, check=_is_parquet, format="parquet"),
    FileKind("ORC", rb"ORC", "Try rm.open(pandas.read_orc({path}))",
        lambda content: not content.size or content.tail[-4:-1] == b"ORC"),
    FileKind("a JPEG image", rb"\xff\xd8\xff[\xc0-\xfe]", _IMAGE),
    FileKind("a BMP image", rb"BM.{4}\0{4}.{16}", _IMAGE, _is_bmp),
    FileKind("a WebP image", rb"RIFF.{4}WEBP", _IMAGE),
    FileKind("WAV audio", rb"RIFF.{4}WAVE"),
    FileKind("a TIFF image", rb"(II\*\0|MM\0\*).{4}", _PILLOW, _is_tiff),
    FileKind("an AVIF image", rb".{4}ftypavi[fs]", _PILLOW),
    FileKind("a HEIC image", rb".{4}ftyphei[cx]", _PILLOW),
    FileKind("a HEIF image", rb".{4}ftypmif1", _PILLOW),
    FileKind("a PPM, PGM or PBM image", rb"P[1-6]\s(\s*#[^\n]*\n)*\s*\d{1,9}\s+\d{1,9}\s", _PILLOW),
    _guess("an ICO image", rb"\0\0\x01\0.{18}", _PILLOW, _is_ico),
    FileKind("a MATLAB .mat file", rb"MATLAB 5\.0 MAT-file|.{124}(\0\x01IM|\x01\0MI)", _MATLAB),
    _guess("a MATLAB .mat file", rb".{22}", _MATLAB, _is_old_mat),
    FileKind("safetensors", rb".{8}\{.", check=_is_safetensors, format="safetensors"),
    FileKind("an Arrow stream", rb".{32}", check=_is_arrow_stream, format="arrow"),
    FileKind("a pickle", rb"\x80[\x02-\x05]", _PICKLE, _is_pickle),
    # Of protocol 0 or 1: the opcode of a container, a global, a string or a number.
    _guess("a pickle", rb"[(\]}lcVXUSKMJFGIL].", _PICKLE, _is_pickle),
    FileKind("MXNet RecordIO", rb"\x0a\x23\xd7\xce.{4}",
        "Read it with mxnet.recordio, and write its records with rm.tfrecord.write_records",
        _is_mxnet),
    _guess("IDX, the format of MNIST", rb"\0\0.[\x01-\x08].{4}", detail=_idx_options),
    FileKind("an LMDB database", rb"\0{8}.{8}\xde\xc0\xef\xbe",
        "Read it with lmdb, and give its values to rm.from_arrays"),
    FileKind("a tar archive", rb".{512}", check=_is_tar, format="webdataset"),
    _packed("gzip", rb"\x1f\x8b\x08", "gzip -dc {path}"),
    _packed("bzip2", rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "bzip2 -dc {path}"),
    _packed("xz", rb"\xfd7zXZ\0", "xz -dc {path}"),
    _packed("zstd", rb"\x28\xb5\x2f\xfd", "zstd -dc {path}"),
    _packed("lz4", rb"\x04\x22\x4d\x18", "lz4 -dc {path}"),
    _packed("snappy", rb"\xff\x06\0\0sNaPpY", "snzip -dc {path}"),
    _packed("7-Zip", rb"7z\xbc\xaf\x27\x1c", "7z e -so {path}"),
    _packed("zlib", rb"[\x08-\x78].{7}"),
    _guess("an HTML page", advice="Check the download: it may have failed",
        check=lambda content: content.text[:15].lower().startswith(("<!doctype html", "<html"))),
    _guess("XML", advice="Try rm.open(pandas.read_xml({path}))",
        check=lambda content: content.text.startswith("<?xml")),
    FileKind("an index of Mosaic Streaming", rb"\s*\{", format="mds",
        check=lambda content: '"shards"' in content.text and '"column_encodings"' in content.text),
    _text("JSON Lines", advice="Try rm.open(pandas.read_json({path}, lines=True, {encoding}))",
        check=_is_json_lines, format="jsonl"),
    _guess("JSON", advice="Try rm.open(pandas.read_json({path}, {encoding}))",
        check=lambda content: content.text.startswith(("{", "["))),
    _text("CSV", advice="Try rm.open(pandas.read_csv({path}, {encoding}))",
        check=lambda content: _is_table(content, ",", ".csv"), format="csv"),
    _text("TSV", advice=r'Try rm.open(pandas.read_csv({path}, sep="\t", {encoding}))',
        check=lambda content: _is_table(content, "\t", ".tsv"), format="tsv"),
    _text("CSV", advice='Try rm.open(pandas.read_csv({path}, sep=";", {encoding}))',
        check=lambda content: _is_table(content, ";"), format="csv"),
    _guess("text", advice="Try rm.from_arrays("
        '{"text": pathlib.Path({path}).read_text({encoding}).splitlines()})',
        check=lambda content: content.text),
    FileKind("HDF5", check=_is_late_hdf5, format="hdf5"),
)  # fmt: skip
