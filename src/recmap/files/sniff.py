"""Tell what a file is: by its content first, by its name only where content is silent.

Everything that opens a file asks here, so every call and every command describes an
unknown file in the same words. Nothing is unpickled, and no more than a few kilobytes
are read or inflated.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from recmap.errors import UnknownFormatError
from recmap.files.inflate import inflater
from recmap.files.mapped import Guard, MappedFile
from recmap.native import _core

__all__ = ["Look", "holds_records", "look", "named_tfrecord", "size_hint", "unknown_format"]

# Bytes from the beginning that are looked at.
_HEAD = 1 << 13
# A damaged TFRecord file is known by a sound record in its first bytes.
_SEARCH = 16 << 20
_HDF5 = b"\x89HDF\r\n\x1a\n"
# HDF5 may begin after bytes of another kind: 512, 1,024, 2,048 and so on of them.
_HDF5_PLACES = [512 << i for i in range(18)]
# What a pickle of protocol 0 or 1, which have no magic, begins with: a container, a global,
# a string or a number.
_OLD_PICKLES = b"(]}lcVXUSKMJFGIL"
# Operations after which bytes are believed to be a pickle: a whole one without a magic, or
# the beginning of any.
_FEWEST_OLD, _FEWEST_OPERATIONS = 4, 8
# Of text that is not UTF-8, so much is.
_MOSTLY_ASCII = 0.7
_TFRECORD_NAME = re.compile(r"\.(tfrecords?|tfr)(?![a-z])", re.IGNORECASE)
_HINTED = (("float32", 4), ("float64", 8), ("int16", 2))
_PANDAS = "rm.from_arrays(pandas.{call}.to_dict({series}))"


@dataclass(frozen=True)
class Look:
    """What a file looks like.

    ``format`` is the recmap format that reads it, if one does. ``advice`` is the way in
    otherwise, in which ``{path}`` stands for the file's name, quoted. ``certain`` is
    false for a guess, such as CSV, that raw numbers could also fit. ``packed`` names the
    compression around it.
    """

    what: str
    advice: str = ""
    format: str | None = None
    certain: bool = True
    packed: str | None = None


def look(path: str) -> Look | None:
    """What the content of a file looks like; None if nothing about it is known."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        # Reading a pipe or a device could wait for ever.
        return Look("a pipe or a device, not a file", "Write it to a file first")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        if not head:
            return Look("an empty file", "Check that it was written or downloaded completely")
        tail = os.pread(file.fileno(), 16, max(size - 16, 0))
        found = _content(path, head, tail, size)
        if found is None and any(
            os.pread(file.fileno(), 8, place) == _HDF5 for place in _HDF5_PLACES
        ):
            return _IS_HDF5
    return found


def unknown_format(path: str, found: Look | None, records: bool = False) -> UnknownFormatError:
    """The error for a file that recmap does not read, or that is searched for ``records``."""
    if found is None and records:
        return UnknownFormatError(
            f"{path}: neither its name nor its first bytes tell its format, and no TFRecord "
            "records were found in it; if it is a damaged TFRecord file, end its name with "
            ".tfrecord",
            file=path,
        )
    if found is None:
        hint = size_hint(os.path.getsize(path))
        return UnknownFormatError(
            f"{path}: neither its name nor its first bytes tell its format; for numbers without "
            f'a header give dtype="float32", shape=(-1, 10), for example: {hint}; '
            'for a damaged TFRecord file, format="tfrecord"',
            file=path,
        )
    advice = found.advice.replace("{path}", json.dumps(path, ensure_ascii=False))
    return UnknownFormatError(
        f"{path}: not a format recmap reads (looks like {found.what})"
        + (f". {advice}" if advice else ""),
        file=path,
    )


def holds_records(path: str) -> bool:
    """Whether there is a sound record in the first megabytes of a file that does not
    begin with one.
    """
    content = MappedFile(path).bytes
    stop = min(len(content), _SEARCH)
    with Guard():
        return _core.find_record(content, 0, stop) < stop


