"""Sources sent to another process, which opens the files but does not inspect them again."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.budget import choose_budget, least_budget
from recmap.conversion.cast import cast_columns
from recmap.conversion.external_shuffle import shuffled
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.machine.cpus import thread_count, using_threads
from recmap.model.ordered_rows import sliced
from recmap.model.permutation import Permutation
from recmap.model.source import Source, renamed
from recmap.tfrecord.plain_file import PlainFile
from tests.jobs import same

ROWS = 5000
NAMES = ["x.tfrecord", "x.tfrecord.gz", "x.npz", "x.h5", "x.zarr", "x.npy", "x.bin"]


def columns(name: str) -> dict[str, object]:
    rng = np.random.default_rng(0)
    dense = {"x": rng.random((ROWS, 3), dtype=np.float32), "label": np.arange(ROWS)}
    if name.endswith((".npy", ".bin")):
        return dict(dense)
    return {**dense, "word": [b"w" * (i % 7) for i in range(ROWS)]}


def sent(source: Source) -> Source:
    """Return the source as another process receives it."""
    data = pickle.dumps(source)
    assert len(data) < 40_000  # the contents of the files are not sent
    received: Source = pickle.loads(data)
    return received


def agree(a: Source, b: Source) -> None:
    assert (a.schema, len(a), a.facts.files) == (b.schema, len(b), b.facts.files)
    rows = np.array([ROWS // 2, 3, 99])
    for one, other in ((a.read(7, 40), b.read(7, 40)), (a.gather(rows), b.gather(rows))):
        for name in a.schema:
            same(one[name], other[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_source_that_was_sent_reads_the_same_rows(name: str) -> None:
    rm.from_arrays(columns(name)).save(name)
    source = rm.open(name)._source
    agree(source, sent(source))


def test_combined_and_transformed_sources_can_be_sent_too() -> None:
    for name in ("x.npy", "y.npy"):
        rm.from_arrays(columns(name)).save(name)
    source = rm.open(["x.npy", "y.npy"])._source
    named = renamed(sliced(source, slice(0, None, 2)), {"z": "x", "label": "label"})
    chosen = cast_columns(named, {"z": "float64"})
    agree(chosen, sent(chosen))
    side_by_side = rm.open({"label": "x.npy", "x": "y.npy"})._source
    agree(side_by_side, sent(side_by_side))


def test_a_source_of_many_files_can_be_sent() -> None:
    os.mkdir("many")
    for i in range(70):
        np.save(f"many/{i:03}.npy", np.arange(i * 100, i * 100 + 100))
    source = rm.open("many/")._source
    agree(source, sent(source))


def test_rows_in_memory_are_sent_with_their_values() -> None:
    source = rm.from_arrays({"x": np.arange(300)})._source
    received = pickle.loads(pickle.dumps(source))
    assert received.read(0, 300)["x"].tolist() == list(range(300))


@pytest.mark.parametrize("chunks", [False, True], ids=["gathered", "in buckets"])
def test_a_shuffled_source_keeps_its_order(chunks: bool) -> None:
    name = "x.tfrecord.gz" if chunks else "x.tfrecord"
    rm.from_arrays(columns(name)).save(name)
    source = rm.open(name)._source
    least = least_budget(source, "1MB", 0)
    budget = choose_budget(least, source, "1MB", 1, 1, source.row_bytes())
    with shuffled(source, Permutation(len(source), 5), "out", budget) as order:
        received = pickle.loads(pickle.dumps(order))
        agree(order, received)


def test_records_are_not_counted_again() -> None:
    rm.from_arrays(columns("x.tfrecord")).save("x.tfrecord", options={"index": False})
    source = rm.open("x.tfrecord")._source
    assert len(source) == ROWS
    received = sent(source)
    assert isinstance(received, TFRecordSource)
    (shard,) = received.facts.record_files
    assert isinstance(shard, PlainFile)
    assert shard.known_count() == ROWS


def test_skipped_records_stay_skipped() -> None:
    rm.from_arrays({"x": np.arange(100)}).save("x.tfrecord", options={"index": False})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[-8] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.warns(rm.SkippedRecordsWarning):
        source = rm.open("x.tfrecord", errors="skip")._source
    received = sent(source)  # without another warning
    assert len(received) == 99
    assert list(received.facts.skipped) == list(source.facts.skipped)


def test_a_changed_file_is_refused_when_it_is_reopened() -> None:
    np.save("x.npy", np.arange(10))
    data = pickle.dumps(rm.open("x.npy")._source)
    np.save("x.npy", np.arange(11))
    with pytest.raises(rm.DataError, match="x.npy: was changed after it was opened"):
        pickle.loads(data)


def test_using_threads_limits_the_thread_count() -> None:
    before = thread_count()
    with using_threads(1):
        assert thread_count() == 1
    assert thread_count() == before
