"""Recognise files of other formats, and advise how to get their data into recmap.

This looks only at the first bytes, the last bytes and the size. Nothing is unpickled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recmap.errors import Message, Option

# A pickle of protocol 0 or 1 has no magic number. It begins with the opcode of a container,
# a global, a string or a number.
_OLD_PICKLES = b"(]}lcVXUSKMJFGIL"
# The fewest operations for bytes to count as a pickle: a complete one without a magic number,
# or the beginning of any.
_FEWEST_OLD, _FEWEST_OPERATIONS = 4, 8


@dataclass(frozen=True)
class FileKind:
    """What a file looks like.

    ``format`` is the recmap format that reads it, if there is one. Otherwise, ``advice`` says
    what to do, with ``{path}`` for the quoted name of the file. ``certain`` is false for a
    guess, such as CSV, that raw numbers could also match. ``packed`` names the compression
    around it.
    """

    what: str
    advice: str = ""
    format: str | None = None
    certain: bool = True
    packed: str | None = None


def recognise(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise a file of another format by its first and last bytes and its size.

    The size is 0 if unknown.
    """
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    for check in _CHECKS:
        found = check(head, tail, size)
        if found is not None:
            return found
    return None


def recognise_zip(names: Sequence[str]) -> FileKind:
    """Recognise the content of a zip archive by the names in it."""
    bases = {name.rsplit("/", 1)[-1] for name in names}
    if "data.pkl" in bases:
        return FileKind(
            "a PyTorch file",
            'Try rm.from_arrays({"x": torch.load({path}, weights_only=True)["x"].numpy()}), with '
            "the names of its tensors",
        )
    if "model.weights.h5" in bases:
        return FileKind("a Keras model", "Load it with keras.models.load_model({path})")
    if "xl/workbook.xml" in names:
        return FileKind("an Excel file", pandas_advice("read_excel({path})"))
    if bases & {"zarr.json", ".zgroup", ".zarray", ".zmetadata"}:
        return FileKind(
            "a zipped Zarr store",
            'Unpack it, and open the folder: unzip {path} -d data.zarr, then rm.open("data.zarr")',
        )
    return ZIP


def pandas_advice(call: str) -> str:
    """Advise reading a file with a pandas call, with ``{path}`` for its name."""
    return f"Try rm.open(pandas.{call})"


def _image(kind: str) -> FileKind:
    return FileKind(
        f"a {kind} image",
        'Try rm.from_arrays({"image": [pathlib.Path({path}).read_bytes()]}).decode_image("image"), '
        "with one entry for each image",
    )


def _pillow_image(kind: str) -> FileKind:
    """Advise on an image that decode_image does not read."""
    article = "an" if kind[0] in "AI" else "a"
    return FileKind(
        f"{article} {kind} image",
        'Try rm.from_arrays({"image": numpy.array(PIL.Image.open({path}))[None]})',
    )


