"""The types of the columns, in the first record of a file.

Most dtypes and shapes cannot be told from records. So that they survive a copy of the
file, its first record begins with a field that describes them, which no tf.train message
defines and every protobuf reader skips. docs/format.md has the bytes.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, FieldMismatchError, OptionError
from recmap.model.schema import Field, Schema
from recmap.native import _core
from recmap.tfrecord.decoder import LISTS

__all__ = [
    "check_claims",
    "damaged_description",
    "description",
    "parse_description",
    "parse_schema",
    "read_description",
    "schema_texts",
]

Bytes = npt.NDArray[np.uint8]

# Field 14 of an Example or a SequenceExample, length-delimited.
_TAG = 14 << 3 | 2
_HEAD = struct.Struct("<8sI")  # magic, CRC32C of the JSON
_MAGIC = b"RECMAPSC"
# No schema takes more; one that says so is not read.
_MAX_SIZE = 64 << 20
_MAX_VARINT = 10
_MAX_FILLED = 1 << 20
_MAX_TEXT = 1 << 16


def description(schema: Schema, align: int = 0) -> bytes:
    """The field that describes these columns. With ``align`` its size is a multiple of that,
    so that what follows it stays aligned: spaces at the end of the JSON see to it.
    """
    text = json.dumps({"schema": schema_texts(schema)}, separators=(",", ":")).encode()
    made = _field(text)
    while align and len(made) % align:
        text += b" " * (-len(made) % align)
        # Where the length takes a byte more now, what is missing is almost a whole step.
        made = _field(text)
    return made


def _field(text: bytes) -> bytes:
    content = _HEAD.pack(_MAGIC, _crc(text)) + text
    size, length = bytearray(), len(content)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([_TAG, *size]) + content


def schema_texts(schema: Schema) -> dict[str, str]:
    """The fields as text, from which they can be made again."""
    return {name: _text(field) for name, field in schema.items()}


def _text(field: Field) -> str:
    text = str(field)
    try:
        again = Field.parse(text)
        same = again.fill is field.fill is None or _fill(again) == _fill(field)
    except OptionError:
        same = False
    # Few fills, as bytes that are no text, cannot be written as one.
    return text if same else str(Field(field.dtype, field.shape))


def _fill(field: Field) -> bytes | None:
    if field.fill is None:
        return None
    row = field.fill_row()
    return row if isinstance(row, bytes) else row.tobytes()


def parse_schema(texts: Any) -> Schema:
    """A schema from texts that may come from anywhere; ValueError if they are none."""
    if not isinstance(texts, dict) or not texts:
        raise ValueError("no fields")
    if not all(isinstance(text, str) and len(text) < _MAX_TEXT for text in texts.values()):
        raise ValueError("a field that is no text")
    try:
        for text in texts.values():
            base, fill, _ = text.partition(" = ")
            # Making a field that is filled takes as much memory as a row.
            if fill and Field.parse(base).count > _MAX_FILLED:
                raise ValueError("a filled field that is too large")
        schema = Schema(texts)
    except (OptionError, OverflowError, SyntaxError, MemoryError) as e:
        raise ValueError(str(e)) from None
    if any(field.ragged > 2 for field in schema.values()):
        raise ValueError("a field of more than two ragged axes")
    return schema


def read_description(record: Bytes, path: str) -> Schema | None:
    """The schema that a record's data begins with, or None if it begins otherwise. Of a long
    record the beginning is enough.
    """
    content, size = _content(record)
    if content[: len(_MAGIC)].tobytes() != _MAGIC:
        return None
    try:
        if not _HEAD.size <= size <= min(len(content), _MAX_SIZE):
            raise ValueError(f"its size cannot be {size:,} bytes")
        return _parse(content[:size].tobytes())
    except ValueError as e:
        raise damaged_description(path, 0, e) from None


def damaged_description(path: str, record: int, why: Exception) -> CorruptRecordError:
    """The error for a description that cannot be read."""
    place = "the first record" if record == 0 else f"record {record:,}"
    return CorruptRecordError(
        f"{path}: the description of its columns, in {place}, is damaged: {why} "
        '(give fields={...} with the types, or errors="skip" to do without it)',
        file=path,
        record=record,
        byte=0 if record == 0 else None,
    )


def parse_description(content: bytes) -> dict[str, str]:
    """The fields as text that a description names, which may come from anywhere; ValueError if
    it is damaged.
    """
    return schema_texts(_parse(content))


def _parse(content: bytes) -> Schema:
    if not _HEAD.size <= len(content) <= _MAX_SIZE:
        raise ValueError(f"its size cannot be {len(content):,} bytes")
    magic, crc = _HEAD.unpack_from(content)
    text = content[_HEAD.size :]
    if magic != _MAGIC or _crc(text) != crc:
        raise ValueError("CRC mismatch")
    try:
        return parse_schema(json.loads(text)["schema"])
    except (KeyError, TypeError, RecursionError) as e:
        raise ValueError(str(e)) from None


def _content(record: Bytes) -> tuple[Bytes, int]:
    """What follows the tag and the size of the field, and the size; nothing if the record
    begins otherwise.
    """
    size = 0
    if len(record) and record[0] == _TAG:
        for at, byte in enumerate(record[1 : 1 + _MAX_VARINT].tolist()):
            size |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return record[at + 2 :], size
    return record[:0], 0


def check_claims(
    schema: Schema, frame: Bytes, where: str, path: str, *, may_lack: bool = False
) -> None:
    """Raises if the first record of a file, here with its framing, cannot be one of a
    schema: so no memory is asked for what a schema merely claims, and no column is made
    up of rows that are all missing. ``may_lack`` says that features may be missing.
    """
    facts = _core.inspect(frame, np.zeros(1, np.uint64), False)
    if facts.not_example is not None:
        return  # reading says so
    keys = {(in_lists, key) for in_lists, key, _ in facts.features}
    size = len(frame)
    for name, field in schema.items():
        key = name.removeprefix(LISTS)
        there = (True, key) in keys or (key == name and (False, key) in keys)
        if not there and may_lack and (field.ragged or field.fill is not None):
            continue
        if not there and not may_lack:
            why = "the first record has no such feature"
        elif _least(field) > size:
            why = f"the first record, of {size:,} bytes, is too short for it"
        else:
            continue
        raise FieldMismatchError(
            f"{path}: {where} says {name!r} is {field}, but {why} (give fields={{...}} with the "
            "types to read it anyway)",
            file=path,
            record=0,
            field=name,
        )


def _least(field: Field) -> int:
    """The least bytes that a row takes in a record."""
    if field.ragged:
        return 0
    # An integer may take a single byte, and a string its length.
    small = field.is_bytes or field.dtype.kind in "biu"
    return field.count if small else field.count * field.dtype.itemsize


def _crc(data: bytes) -> int:
    return _core.crc32c(np.frombuffer(data, np.uint8))
