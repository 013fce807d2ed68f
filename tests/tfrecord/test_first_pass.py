"""The first pass over a file without an index: records of one size are read without a scan."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.errors import DataError, MemoryLimitError
from recmap.machine.mapped import MappedFile
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord import index as index_module
from recmap.tfrecord import plain_file
from recmap.tfrecord.decoder import Decoder, ExampleDecoder
from recmap.tfrecord.plain_file import PlainFile
from tests import wire

PATH = "x.tfrecord"


class ScannedFile(PlainFile):
    """The slow way: find every record by a scan before it is read, and look at its size."""

    def _read_expected(
        self, file: MappedFile, decoder: Decoder[Any], start: int, stop: int, limit: int | None
    ) -> None:
        return None

    def _uniform_fitting(self, decoder: Decoder[Any], start: int, limit: int | None) -> int:
        return super()._uniform_fitting(decoder, start, limit) if limit is None else 0


@pytest.fixture(autouse=True)
def _small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_file, "_AHEAD_SIZE", 1500)
    monkeypatch.setattr(plain_file, "_SCAN_SIZE", 4000)


def record(i: int, text: bytes = b"." * 20, n: int | None = None) -> bytes:
    return wire.example(
        x=wire.float_list(i, -i),
        n=wire.int64_list(i % 128 if n is None else n),
        s=wire.bytes_list(text),
    )


STRIDE = len(wire.frame(record(0)))
ROW_DECODERS = [
    ExampleDecoder(Schema({"x": "float32[2]"})),
    ExampleDecoder(Schema({"n": "int64", "x": "float32[2]"})),
    ExampleDecoder(Schema({"s": "bytes", "x": "float32[2]"})),
    ExampleDecoder(Schema({"s": "bytes"})),
]


def disguised(i: int) -> bytes:
    """Make a record three times as long, with a whole record where the next is expected."""
    longer = 3 * STRIDE - _core.FRAME_SIZE
    size = next(n for n in range(longer) if len(record(i, b"." * n)) == longer)
    begin = STRIDE - (len(wire.frame(record(i, b"." * size))) - 4 - size)
    return record(i, (b"." * begin + wire.frame(record(77))).ljust(size, b"."))


def other(rng: random.Random, i: int) -> bytes:
    """Make a record that does not repeat the others."""
    kinds: list[Callable[[], bytes]] = [
        lambda: record(i, b"." * rng.randrange(60)),
        lambda: record(i, b"." * 19, n=300),  # the same size in another layout
        lambda: wire.example(s=wire.bytes_list(b"." * rng.randrange(60))),  # without x
        lambda: disguised(i),
        lambda: b"",
        lambda: b"\xff" * (STRIDE - _core.FRAME_SIZE),
    ]
    return rng.choice(kinds)()


def contents(rng: random.Random) -> bytes:
    """Make a file that begins with records of one size, and may not keep to it."""
    records = [record(i) for i in range(rng.randrange(1, 200))]
    if rng.random() < 0.3:
        records[0] = record(0, b"." * rng.randrange(20, 60))  # as with a description
    ending = rng.randrange(4)
    if ending == 1:
        for _ in range(rng.randrange(1, 3)):
            records[rng.randrange(len(records))] = other(rng, 5)
    elif ending == 2:
        records += [record(i, b"." * 33) for i in range(rng.randrange(60))]
        records += [record(i) for i in range(rng.randrange(60))]
    elif ending == 3:
        records += [other(rng, i) for i in range(rng.randrange(60))]
    return b"".join(map(wire.frame, records))


def damaged(rng: random.Random, whole: bytes) -> bytes:
    content = bytearray(whole)
    at = rng.randrange(len(content))
    kind = rng.randrange(5)
    if kind == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        content[at:at] = rng.randbytes(rng.choice([1, 7, STRIDE]))
    elif kind == 3:
        content += rng.randbytes(rng.choice([1, 7, STRIDE, 2 * STRIDE]))
    else:  # a length that is wrong, but has a matching CRC
        at -= at % STRIDE
        length = struct.pack(
            "<Q", rng.choice([0, 1, STRIDE, 2 * STRIDE - _core.FRAME_SIZE, 1 << 62])
        )
        content[at : at + 12] = length + struct.pack("<I", wire.masked(length))
    return bytes(content)


def result(action: Callable[[], Any]) -> Any:
    """Return what an action returns or raises, in a form that can be compared."""
    try:
        found = action()
    except DataError as e:
        return type(e), str(e), e.file, e.record, e.byte, e.field
    except MemoryLimitError as e:
        return type(e), str(e)
    if not isinstance(found, dict):
        return found
    # Bytes: damage makes NaNs.
    return {
        name: column.tolist() if isinstance(column, Ragged) else [row.tobytes() for row in column]
        for name, column in found.items()
    }


def state(file: PlainFile) -> Any:
    """Return what is known about a file once all its records have been looked for."""
    counted = result(file.count)
    index = file.index
    fault = None if index.fault is None else (index.fault.code, index.fault.offset)
    rows = np.arange(index.count)
    offsets = index.offsets(file.file.bytes, rows, 1)[0].tolist()
    facts = (index.count, index.end, index.complete, index.stride, index.lead, index.longest)
    return counted, facts, fault, offsets


def compare(rng: random.Random, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a file in some way without and with scans, and compare every result."""
    Path(PATH).write_bytes(content)
    monkeypatch.setattr(plain_file, "_AHEAD_SIZE", rng.choice([1, 300, 1500, 5000]))
    monkeypatch.setattr(index_module, "_MOST_EXPECTED", rng.choice([STRIDE, 2000, 256 << 20]))
    verify, decoder = rng.random() < 0.6, rng.choice(ROW_DECODERS)
    files = [PlainFile(PATH, verify), ScannedFile(PATH, verify)]

    def both(action: Callable[[PlainFile], Any], *, limited: bool = False) -> Any:
        fast, slow = (result(partial(action, file)) for file in files)
        ragged = any(file.index.stride is None for file in files)
        if limited and ragged and isinstance(fast, dict) and isinstance(slow, dict):
            # How much of the file has been scanned decides where such a read ends.
            fewest = min(rows_of(fast), rows_of(slow))
            assert fewest or rows_of(fast) == rows_of(slow)
            fast, slow = (head(seen, fewest) for seen in (fast, slow))
        assert fast == slow
        return fast

    start, in_order = 0, rng.random() < 0.7
    for _ in range(rng.randrange(1, 15)):
        if not in_order:
            start = rng.randrange(220)
        stop = start + rng.choice([0, 1, 2, 3, rng.randrange(1, 50), rng.randrange(1, 300)])
        limit = rng.choice([None, rng.randrange(5000), 1 << 20])
        seen = both(partial(read, decoder, start, stop, limit), limited=limit is not None)
        if isinstance(seen, dict):
            start += rows_of(seen)
        if rng.random() < 0.05:
            both(lambda file: file.row_bytes() > 0)
        if rng.random() < 0.05:
            both(partial(found_of, start + 10))
    assert state(files[0]) == state(files[1])


