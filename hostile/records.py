"""Random tf.train.Example records in every wire encoding protobuf allows, and what
protobuf reads from them.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import recmap as rm
from hostile.case import Case, NoReferenceError
from hostile.table import Table
from tests import wire

__all__ = [
    "Features",
    "compress",
    "expected",
    "frames",
    "parse",
    "parse_lists",
    "record",
    "sequence",
    "split",
]


def _messages() -> tuple[Any, Any]:
    """Build protobuf's Example and SequenceExample from their definition.

    The ones that TensorFlow and other packages bring cannot be loaded in one process.
    """
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="hostile")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, str, bool], map_of: str = "") -> None:
        made = file.message_type.add(name=name)
        for label, number, kind, type_name, repeated in fields:
            field = made.field.add(name=label, number=number, type=kind)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if type_name:
                field.type_name = f".hostile.{type_name}"
            if kind in (kinds.TYPE_FLOAT, kinds.TYPE_INT64):
                field.options.packed = True
        if map_of:
            entry = made.nested_type.add(name="Entry")
            entry.options.map_entry = True
            text = entry.field.add(name="key", number=1, type=kinds.TYPE_STRING)
            value = entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE)
            text.label = value.label = kinds.LABEL_OPTIONAL
            value.type_name = f".hostile.{map_of}"

    inner = kinds.TYPE_MESSAGE
    message("BytesList", ("value", 1, kinds.TYPE_BYTES, "", True))
    message("FloatList", ("value", 1, kinds.TYPE_FLOAT, "", True))
    message("Int64List", ("value", 1, kinds.TYPE_INT64, "", True))
    names = ("bytes", "float", "int64")
    lists = [(f"{n}_list", i, inner, f"{n.title()}List", False) for i, n in enumerate(names, 1)]
    message("Feature", *lists)
    feature = file.message_type[-1]
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    message("Features", ("feature", 1, inner, "Features.Entry", True), map_of="Feature")
    message("FeatureList", ("feature", 1, inner, "Feature", True))
    entries = ("feature_list", 1, inner, "FeatureLists.Entry", True)
    message("FeatureLists", entries, map_of="FeatureList")
    message("Example", ("features", 1, inner, "Features", False))
    context = ("context", 1, inner, "Features", False)
    message("SequenceExample", context, ("feature_lists", 2, inner, "FeatureLists", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"hostile.{n}") for n in ("Example", "SequenceExample"))
    example, sequence = map(message_factory.GetMessageClass, found)
    return example, sequence


_EXAMPLE, _SEQUENCE = _messages()
_INTS = [0, 1, -1, 127, 128, 2**31, -(2**31), 2**63 - 1, -(2**63), 300]


@dataclass(frozen=True)
class Features:
    """What the records of a file may hold: kinds by key, and lengths by key if fixed."""

    kinds: dict[str, str]
    lengths: dict[str, int | None]
    present: float

    @staticmethod
    def draw(case: Case) -> Features:
        keys = ["a", "b", "label", "é", "a/b", "", "x" * 130][: case.between(1, 7)]
        kinds = {key: case.pick(["bytes", "float", "int64"]) for key in keys}
        lengths = {key: case.pick([1, 1, 3, None]) for key in keys}
        return Features(kinds, lengths, case.pick([1.0, 1.0, 0.7]))


def record(case: Case, features: Features) -> bytes:
    """Make the bytes of one Example."""
    if case.chance(0.02):
        return b""
    entries = []
    for key, kind in features.kinds.items():
        if not case.chance(features.present):
            continue
        length = features.lengths[key]
        count = length if length is not None else case.between(0, 6)
        entries.append(_entry(case, key, kind, count))
        if case.chance(0.03):
            entries.append(_entry(case, key, kind, count))  # the last of equal keys counts
    order = case.rng.permutation(len(entries)) if case.chance(0.3) else range(len(entries))
    shuffled = [entries[i] for i in order]
    if case.chance(0.1):
        # A message may come in several parts, which are merged.
        half = len(shuffled) // 2
        content = wire.field(1, b"".join(shuffled[:half])) + wire.field(
            1, b"".join(shuffled[half:])
        )
    else:
        content = wire.field(1, b"".join(shuffled))
    if case.chance(0.1):
        content = _unknown(case) + content + _unknown(case)
    return content


def sequence(case: Case, features: Features) -> bytes:
    """Make the bytes of one SequenceExample: some features are lists of steps."""
    context, lists = {}, {}
    for i, (key, kind) in enumerate(features.kinds.items()):
        if not case.chance(features.present):
            continue
        length = features.lengths[key]
        if i % 2:
            context[key] = _feature(case, kind, case.between(0, 4) if length is None else length)
            continue
        counts = [
            case.between(0, 3) if length is None else length for _ in range(case.between(0, 4))
        ]
        lists[key] = wire.feature_list(*(_feature(case, kind, count) for count in counts))
    return wire.sequence(context, lists)


def _entry(case: Case, key: str, kind: str, count: int) -> bytes:
    name, value = wire.field(1, key.encode()), wire.field(2, _feature(case, kind, count))
    return wire.field(1, value + name if case.chance(0.1) else name + value)


def _feature(case: Case, kind: str, count: int) -> bytes:
    if kind == "bytes":
        strings = [case.rng.bytes(case.pick([0, 1, 3, 3, 200])) for _ in range(count)]
        return wire.bytes_list(*strings)
    if kind == "float":
        items = [_float(case) for _ in range(count)]
        return wire.field(2, _numbers(case, items, wire.FIXED32))
    values = [case.pick([*_INTS, case.between(-(2**40), 2**40)]) for _ in range(count)]
    return wire.field(3, _numbers(case, [wire.varint(value) for value in values], wire.VARINT))


def _float(case: Case) -> bytes:
    # Python makes NaNs quiet when it reads floats, so signaling ones could not be compared.
    bits = int.from_bytes(case.rng.bytes(4), "little")
    if bits >> 23 & 0xFF == 0xFF:
        bits |= 1 << 22
    return struct.pack("<I", bits)


def _numbers(case: Case, items: list[bytes], wire_type: int) -> bytes:
    """Encode values packed, one by one, or both."""
    if not items:
        return case.pick([b"", wire.field(1, b"")])
    out, rest = b"", list(items)
    while rest:
        size = len(rest) if case.chance(0.8) else case.between(1, len(rest))
        piece, rest = rest[:size], rest[size:]
        if case.chance(0.8):
            out += wire.field(1, b"".join(piece))
        else:
            out += b"".join(wire.tag(1, wire_type) + item for item in piece)
    return out


def _unknown(case: Case) -> bytes:
    number = case.pick([7, 9, 100, 5000])
    kind = case.pick(["len", "varint", "fixed32", "fixed64"])
    if kind == "len":
        return wire.field(number, case.rng.bytes(case.between(0, 300)))
    if kind == "varint":
        return wire.tag(number, wire.VARINT) + wire.varint(case.between(0, 2**60))
    if kind == "fixed32":
        return wire.tag(number, wire.FIXED32) + case.rng.bytes(4)
    return wire.tag(number, wire.FIXED64) + case.rng.bytes(8)


def frames(records: list[bytes]) -> bytes:
    return b"".join(map(wire.frame, records))


def split(content: bytes) -> list[bytes]:
    """Read the records of a plain file; NoReferenceError if its framing or a CRC is wrong."""
    records, at = [], 0
    while at < len(content):
        if at + 12 > len(content):
            raise NoReferenceError("truncated in a header")
        (length,) = struct.unpack_from("<Q", content, at)
        if struct.unpack_from("<I", content, at + 8)[0] != wire.masked(content[at : at + 8]):
            raise NoReferenceError("length CRC")
        end = at + 12 + length
        if end + 4 > len(content):
            raise NoReferenceError("truncated in the data")
        data = content[at + 12 : end]
        if struct.unpack_from("<I", content, end)[0] != wire.masked(data):
            raise NoReferenceError("data CRC")
        records.append(data)
        at = end + 4
    return records


def compress(case: Case, content: bytes, kind: str | None) -> bytes:
    """Compress to one stream, or for gzip to several members."""
    if kind is None:
        return content
    if kind == "zlib":
        return zlib.compress(content, case.pick([0, 1, 6]))
    members, rest = b"", content
    for _ in range(case.pick([1, 1, 2, 4])):
        size = case.between(0, len(rest))
        members += gzip.compress(rest[:size], case.pick([0, 1, 6]), mtime=0)
        rest = rest[size:]
    return members + gzip.compress(rest, mtime=0)


def parse(data: bytes) -> dict[str, tuple[str, list[Any]]]:
    """Return the features of a record as protobuf reads them: kind and values by key."""
    try:
        example = _EXAMPLE.FromString(data)
    except Exception as e:
        raise NoReferenceError(repr(e)) from e
    found = {}
    for key, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind is not None:
            found[key] = (kind.removesuffix("_list"), list(getattr(feature, kind).value))
    return found


def parse_lists(data: bytes) -> dict[str, tuple[str, list[list[Any]]]]:
    """Return the feature lists of a record as protobuf reads them: kind and steps by key."""
    try:
        message = _SEQUENCE.FromString(data)
    except Exception as e:
        raise NoReferenceError(repr(e)) from e
    found = {}
    for key, steps in message.feature_lists.feature_list.items():
        kinds = {step.WhichOneof("kind") for step in steps.feature} - {None}
        if kinds:
            kind = kinds.pop()
            values = [list(getattr(step, kind).value) for step in steps.feature]
            found[key] = (kind.removesuffix("_list"), values)
    return found


def _step(values: list[Any], field: rm.Field) -> Any:
    """Return a step of a feature list as its field reads it."""
    if len(field.shape) == 1:
        return values[0]
    return values if field.is_bytes else np.array(values, field.dtype)


def _steps(steps: list[list[Any]], field: rm.Field) -> Any:
    read = [_step(values, field) for values in steps]
    if field.is_bytes or (len(field.shape) > 1 and field.shape[1] is None):
        return read
    return np.array(read, field.dtype).reshape(len(read), *field.shape[1:])


def expected(records: list[bytes], schema: rm.Schema) -> Table:
    """Return the rows as an inferred schema reads them."""
    parsed = [parse(data) for data in records]
    lists = [parse_lists(data) for data in records]
    in_lists = {name for found in lists for name in found}
    table: Table = {}
    for name, field in schema.items():
        if name in in_lists:
            table[name] = [_steps(found.get(name, ("", []))[1], field) for found in lists]
            continue
        rows: list[Any] = []
        for features in parsed:
            values = features.get(name, ("", []))[1]
            if field.is_bytes:
                rows.append(values if field.shape else values[0])
            else:
                array = np.array(values, field.dtype)
                rows.append(array if field.shape else array[0])
        table[name] = rows
    return table
