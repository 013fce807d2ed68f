"""Records that are not Examples, or Examples without features."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.native import _core
from recmap.tfrecord.faults import _fields
from tests import wire

# More than the first records that a sample includes.
MANY = 4_000


def elwc(*examples: bytes, context: bytes = b"") -> bytes:
    return b"".join(wire.field(1, e) for e in examples) + (
        wire.field(2, context) if context else b""
    )


def repeated(**fields: bytes) -> bytes:
    """Make a message with the fields ``f1``, ``f2``, ... in the order given."""
    return b"".join(wire.field(int(name[1:]), content) for name, content in fields.items())


small = wire.example(label=wire.int64_list(3))
large = wire.example(query=wire.bytes_list(b"\xff" * 300), score=wire.float_list(0.5))
OTHER = "not a tf.train.Example: it looks like another protobuf message"
FOREIGN = {
    "examples": (elwc(small, small), "ExampleListWithContext"),
    "examples and a context": (elwc(large, small, context=large), "ExampleListWithContext"),
    "a context": (elwc(context=small), "ExampleListWithContext"),
    "a message": (
        wire.field(3, b"abc") + b"\x20\x05",
        r"protobuf message.*3 \(bytes\), 4 \(varint\)",
    ),
    # A variant call: field 1 is a message without a field 1.
    "a call": (
        repeated(f1=repeated(f14=b"chr20", f6=b"A") + b"\x80\x01\x07", f2=repeated(f1=b"\x00")),
        r"protobuf message.*1 \(bytes\), 2 \(bytes\)",
    ),
    "statistics": (
        repeated(f1=b"\x18\x05" + repeated(f2=b"\x08\x01" + repeated(f6=b"age"))),
        OTHER,
    ),
    # A frame: the name in its context is a message by accident, with other fields.
    "a frame": (
        repeated(f1=repeated(f1=b"100239476", f4=b"")) + b"\x10\x07",
        OTHER,
    ),
    "text that is a message": (repeated(f1=b"hi"), OTHER),
    "text below that is a message": (repeated(f1=repeated(f1=b"hi")), OTHER),
    "people": (repeated(f1=repeated(f1=repeated(f1=b"Ada", f2=b"hi"))), OTHER),
    "people by number": (
        repeated(f1=repeated(f1=repeated(f1=b"Ada")) + b"\x10\x07"),
        OTHER,
    ),
    "lists of another kind": (
        repeated(f1=b"", f2=repeated(f1=repeated(f1=b"k", f2=repeated(f1=repeated(f4=b"v"))))),
        OTHER,
    ),
    "a group": (repeated(f1=b"\x2b\x08\x01\x2c"), OTHER),
    "json": (b'{"a": [1, 2]}', "JSON"),
    "text": (b"some words", "text, beginning with 'some words'"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
    "bytes": (b"\xff\xfe\x00\x01" * 5, "20 bytes of something else, beginning with ff fe"),
}


@pytest.mark.parametrize(("record", "text"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_records_that_are_not_examples_are_described(
    packed: bool, record: bytes, text: str
) -> None:
    path = wire.write("x.tfrecord", *[record] * 3)
    if packed:
        Path(path).write_bytes(gzip.compress(Path(path).read_bytes()))
    for fields in (None, {"x": "int64 = 0"}, ["label"]):
        with pytest.raises(rm.NotExampleError, match=text) as e:
            rm.open(path, fields)
        assert "rm.tfrecord.records('x.tfrecord')" in str(e.value)
        assert (e.value.record, e.value.byte) == (0, 0)
    assert list(rm.tfrecord.records(path)) == [record] * 3


@pytest.mark.parametrize("record", [r for r, _ in FOREIGN.values()], ids=FOREIGN)
def test_a_later_record_that_is_not_an_example_is_an_error(record: bytes) -> None:
    rows = [wire.example(a=wire.int64_list(*range(i % 3))) for i in range(MANY)]
    wire.write("x.tfrecord", *rows, record, *rows[:50])
    for fields in (None, {"b": "int64[*]"}):
        with pytest.raises(rm.NotExampleError, match="record 4,000 at byte"):
            rm.open("x.tfrecord", fields)[:]
    with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
        assert len(rm.open("x.tfrecord", errors="skip")) == MANY + 50


def test_examples_without_features_are_empty_rows() -> None:
    wire.write("x.tfrecord", b"", wire.field(1, b""), wire.example(a=b""), b"")
    ds = rm.open("x.tfrecord", {"a": "int64[*]"})
    assert [row.tolist() for row in ds[:]["a"]] == [[], [], [], []]


def test_records_are_framed_while_other_threads_run() -> None:
    data = np.random.default_rng(0).integers(0, 256, 1000, np.uint8)
    framed = _core.frame([data, data[:0], data[:1]])
    assert framed == b"".join(wire.frame(bytes(d)) for d in (data, data[:0], data[:1]))
    assert _core.frame([]) == b""


WITHOUT_FEATURES = {
    "no features": wire.example(),
    "no bytes": b"",
    "no kind": wire.example(a=b""),
    "an empty sequence": wire.example() + wire.field(2, b""),
    "an empty feature list": wire.example()
    + wire.field(2, wire.field(1, repeated(f1=b"s", f2=b""))),
    "a step of no kind": wire.sequence({}, {"s": wire.feature_list(b"")}),
    "two messages in one": wire.example(a=b"") + wire.example(b=b""),
    "unknown fields": b"\x38\x07" + wire.example() + wire.field(9, b"abc"),
    "unknown fields beside a name": wire.example(a=b"") + b"\x38\x07",
    "another field 2": wire.example() + wire.field(2, b"\x01\x02\x03"),
    "a value without a name": wire.field(1, wire.field(1, wire.field(2, b""))),
}


@pytest.mark.parametrize("record", WITHOUT_FEATURES.values(), ids=WITHOUT_FEATURES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_examples_without_features_lack_every_given_field(
    record: bytes, packed: bool, indexed: bool
) -> None:
    some = [wire.example(a=wire.int64_list(i)) for i in range(3)]
    files = {"a.tfrecord": some, "b.tfrecord": [record] * 4, "c.tfrecord": some[:2]}
    for name, records in files.items():
        data = b"".join(map(wire.frame, records))
        Path(name).write_bytes(gzip.compress(data) if packed else data)
        if indexed:
            rm.index(name)
    rows: dict[str, list[list[int]]] = {"a": [[0], [1], [2]], "b": [[]] * 4, "c": [[0], [1]]}
    for order in ("abc", "bac", "cab"):
        ds = rm.open([f"{letter}.tfrecord" for letter in order])
        expected = [row for letter in order for row in rows[letter]]
        assert ds[:]["a"].tolist() == expected
        batches = [row for batch in ds.batch(2) for row in batch["a"].tolist()]
        assert batches == expected
    assert len(rm.open("b.tfrecord")) == 4
    assert list(rm.open("b.tfrecord").schema) == []


@pytest.mark.parametrize("indexed", [False, True])
def test_a_file_of_other_messages_is_refused_among_examples(indexed: bool) -> None:
    Path("a.tfrecord").write_bytes(wire.frame(wire.example(a=wire.int64_list(1))))
    Path("b.tfrecord").write_bytes(wire.frame(wire.field(7, b"abc")))
    if indexed:
        rm.index("a.tfrecord")
    with pytest.raises(rm.NotExampleError, match=r"b\.tfrecord"):
        rm.open(["a.tfrecord", "b.tfrecord"])
    with pytest.raises(rm.NotExampleError, match=r"b\.tfrecord"):
        rm.index("b.tfrecord")


def test_unknown_fields_beside_values_are_skipped() -> None:
    strange = wire.field(7, b"abc") + b"\x80\x01\x07"
    value = wire.field(1, repeated(f1=b"a", f2=wire.int64_list(5) + strange) + strange)
    lists = wire.field(1, repeated(f1=b"s", f2=wire.field(1, wire.int64_list(6) + strange)))
    records = [strange + wire.field(1, strange + value) + strange, wire.field(2, strange + lists)]
    wire.write("x.tfrecord", *records)
    ds = rm.open("x.tfrecord")
    assert ds[:]["a"].tolist() == [[5], []]
    assert [row.tolist() for row in ds[:]["s"]] == [[], [6]]


BROKEN_STEPS = {
    "list": b"\x0a\x05\x1a",
    "step": wire.field(1, b"\x1a\x05"),
    "value": wire.field(1, wire.field(2, wire.field(1, b"abc"))),
}


@pytest.mark.parametrize("steps", BROKEN_STEPS.values(), ids=BROKEN_STEPS)
def test_damaged_steps_are_damage_even_if_a_record_holds_nothing_else(steps: bytes) -> None:
    sound = wire.sequence({}, {"s": wire.feature_list(wire.float_list(1), wire.float_list(2))})
    record = wire.field(2, wire.field(1, wire.field(1, b"s") + wire.field(2, steps)))
    path = wire.write("x.tfrecord", sound, record, sound)
    with pytest.raises(rm.NotExampleError, match="message or a malformed Example") as e:
        rm.open(path)
    assert (e.value.record, e.value.byte) == (1, len(sound) + 16)
    with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
        assert rm.open(path, errors="skip")[:]["s"].tolist() == [[1, 2]] * 2
    path = wire.write("late.tfrecord", *[sound] * MANY, record, *[sound] * 50)
    with pytest.raises(rm.NotExampleError, match="column 's': the feature is malformed") as e:
        rm.open(path)[:]
    assert (e.value.record, e.value.field) == (MANY, "s")
    assert e.value.byte == (len(sound) + 16) * MANY


# The messages of an Example and a SequenceExample, and what their fields hold.
GRAMMAR = {
    "record": {1: "features", 2: "lists"},
    "features": {1: "entry"},
    "lists": {1: "list entry"},
    "entry": {1: "key", 2: "feature"},
    "list entry": {1: "key", 2: "steps"},
    "steps": {1: "step"},
    "step": {1: "value", 2: "value", 3: "value"},
    "feature": {1: "value", 2: "value", 3: "value"},
}


def found_in(data: bytes, level: str = "record") -> set[str]:
    """Return whether a message has values, fields that no Example has, and damaged steps."""
    if level == "value":
        return {"value"}
    if level == "key" and not data.startswith(b"\n"):
        return set() if is_text(data) else {"foreign"}
    found: set[str] = set()
    known = 0
    for number, kind, content in fields_of(data, level, found):
        below = GRAMMAR.get(level, {}).get(number) if kind == wire.LEN else None
        known += below is not None
        if below is not None:
            found |= found_in(content, below)
        elif level != "record":
            found.add("foreign")
    return found if known or level != "record" or not data else {"foreign"}


def fields_of(data: bytes, level: str, found: set[str]) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of a message, up to damage, which is ``found`` in steps."""
    try:
        yield from _fields(data)
    except ValueError:
        if level not in ("steps", "step"):
            raise
        found.add("damaged")