_IS_MAT = FileKind(
    "a MATLAB .mat file",
    'Try rm.from_arrays({"x": scipy.io.loadmat({path})["x"]}), with the names of its '
    "variables; files saved with -v7.3 are HDF5 and open as they are",
)
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
# Bytes per value in a MATLAB 4 file, by type number.
_MAT_SIZES = (8, 4, 4, 2, 2, 1)
_UNPACK = "Unpack it, and open the files in it"
ZIP = FileKind("a zip archive", _UNPACK)
_MAGIC: Sequence[tuple[bytes, FileKind]] = (
    (b"ARROW1\0\0", FileKind("an Arrow file", format="arrow")),
    (b"FEA1", FileKind("Feather of version 1", pandas_advice("read_feather({path})"))),
    (
        b"CDF\x01",
        _NETCDF := FileKind(
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
        FileKind(
            "ArrayRecord, or another Riegeli file",
            'Try rm.tfrecord.write_records("records.tfrecord", array_record.python.'
            "array_record_module.ArrayRecordReader({path}).read_all())",
        ),
    ),
    (
        b"SQLite format 3\0",
        FileKind("an SQLite database", pandas_advice('read_sql("select ...", connection)')),
    ),
    (b"\x89PNG\r\n\x1a\n", _image("PNG")),
    (b"GIF87a", _image("GIF")),
    (b"GIF89a", _image("GIF")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", _pillow_image("JPEG 2000")),
    (b"\xff\x4f\xff\x51", _pillow_image("JPEG 2000")),
    (
        bytes.fromhex("80028a0a6cfc9c46f9206aa850192e"),
        FileKind(
            "an old PyTorch file",
            'Try rm.from_arrays({"x": torch.load({path}, weights_only=True)["x"].numpy()}), with '
            "the names of its tensors",
        ),
    ),
    (b"Obj\x01", FileKind("Avro", "Read it with fastavro, and give its columns to rm.from_arrays")),
    (b"%PDF-", FileKind("PDF")),
    (b"\x7fELF", FileKind("a program")),
    (
        b"version https://git-lfs.github.com/spec/",
        FileKind("a Git LFS pointer, not the data itself", "Run git lfs pull"),
    ),
)


# How the header of a page of Parquet begins: its type, and two sizes.
_PAGE = re.compile(rb"\x15[\0\2\4\6]\x15[\x80-\xff]{0,4}[\0-\x7f]\x15", re.DOTALL)
_CUT_PARQUET = FileKind(
    "a Parquet file that was cut or damaged",
    "Check that it was written or downloaded completely",
    certain=False,
)


def _parquet(head: bytes, tail: bytes, size: int) -> FileKind | None:
    magics = (b"PAR1", b"PARE")
    if head[:4] not in magics:
        return None
    if size == len(b"PAR1"):
        return _CUT_PARQUET
    if size and tail[-4:] not in magics and not _PAGE.match(head, 4):
        return None
    if head[:4] == b"PARE" or tail[-4:] == b"PARE":
        return FileKind("encrypted Parquet", "Decrypt it: write it again with pyarrow.parquet")
    return FileKind("Parquet", format="parquet")


def _orc(head: bytes, tail: bytes, size: int) -> FileKind | None:
    if head[:3] != b"ORC" or (size and tail[-4:-1] != b"ORC"):
        return None
    return FileKind("ORC", pandas_advice("read_orc({path})"))


def _jpeg(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail, size
    if head[:3] != b"\xff\xd8\xff" or len(head) < 4 or not 0xC0 <= head[3] <= 0xFE:
        return None
    return _image("JPEG")


def _bmp(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail
    if head[:2] != b"BM" or len(head) < 26 or head[6:10] != bytes(4):
        return None
    stored, _, start, header = struct.unpack_from("<IIII", head, 2)
    known = header in (12, 16, 40, 52, 56, 64, 108, 124)
    return (
        _image("BMP") if known and start >= 14 + header and (stored == size or not size) else None
    )


def _riff(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail, size
    if head[:4] != b"RIFF":
        return None
    if head[8:12] == b"WEBP":
        return _image("WebP")
    return FileKind("WAV audio") if head[8:12] == b"WAVE" else None


def _tiff(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(head[:4])
    if order is None or len(head) < 8:
        return None
    (at,) = struct.unpack_from(f"{order}I", head, 4)
    if at < 8 or at % 2 or (size and at + 2 > size):
        return None
    return _pillow_image("TIFF")


def _other_image(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise images with a magic number too short to be trusted on its own."""
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


def _tar(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail, size
    if len(head) < 512:
        return None
    try:
        stored = int(head[148:156].strip(b" \0") or b"-1", 8)
    except ValueError:
        return None
    # The checksum treats its own field as spaces.
    if stored != sum(head[:148]) + sum(head[156:512]) + 8 * 32:
        return None
    return FileKind("a tar archive, such as WebDataset uses", _UNPACK + ": tar -xf {path}")


def _safetensors(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail
    if len(head) < 10 or head[8:9] != b"{":
        return None
    (length,) = struct.unpack_from("<Q", head)
    if length < 2 or length > (size - 8 if size else 100 << 20):
        return None
    text = head[8 : 8 + length]
    if not (b'"dtype"' in text or b'"__metadata__"' in text or text.strip() == b"{}"):
        return None
    return FileKind("safetensors", "Try rm.from_arrays(safetensors.numpy.load_file({path}))")


def _mat(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail, size
    if not head.startswith(b"MATLAB 5.0 MAT-file") and (
        len(head) < 128 or head[124:128] not in (b"\0\x01IM", b"\x01\0MI")
    ):
        return None
    return _IS_MAT


def _old_mat(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise MATLAB 4: type, rows, columns, complex flag, length of the name."""
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


def _arrow_stream(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise an Arrow message: -1, its size, and a flatbuffer with a schema header."""
    del tail
    # Before Arrow 0.15, there was no -1.
    first = 8 if head[:4] == b"\xff\xff\xff\xff" else 4
    if len(head) < 32:
        return None
    length, root = struct.unpack_from("<iI", head, first - 4)
    at = first + root
    whole = (first + length) % 8 == 0
    if length <= 0 or not whole or (size and first + length > size) or at + 4 > len(head):
        return None
    table = at - struct.unpack_from("<i", head, at)[0]
    if not 8 <= table <= len(head) - 8:
        return None
    entries, _, version, kind = struct.unpack_from("<4H", head, table)
    if entries < 8 or not version or not kind or at + max(version, kind) + 2 > len(head):
        return None
    if head[at + version] not in (3, 4) or head[at + kind] != 1:
        return None
    return FileKind("an Arrow stream", format="arrow")


def _pickle(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise a pickle: it begins with valid pickle operations and ends with STOP."""
    if (size and tail[-1:] != b".") or len(head) < 2:
        return None
    found = FileKind(
        "a pickle",
        "recmap never loads pickles, because they can run any code. If you trust it, load it "
        "yourself and give its arrays to rm.from_arrays",
    )
    old = head[:1] != b"\x80"
    if head[0] not in _OLD_PICKLES if old else head[1] not in (2, 3, 4, 5):
        return None
    found = replace(found, certain=not old)
    if head[2:3] == b"\x95" and not old and head[1] >= 4 and len(head) >= 11:
        # The size of the first frame.
        (frame,) = struct.unpack_from("<Q", head, 3)
        return found if frame and (11 + frame <= size if size else frame < 1 << 40) else None
    operations, end = _operations(head)
    if end is not None:  # a complete pickle, if nothing follows
        enough = operations >= _FEWEST_OLD if old else operations > 1
        return found if enough and end == (size or len(head)) else None
    if size and size <= len(head):
        return None
    return found if operations >= _FEWEST_OPERATIONS else None


def _operations(head: bytes) -> tuple[int, int | None]:
    """Count the pickle operations at the start of some bytes, and find where they stop.

    The count is 0 if one of them is not a valid operation. The end is None if there is no STOP.
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


def _mxnet(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail
    if head[:4] != b"\x0a\x23\xd7\xce" or len(head) < 8:
        return None
    length = struct.unpack_from("<I", head, 4)[0] & ((1 << 29) - 1)
    if size and 8 + length > size:
        return None
    return FileKind(
        "MXNet RecordIO",
        "Read it with mxnet.recordio, and write its records with rm.tfrecord.write_records",
    )


def _idx(head: bytes, tail: bytes, size: int) -> FileKind | None:
    """Recognise IDX: a type, the number of axes, and the axes, all big-endian."""
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
    return FileKind(
        "IDX, the format of MNIST",
        Message(
            "Give ",
            Option("dtype", kinds[head[2]]),
            ", ",
            Option("shape", shape),
            ", ",
            Option("offset", start),
            " to read its numbers",
        ),
        certain=False,
    )


def _lmdb(head: bytes, tail: bytes, size: int) -> FileKind | None:
    del tail, size
    if head[16:20] != b"\xde\xc0\xef\xbe" or head[:8] != bytes(8):
        return None
    return FileKind("an LMDB database", "Read it with lmdb, and give its values to rm.from_arrays")


_CHECKS: Sequence[Callable[[bytes, bytes, int], FileKind | None]] = (
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
