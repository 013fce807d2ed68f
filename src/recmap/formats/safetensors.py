"""Files of safetensors: a header in JSON, and tensors end to end. Reading them needs no package."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from recmap.errors import ColumnError, DataError, LeftOut, Message, Option, OptionError
from recmap.formats.column_readers import ArrayColumn, ColumnReader, array_refusal
from recmap.formats.column_source import ColumnsSource, choose_columns, common_length
from recmap.formats.sink import Sink, SinkKind
from recmap.formats.spooled_arrays import SpooledArrays
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.local.output import Output
from recmap.model.arguments import as_dtype
from recmap.model.coerce import as_columns, fit
from recmap.model.preview import listed
from recmap.model.schema import Schema
from recmap.tfrecord.encoder import little_endian

# The dtypes by the names of the format. Those that NumPy lacks need ml_dtypes.
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16",
    "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16",
    "F32": "float32", "F64": "float64", "C64": "complex64", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}
# Bits of those whose values are not whole bytes, which cannot be mapped.
_NARROW = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_METADATA = "__metadata__"
# What the package allows.
_MOST_HEADER = 100_000_000
_MOST_AXES = 32
_MOST_BITS = 2**63 - 1
_ALIGN = 8


@dataclass(frozen=True)
class StoredTensor:
    """What the header says about a tensor. Its offsets count from the end of the header."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def parsed(cls, told: Any) -> StoredTensor:
        if not isinstance(told, dict) or set(told) != {"dtype", "shape", "data_offsets"}:
            raise ValueError("needs dtype, shape and data_offsets")
        code, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
        if not isinstance(code, str) or (code not in _DTYPES and code not in _NARROW):
            raise ValueError(f"has the dtype {code!r}, which recmap does not know")
        if not _are_sizes(shape) or len(shape) > _MOST_AXES:
            raise ValueError(f"has the shape {shape!r}")
        if not _are_sizes(offsets) or len(offsets) != 2:
            raise ValueError(f"has the data_offsets {offsets!r}")
        found = cls(code, tuple(shape), *offsets)
        # Axes of 0 count as 1: such a tensor takes no bytes to compare with its size.
        if math.prod(max(n, 1) for n in shape) * found.bits > _MOST_BITS:
            raise ValueError(f"has the shape {shape}, for which no memory is large enough")
        bits = math.prod(shape) * found.bits
        if bits % 8 or found.end - found.begin != bits // 8:
            raise ValueError(
                f"has {found.end - found.begin:,} bytes, but {code} of shape {shape} takes "
                f"{bits / 8:,g}"
            )
        return found

    @property
    def bits(self) -> int:
        """The bits of a value. They are known without ml_dtypes."""
        name = _DTYPES.get(self.code, "")
        if name.startswith(("bfloat", "float8")):
            return 16 if name == "bfloat16" else 8
        return _NARROW.get(self.code) or 8 * np.dtype(name).itemsize

    @property
    def refusal(self) -> str:
        """Why it cannot be a column; "" if it can."""
        if self.code in _NARROW:
            return f"is {self.code}, whose values take less than a byte"
        try:
            return array_refusal(self.dtype, self.shape)
        except OptionError:
            return f"is {self.code}, which needs the package ml_dtypes: pip install ml_dtypes"

    @property
    def dtype(self) -> np.dtype[Any]:
        return as_dtype("dtype", _DTYPES[self.code]).newbyteorder("<")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 2**63 for n in values)


def open_safetensors(path: str, names: Sequence[str] | None) -> ColumnsSource:
    """Map tensors whose first axes are equally long, or those in ``names``."""
    with located(path).open() as opened:
        start, tensors = _read_header(path, opened)
    file = located(path).map()
    found: dict[str, ColumnReader] = {}
    refused: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.refusal:
            refused[name] = tensor.refusal
        else:
            array = file.array(start + tensor.begin, tensor.shape, tensor.dtype)
            found[name] = ArrayColumn(array, file)
    if names is None:
        _check_table(path, found)
    columns = choose_columns(path, found, refused, names)
    again = partial(open_safetensors, path, list(columns))
    return ColumnsSource("safetensors", [path], columns, reopen=again, mapped=file)


def check_tensors(path: str) -> Iterator[tuple[int, DataError | None]]:
    """Check the header and the size of a file; yield its rows, those of the most columns."""
    with located(path).open() as opened:
        _, tensors = _read_header(path, opened)
    lengths = [tensor.shape[0] for tensor in tensors.values() if tensor.shape]
    yield common_length(lengths) if lengths else 0, None