def fault_in(record: bytes) -> str | None:
    """Return what is wrong with a record, unless it is malformed otherwise than in its steps."""
    found = found_in(record)
    features = [wire.field(1, c) for number, kind, c in _fields(record) if (number, kind) == (1, 2)]
    if "damaged" in found and features:  # then field 2 is not a map
        found = found_in(b"".join(features))
    if "foreign" in found and "value" not in found:
        return "no_features"
    return "malformed" if "damaged" in found else None


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def random_message(rng: np.random.Generator, depth: int) -> bytes:
    """Make a message whose fields are mostly those of an Example."""
    parts = [b""]
    for _ in range(int(rng.integers(0, 3))):
        number = int(rng.choice([1, 1, 1, 1, 2, 3, 5]))
        if rng.random() < 0.1:
            parts.append(wire.tag(number, wire.VARINT) + wire.varint(int(rng.integers(300))))
        else:
            text = bytes(rng.choice([b"", b"hi", b"Ada", b"j\x00"]))
            below = random_message(rng, depth - 1) if depth and rng.random() < 0.9 else text
            parts.append(wire.field(number, below))
    return b"".join(parts)


@pytest.mark.slow
def test_what_is_an_example_is_decided_as_by_a_plain_reader() -> None:
    rng = np.random.default_rng(29)
    seen = Counter[str | None]()
    for i in range(5000):
        record = random_message(rng, int(rng.integers(1, 6)))
        if i % 5 == 0:
            cut = record[: rng.integers(len(record) + 1)]
            record = wire.field(2, wire.field(1, wire.field(1, b"s") + wire.field(2, cut)))
        try:
            expected = fault_in(record)
        except ValueError:
            continue  # malformed
        framed = np.frombuffer(wire.frame(record), np.uint8)
        fault = _core.inspect(framed, np.zeros(1, np.uint64), True).not_example
        code = None if fault is None else fault.code.name
        if code != "malformed" or expected == "malformed":  # or in its keys or values
            assert code == expected, record
            seen[code] += 1
    assert seen[None] > 500
    assert seen["no_features"] > 500
    assert seen["malformed"] > 10