def named_tfrecord(path: str) -> bool:
    """Whether a name says TFRecord: ``x.tfrecord``, ``x.tfrecord-00000-of-00010``."""
    return _TFRECORD_NAME.search(os.path.basename(path)) is not None


def size_hint(size: int) -> str:
    """What a size is divisible by."""
    fits = [f"{size // width:,} of {name}" for name, width in _HINTED if size and size % width == 0]
    return f"its {size:,} bytes would be {', '.join(fits)}" if fits else f"it has {size:,} bytes"


def _content(path: str, head: bytes, tail: bytes, size: int) -> Look | None:
    """What a file with this head, tail and size is. ``path`` is that of the file, or, for
    bytes that were unpacked, what its name would be; then the size is not known: 0.
    """
    if _is_record(head):
        return _TFRECORD
    if head[512:520] == _HDF5:
        return _IS_HDF5
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(path) if size else _ZIP
    for sniff in _SNIFFERS:
        other = sniff(head, tail, size)
        if other is not None:
            return other
    return _packed(path, head, size) or _text(path, head, size)


def _is_record(head: bytes) -> bool:
    """Whether these bytes begin with the length of a record and its CRC."""
    if len(head) < _core.HEADER_SIZE:
        return False
    first = _core.scan(np.frombuffer(head, np.uint8), _core.ScanRequest(limit=1))
    fault = first.fault
    return first.records == 1 or (fault is not None and fault.code == _core.FaultCode.data_cut)


def _pandas(call: str) -> str:
    return "Try " + _PANDAS.format(call=call, series='"series"')


def _image(kind: str) -> Look:
    return Look(
        f"a {kind} image",
        'Try rm.from_arrays({"image": [pathlib.Path({path}).read_bytes()]}).decode_image("image"), '
        "with one entry for each image",
    )


def _pillow_image(kind: str) -> Look:
    """One that decode_image leaves to Pillow."""
    article = "an" if kind[0] in "AI" else "a"
    return Look(
        f"{article} {kind} image",
        'Try rm.from_arrays({"image": numpy.array(PIL.Image.open({path}))[None]})',
    )


