"""Turn faults found by the native core into errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from recmap.errors import (
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    Message,
    NotExampleError,
    Option,
)
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.native import _core

__all__ = ["KIND_NAMES", "Opened", "fault_error", "fault_text", "ragged_text"]

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


def fault_text(fault: _core.Fault, schema: Schema | None = None) -> str:
    """Describe what is wrong, but not where."""
    expected, found = fault.expected, fault.found
    name = _field_name(fault, schema)
    wanted = f"the field is {schema[name]}" if schema is not None and name is not None else ""
    texts = {
        FaultCode.header_cut: f"the file ends {found} bytes into the 12-byte header of a record",
        FaultCode.length_crc: f"length CRC is 0x{found:08x}, expected 0x{expected:08x}: the length "
        "is damaged, or this is not a record",
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
        FaultCode.not_multiple: f"the feature has a size of {found:,}, not a multiple of "
        f"{expected:,}: {wanted}",
        FaultCode.out_of_range: f"the value {found:,} does not fit: {wanted}",
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
    opened: Opened | None = None,
    kinds: Collection[str] = (),
) -> DataError:
    """Make the error for a fault in one record of a file.

    ``kinds`` are the fields known to be stored in one kind of list.
    """
    name = _field_name(fault, schema)
    place = f"{file}: record {record:,} at byte {fault.offset:,}"
    text = fault_text(fault, schema)
    if fault.code in _FRAMING:
        return CorruptRecordError(
            Message(f"{place}: {text}", hint=("use ", _SKIP, " to drop it, or recmap repair")),
            file=file,
            record=record,
            byte=fault.offset,
        )
    if fault.code in _NOT_EXAMPLE:
        return NotExampleError(
            Message(
                f"{place}: {text}",
                hint=("rm.tfrecord.records() reads it raw, ", _SKIP, " drops it"),
            ),
            file=file,
            record=record,
            byte=fault.offset,
        )
    remedy = Message()
    if name and schema:
        remedy = _remedy(fault, name, schema[name], opened or Opened.of(schema), kinds)
    where = f"field {name!r}: " if name else ""
    return FieldMismatchError(
        Message(f"{place}: {where}{text}", hint=(remedy,) if remedy else ()),
        file=file,
        record=record,
        byte=fault.offset,
        field=name,
    )


def _field_name(fault: _core.Fault, schema: Schema | None) -> str | None:
    if fault.column is None or schema is None:
        return None
    names: Sequence[str] = list(schema)
    return names[fault.column]


class Opened(NamedTuple):
    """How files were opened, so that advice about one field keeps the others.

    It holds all fields that are read, those given with ``fields=``, and whether all others
    were asked for too.
    """

    names: Sequence[str]
    given: Mapping[str, Field | None]
    whole: bool

    @classmethod
    def of(cls, schema: Schema) -> Opened:
        """Return the options that give exactly these fields."""
        return cls(list(schema), dict(schema), False)

    def fields_option(self, name: str, text: str) -> Option:
        """Return the ``fields=`` that gives a field its type and keeps the others.

        >>> print(Opened(["x", "y"], {}, True).fields_option("y", "int64 = 0"))
        fields={"y": "int64 = 0", ...: None}
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
    fault: _core.Fault, name: str, field: Field, opened: Opened, kinds: Collection[str]
) -> Message:
    def typed(text: str) -> Option:
        return opened.fields_option(name, text)

    match fault.code:
        case FaultCode.missing:
            ragged = Message("make it ragged, ", typed(ragged_text(field)))
            if field.dtype.kind not in "iufb":
                return ragged
            return Message("give it a fill value, ", typed(f"{field} = 0"), ", or ", ragged)
        case FaultCode.wrong_count | FaultCode.not_multiple:
            whole = fault.code == FaultCode.not_multiple
            text = str(Field(field.dtype, (None,))) if whole else ragged_text(field)
            if text == str(field):  # already set, so the bytes are not numbers of this dtype
                return Message("read the bytes as they are, ", typed("bytes[*]"))
            return Message("for lengths that differ, ", typed(text))
        case FaultCode.wrong_kind if name in kinds or opened.given.get(name) is None:
            rest = [other for other in opened.names if other != name]
            leave = Message("leave it out", *((", ", Option("fields", rest)) if rest else ()))
            return Message(
                "the records looked at have another kind of list; ",
                leave,
                ", or drop such records, ",
                _SKIP,
            )
        case FaultCode.wrong_kind:
            return Message("give the field its type, ", typed(_TYPES.get(fault.found, "bytes")))
        case FaultCode.wrong_size | FaultCode.not_one_string:
            return Message("read the bytes as they are, ", typed("bytes[*]"))
        case FaultCode.out_of_range:
            return Message("read it as int64, ", typed(str(Field("int64", field.shape))))
        case _:
            return Message()
