"""Faults found by the native core, said in words."""

from __future__ import annotations

from collections.abc import Sequence

from recmap._core import Fault, FaultCode, Kind
from recmap.errors import (
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    NotExampleError,
)
from recmap.types import Schema

__all__ = ["KIND_NAMES", "fault_error", "fault_text"]

KIND_NAMES = {
    Kind.bytes.value: "bytes_list",
    Kind.float.value: "float_list",
    Kind.int64.value: "int64_list",
}

_FRAMING = {
    FaultCode.header_cut,
    FaultCode.length_crc,
    FaultCode.data_cut,
    FaultCode.data_crc,
    FaultCode.changed,
}
_NOT_EXAMPLE = {FaultCode.malformed, FaultCode.too_large}


def fault_text(fault: Fault, schema: Schema | None = None) -> str:
    """What is wrong, without where."""
    expected, found = fault.expected, fault.found
    name = _field_name(fault, schema)
    wanted = f"the field is {schema[name]}" if schema is not None and name is not None else ""
    texts = {
        FaultCode.header_cut: f"the file ends {found} bytes into the 12-byte header of a record",
        FaultCode.length_crc: f"length CRC is 0x{found:08x}, expected 0x{expected:08x}: the length "
        "is damaged, or this is no record",
        FaultCode.data_cut: f"the record needs {expected % 2**64:,} bytes, but only {found:,} are "
        "left",
        FaultCode.data_crc: f"data CRC is 0x{found:08x}, expected 0x{expected:08x}",
        FaultCode.changed: "the data changed while it was read",
        FaultCode.malformed: "the record is not a tf.train.Example",
        FaultCode.too_large: f"the record has {found:,} bytes, over protobuf's limit of 2 GiB",
        FaultCode.missing: f"the feature is missing and {wanted}, which has no fill value",
        FaultCode.wrong_kind: f"the feature is a {KIND_NAMES.get(found, 'list')}, but {wanted}",
        FaultCode.wrong_count: f"the feature has {found:,} values, expected {expected:,}: {wanted}",
        FaultCode.wrong_size: f"the feature has {found:,} raw bytes, expected {expected:,}: "
        f"{wanted}",
        FaultCode.not_one_string: f"the feature has {found:,} byte strings, expected one: {wanted}",
        FaultCode.not_multiple: f"the feature has a size of {found:,}, no multiple of "
        f"{expected:,}: {wanted}",
        FaultCode.out_of_range: f"the value {found:,} does not fit: {wanted}",
        FaultCode.flat_not_nested: f"the feature is no feature list, but {wanted}",
    }
    return texts[fault.code]


def fault_error(
    fault: Fault, file: str, record: int, schema: Schema | None = None, remedy: str = ""
) -> DataError:
    """The error for a fault in one record of a file."""
    name = _field_name(fault, schema)
    place = f"{file}: record {record:,} at byte {fault.offset:,}"
    text = fault_text(fault, schema)
    if fault.code in _FRAMING:
        remedy = remedy or 'use errors="skip" to drop it, or recmap repair'
        return CorruptRecordError(
            f"{place}: {text} ({remedy})", file=file, record=record, byte=fault.offset
        )
    if fault.code in _NOT_EXAMPLE:
        remedy = remedy or 'rm.tfrecord.records() reads it raw, errors="skip" drops it'
        return NotExampleError(
            f"{place}: {text} ({remedy})", file=file, record=record, byte=fault.offset
        )
    remedy = remedy or _remedy(fault, name)
    return FieldMismatchError(
        f"{place}: field {name!r}: {text}" + (f" ({remedy})" if remedy else ""),
        file=file,
        record=record,
        byte=fault.offset,
        field=name,
    )


def _field_name(fault: Fault, schema: Schema | None) -> str | None:
    if fault.column is None or schema is None:
        return None
    names: Sequence[str] = list(schema)
    return names[fault.column]


def _remedy(fault: Fault, name: str | None) -> str:
    match fault.code:
        case FaultCode.missing:
            return f'give it a fill value, fields={{"{name}": "... = 0"}}, or make it ragged, [*]'
        case FaultCode.wrong_count | FaultCode.not_multiple:
            return f'for lengths that differ, fields={{"{name}": "...[*]"}}'
        case FaultCode.wrong_kind | FaultCode.wrong_size | FaultCode.not_one_string:
            return f'give the field its type, fields={{"{name}": ...}}'
        case FaultCode.out_of_range:
            return "read it as int64"
        case _:
            return ""