_TFRECORD = Look("TFRecord", format="tfrecord")
_IS_HDF5 = Look("HDF5", format="hdf5")
_IS_MAT = Look(
    "a MATLAB .mat file",
    'Try rm.from_arrays({"x": scipy.io.loadmat({path})["x"]}), with the names of its '
    "variables; files saved with -v7.3 are HDF5 and open as they are",
)
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
# Bytes of a value in a file of MATLAB 4, by the number of its type.
_MAT_SIZES = (8, 4, 4, 2, 2, 1)
_UNPACK = "Unpack it, and open the files in it"
_ZIP = Look("a zip archive", _UNPACK)
_MAGIC: Sequence[tuple[bytes, Look]] = (
    (b"\x93NUMPY", Look("npy", format="npy")),
    (_HDF5, _IS_HDF5),
    (b"ARROW1\0\0", Look("an Arrow or Feather file", _pandas("read_feather({path})"))),
    (b"FEA1", Look("a Feather file", _pandas("read_feather({path})"))),
    (
        b"CDF\x01",
        _NETCDF := Look(
            "netCDF-3",
            'Try rm.from_arrays({"x": scipy.io.netcdf_file({path}, mmap=False)'
            '.variables["x"][:]}), with the names of its variables',
        ),
    ),
    (b"CDF\x02", _NETCDF),
    (
        b"CDF\x05",
        replace(_NETCDF, advice="Turn it into netCDF-4, which is HDF5: nccopy -k nc4 IN OUT"),
    ),
    (
        bytes.fromhex("83af70d10d884a3f0000000000000000"),
        Look(
            "ArrayRecord, or another Riegeli file",
            'Try rm.tfrecord.write_records("records.tfrecord", array_record.python.'
            "array_record_module.ArrayRecordReader({path}).read_all())",
        ),
    ),
    (
        b"SQLite format 3\0",
        Look("an SQLite database", _pandas('read_sql("select ...", connection)')),
    ),
    (b"\x89PNG\r\n\x1a\n", _image("PNG")),
    (b"GIF87a", _image("GIF")),
    (b"GIF89a", _image("GIF")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", _pillow_image("JPEG 2000")),
    (b"\xff\x4f\xff\x51", _pillow_image("JPEG 2000")),
    (
        bytes.fromhex("80028a0a6cfc9c46f9206aa850192e"),
        Look(
            "an old PyTorch file",
            'Try rm.from_arrays({"x": torch.load({path}, weights_only=True)["x"].numpy()}), with '
            "the names of its tensors",
        ),
    ),
    (b"Obj\x01", Look("Avro", "Read it with fastavro, and give its columns to rm.from_arrays")),
    (b"%PDF-", Look("PDF")),
    (b"\x7fELF", Look("a program")),
    (
        b"version https://git-lfs.github.com/spec/",
        Look("a Git LFS pointer, not the data itself", "Run git lfs pull"),
    ),
)


def _parquet(head: bytes, tail: bytes, size: int) -> Look | None:
    marks = (b"PAR1", b"PARE")
    if head[:4] not in marks or (size and (size < 12 or tail[-4:] not in marks)):
        return None
    return Look("Parquet", _pandas("read_parquet({path})"))


def _orc(head: bytes, tail: bytes, size: int) -> Look | None:
    if head[:3] != b"ORC" or (size and tail[-4:-1] != b"ORC"):
        return None
    return Look("ORC", _pandas("read_orc({path})"))


def _jpeg(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail, size
    if head[:3] != b"\xff\xd8\xff" or len(head) < 4 or not 0xC0 <= head[3] <= 0xFE:
        return None
    return _image("JPEG")


def _bmp(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail
    if head[:2] != b"BM" or len(head) < 26 or head[6:10] != bytes(4):
        return None
    told, _, start, header = struct.unpack_from("<IIII", head, 2)
    known = header in (12, 16, 40, 52, 56, 64, 108, 124)
    return _image("BMP") if known and start >= 14 + header and (told == size or not size) else None


def _riff(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail, size
    if head[:4] != b"RIFF":
        return None
    if head[8:12] == b"WEBP":
        return _image("WebP")
    return Look("WAV audio") if head[8:12] == b"WAVE" else None


def _tiff(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(head[:4])
    if order is None or len(head) < 8:
        return None
    (at,) = struct.unpack_from(f"{order}I", head, 4)
    if at < 8 or at % 2 or (size and at + 2 > size):
        return None
    return _pillow_image("TIFF")


def _other_image(head: bytes, tail: bytes, size: int) -> Look | None:
    """Images whose magic is too short to be believed alone."""
    del tail
    brands = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF"}
    if head[4:8] == b"ftyp" and head[8:12] in brands:
        return _pillow_image(brands[head[8:12]])
    if re.match(rb"P[1-6]\s(\s*#[^\n]*\n)*\s*\d{1,9}\s+\d{1,9}\s", head):
        return _pillow_image("PPM, PGM or PBM")
    if head[:4] == b"\0\0\x01\0" and len(head) >= 22:
        count, length, start = struct.unpack_from("<H8xII", head, 4)
        if count and start == 6 + 16 * count and (not size or start + length <= size):
            return replace(_pillow_image("ICO"), certain=False)
    return None


def _tar(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail, size
    if len(head) < 512:
        return None
    try:
        told = int(head[148:156].strip(b" \0") or b"-1", 8)
    except ValueError:
        return None
    # The checksum counts its own field as spaces.
    if told != sum(head[:148]) + sum(head[156:512]) + 8 * 32:
        return None
    return Look("a tar archive, such as WebDataset uses", _UNPACK + ": tar -xf {path}")


def _safetensors(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail
    if len(head) < 10 or head[8:9] != b"{":
        return None
    (length,) = struct.unpack_from("<Q", head)
    if length < 2 or length > (size - 8 if size else 100 << 20):
        return None
    text = head[8 : 8 + length]
    if not (b'"dtype"' in text or b'"__metadata__"' in text or text.strip() == b"{}"):
        return None
    return Look("safetensors", "Try rm.from_arrays(safetensors.numpy.load_file({path}))")


def _mat(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail, size
    if not head.startswith(b"MATLAB 5.0 MAT-file") and (
        len(head) < 128 or head[124:128] not in (b"\0\x01IM", b"\x01\0MI")
    ):
        return None
    return _IS_MAT


def _old_mat(head: bytes, tail: bytes, size: int) -> Look | None:
    """MATLAB 4: a type, rows, columns, whether it is complex, and the size of the name."""
    del tail
    if len(head) < 22:
        return None
    for order in "<>":
        kind, rows, columns, complex_, length = struct.unpack_from(f"{order}5I", head)
        number, precision = divmod(kind, 100)
        known = number in (0, 10) and precision % 10 <= 2 and precision // 10 < len(_MAT_SIZES)
        if not known or complex_ > 1 or not 2 <= length <= 64:
            continue
        name, end = head[20 : 19 + length], head[19 + length : 20 + length]
        whole = 20 + length + rows * columns * _MAT_SIZES[precision // 10] * (1 + complex_)
        sparse = precision % 10 == 2
        if end == b"\0" and _NAME.fullmatch(name) and (sparse or not size or whole <= size):
            return replace(_IS_MAT, certain=False)
    return None


def _arrow_stream(head: bytes, tail: bytes, size: int) -> Look | None:
    """A message begins with -1, its size, and a flatbuffer whose header is a schema."""
    del tail
    if head[:4] != b"\xff\xff\xff\xff" or len(head) < 32:
        return None
    length, root = struct.unpack_from("<iI", head, 4)
    at = 8 + root
    if length <= 0 or length % 8 or (size and 8 + length > size) or at + 4 > len(head):
        return None
    table = at - struct.unpack_from("<i", head, at)[0]
    if not 8 <= table <= len(head) - 8:
        return None
    entries, _, version, kind = struct.unpack_from("<4H", head, table)
    if entries < 8 or not version or not kind or at + max(version, kind) + 2 > len(head):
        return None
    if head[at + version] not in (3, 4) or head[at + kind] != 1:
        return None
    return Look(
        "an Arrow stream",
        'Try rm.from_arrays(pyarrow.ipc.open_stream({path}).read_pandas().to_dict("series"))',
    )


def _pickle(head: bytes, tail: bytes, size: int) -> Look | None:
    """A pickle ends with a stop, and begins with operations that pickletools knows."""
    if (size and tail[-1:] != b".") or len(head) < 2:
        return None
    found = Look(
        "a pickle",
        "recmap never loads pickles, because they can run any code. If you trust it, load it "
        "yourself and give its arrays to rm.from_arrays",
    )
    old = head[:1] != b"\x80"
    if head[0] not in _OLD_PICKLES if old else head[1] not in (2, 3, 4, 5):
        return None
    found = replace(found, certain=not old)
    if head[2:3] == b"\x95" and not old and head[1] >= 4 and len(head) >= 11:
        # The size of a frame.
        (frame,) = struct.unpack_from("<Q", head, 3)
        return found if frame and (11 + frame <= size if size else frame < 1 << 40) else None
    operations, end = _operations(head)
    if end is not None:  # whole, if nothing follows
        enough = operations >= _FEWEST_OLD if old else operations > 1
        return found if enough and end == (size or len(head)) else None
    if size and size <= len(head):
        return None
    return found if operations >= _FEWEST_OPERATIONS else None


def _operations(head: bytes) -> tuple[int, int | None]:
    """How many operations of a pickle these bytes begin with, and where they stop; none if
    something is in between that is no operation, None if they do not stop.
    """
    import pickletools

    seen = 0
    try:
        for operation, _, place in pickletools.genops(head):
            seen += 1
            if operation.name == "STOP":
                return seen, (place or 0) + 1
    except Exception as e:  # the head may end within an operation
        return (0 if "unknown" in str(e) else seen), None
    return seen, None


def _mxnet(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail
    if head[:4] != b"\x0a\x23\xd7\xce" or len(head) < 8:
        return None
    length = struct.unpack_from("<I", head, 4)[0] & ((1 << 29) - 1)
    if size and 8 + length > size:
        return None
    return Look(
        "MXNet RecordIO",
        "Read it with mxnet.recordio, and write its records with rm.tfrecord.write_records",
    )


def _idx(head: bytes, tail: bytes, size: int) -> Look | None:
    """MNIST's format: a type, the number of axes, and the axes, all big-endian."""
    del tail
    kinds = {8: "uint8", 9: "int8", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    if head[:2] != b"\0\0" or len(head) < 8 or head[2] not in kinds or not 1 <= head[3] <= 8:
        return None
    axes, dtype = head[3], np.dtype(kinds[head[2]])
    start = 4 + 4 * axes
    if len(head) < start:
        return None
    shape = struct.unpack_from(f">{axes}I", head, 4)
    if size and start + int(np.prod(shape, dtype=object)) * dtype.itemsize != size:
        return None
    return Look(
        "IDX, the format of MNIST",
        f'Give dtype="{kinds[head[2]]}", shape={shape}, offset={start} to read its numbers',
        certain=False,
    )


def _lmdb(head: bytes, tail: bytes, size: int) -> Look | None:
    del tail, size
    if head[16:20] != b"\xde\xc0\xef\xbe" or head[:8] != bytes(8):
        return None
    return Look("an LMDB database", "Read it with lmdb, and give its values to rm.from_arrays")


_SNIFFERS: Sequence[Callable[[bytes, bytes, int], Look | None]] = (
    _parquet,
    _orc,
    _jpeg,
    _bmp,
    _riff,
    _tiff,
    _other_image,
    _mat,
    _old_mat,
    _safetensors,
    _arrow_stream,
    _pickle,
    _mxnet,
    _idx,
    _lmdb,
    _tar,
)


def _zip(path: str) -> Look:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises a dozen kinds for damaged archives
        return Look("npz", format="npz") if path.lower().endswith(".npz") else _ZIP
    ends = {os.path.splitext(name)[1] for name in names}
    if ".npy" in ends or not names or path.lower().endswith(".npz"):
        return Look("npz", format="npz")
    bases = {name.rsplit("/", 1)[-1] for name in names}
    if "data.pkl" in bases:
        return Look(
            "a PyTorch file",
            'Try rm.from_arrays({"x": torch.load({path}, weights_only=True)["x"].numpy()}), with '
            "the names of its tensors",
        )
    if "model.weights.h5" in bases:
        return Look("a Keras model", "Load it with keras.models.load_model({path})")
    if "xl/workbook.xml" in names:
        return Look("an Excel file", _pandas("read_excel({path})"))
    if bases & {"zarr.json", ".zgroup", ".zarray", ".zmetadata"}:
        return Look(
            "a zipped Zarr store",
            'Unpack it, and open the folder: unzip {path} -d data.zarr, then rm.open("data.zarr")',
        )
    return _ZIP


def _packed(path: str, head: bytes, size: int) -> Look | None:
    """A compressed file, and what is in it as far as its beginning tells."""
    for name, magic, command, unpack in _PACKERS:
        if not magic.match(head):
            continue
        plain, whole = unpack(head)
        if plain is None:
            continue
        stem, end = os.path.splitext(path)
        named = end.lower() in _PACKED_ENDS
        target = stem if named else path + ".plain"
        inner = _content(target, plain, b"", 0) if plain else None
        if name in ("gzip", "zlib") and (inner == _TFRECORD or (whole and not plain)):
            return replace(_TFRECORD, packed=name)
        quoted = json.dumps(target, ensure_ascii=False)
        then = "open that file"
        if inner is not None and inner.advice.startswith("Try "):
            then = "try " + inner.advice[4:].replace("{path}", quoted)
        what = f"{inner.what}, compressed with {name}" if inner else f"data compressed with {name}"
        how = f" ({command} > {quoted})" if command else ""
        # A few numbers can look like the beginning of a stream that was cut.
        certain = whole or named or size > len(head)
        advice = f"Decompress it first{how}, then {then}"
        return Look(what, advice, certain=certain, packed=name)
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
        return b"", True  # a large dictionary, or damage: its magic is long enough


def _unread(head: bytes) -> tuple[bytes | None, bool]:
    del head
    return b"", True


_PACKED_ENDS = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".7z", ".zlib")
# By name: how such a file begins, the command that unpacks it, and what unpacks its
# beginning: the plain bytes, or None if it is not one after all, and whether that is all.
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


def _text(path: str, head: bytes, size: int) -> Look | None:
    text, encoding = _decoded(head, size)
    if text is None:
        return None
    told = "" if encoding is None else f'encoding="{encoding}"'
    more = f", {told}" if told else ""
    whole = bool(size) and size <= len(head)
    start, lower = text.lstrip(), path.lower()
    lines = [line for line in text.splitlines() if line.strip()]
    if not whole and len(lines) > 1:
        lines.pop()  # it may be cut
    if start[:15].lower().startswith(("<!doctype html", "<html")):
        return _guess("an HTML page", "Check the download: it may have failed")
    if start.startswith("<?xml"):
        return _guess("XML", _pandas("read_xml({path})"))
    if start[:1] in ("{", "["):
        return _json(lines, lower, more)
    for delimiter, end, options in (
        (",", ".csv", ""),
        ("\t", ".tsv", r', sep="\t"'),
        (";", ".csv", ', sep=";"'),
    ):
        if _is_table(lines, delimiter) or (lower.endswith(end) and delimiter != ";"):
            call = f"read_csv({{path}}{options}{more})"
            return _guess("TSV" if delimiter == "\t" else "CSV", _pandas(call))
    read = f"pathlib.Path({{path}}).read_text({told}).splitlines()"
    return _guess("text", f'Try rm.from_arrays({{"text": {read}}})')


def _guess(what: str, advice: str) -> Look:
    return Look(what, advice, certain=False)


def _json(lines: list[str], lower: str, more: str) -> Look:
    def parses(line: str) -> bool:
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            return False
        return True

    several = len(lines) > 1 and parses(lines[0]) and parses(lines[1])
    if several or lower.endswith((".jsonl", ".ndjson")):
        return _guess("JSON Lines", _pandas(f"read_json({{path}}, lines=True{more})"))
    return _guess("JSON", _pandas(f"read_json({{path}}{more})"))


def _decoded(head: bytes, size: int) -> tuple[str | None, str | None]:
    """The head as text, if it is text, and its encoding, if that is not UTF-8."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else None
    text = ""
    # The head may end within a character.
    for cut in range(4 if not size or size > len(head) else 1):
        try:
            text = head[: len(head) - cut].decode(encoding or "utf-8-sig")
            break
        except UnicodeDecodeError:
            continue
    if not text and sum(byte < 0x80 for byte in head) >= _MOSTLY_ASCII * len(head):
        encoding = "latin-1"  # what old programs write
        text = head.decode("cp1252", "replace")
    if len(text.strip()) < 4:  # too little to tell
        return None, None
    sound = all(c.isprintable() or _is_space(c) for c in text)
    return (text, encoding) if sound else (None, None)


def _is_space(character: str) -> bool:
    """Whether it is white space, or a mark that is not seen, such as a zero-width joiner."""
    if character in "\t\n\r\f\v\x1b":
        return True
    return unicodedata.category(character) in ("Cf", "Zl", "Zp", "Zs")


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Whether the lines have equally many values, two or more each."""
    if len(lines) < 2:
        return False
    import csv

    try:
        widths = {len(row) for row in csv.reader(lines[:50], delimiter=delimiter)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths.pop() > 1
