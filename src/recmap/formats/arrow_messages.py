"""Where the record batches of an Arrow file or stream are, without reading their values.

Both consist of messages: -1, the size of the metadata, the metadata (a flatbuffer), and the body.
A file begins and ends with a magic number, and a footer before its end says where its messages
are. A stream begins with the message of its schema, and ends with -1 and 0, or just ends.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recmap.errors import DataError
from recmap.machine.mapped import MappedFile

# How a file begins, and how it ends.
_MAGIC, _END = b"ARROW1\0\0", b"ARROW1"
# Kinds of messages.
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CONTINUED = b"\xff\xff\xff\xff"
# A message in the footer: where it begins, and the sizes of its metadata and its body.
_BLOCK = "qi4xq"
# Metadata is fetched together with as much of what follows.
_AHEAD = 1 << 12


@dataclass(frozen=True)
class ArrowMessage:
    """The place of a message in the file, and what it holds.

    A record batch has a number of ``rows``. ``decoded`` is how many bytes its values take, or those
    of a dictionary, and ``compressed`` whether they have to be decompressed. A schema says whether
    numbers in record batches are ``big_endian``. ``nulls`` counts those of the arrays that have
    some; arrays are numbered depth first.
    """

    begin: int
    end: int
    kind: int
    rows: int = 0
    decoded: int = 0
    compressed: bool = False
    big_endian: bool = False
    nulls: Mapping[int, int] = field(default_factory=dict)


class ArrowMessages(NamedTuple):
    """The messages of a file or a stream. ``head`` is where the schema and all else is."""

    head: tuple[int, int]
    is_file: bool
    dictionaries: list[ArrowMessage]
    batches: list[ArrowMessage]
    big_endian: bool = False

    @property
    def nulls(self) -> Mapping[int, int]:
        """The nulls of each array of the record batches; arrays are numbered depth first."""
        total = Counter[int]()
        for message in self.batches:
            total.update(message.nulls)
        return total


def read_messages(file: MappedFile) -> ArrowMessages:
    """Find the messages: by the footer of a file, or one after the other in a stream."""
    try:
        with file.hold(0, len(_MAGIC)):
            is_file = file.bytes[: len(_MAGIC)].tobytes() == _MAGIC
        return _of_file(file) if is_file else _of_stream(file)
    except (struct.error, IndexError, OverflowError) as e:
        raise _damaged(file, 0, f"its metadata cannot be read ({e})") from e


def _damaged(file: MappedFile, at: int, why: str) -> DataError:
    return DataError(
        f"{file.path}: not a valid Arrow file: at byte {at:,}: {why}", file=file.path, byte=at
    )


def _of_file(file: MappedFile) -> ArrowMessages:
    end = file.size - len(_END)
    with file.hold(end - 4, file.size):
        tail = file.bytes[end - 4 :].tobytes()
    size = int.from_bytes(tail[:4], "little", signed=True)
    if tail[4:] != _END or not 0 < size <= end - 4 - len(_MAGIC):
        raise _damaged(file, file.size, "it was cut, or its end was overwritten")
    first = end - 4 - size
    with file.hold(first, end):
        footer = _FlatTable.root(file.bytes[first:end].tobytes())
    dictionaries = [_read(file, at) for at, *_ in footer.structs(2, _BLOCK)]
    batches = [_read(file, at) for at, *_ in footer.structs(3, _BLOCK)]
    for message in batches:
        if message is None or message.kind != _BATCH:
            raise _damaged(file, first, "the footer does not say where the record batches are")
    big_endian = _is_big_endian(footer.table(1))
    return ArrowMessages(
        (first, file.size), True, _there(dictionaries), _there(batches), big_endian
    )


def _of_stream(file: MappedFile) -> ArrowMessages:
    found: list[ArrowMessage] = []
    at = 0
    while at < file.size and (message := _read(file, at)) is not None:
        found.append(message)
        at = message.end
    if not found or found[0].kind != _SCHEMA:
        raise _damaged(file, 0, "it does not begin with a schema")
    dictionaries = [message for message in found if message.kind == _DICTIONARY]
    batches = [message for message in found if message.kind == _BATCH]
    return ArrowMessages((0, found[0].end), False, dictionaries, batches, found[0].big_endian)


def _is_big_endian(schema: _FlatTable) -> bool:
    return schema.number(0, "h") == 1


def _there(messages: list[ArrowMessage | None]) -> list[ArrowMessage]:
    return [message for message in messages if message is not None]


def _read(file: MappedFile, at: int) -> ArrowMessage | None:
    """Read the metadata of a message; None at the end of a stream."""
    if not 0 <= at <= file.size - 4:
        raise _damaged(file, at, "no message")
    with file.hold(at, min(at + _AHEAD, file.size)):
        head = file.bytes[at : at + 8].tobytes()
    # Before Arrow 0.15, there was no -1.
    marked = head[:4] == _CONTINUED
    first = at + (8 if marked else 4)
    size = int.from_bytes(head[first - at - 4 : first - at], "little", signed=True)
    if size == 0:
        return None
    if size < 0 or first + size > file.size:
        raise _damaged(file, at, f"a message with {size:,} bytes of metadata")
    with file.hold(first, first + size):
        table = _FlatTable.root(file.bytes[first : first + size].tobytes())
    kind, length, body = table.number(1, "B"), table.number(3, "q"), first + size
    if not 0 <= length <= file.size - body:
        raise _damaged(file, at, f"a message of {length:,} bytes, which the file does not have")
    end = body + length
    if kind == _SCHEMA:
        return ArrowMessage(at, end, kind, big_endian=_is_big_endian(table.table(2)))
    if kind not in (_DICTIONARY, _BATCH):
        return ArrowMessage(at, end, kind)
    batch = table.table(2) if kind == _BATCH else table.table(2).table(1)
    rows, compressed = batch.number(0, "q"), batch.has(3)
    decoded = _decoded(file, batch, body, end, compressed)
    if kind == _DICTIONARY:
        nulls = _nulls(batch.structs(1, "qq"))
        return ArrowMessage(at, end, kind, 0, decoded, compressed, nulls=nulls)
    if rows < 0:
        raise _damaged(file, at, f"a record batch of {rows:,} rows")
    columns = batch.structs(1, "qq")  # the rows and the nulls of each
    if not batch.has(1) or (columns and columns[0][0] != rows):
        raise _damaged(file, at, f"a record batch of {rows:,} rows, unlike its columns")
    nothing = all(length == nulls for length, nulls in columns)
    if rows > 8 * decoded and not nothing:
        raise _damaged(file, at, f"{rows:,} rows in {decoded:,} bytes")
    return ArrowMessage(at, end, kind, rows, decoded, compressed, nulls=_nulls(columns))


def _nulls(arrays: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    return {number: nulls for number, (_, nulls) in enumerate(arrays) if nulls}


def _decoded(file: MappedFile, batch: _FlatTable, body: int, end: int, compressed: bool) -> int:
    """Add up the sizes of all buffers. Compressed ones begin with the size they will have."""
    total = 0
    for offset, length in batch.structs(2, "qq"):
        begin = body + offset
        if offset < 0 or length < 0 or begin + length > end:
            raise _damaged(file, begin, f"a buffer of {length:,} bytes outside of its message")
        size = -1
        if compressed and length >= 8:
            with file.hold(begin, begin + 8):
                (size,) = struct.unpack("<q", file.bytes[begin : begin + 8].tobytes())
        if size < -1:
            raise _damaged(file, begin, f"a buffer of {size:,} bytes")
        total += length if size == -1 else size  # -1: it was not worth compressing
    return total


class _FlatTable:
    """A table of a flatbuffer. Offsets outside of it raise ``struct.error`` or ``IndexError``."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._get("i", at)
        self._entries = (self._get("H", self._fields) - 4) // 2

    @classmethod
    def root(cls, data: bytes) -> _FlatTable:
        return cls(data, struct.unpack_from("<I", data)[0])

    def _get(self, kind: str, at: int) -> int:
        if at < 0:  # struct would count it from the end
            raise IndexError("an offset before the beginning")
        value: int = struct.unpack_from(f"<{kind}", self._data, at)[0]
        return value

    def _place(self, field: int) -> int:
        """Return where a field is; 0 if the table does not have it."""
        if field >= self._entries:
            return 0
        offset = self._get("H", self._fields + 4 + 2 * field)
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def number(self, field: int, kind: str) -> int:
        place = self._place(field)
        return self._get(kind, place) if place else 0

    def table(self, field: int) -> _FlatTable:
        place = self._place(field)
        if not place:
            raise IndexError("a part is missing")
        return _FlatTable(self._data, place + self._get("I", place))

    def structs(self, field: int, kind: str) -> list[tuple[Any, ...]]:
        place = self._place(field)
        if not place:
            return []
        first = place + self._get("I", place)
        count, size = self._get("I", first), struct.calcsize(f"<{kind}")
        if first + 4 + count * size > len(self._data):
            raise IndexError(f"{count:,} parts")
        return list(struct.iter_unpack(f"<{kind}", self._data[first + 4 :][: count * size]))
