"""Find the records of one file by scans that begin anywhere in it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from recmap.native import _core
from recmap.tfrecord.index import Index, ScannedSpan
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.scan import choose_every, join_spans, scan_span


def write(records: list[bytes], name: str = "x.tfrecord") -> str:
    rm.tfrecord.write_records(name, records, overwrite=True)
    return name


def found(path: str, edges: list[int], every: int = 4) -> tuple[Index, int]:
    """Scan the spans between these edges. Return the index, and how many were scanned again."""
    again = 0

    def find_again(begin: int, stop: int) -> ScannedSpan:
        nonlocal again
        again += 1
        return scan_span(path, begin, stop, every, entered=True)

    spans = [scan_span(path, a, b, every, entered=a == 0) for a, b in pairwise(edges)]
    return join_spans(edges[-1], every, edges[1:], spans, find_again), again


def offsets(path: str, index: Index) -> npt.NDArray[np.uint64]:
    data = np.fromfile(path, np.uint8)
    places, fault = index.offsets(data, np.arange(index.count), 1)
    assert fault is None
    return places


def same_as_local(path: str, index: Index) -> None:
    local_file = PlainFile(path, verify=True)
    assert local_file.count() == index.count
    local = local_file.index
    assert (index.end, index.complete, index.length) == (local.end, local.complete, local.length)
    assert index.longest == local.longest
    assert offsets(path, index).tolist() == offsets(path, local).tolist()


RAGGED = [bytes(range(i % 23)) for i in range(30)]
EVEN = [bytes([i] * 9) for i in range(20)]
# Records that contain whole TFRecord files, as in a backup.
NESTED = [b"".join(_core.frame([np.frombuffer(r, np.uint8)]) for r in RAGGED[:5])] * 5


@pytest.mark.parametrize(
    "records",
    [RAGGED, EVEN, [*EVEN, b"longer than the others", *EVEN], NESTED, [*NESTED, *RAGGED], []],
    ids=["ragged", "even", "uneven", "nested", "mixed", "none"],
)
def test_the_index_is_the_same_wherever_the_file_is_split(records: list[bytes]) -> None:
    path = write(records)
    size = os.path.getsize(path)
    for width in [*range(1, 24), *range(24, 60, 5), size // 3 + 1, size // 2 + 1, size + 1]:
        index, _ = found(path, [*range(0, size, width), size])
        same_as_local(path, index)


def test_a_record_inside_another_is_not_indexed() -> None:
    path = write(NESTED)
    # Inside the first record, before the second of the records that it contains.
    middle = _core.HEADER_SIZE + 1
    entered = scan_span(path, middle, os.path.getsize(path), 4, entered=False)
    assert entered.begin == _core.HEADER_SIZE + _core.FRAME_SIZE
    assert not entered.sound
    index, again = found(path, [0, middle, os.path.getsize(path)])
    assert index.count == 5
    assert again == 1


def test_a_record_longer_than_a_span_is_one_record() -> None:
    path = write([b"a", bytes(1000), b"b"])
    index, again = found(path, [0, 10, 100, 500, 900, os.path.getsize(path)])
    assert index.count == 3
    assert again == 0
    same_as_local(path, index)


def test_the_index_ends_at_damage_and_reading_on_reports_it() -> None:
    path = write(RAGGED)
    data = bytearray(Path(path).read_bytes())
    bad = int(offsets(path, found(path, [0, len(data)])[0])[20])
    data[bad] ^= 1
    Path(path).write_bytes(data)
    index, _ = found(path, [*range(0, len(data), 50), len(data)])
    assert (index.count, index.end, index.complete) == (20, bad, False)
    local_file = PlainFile(path, verify=True, index=index)
    with pytest.raises(rm.CorruptRecordError, match=f"record 20 at byte {bad}"):
        local_file.count()


def test_anchors_stay_few_however_many_records_there_are() -> None:
    assert choose_every(10**6, 100) == 4
    assert 500 * 10**9 // 56 // choose_every(500 * 10**9, 56) <= 1 << 20
    path = write(RAGGED)
    index, _ = found(path, [0, 100, os.path.getsize(path)], every=16)
    assert len(index.anchors[0]) <= 4
    same_as_local(path, index)