def _check_table(path: str, found: Mapping[str, ColumnReader]) -> None:
    """Raise if the tensors of a file, such as the weights of a model, are not one table."""
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) < 2:
        return
    rows = common_length(lengths.values())
    alike = [name for name, length in lengths.items() if length == rows]
    others = {
        name: LeftOut(f"has {length:,} rows, not {rows:,}", str(found[name].field))
        for name, length in lengths.items()
        if length != rows
    }
    told = [f"{name!r} has {lengths[name]:,}" for name in (alike[0], *others)]
    raise DataError(
        Message(
            f"{path}: its tensors have different numbers of rows: {listed(told)}; choose "
            "tensors with the same number, with ",
            Option("fields", alike[:3]),
        ),
        file=path,
        left_out=others,
    )


def _read_header(path: str, file: OpenFile) -> tuple[int, dict[str, StoredTensor]]:
    """Return where the tensors begin, and what the header says about each."""

    def fail(why: str, byte: int = 0) -> DataError:
        return DataError(f"{path}: not a safetensors file: {why}", file=path, byte=byte)

    head = file.pread(8, 0)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(_MOST_HEADER, file.size - 8):
        raise fail(f"a header of {length:,} bytes in a file of {file.size:,}")
    text = file.pread(length, 8)
    if not text.startswith(b"{"):
        raise fail("its header does not begin with {", 8)
    try:
        content = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise fail(f"its header is not valid: {e}", 8) from None
    metadata = content.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise fail(f"its {_METADATA} is not text", 8)
    tensors: dict[str, StoredTensor] = {}
    for name, told in content.items():
        try:
            tensors[name] = StoredTensor.parsed(told)
        except ValueError as e:
            raise fail(f"tensor {name!r} {e}", 8) from None
    start, end = 8 + length, 0
    for name, tensor in sorted(tensors.items(), key=lambda each: (each[1].begin, each[1].end)):
        if tensor.begin != end:
            what = "overlaps the one before it" if tensor.begin < end else "has a gap before it"
            raise fail(f"tensor {name!r} at byte {start + tensor.begin:,} {what}", 8)
        end = tensor.end
    if start + end != file.size:
        raise fail(f"its tensors end at byte {start + end:,}, the file at {file.size:,}", 8)
    return start, tensors


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} is there twice")
    return found


class SafetensorsSink(Sink):
    """Writes a tensor for each column, with one row after the other along its first axis."""

    def __init__(self, output: Output, schema: Schema) -> None:
        for name, field in schema.items():
            if field.is_bytes or field.row_bytes is None:
                raise ColumnError(
                    f"column {name!r} is {field}: rows of different sizes do not fit into "
                    f"{output.target}; write .npz, .h5, .zarr or .tfrecord"
                )
            if field.dtype.name not in _CODES:
                raise ColumnError(
                    f"column {name!r} is {field}, which safetensors does not have; cast it, or "
                    f"write {output.target} as .npz, .h5 or .zarr"
                )
        if not schema or _METADATA in schema:
            raise ColumnError(f"{output.target}: there are no columns, or one is {_METADATA}")
        super().__init__(output, schema)
        self._stream = output.stream()
        # Large values first, so that all tensors are aligned.
        names = sorted(schema, key=lambda name: -schema[name].dtype.itemsize)
        self._arrays = SpooledArrays(output, {name: schema[name].dtype for name in names})
        self._rows = 0

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        self._rows += rows
        for name, column in columns.items() if rows else ():
            self._arrays.append(name, np.asarray(column))

    def end(self) -> None:
        arrays = self._arrays.finish()
        ends = dict(zip(arrays, np.cumsum([each.size for each in arrays.values()]), strict=True))
        header = {
            name: {
                "dtype": _CODES[field.dtype.name],
                "shape": [self._rows, *field.inner],
                "data_offsets": [int(ends[name]) - arrays[name].size, int(ends[name])],
            }
            for name, field in self.schema.items()
        }
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGN)
        if len(text) > _MOST_HEADER:
            raise ColumnError(f"{self.output.target}: its header has {len(text):,} bytes, too many")
        self._stream.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            for data in array.read():
                self._stream.write(data)


SINK = SinkKind(SafetensorsSink, stored=little_endian)