def read(
    decoder: Decoder[Batch], start: int, stop: int, limit: int | None, file: PlainFile
) -> Batch:
    return file.read(decoder, start, stop, limit)


def found_of(rows: int, file: PlainFile) -> int:
    return file.ensure(rows)


def first_values(file: PlainFile, start: int, stop: int, limit: int | None = None) -> list[float]:
    """Return the first value of x in each row."""
    x = np.asarray(file.read(ROW_DECODERS[0], start, stop, limit)["x"])
    values: list[float] = x[:, 0].tolist()
    return values


def rows_of(seen: dict[str, Any]) -> int:
    return len(seen["s" if "s" in seen else "x"])


def head(seen: dict[str, Any], rows: int) -> dict[str, Any]:
    return {name: column[:rows] for name, column in seen.items()}


@pytest.mark.parametrize("seed", range(10))
def test_every_read_gives_what_a_scan_would_give(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        content = contents(rng)
        compare(rng, damaged(rng, content) if rng.random() < 0.5 else content, monkeypatch)


@pytest.mark.parametrize("limit", [None, 1 << 20])
@pytest.mark.parametrize("lead", [0, 9])
def test_records_of_one_size_are_not_scanned(lead: int, limit: int | None) -> None:
    records = [record(i) for i in range(300)]
    records[0] = record(0, b"." * (20 + lead))
    wire.write(PATH, *records)
    file = PlainFile(PATH, verify=True)
    found = file.row_bytes() and file.found_rows()
    for start in range(0, 300, 50):
        assert first_values(file, start, start + 50, limit) == list(range(start, start + 50))
        # A scan would have gone on to the end of its piece.
        assert file.found_rows() == max(found, start + 50)
    assert file.known_count() == 300


def test_a_record_that_hides_another_at_its_place_is_one_record() -> None:
    records = [*map(record, range(100)), disguised(100), *map(record, range(101, 200))]
    wire.write(PATH, *records)
    for step in range(1, 12):
        file = PlainFile(PATH, verify=False)
        seen: list[float] = []
        while rows := first_values(file, len(seen), len(seen) + step):
            seen += rows
        assert seen == list(range(200))


def test_a_record_of_another_size_after_a_long_run_is_found() -> None:
    wire.write(PATH, *map(record, range(190)), record(190, b"longer" * 9), record(191))
    file = PlainFile(PATH, verify=True)
    assert first_values(file, 0, 150) == list(range(150))
    before = file.index.stride
    assert before == STRIDE
    assert file.read(ROW_DECODERS[3], 150, 192)["s"][40] == b"longer" * 9
    assert file.index.stride is None
    assert file.count() == 192
    assert file.index.longest == len(record(190, b"longer" * 9))


def test_rows_appended_after_opening_are_not_read() -> None:
    wire.write(PATH, *map(record, range(100)))
    file = PlainFile(PATH, verify=True)
    assert first_values(file, 0, 60) == list(range(60))
    with Path(PATH).open("ab") as out:
        out.writelines(wire.frame(record(i)) for i in range(100))
    assert first_values(file, 60, 170) == list(range(60, 100))
    assert file.known_count() == 100


@pytest.mark.parametrize("size", [20, 21], ids=["damage", "another size"])
def test_rows_that_another_thread_found_to_be_different_are_not_added(size: int) -> None:
    wire.write(PATH, *map(record, range(100)))
    file = PlainFile(PATH, verify=True)
    assert file.row_bytes() == STRIDE
    rows = file.index.expect(0, 60, file.size)
    assert rows is not None
    with Path(PATH).open("r+b") as out:
        out.seek(30 * STRIDE)
        out.write(wire.frame(record(30, b"." * size)) + b"damage")
    assert file.ensure(30) == 30
    with pytest.raises(rm.CorruptRecordError):
        file.ensure(60)
    found = file.found_rows()
    assert not file.index.confirm(rows, file.size)
    assert file.found_rows() == found < 60


@pytest.mark.parametrize("change", [False, True])
def test_threads_that_read_one_file_get_their_rows(change: bool) -> None:
    records = [record(i) for i in range(2000)]
    if change:
        records[1200] = record(1200, b"longer" * 9)
    wire.write(PATH, *records)
    for round_ in range(20):
        file = PlainFile(PATH, verify=True)
        spans = [(start, start + 90) for start in range(0, 1980, 45)]
        if round_ % 2:
            random.Random(round_).shuffle(spans)
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(first_values, file, *span) for span in spans]
            for (start, stop), rows in zip(spans, found, strict=True):
                assert rows.result() == list(range(start, min(stop, 2000)))
        assert file.count() == 2000
        assert (file.index.stride is None) == change


@pytest.mark.parametrize("verify", [False, True])
def test_batches_before_damage_are_read_and_the_damage_is_named(verify: bool) -> None:
    content = bytearray(b"".join(wire.frame(record(i)) for i in range(300)))
    content[200 * STRIDE + 9] ^= 1  # the CRC of a length
    Path(PATH).write_bytes(content)
    seen: list[int] = []
    with pytest.raises(rm.CorruptRecordError, match="record 200.*length CRC") as error:
        for batch in rm.open(PATH, {"n": "int64"}, verify=verify).batches(30):
            seen += batch["n"].tolist()
    assert seen == [i % 128 for i in range(200)]
    assert (error.value.record, error.value.byte) == (200, 200 * STRIDE)
