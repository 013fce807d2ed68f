"""Copy the sound records of damaged files, and check many files at once."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Progress
from tests import wire
from tests.forked import run_program
from tests.frameworks import tf

RECORDS = [b"not an example %d " % i * (i + 1) for i in range(6)]
FRAMES = [wire.frame(record) for record in RECORDS]


def damaged(*, data: int, length: int, tail: bytes = b"") -> bytes:
    """Return the records with a bit flipped in the data of one and in the length of another."""
    frames = [bytearray(frame) for frame in FRAMES]
    frames[data][14] ^= 4
    frames[length][2] ^= 4
    return b"".join(frames) + tail


def test_sound_records_are_copied_byte_for_byte() -> None:
    Path("bad.tfrecord").write_bytes(damaged(data=1, length=3, tail=FRAMES[0][:20]))
    done = rm.repair("bad.tfrecord", "good.tfrecord")
    kept = [FRAMES[i] for i in (0, 2, 4, 5)]
    assert Path("good.tfrecord").read_bytes() == b"".join(kept)
    assert (done.records, done.size) == (4, sum(map(len, kept)))
    places = [(lost.record, lost.byte) for lost in done.damage]
    starts = [sum(map(len, FRAMES[:i])) for i in range(7)]
    assert places == [(1, starts[1]), (3, starts[3]), (6, starts[6])]
    assert "data CRC" in done.damage[0].reason
    assert "length CRC" in done.damage[1].reason
    assert "only 20 are left" in done.damage[2].reason
    read = list(tf.data.TFRecordDataset("good.tfrecord").as_numpy_iterator())
    assert read == [RECORDS[i] for i in (0, 2, 4, 5)]
    assert rm.verify("good.tfrecord").ok


def test_a_sound_file_is_copied_unchanged() -> None:
    Path("x.tfrecord").write_bytes(b"".join(FRAMES))
    assert rm.repair("x.tfrecord", "y.tfrecord").damage == []
    assert Path("y.tfrecord").read_bytes() == Path("x.tfrecord").read_bytes()
    Path("empty.tfrecord").touch()
    assert rm.repair("empty.tfrecord", "e.tfrecord").records == 0
    assert Path("e.tfrecord").read_bytes() == b""


def test_compressed_files_are_repaired() -> None:
    Path("bad.tfrecord.gz").write_bytes(gzip.compress(damaged(data=0, length=4)))
    done = rm.repair("bad.tfrecord.gz", "good.tfrecord.gz")
    assert [lost.record for lost in done.damage] == [0, 4]
    kept = b"".join(FRAMES[i] for i in (1, 2, 3, 5))
    assert gzip.decompress(Path("good.tfrecord.gz").read_bytes()) == kept
    rm.repair("bad.tfrecord.gz", "good.tfrecord")
    assert Path("good.tfrecord").read_bytes() == kept


def test_a_truncated_compressed_file_is_repaired() -> None:
    records = [os.urandom(1000) for _ in range(1000)]
    rm.tfrecord.write_records("x.tfrecord.gz", records, compression="gzip")
    whole = Path("x.tfrecord.gz").read_bytes()
    Path("x.tfrecord.gz").write_bytes(whole[: len(whole) // 2])
    done = rm.repair("x.tfrecord.gz", "y.tfrecord")
    kept = list(rm.tfrecord.records("y.tfrecord"))
    assert 300 < len(kept) <= 500
    assert kept == records[: len(kept)]
    assert done.damage


def test_records_after_a_truncated_one_are_found() -> None:
    """Such a file is left by a writer that was killed and then appended more records."""
    whole = b"".join(FRAMES[3:])
    Path("x.tfrecord").write_bytes(FRAMES[0] + wire.frame(b"long " * 50)[:30] + whole)
    done = rm.repair("x.tfrecord", "y.tfrecord")
    assert Path("y.tfrecord").read_bytes() == FRAMES[0] + whole
    assert [lost.byte for lost in done.damage] == [len(FRAMES[0])]


def test_damage_after_damage_is_listed_separately() -> None:
    Path("x.tfrecord").write_bytes(damaged(data=2, length=3))
    assert [lost.record for lost in rm.repair("x.tfrecord", "y.tfrecord").damage] == [2, 3]


def test_several_files_become_one() -> None:
    Path("a.tfrecord").write_bytes(FRAMES[0])
    Path("b.tfrecord").write_bytes(FRAMES[1][:-1] + FRAMES[2])
    done = rm.repair(["a.tfrecord", "b.tfrecord"], "c.tfrecord")
    assert list(rm.tfrecord.records("c.tfrecord")) == [RECORDS[0], RECORDS[2]]
    assert [lost.file for lost in done.damage] == ["b.tfrecord"]


def test_nothing_is_replaced_by_accident() -> None:
    Path("x.tfrecord").write_bytes(FRAMES[0])
    Path("y.tfrecord").write_bytes(b"mine")
    with pytest.raises(rm.OutputExistsError, match="overwrite=True"):
        rm.repair("x.tfrecord", "y.tfrecord")
    assert Path("y.tfrecord").read_bytes() == b"mine"
    rm.repair("x.tfrecord", "y.tfrecord", overwrite=True)
    assert Path("y.tfrecord").read_bytes() == FRAMES[0]
    with pytest.raises(rm.OptionError, match="write to another one"):
        rm.repair("x.tfrecord", "./x.tfrecord", overwrite=True)
    Path("folder").mkdir()
    with pytest.raises(rm.OptionError, match="is a folder"):
        rm.repair("x.tfrecord", "folder")


def test_a_file_without_any_record_leaves_nothing() -> None:
    Path("x.tfrecord").write_bytes(bytes(range(1, 200)))
    with pytest.raises(rm.CorruptRecordError, match="it has no sound record"):
        rm.repair("x.tfrecord", "y.tfrecord")
    assert os.listdir() == ["x.tfrecord"]


def test_the_index_of_an_older_file_is_removed() -> None:
    with rm.TFRecordWriter("y.tfrecord") as w:
        w.write({"x": [1, 2, 3]})
    Path("x.tfrecord").write_bytes(wire.frame(wire.example(x=wire.int64_list(7))))
    rm.repair("x.tfrecord", "y.tfrecord", overwrite=True)
    assert rm.open("y.tfrecord")[:]["x"].tolist() == [7]


@pytest.mark.skipif(sys.platform != "linux", reason="limits data by RLIMIT_DATA")
def test_memory_is_bounded() -> None:
    record = os.urandom(1 << 20)
    rm.tfrecord.write_records("x.tfrecord", [record] * 200)
    with open("x.tfrecord", "r+b") as file:
        file.seek(len(record) * 3)
        file.write(b"damage")
    program = """if True:
        import resource, recmap as rm
        repair = rm.repair  # imports it now
        in_use = int(open("/proc/self/statm").read().split()[5]) * 4096
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + (64 << 20), -1))
        print(repair("x.tfrecord", "y.tfrecord").records)
    """
    run = run_program(program)
    assert run.stdout == "199\n", run.stderr


def test_many_files_are_checked_in_order() -> None:
    for i in range(20):
        content = FRAMES[i % 6] if i % 5 else FRAMES[i % 6][:-1]
        name = f"{i:02}.tfrecord{'.gz' if i % 2 else ''}"
        Path(name).write_bytes(gzip.compress(content) if i % 2 else content)
    reports: list[Progress] = []
    found = rm.verify(".", workers=4, progress=reports.append)
    assert (found.files, found.records) == (20, 16)
    assert [damage.file for damage in found.damage] == [
        "./00.tfrecord",
        "./05.tfrecord.gz",
        "./10.tfrecord",
        "./15.tfrecord.gz",
    ]
    assert (reports[-1].bytes, reports[-1].total_bytes) == (found.size, found.size)
    with pytest.raises(rm.OptionError):
        rm.verify(".", workers=0)


def test_progress_is_reported_within_a_compressed_file() -> None:
    noise = np.random.default_rng(1).bytes(6 << 20)
    records = [noise[i : i + 4096] for i in range(0, len(noise), 4096)]
    rm.tfrecord.write_records("x.tfrecord.gz", records, compression="gzip")
    size = Path("x.tfrecord.gz").stat().st_size
    reports: list[Progress] = []
    rm.verify("x.tfrecord.gz", progress=reports.append)
    assert [now.bytes for now in reports] == sorted(now.bytes for now in reports)
    assert reports[-1].bytes == reports[-1].total_bytes == size
    assert len(reports) > 3
    again: list[Progress] = []
    rm.repair("x.tfrecord.gz", "y", progress=again.append)
    assert again[-1].bytes == again[-1].total_bytes == size
    assert len(again) > 3


@pytest.mark.parametrize("left", [0.3, 0.9])
def test_progress_does_not_go_back_at_a_damaged_stream(left: float) -> None:
    noise = np.random.default_rng(1).bytes(6 << 20)
    records = [noise[i : i + 4096] for i in range(0, len(noise), 4096)]
    rm.tfrecord.write_records("x.tfrecord.gz", records, compression="gzip")
    whole = Path("x.tfrecord.gz").read_bytes()
    Path("x.tfrecord.gz").write_bytes(whole[: int(left * len(whole))])
    reports: list[int] = []
    assert not rm.verify("x.tfrecord.gz", progress=lambda now: reports.append(now.bytes)).ok
    assert reports == sorted(reports)
    assert reports[-1] == int(left * len(whole))
