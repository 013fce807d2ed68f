"""Turn faults found by the native core into errors, and describe records that are not Examples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    Message,
    NotExampleError,
    Option,
)
from recmap.model.field import Field
from recmap.model.media import media_kind
from recmap.model.schema import Schema
from recmap.native import _core

FaultCode = _core.FaultCode

KIND_NAMES = {
    _core.Kind.bytes.value: "bytes_list",
    _core.Kind.float.value: "float_list",
    _core.Kind.int64.value: "int64_list",
}

# The type that reads any list of this kind.
_TYPES = {
    _core.Kind.bytes.value: "bytes[*]",
    _core.Kind.float.value: "float32[*]",
    _core.Kind.int64.value: "int64[*]",
}

_SKIP = Option("errors", "skip")
_FRAMING = {
    FaultCode.header_cut,
    FaultCode.length_crc,
    FaultCode.data_cut,
    FaultCode.data_crc,
    FaultCode.changed,
}
_NOT_EXAMPLE = {FaultCode.malformed, FaultCode.no_features, FaultCode.too_large}
# Larger records are judged by their beginning.
_LARGEST = 16 << 20
_FIELDS_NAMED = 8
_MAGIC = {
    b"\x93NUMPY": "a .npy file",
    b"PK\x03\x04": "a zip file",
    b"\x1f\x8b\x08": "gzip data",
    b"\x80\x04\x95": "a pickle",
    b"\x80\x05\x95": "a pickle",
}
_WIRE_TYPES = {0: "varint", 1: "64-bit", 2: "bytes", 5: "32-bit"}


def fault_text(fault: _core.Fault, schema: Schema | None = None) -> str:
    """Describe what is wrong, but not where."""
    expected, found = fault.expected, fault.found
    name = _field_name(fault, schema)
    wanted = f"the column is {schema[name]}" if schema is not None and name is not None else ""
    texts = {
        FaultCode.header_cut: f"the file ends {found} bytes into the 12-byte header of a record",
        FaultCode.length_crc: f"length CRC is 0x{found:08x}, expected 0x{expected:08x}: the length "
        "is damaged, or this is not a record",
        FaultCode.data_cut: f"the record needs {expected % 2**64:,} bytes, but only {found:,} are "
        "left",
        FaultCode.data_crc: f"data CRC is 0x{found:08x}, expected 0x{expected:08x}",
        FaultCode.changed: "the data changed while it was read",
        FaultCode.malformed: "the feature is malformed"
        if name
        else "the record is not a tf.train.Example",
        FaultCode.too_large: f"the record has {found:,} bytes, over protobuf's limit of 2 GiB",
        FaultCode.missing: f"the feature is missing and {wanted}, which has no fill value",
        FaultCode.wrong_kind: f"the feature is a {KIND_NAMES.get(found, 'list')}, but {wanted}",
        FaultCode.wrong_count: f"the feature has {found:,} values, expected {expected:,}: {wanted}",
        FaultCode.wrong_size: f"the feature has {found:,} raw bytes, expected {expected:,}: "
        f"{wanted}",
        FaultCode.not_one_string: f"the feature has {found:,} byte strings, expected one: {wanted}",
        FaultCode.not_multiple: f"the feature has a size of {found:,}, not a multiple of "
        f"{expected:,}: {wanted}",
        FaultCode.out_of_range: f"the value {found:,} does not fit: {wanted}",
        FaultCode.not_utf8: f"the string is not UTF-8, but {wanted}",
        FaultCode.flat_not_nested: f"the feature is not a feature list, but {wanted}",
        FaultCode.no_features: "the record is a protobuf message, but not a tf.train.Example: it "
        "has no features",
        FaultCode.unknown_feature: "a feature is not in the schema, and is of several kinds",
    }
    return texts[fault.code]


def fault_error(
    fault: _core.Fault,
    file: str,
    record: int,
    schema: Schema | None = None,
    *,
    choice: FieldChoice | None = None,
    kinds: Collection[str] = (),
    base: int | None = None,
) -> DataError:
    """Make the error for a fault in one record of a file.

    ``kinds`` are the fields known to be stored in one kind of list. ``base`` is where the bytes
    with the fault begin in the inflated data of a compressed file.
    """
    name = _field_name(fault, schema)
    byte = fault.offset + (base or 0)
    inflated = "" if base is None else " of the inflated data"
    place = f"{file}: record {record:,} at byte {byte:,}{inflated}"
    text = fault_text(fault, schema)
    if fault.code in _FRAMING:
        if base is not None and record == byte == 0:
            text += "; the inflated data holds no TFRecord framing"
        return CorruptRecordError(
            Message(f"{place}: {text}", hint=("use ", _SKIP, " to drop it, or recmap repair")),
            file=file,
            record=record,
            byte=byte,
        )
    where = f"column {name!r}: " if name else ""
    if fault.code in _NOT_EXAMPLE:
        return NotExampleError(
            Message(
                f"{place}: {where}{text}",
                hint=("rm.tfrecord.records() reads it raw, ", _SKIP, " drops it"),
            ),
            file=file,
            record=record,
            byte=byte,
            field=name,
        )
    remedy = Message()
    if name and schema:
        remedy = _remedy(fault, name, schema[name], choice or FieldChoice.of(schema), kinds)
    return FieldMismatchError(
        Message(f"{place}: {where}{text}", hint=(remedy,) if remedy else ()),
        file=file,
        record=record,
        byte=byte,
        field=name,
    )


def _field_name(fault: _core.Fault, schema: Schema | None) -> str | None:
    if fault.column is None or schema is None:
        return None
    names: Sequence[str] = list(schema)
    return names[fault.column]


class FieldChoice(NamedTuple):
    """Which fields are read, so that advice about one field keeps the others.

    It holds all fields that are read, those given with ``fields=``, and whether all others
    were asked for too.
    """

    names: Sequence[str]
    given: Mapping[str, Field | None]
    whole: bool

    @classmethod
    def of(cls, schema: Schema) -> FieldChoice:
        """Return the options that give exactly these fields."""
        return cls(list(schema), dict(schema), False)

    def fields_option(self, name: str, text: str) -> Option:
        """Return the ``columns=`` that gives a column its type and keeps the others.

        >>> print(FieldChoice(["x", "y"], {}, True).fields_option("y", "int64 = 0"))
        columns={"y": "int64 = 0", ...: None}
        """
        given: dict[Any, str | None] = {
            n: f if f is None else str(f) for n, f in self.given.items()
        }
        return Option("fields", {**given, name: text, **({...: None} if self.whole else {})})


def ragged_text(field: Field) -> str:
    """Return the field as text, with rows of any length."""
    below = field.shape[1:]
    return str(Field(field.dtype, (None, *(below if 0 not in below else ()))))


def _remedy(
    fault: _core.Fault, name: str, field: Field, choice: FieldChoice, kinds: Collection[str]
) -> Message:
    def typed(text: str) -> Option:
        return choice.fields_option(name, text)

    match fault.code:
        case FaultCode.missing:
            ragged = Message("make it ragged, ", typed(ragged_text(field)))
            null = Message("read it as null, ", typed(f"{field}?"))
            if field.dtype.kind not in "iufb":
                return Message(null, ", or ", ragged)
            return Message(null, ", give it a fill value, ", typed(f"{field} = 0"), ", or ", ragged)
        case FaultCode.wrong_count | FaultCode.not_multiple:
            whole = fault.code == FaultCode.not_multiple
            text = str(Field(field.dtype, (None,))) if whole else ragged_text(field)
            if text == str(field):  # already set, so the bytes are not numbers of this dtype
                return Message("read the bytes as they are, ", typed("bytes[*]"))
            return Message("for lengths that differ, ", typed(text))
        case FaultCode.wrong_kind if name in kinds or choice.given.get(name) is None:
            rest = [other for other in choice.names if other != name]
            leave = Message("leave it out", *((", ", Option("fields", rest)) if rest else ()))
            return Message(
                "the records looked at have another kind of list; ",
                leave,
                ", or drop such records, ",
                _SKIP,
            )
        case FaultCode.wrong_kind:
            return Message("give the column its type, ", typed(_TYPES.get(fault.found, "bytes")))
        case FaultCode.wrong_size | FaultCode.not_one_string:
            return Message("read the bytes as they are, ", typed("bytes[*]"))
        case FaultCode.not_utf8:
            return Message("read the bytes as they are, ", typed(str(field.as_bytes())))
        case FaultCode.out_of_range:
            return Message("read it as int64, ", typed(str(Field("int64", field.shape))))
        case _:
            return Message()


def describe_record(record: npt.NDArray[np.uint8], malformed: bool = False) -> str:
    """Describe what the bytes of a record look like.

    It may be a malformed Example only if the native core found it ``malformed``.

    >>> describe_record(np.frombuffer(b'{"a": 1}', np.uint8))
    'it looks like JSON'
    >>> describe_record(np.frombuffer(b"GIF89a...", np.uint8))
    'it looks like a GIF image'
    """
    data = record[:_LARGEST].tobytes()
    media = media_kind(data)
    if media is not None:
        what = f"a {media.name} image" if media.is_image else f"{media.name} audio"
        return f"it looks like {what}"
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return f"it looks like {name}"
    if len(record) <= _LARGEST:
        if _is_elwc(data):
            return "it looks like an ExampleListWithContext (ELWC, of TensorFlow Ranking)"
        try:
            fields = sorted({(number, kind) for number, kind, _ in _fields(data)})
        except ValueError:
            pass
        else:
            texts = [f"{number} ({_WIRE_TYPES[kind]})" for number, kind in fields[:_FIELDS_NAMED]]
            more = ", ..." if len(fields) > _FIELDS_NAMED else ""
            example = malformed and {*fields} <= {(1, 2), (2, 2)}
            what = f"another protobuf message{' or a malformed Example' if example else ''}"
            return f"it looks like {what}, with the fields {', '.join(texts)}{more}"
    return _describe_bytes(data)


def _describe_bytes(data: bytes) -> str:
    try:
        text = data[:1024].decode("utf-8", "strict" if len(data) <= 1024 else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if not text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable():
        return f"it holds {len(data):,} bytes of something else, beginning with {data[:8].hex(' ')}"
    if text.lstrip()[:1] in ("{", "["):
        return "it looks like JSON"
    return f"it looks like text, beginning with {text[:20]!r}"


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, wire type and content of each field of a message.

    Raise a ValueError if the bytes are not a message. Groups are obsolete and not supported.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or number >= 1 << 29 or kind not in _WIRE_TYPES:
            raise ValueError
        if kind == 0:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        size, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + size > len(data):
            raise ValueError
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError


def _is_elwc(data: bytes) -> bool:
    """Return whether the bytes are Examples (field 1), with or without a context (field 2)."""
    try:
        parts = [(number, content) for number, kind, content in _fields(data) if kind == 2]
        whole = len(parts) == sum(1 for _ in _fields(data))
        named = [_features(content) for number, content in parts if number in (1, 2)]
    except ValueError:
        return False
    return whole and len(named) == len(parts) and sum(named) > 0


def _features(example: bytes) -> int:
    """Count the features of an Example; raise a ValueError if the bytes are not one."""
    count = 0
    for number, kind, features in _fields(example):
        if (number, kind) != (1, 2):
            raise ValueError
        for entry_number, entry_kind, entry in _fields(features):
            if (entry_number, entry_kind) != (1, 2):
                raise ValueError
            parts = {n: content for n, k, content in _fields(entry) if k == 2}
            parts.get(1, b"").decode()
            if 2 not in parts or not all(
                n in (1, 2, 3) and k == 2 for n, k, _ in _fields(parts[2])
            ):
                raise ValueError
            count += 1
    return count
