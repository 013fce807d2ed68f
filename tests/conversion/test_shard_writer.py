"""Writing one file of a conversion, and who else may be writing it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.budget import choose_budget, least_budget
from recmap.conversion.manifest import Manifest
from recmap.conversion.plan import plan_shards
from recmap.conversion.run_lock import Mark
from recmap.conversion.shard_writer import Job, StoppedError

ROWS = 30_000


def planned() -> tuple[Manifest, Job]:
    """A conversion that is about to begin, as if its mark were set."""
    np.save("x.npy", np.arange(ROWS * 4, dtype=np.float32).reshape(-1, 4))
    source = rm.open("x.npy")._source
    shards = plan_shards("out/", "tfrecord", ROWS, 16, 2, None, None)
    budget = choose_budget(least_budget(source, "1MB", 0), source, "1MB", 1, 2, 16)
    manifest = Manifest("out/_manifest.json", shards, source.schema, "tfrecord", source.files, {})
    job = Job(source, "tfrecord", budget, True, False, {}, manifest.notes, Mark("mark"))
    job.mark.hold()
    manifest.begin(resume=True, overwrite=False)
    return manifest, job


def test_two_attempts_at_a_file_end_with_the_same_file_which_is_known_to_be_finished() -> None:
    manifest, job = planned()
    shard = manifest.shards[0]
    other: Job = pickle.loads(pickle.dumps(job))
    written: list[bytes] = []

    def meanwhile(*_: int) -> None:
        # The first attempt was taken for dead, and another has been sent out.
        if not written:
            other.write(shard, lambda *_: None, lambda: False)
            written.append(Path(shard.path).read_bytes())

    job.write(shard, meanwhile, lambda: False)
    assert Path(shard.path).read_bytes() == written[0]
    assert manifest.done == 1
    assert manifest.begin(resume=True, overwrite=False) == manifest.shards[1:]
    assert not list(Path("out").glob(".*.tmp"))


def test_a_file_whose_conversion_is_over_does_not_appear() -> None:
    manifest, job = planned()
    os.unlink("mark")
    with pytest.raises(rm.OutputExistsError, match="taken over"):
        job.write(manifest.shards[0], lambda *_: None, lambda: False)
    assert os.listdir("out") == ["_manifest.json"]


def test_one_that_is_stopped_leaves_nothing() -> None:
    manifest, job = planned()
    with pytest.raises(StoppedError):
        job.write(manifest.shards[0], lambda *_: None, lambda: True)
    assert os.listdir("out") == ["_manifest.json"]


def test_lists_of_finished_files_that_were_cut_or_are_not_ours_say_nothing() -> None:
    manifest, job = planned()
    job.write(manifest.shards[1], lambda *_: None, lambda: False)
    for name, text in (("a", "[0, 1"), ("b", '{"x": 1}\n[[]]\n[true, 1, 2]\n\xff'), ("c", "[]")):
        Path(f"out/._manifest.json.done-{name}").write_text(text)
    assert manifest.done == 1
    manifest.notes.forget()
    assert manifest.done == 0


def test_the_memory_of_a_job_is_that_of_the_process_it_is_in() -> None:
    _, job = planned()
    assert job.budget.begun > 0 or not os.path.exists("/proc/self/statm")
    held = np.ones(10_000_000)
    assert pickle.loads(pickle.dumps(job)).budget.begun > job.budget.begun
    del held
