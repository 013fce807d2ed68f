"""Writing one shard of a conversion, while others may be writing it too."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.budget import choose_budget, least_budget
from recmap.conversion.manifest import Manifest
from recmap.conversion.plan import Sharding, plan_shards
from recmap.conversion.shard_writer import ShardWriter, StoppedError
from recmap.local.run_lock import RunLock

ROWS = 30_000


def planned() -> tuple[Manifest, ShardWriter]:
    """A conversion that is about to begin, with its run lock held."""
    np.save("x.npy", np.arange(ROWS * 4, dtype=np.float32).reshape(-1, 4))
    source = rm.open("x.npy")._source
    shards = plan_shards("out/", "tfrecord", ROWS, 16, Sharding(files=2))
    budget = choose_budget(least_budget(source, "1MB", 0), source, "1MB", 1, 2, 16)
    manifest = Manifest(
        "out/_manifest.json", shards, source.schema, "tfrecord", source.facts.files, {}
    )
    lock = RunLock("lock")
    lock.acquire()
    writer = ShardWriter(
        source, "tfrecord", budget, True, False, {}, manifest.finished, lock, manifest.inputs
    )
    manifest.begin(resume=True, overwrite=False)
    return manifest, writer


def test_two_attempts_at_a_shard_leave_one_finished_file() -> None:
    manifest, writer = planned()
    shard = manifest.shards[0]
    other: ShardWriter = pickle.loads(pickle.dumps(writer))
    written: list[bytes] = []

    def meanwhile(*_: int) -> None:
        # The first attempt seemed dead, so a second one was started.
        if not written:
            other.write(shard, lambda *_: None, lambda: False)
            written.append(Path(shard.path).read_bytes())

    writer.write(shard, meanwhile, lambda: False)
    assert Path(shard.path).read_bytes() == written[0]
    assert manifest.done == 1
    assert manifest.begin(resume=True, overwrite=False) == manifest.shards[1:]
    assert not list(Path("out").glob(".*.tmp"))


def test_a_shard_is_not_renamed_after_its_conversion_lost_the_run_lock() -> None:
    manifest, writer = planned()
    os.unlink("lock")
    with pytest.raises(rm.OutputExistsError, match="taken over"):
        writer.write(manifest.shards[0], lambda *_: None, lambda: False)
    assert os.listdir("out") == ["_manifest.json"]


def test_a_writer_that_is_stopped_leaves_no_file() -> None:
    manifest, writer = planned()
    with pytest.raises(StoppedError):
        writer.write(manifest.shards[0], lambda *_: None, lambda: True)
    assert os.listdir("out") == ["_manifest.json"]


def test_damaged_or_foreign_lists_of_finished_shards_are_ignored() -> None:
    manifest, writer = planned()
    writer.write(manifest.shards[1], lambda *_: None, lambda: False)
    for name, text in (("a", "[0, 1"), ("b", '{"x": 1}\n[[]]\n[true, 1, 2]\n\xff'), ("c", "[]")):
        Path(f"out/._manifest.json.done-{name}").write_text(text)
    assert manifest.done == 1
    manifest.finished.clear()
    assert manifest.done == 0


def test_a_writer_measures_the_memory_of_the_process_it_is_in() -> None:
    _, writer = planned()
    assert writer.budget.baseline > 0 or not os.path.exists("/proc/self/statm")
    held = np.ones(10_000_000)
    assert pickle.loads(pickle.dumps(writer)).budget.baseline > writer.budget.baseline
    del held
