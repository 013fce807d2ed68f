"""Arrow structs made by hand, with mistakes: each is refused, and none crashes the interpreter."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

import recmap as rm
from recmap.model.arrow import ArrowBatches, ArrowReader
from recmap.model.schema import Schema


class CSchema(ctypes.Structure):
    pass


class CArray(ctypes.Structure):
    pass


class CStream(ctypes.Structure):
    pass


Struct = TypeVar("Struct", CSchema, CArray)

ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(CSchema))
ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(CArray))
ReleaseStream = ctypes.CFUNCTYPE(None, ctypes.POINTER(CStream))
GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(CStream), ctypes.POINTER(CSchema))
GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(CStream), ctypes.POINTER(CArray))
GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CStream))

CSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(CSchema))),
    ("dictionary", ctypes.POINTER(CSchema)),
    ("release", ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
CArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(CArray))),
    ("dictionary", ctypes.POINTER(CArray)),
    ("release", ReleaseArray),
    ("private_data", ctypes.c_void_p),
]
CStream._fields_ = [
    ("get_schema", GetSchema),
    ("get_next", GetNext),
    ("get_last_error", GetError),
    ("release", ReleaseStream),
    ("private_data", ctypes.c_void_p),
]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


# The callbacks of a library are there as long as the program runs. Those of ctypes would be gone
# with their objects, perhaps before an array that calls them.
KEPT: list[Any] = []


class Producer:
    """Makes structs, keeps them alive, and counts how often each is released."""

    def __init__(self) -> None:
        KEPT.append(self)
        self.released: list[int] = []
        self._kept: list[Any] = []
        self._release_schema = ReleaseSchema(self._release)
        self._release_array = ReleaseArray(self._release)

    def _release(self, pointer: Any) -> None:
        self.released.append(ctypes.addressof(pointer.contents))
        pointer.contents.release = type(pointer.contents.release)()

    def schema(
        self, format: bytes, name: bytes = b"x", children: Any = (), **changes: Any
    ) -> CSchema:
        pointers = (ctypes.POINTER(CSchema) * max(1, len(children)))(*map(ctypes.pointer, children))
        made = CSchema(format, name, None, 2, len(children), pointers)
        made.release = self._release_schema
        return self._changed(made, changes, pointers)

    def array(self, length: int, buffers: Any = (), children: Any = (), **changes: Any) -> CArray:
        data = [each if each is None else np.ascontiguousarray(each) for each in buffers]
        at = [each if each is None else each.ctypes.data for each in data]
        places = (ctypes.c_void_p * max(1, len(data)))(*at)
        pointers = (ctypes.POINTER(CArray) * max(1, len(children)))(*map(ctypes.pointer, children))
        made = CArray(length, 0, 0, len(data), len(children), places, pointers)
        made.release = self._release_array
        return self._changed(made, changes, data, places, pointers)

    def _changed(self, made: Struct, changes: dict[str, Any], *kept: Any) -> Struct:
        for name, value in changes.items():
            setattr(made, name, ctypes.pointer(value) if name == "dictionary" else value)
        self._kept += [made, changes, *kept]
        return made

    def table(self, schema: CSchema, array: CArray) -> Any:
        """Return an object with a table of one column."""
        return self.source(
            self.schema(b"+s", b"", [schema]), self.array(array.length, [None], [array])
        )

    def source(self, schema: CSchema, array: CArray) -> Any:
        made = (
            new_capsule(ctypes.addressof(schema), b"arrow_schema", None),
            new_capsule(ctypes.addressof(array), b"arrow_array", None),
        )

        class Source:
            def __arrow_c_array__(self, requested_schema: object = None) -> Any:
                return made

        self._kept.append((schema, array))
        return Source()


@pytest.fixture
def make() -> Producer:
    return Producer()


def read(source: Any, **options: Any) -> list[Any]:
    return list(ArrowReader(source, **options).batches())


NUMBERS = np.arange(8, dtype=np.int64)
ENDS = np.array([0, 1, 2, 3], np.int32)


def test_a_sound_table_is_read_and_released_once(make: Producer) -> None:
    source = make.table(make.schema(b"l"), make.array(4, [None, NUMBERS], offset=2))
    batches = read(source)
    assert batches[0]["x"].tolist() == [2, 3, 4, 5]
    assert len(make.released) == 1  # the schema
    del batches
    gc.collect()
    # A root is moved out before it is released, and releases its children by itself.
    assert len(make.released) == 2


def without_format(schema: CSchema) -> CSchema:
    schema.format = None
    return schema


def without_children(schema: CSchema) -> CSchema:
    schema.children = ctypes.POINTER(ctypes.POINTER(CSchema))()
    return schema


SCHEMAS: dict[str, Callable[[Producer], CSchema]] = {
    "no format": lambda make: without_format(make.schema(b"l")),
    "an unknown format": lambda make: make.schema(b"?!"),
    "an empty format": lambda make: make.schema(b""),
    "a format that is not text": lambda make: make.schema(b"\xff\xfe"),
    "a name that is not text": lambda make: make.schema(b"l", b"\xff"),
    "a released schema": lambda make: make.schema(b"l", release=ReleaseSchema()),
    "a negative number of children": lambda make: make.schema(b"+l", n_children=-1),
    "too many children": lambda make: make.schema(b"+l", n_children=2**62),
    "no children": lambda make: without_children(make.schema(b"+l", n_children=1)),
    "a child that is nowhere": lambda make: make.schema(b"+s", n_children=1),
    "a list without items": lambda make: make.schema(b"+l"),
    "a list of two": lambda make: make.schema(b"+l", b"x", [make.schema(b"l"), make.schema(b"l")]),
    "a size that is no number": lambda make: make.schema(b"+w:x", b"x", [make.schema(b"l")]),
    "a negative size": lambda make: make.schema(b"+w:-1", b"x", [make.schema(b"l")]),
    "a huge size": lambda make: make.schema(b"+w:" + b"9" * 40, b"x", [make.schema(b"l")]),
    "a huge binary": lambda make: make.schema(b"w:" + b"9" * 18),
    "a decimal without numbers": lambda make: make.schema(b"d:"),
    "a decimal of odd width": lambda make: make.schema(b"d:5,0,77"),
    "metadata of a negative size": lambda make: make.schema(b"l", metadata=b"\xff\xff\xff\xff"),
    "a dictionary of floats": lambda make: make.schema(b"g", dictionary=make.schema(b"l")),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_damaged_schema_is_refused(make: Producer, case: str) -> None:
    source = make.table(SCHEMAS[case](make), make.array(4, [None, NUMBERS]))
    with pytest.raises(rm.DataError):
        read(source)


def test_types_that_contain_themselves_are_refused(make: Producer) -> None:
    circle = make.schema(b"+l", b"x", [make.schema(b"l")])
    circle.children[0] = ctypes.pointer(circle)
    with pytest.raises(rm.DataError, match="64 levels"):
        read(make.table(circle, make.array(1, [None, ENDS], [make.array(1, [None, NUMBERS])])))
    both = make.schema(b"+s", b"x", [make.schema(b"l"), make.schema(b"l")])
    both.children[0] = both.children[1] = ctypes.pointer(both)
    with pytest.raises(rm.DataError, match="64 levels"):
        read(make.table(both, make.array(1, [None], [])))


def test_arrays_that_contain_themselves_are_refused(make: Producer) -> None:
    kind = make.schema(b"+l", b"x", [make.schema(b"l")])
    circle = make.array(1, [None, ENDS], [make.array(1, [None, NUMBERS])])
    circle.children[0] = ctypes.pointer(circle)
    with pytest.raises(rm.DataError, match="64 levels"):
        read(make.table(kind, circle))


def without_buffers(array: CArray) -> CArray:
    array.buffers = ctypes.POINTER(ctypes.c_void_p)()
    return array


ARRAYS: dict[str, tuple[bytes, Callable[[Producer], CArray]]] = {
    "a negative length": (b"l", lambda make: make.array(-1, [None, NUMBERS])),
    "a negative offset": (b"l", lambda make: make.array(1, [None, NUMBERS], offset=-1)),
    "a huge offset": (b"l", lambda make: make.array(1, [None, NUMBERS], offset=2**63 - 1)),
    "a huge length": (b"l", lambda make: make.array(2**62, [None, NUMBERS])),
    "more nulls than rows": (b"l", lambda make: make.array(1, [None, NUMBERS], null_count=2)),
    "a wrong number of nulls": (b"l", lambda make: make.array(1, [None, NUMBERS], null_count=-2)),
    "nulls without a bitmap": (b"l", lambda make: make.array(2, [None, NUMBERS], null_count=1)),
    "a missing buffer": (b"l", lambda make: make.array(2, [None, None])),
    "a buffer too few": (b"l", lambda make: make.array(2, [None])),
    "no buffers": (b"l", lambda make: make.array(2, [])),
    "no place of buffers": (b"l", lambda make: without_buffers(make.array(2, [None, NUMBERS]))),
    "a negative number of buffers": (b"l", lambda make: make.array(2, [None], n_buffers=-1)),
    "a negative number of children": (b"l", lambda make: make.array(2, [None], n_children=-1)),
    "a released array": (b"l", lambda make: make.array(1, [NUMBERS], release=ReleaseArray())),
    "strings without offsets": (b"u", lambda make: make.array(2, [None, None, NUMBERS])),
    "strings without data": (b"u", lambda make: make.array(3, [None, ENDS, None])),
    "strings that descend": (b"u", lambda make: make.array(3, [None, ENDS[::-1], NUMBERS])),
    "strings before the data": (b"u", lambda make: make.array(3, [None, ENDS - 1, NUMBERS])),
    "huge strings": (
        b"U",
        lambda make: make.array(1, [None, np.array([0, 2**62]), NUMBERS]),
    ),
    "views without buffers": (b"vu", lambda make: make.array(1, [None])),
    "views of a negative size": (
        b"vz",
        lambda make: make.array(1, [None, np.array([-1, 0, 0, 0], "i4"), np.zeros(1, "i8")]),
    ),
    "views of a buffer that is not there": (
        b"vz",
        lambda make: make.array(1, [None, np.array([20, 0, 5, 0], "i4"), np.zeros(1, "i8")]),
    ),
    "views behind the end of a buffer": (
        b"vz",
        lambda make: make.array(1, [None, np.array([20, 0, 0, 50], "i4"), NUMBERS, np.array([64])]),
    ),
    "views of a buffer of negative size": (
        b"vz",
        lambda make: make.array(1, [None, np.array([20, 0, 0, 0], "i4"), NUMBERS, np.array([-5])]),
    ),
    "decimals without data": (b"d:38,0", lambda make: make.array(1, [None, None])),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_a_damaged_array_is_refused(make: Producer, case: str) -> None:
    form, array = ARRAYS[case]
    with pytest.raises(rm.DataError, match="amaged"):
        read(make.table(make.schema(form), array(make)))


LISTS: dict[str, tuple[bytes, Callable[[Producer], CArray]]] = {
    "no items": (b"+l", lambda make: make.array(2, [None, ENDS])),
    "items behind the end": (
        b"+l",
        lambda make: make.array(3, [None, ENDS], [make.array(2, [None, NUMBERS])]),
    ),
    "offsets that descend": (
        b"+L",
        lambda make: make.array(2, [None, np.array([0, 2, 1])], [make.array(2, [None, NUMBERS])]),
    ),
    "too few items of a fixed list": (
        b"+w:3",
        lambda make: make.array(3, [None], [make.array(8, [None, NUMBERS])]),
    ),
    "too few items behind an offset": (
        b"+w:2",
        lambda make: make.array(3, [None], [make.array(8, [None, NUMBERS])], offset=2),
    ),
    "a huge fixed list": (
        b"+w:1000000000000",
        lambda make: make.array(2**61, [None], [make.array(8, [None, NUMBERS])]),
    ),
    "a view before its items": (
        b"+vl",
        lambda make: make.array(
            1, [None, ENDS[:1] - 1, ENDS[1:]], [make.array(4, [None, NUMBERS])]
        ),
    ),
    "a view behind its items": (
        b"+vL",
        lambda make: make.array(
            1, [None, np.array([2**62]), np.array([2**62])], [make.array(4, [None, NUMBERS])]
        ),
    ),
    "a view of a negative size": (
        b"+vL",
        lambda make: make.array(
            1, [None, np.array([1]), np.array([-1])], [make.array(4, [None, NUMBERS])]
        ),
    ),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_damaged_list_is_refused(make: Producer, case: str) -> None:
    form, array = LISTS[case]
    with pytest.raises(rm.DataError, match="amaged"):
        read(make.table(make.schema(form, b"x", [make.schema(b"l", b"item")]), array(make)))


@pytest.mark.parametrize("index", [-1, 2, 127])
def test_an_index_outside_of_a_dictionary_is_refused(make: Producer, index: int) -> None:
    indices = np.array([0, index], np.int8)
    kind = make.schema(b"c", dictionary=make.schema(b"l"))
    array = make.array(2, [None, indices], dictionary=make.array(2, [None, NUMBERS]))
    with pytest.raises(rm.DataError, match="'x', row 1: damaged Arrow data: an index"):
        read(make.table(kind, array))


def test_a_dictionary_that_is_missing_is_noticed(make: Producer) -> None:
    kind = make.schema(b"l", dictionary=make.schema(b"l"))
    with pytest.raises(rm.DataError, match="a dictionary is missing"):
        read(make.table(kind, make.array(2, [None, NUMBERS])))


def test_columns_shorter_than_the_table_are_refused(make: Producer) -> None:
    table = make.array(5, [None], [make.array(4, [None, NUMBERS])])
    with pytest.raises(rm.DataError, match="damaged"):
        read(make.source(make.schema(b"+s", b"", [make.schema(b"l")]), table))
    fewer = make.array(4, [None], [])
    with pytest.raises(rm.DataError, match="no child"):
        read(make.source(make.schema(b"+s", b"", [make.schema(b"l")]), fewer))


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"{",
        b"[]",
        b'{"shape": 3}',
        b'{"shape": [2, 3]}',
        b'{"shape": [2, -2]}',
        b'{"shape": [2.0, 2]}',
        b'{"shape": ["2"]}',
        b'{"shape": [2, 2], "permutation": [0, 0]}',
    ],
)
def test_damaged_shapes_of_tensors_are_refused(make: Producer, metadata: bytes) -> None:
    pairs = [(b"ARROW:extension:name", b"arrow.fixed_shape_tensor")]
    pairs.append((b"ARROW:extension:metadata", metadata))
    packed = np.int32(len(pairs)).tobytes()
    for pair in pairs:
        for part in pair:
            packed += np.int32(len(part)).tobytes() + part
    held = ctypes.create_string_buffer(packed, len(packed))
    kind = make.schema(b"+w:4", b"x", [make.schema(b"l", b"item")])
    ctypes.memmove(
        ctypes.addressof(kind) + CSchema.metadata.offset,
        ctypes.byref(ctypes.c_void_p(ctypes.addressof(held))),
        ctypes.sizeof(ctypes.c_void_p),
    )
    array = make.array(2, [None], [make.array(8, [None, NUMBERS])])
    with pytest.raises(rm.FieldMismatchError, match="'x'"):
        read(make.table(kind, array))


def test_capsules_of_another_kind_are_refused(make: Producer) -> None:
    schema, array = make.schema(b"l"), make.array(1, [None, NUMBERS])
    wrong = make.source(schema, array)

    class Swapped:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return wrong.__arrow_c_array__()[::-1]

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return wrong.__arrow_c_array__()[0]

    for source in (Swapped(), Stream()):
        with pytest.raises(rm.DataError, match="apsule"):
            read(source)


def test_a_stream_that_fails_gives_its_reason(make: Producer) -> None:
    root = make.schema(b"+s", b"", [make.schema(b"l")])
    calls, reason = [], ctypes.create_string_buffer(b"out of ink")

    def get_schema(_: Any, out: Any) -> int:
        ctypes.memmove(out, ctypes.byref(root), ctypes.sizeof(root))
        return 0

    def get_next(_: Any, out: Any) -> int:
        out.contents.release = make._release_array  # must not be called
        return 5

    def release(stream: Any) -> None:
        calls.append(1)
        stream.contents.release = ReleaseStream()

    stream = CStream(
        GetSchema(get_schema), GetNext(get_next), GetError(lambda _: ctypes.addressof(reason))
    )
    stream.release = ReleaseStream(release)
    KEPT.extend((stream, reason))
    capsule = new_capsule(ctypes.addressof(stream), b"arrow_array_stream", None)

    class Source:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return capsule

    reader = ArrowReader(Source())
    with pytest.raises(rm.DataError, match="out of ink"):
        next(reader.batches())
    assert not calls
    del reader
    gc.collect()
    assert calls == [1]


def test_memory_stays_flat_over_many_batches() -> None:
    """What is exported and imported again is freed."""
    from recmap.machine.memory import anonymous_memory

    schema = Schema({"x": "float64[100]", "s": "bytes", "b": "bool[10]"})
    strings = rm.Ragged.from_bytes([b"x" * 100] * 1000)

    def batches(count: int) -> Iterator[Any]:
        for _ in range(count):
            yield {"x": np.ones((1000, 100)), "s": strings, "b": np.ones((1000, 10), bool)}

    def read_all(count: int) -> int:
        reader = ArrowReader(ArrowBatches(schema, batches(count)))
        totals = [np.asarray(batch["x"]).sum().item() for batch in reader.batches()]
        return int(sum(totals))

    read_all(20)
    before = anonymous_memory()
    assert read_all(200) == 200 * 1000 * 100  # 160 MB
    assert anonymous_memory() - before < 30e6
