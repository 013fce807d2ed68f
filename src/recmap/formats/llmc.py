"""Token files of llm.c, which modded-nanogpt reads, too: 256 numbers, and then the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from recmap.errors import ColumnError, DataError
from recmap.formats.column_readers import ArrayColumn
from recmap.formats.column_source import ColumnsSource
from recmap.formats.raw import RawSink
from recmap.formats.sink import SinkKind
from recmap.local.local_path import located
from recmap.local.output import Output
from recmap.model.schema import Schema
from recmap.tfrecord.encoder import little_endian

# The first number and the version, for each dtype: tokens of GPT-2 and of Llama 3.
_KINDS = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
_HEADER = 256
_SIZE = 4 * _HEADER
# The number of tokens is an int32.
_MOST = 2**31 - 1


def open_llmc(path: str) -> ColumnsSource:
    """Map the tokens of a file as one column, a token in each row."""
    with located(path).open() as opened:
        head = opened.pread(_SIZE, 0)
    if len(head) < _SIZE:
        raise DataError(f"{path}: {len(head):,} bytes, but a header of llm.c has 1,024", file=path)
    first, version, count = np.frombuffer(head, "<i4", 3).tolist()
    dtype = next((name for name, kind in _KINDS.items() if kind == (first, version)), None)
    if dtype is None:
        raise DataError(
            f"{path}: not a token file of llm.c: it begins with {first} and version {version}, not "
            + " or ".join(f"{number} and {known} ({name})" for name, (number, known)
                          in _KINDS.items()),
            file=path,
            byte=0,
        )  # fmt: skip
    file = located(path).map()
    width = np.dtype(dtype).itemsize
    if file.size != _SIZE + count * width:
        raise DataError(
            f"{path}: its header says {count:,} tokens of {dtype}, which take "
            f"{_SIZE + count * width:,} bytes with it, but the file has {file.size:,}; copy it "
            f'again, or read what is there with format="raw", dtype="{dtype}", offset={_SIZE}',
            file=path,
            byte=8,
        )
    tokens = ArrayColumn(file.array(_SIZE, (count,), f"<u{width}"), file)
    again = partial(open_llmc, path)
    return ColumnsSource("llmc", [path], {"tokens": tokens}, reopen=again, mapped=file)


def create_llmc(output: Output, schema: Schema, *, expected: int | None = None) -> RawSink:
    """Create a file of one token in each row, after a header that says how many there are."""
    fields = list(schema.values())
    if len(fields) != 1 or fields[0].shape or fields[0].dtype.name not in _KINDS:
        raise ColumnError(
            f"{output.target}: files of llm.c hold one column of uint16 or uint32, with a "
            f"token in each row, not {schema}; make it with "
            'select("ids").cast({"ids": "uint16"}).explode("ids")'
        )
    header = partial(_header, output.target, fields[0].dtype.name)
    return RawSink(output, schema, expected, header, describe=False)


def _header(path: str, dtype: str, rows: int | None) -> bytes:
    count = rows or 0
    if count > _MOST:
        raise ColumnError(
            f"{path}: {count:,} tokens, but a file of llm.c holds at most "
            f"{_MOST:,}; write several shards"
        )
    header = np.zeros(_HEADER, "<i4")
    header[:3] = *_KINDS[dtype], count
    return header.tobytes()


def _streams(path: str, schema: Schema, options: Mapping[str, Any]) -> bool:
    """Return whether tokens are sent as they are written: the header has their number."""
    del path, schema
    return options.get("expected") is not None


SINK = SinkKind(create_llmc, streams=_streams, stored=little_endian, describes=True)
