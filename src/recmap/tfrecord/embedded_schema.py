"""The schema embedded in the first record of a file.

Most dtypes and shapes cannot be inferred from records. To keep them when the file is copied,
its first record begins with a field that describes them. No tf.train message defines that
field, so every protobuf reader skips it. docs/format.md specifies the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, FieldMismatchError, Message, Option
from recmap.local.local_path import located
from recmap.model.description import Description, json_object
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.native import _core

Bytes = npt.NDArray[np.uint8]
Where: TypeAlias = Callable[[int], tuple[str, int]]
"""Tells the file of a decoded row, and its number among the records of the file."""

# Prefix of a field that is read from the feature lists, used where records also have a
# feature of the same name.
LISTS = "feature_lists/"
# Field 14 of an Example or a SequenceExample, length-delimited.
_TAG = 14 << 3 | 2
_HEAD = struct.Struct("<8sI")  # magic, CRC32C of the JSON
_MAGIC = b"RECMAPSC"
# No real schema is larger. One that claims to be is not read.
_MAX_SIZE = 64 << 20
_MAX_VARINT = 10
# The most bytes that gzip makes of one.
_MOST_INFLATED = 1032
# Number of checked descriptions to remember.
_REMEMBERED = 64


def description(
    schema: Schema, align: int = 0, table_note: Mapping[str, Any] | None = None
) -> bytes:
    """Make the field that describes these columns.

    With ``align``, its size is a multiple of that, so that what follows stays aligned. Spaces
    at the end of the JSON pad it.
    """
    content: dict[str, Any] = {"schema": Description(schema).texts}
    if table_note:
        content["table"] = dict(table_note)
    text = json.dumps(content, separators=(",", ":")).encode()
    made = _field(text)
    while align and len(made) % align:
        text += b" " * (-len(made) % align)
        # Padding may lengthen the varint of the length by a byte, which takes another round.
        made = _field(text)
    return made


def _field(text: bytes) -> bytes:
    content = _HEAD.pack(_MAGIC, checksum(text)) + text
    size, length = bytearray(), len(content)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([_TAG, *size]) + content


def parse_schema(texts: Any) -> Schema:
    """Make a schema from untrusted texts; raise a ValueError if records cannot have it."""
    schema = Description.decode(texts).schema
    if not schema:
        raise ValueError("no fields")
    if any(field.ragged > 2 for field in schema.values()):
        raise ValueError("a field of more than two ragged axes")
    if any(field.ragged and field.fill is not None for field in schema.values()):
        raise ValueError("a ragged field with a fill value")
    return schema


def read_description(record: Bytes, path: str) -> tuple[Schema, Mapping[str, Any]] | None:
    """Read the description at the start of a record's data; None if there is none.

    Return the schema of the columns, and the note of what they were in a DataFrame. The beginning
    of a long record is enough.
    """
    content, size = _content(record)
    if content[: len(_MAGIC)].tobytes() != _MAGIC:
        return None
    try:
        if not _HEAD.size <= size <= min(len(content), _MAX_SIZE):
            raise ValueError(f"its size cannot be {size:,} bytes")
        return _parse(content[:size].tobytes())
    except ValueError as e:
        raise _damaged(path, 0, e) from None


def _damaged(path: str, record: int, why: Exception) -> CorruptRecordError:
    """Make the error for a description that cannot be read."""
    place = "the first record" if record == 0 else f"record {record:,}"
    return CorruptRecordError(
        Message(
            f"{path}: the description of its columns, in {place}, is damaged: {why}",
            hint=(
                "give the types of the columns to read, ",
                Option("fields", {"NAME": ...}),
                ", or do without it, ",
                Option("errors", "skip"),
            ),
        ),
        file=path,
        record=record,
        byte=0 if record == 0 else None,
    )


def _parse(content: bytes) -> tuple[Schema, Mapping[str, Any]]:
    if not _HEAD.size <= len(content) <= _MAX_SIZE:
        raise ValueError(f"its size cannot be {len(content):,} bytes")
    magic, crc = _HEAD.unpack_from(content)
    text = content[_HEAD.size :]
    if magic != _MAGIC or checksum(text) != crc:
        raise ValueError("CRC mismatch")
    known = json_object(text)
    table = known.get("table")
    return parse_schema(known.get("schema")), table if isinstance(table, dict) else {}


def _content(record: Bytes) -> tuple[Bytes, int]:
    """Return the bytes after the field's tag and size, and the size.

    The bytes are empty if the record begins with another field.
    """
    size = 0
    if len(record) and record[0] == _TAG:
        for at, byte in enumerate(record[1 : 1 + _MAX_VARINT].tolist()):
            size |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return record[at + 2 :], size
    return record[:0], 0


class EmbeddedSchemas:
    """Checks that schemas embedded in later records agree with the one in use.

    A concatenated file (``cat a.tfrecord b.tfrecord``) has one at the start of each original
    file. ``texts`` maps each field to the type in use, and ``origin`` says where the types come
    from. With ``skip``, damaged schemas are ignored.
    """

    def __init__(self, texts: Mapping[str, str], origin: str, *, skip: bool = False) -> None:
        self._texts, self._origin, self._skip = dict(texts), origin, skip
        self._checked = set[bytes]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": set()}

    def select(self, names: Sequence[str]) -> EmbeddedSchemas:
        """Return the same check for these fields only."""
        texts = {name: text for name, text in self._texts.items() if name in names}
        return EmbeddedSchemas(texts, self._origin, skip=self._skip)

    def met(self, found: Sequence[tuple[bytes, int]], where: Where) -> None:
        """Raise if a schema disagrees. Each comes with the first row that has it."""
        for content, row in sorted(found, key=lambda one: one[1]):
            if content in self._checked:
                continue
            self._check(content, *where(row))
            if len(self._checked) < _REMEMBERED:
                self._checked.add(content)

    def _check(self, content: bytes, file: str, record: int) -> None:
        try:
            texts = Description(_parse(content)[0]).texts
        except ValueError as e:
            if self._skip:
                return
            raise _damaged(file, record, e) from None
        for name, text in self._texts.items():
            if not reads(text, texts.get(name, text)):
                raise FieldMismatchError(
                    Message(
                        f"{file}: record {record:,} says {name!r} is {texts[name]}, but the rows "
                        f"are read as {text} ({self._origin}); files of different types were put "
                        "together",
                        hint=(
                            "open the original files, or give the types of the columns to read, ",
                            Option("fields", {name: ...}),
                        ),
                    ),
                    file=file,
                    record=record,
                    field=name,
                )


def reads(text: str, other: str) -> bool:
    """Return whether columns of one type are read right as another: it may have more nulls.

    >>> reads("int64?", "int64"), reads("int64", "int64?")
    (True, False)
    """
    return other in (text, text.removesuffix("?"))


def check_claims(
    schema: Schema, frame: Bytes, where: str, path: str, *, may_lack: bool = False
) -> None:
    """Raise if the first record of a file, given with its framing, cannot fit a schema.

    This check prevents allocating memory for what a schema merely claims, and columns that
    consist only of missing values. With ``may_lack``, features may be missing; those of nullable
    fields always may.
    """
    facts = _core.inspect(frame, np.zeros(1, np.uint64), False)
    if facts.not_example is not None:
        return  # reading reports the fault
    keys = {(in_lists, key) for in_lists, key, _ in facts.features}
    size = len(frame)
    for name, field in schema.items():
        key = name.removeprefix(LISTS)
        there = (True, key) in keys or (key == name and (False, key) in keys)
        if not there and may_lack and (field.ragged or field.fill is not None):
            continue
        if not there and field.nullable:
            if _least(field) <= _most(path):
                continue
            why = "the file is too short for it"
        elif not there and not may_lack:
            why = "the first record has no such feature"
        elif _least(field) > size:
            why = f"the first record, of {size:,} bytes, is too short for it"
        else:
            continue
        raise FieldMismatchError(
            Message(
                f"{path}: {where} says {name!r} is {field}, but {why}",
                hint=(
                    "to read it anyway, give the types of the columns to read, ",
                    Option("fields", {name: ...}),
                ),
            ),
            file=path,
            record=0,
            field=name,
        )


def _most(path: str) -> int:
    """Return the most bytes that a record of a file may have, which may be compressed."""
    return min(located(path).stat().size * _MOST_INFLATED, _core.MAX_MESSAGE_SIZE)


def _least(field: Field) -> int:
    """Return the fewest bytes that a row takes in a record."""
    if field.ragged:
        return 0
    # An integer may take a single byte, and an empty string takes one for its length.
    small = field.is_bytes or field.dtype.kind in "biu"
    return field.count if small else field.count * field.dtype.itemsize


def checksum(data: bytes) -> int:
    """Return the CRC32C of some bytes."""
    return _core.crc32c(np.frombuffer(data, np.uint8))
