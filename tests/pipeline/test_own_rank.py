"""The rank that ``shard()`` finds, what is said without it, and the mask of padded ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.forked import run_together

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name in VARIABLES or name.startswith(("SLURM_", "OMPI_", "PMI_", "MV2_")):
            monkeypatch.delenv(name)


def numbers(rows: int = 40) -> rm.Stream:
    columns = {"x": np.arange(rows, dtype=np.int32), "y": np.zeros(rows, np.float32)}
    return rm.from_arrays(columns).batch(4)


def rows_of(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["x"]]


def test_a_process_alone_reads_everything() -> None:
    assert rows_of(numbers().shard()) == list(range(40))


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
    ],
    ids=["torchrun", "slurm", "step", "openmpi", "mpich"],
)
def test_the_rank_is_found_in_the_environment(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rows_of(numbers().shard()) == rows_of(numbers().shard(1, 2))
    assert rows_of(numbers().shard(0, 1)) == list(range(40))


def test_a_batch_script_of_slurm_is_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert rows_of(numbers().shard()) == list(range(40))
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert rows_of(numbers().shard()) == rows_of(numbers().shard(0, 4))


def test_half_a_rank_and_unreadable_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rm.OptionTypeError, match="both"):
        numbers().shard(1)
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(rm.OptionError, match="RANK='one'"):
        numbers().shard()
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(rm.OptionError, match="0 to count - 1"):
        numbers().shard()


def test_a_rank_that_reads_all_rows_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*pipelines: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for batches in pipelines:
                iter(batches)  # reads nothing
                rows_of(batches)
                rows_of(batches)
        return [str(each.message) for each in caught if each.category is rm.UnshardedWarning]

    monkeypatch.delitem(sys.modules, "accelerate", raising=False)  # of other tests
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(said(numbers().to_torch(), numbers().to_torch(device="cpu"), numbers().to_tf())) == 3
    assert "shard()" in said(numbers().to_torch())[0]
    assert said(numbers().shard().to_torch(), numbers().shard(0, 1).to_torch(), numbers()) == []
    monkeypatch.setenv("RANK", "0")
    assert said(numbers().to_torch()) == []  # it may read for all
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert said(numbers().to_torch()) == []  # tasks may have nothing to do with each other
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setitem(sys.modules, "accelerate", sys)
    assert said(numbers().to_torch()) == []  # it divides what it prepares


TWO_RANKS = """
import os, sys, warnings
os.dup2(os.open("errors-RANK", os.O_CREAT | os.O_WRONLY), 2)
sys.stderr = open(2, "w", closefd=False)
import numpy as np
import torch.distributed
import recmap as rm

torch.distributed.init_process_group(
    "gloo", init_method="file://MEETING", rank=RANK, world_size=2
)
rows = rm.from_arrays({"x": np.arange(40)}).shuffle(seed=1).batch(4)
print(*[int(n) for batch in rows.shard() for n in batch["x"]])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    list(rows.to_torch())
print(len([each for each in caught if each.category is rm.UnshardedWarning]))
warnings.simplefilter("always")
for starts in (["fork", "fork"], ["spawn"]):
    stream = rm.from_arrays({"x": np.arange(8)}).batch(4).to_torch()
    for start in starts:
        how = {"num_workers": 1, "multiprocessing_context": start}
        list(torch.utils.data.DataLoader(stream, batch_size=None, **how))
sys.stderr.flush()
"""


@pytest.mark.slow
def test_ranks_of_torch_distributed_are_found_and_warn_in_workers_too() -> None:
    program = TWO_RANKS.replace("MEETING", os.path.abspath("meeting"))
    printed = run_together(*(program.replace("RANK", str(rank)) for rank in range(2)))
    lines = [out.splitlines() for out in printed]
    found = [[int(n) for n in each[0].split()] for each in lines]
    assert sorted(found[0] + found[1]) == list(range(40))
    assert [len(each) for each in found] == [20, 20]
    assert [each[1] for each in lines] == ["0", "1"]
    # Once for the loaders whose workers are forked, and once for those that are spawned.
    said = [Path(f"errors-{rank}").read_text() for rank in range(2)]
    assert [err.count("UnshardedWarning: rank 1 of 2") for err in said] == [0, 2]


def test_no_framework_is_imported_to_find_the_rank() -> None:
    program = (
        "import sys, numpy as np, recmap as rm; "
        "rm.from_arrays({'x': np.arange(4)}).batch(2).shard(); "
        "print([name for name in ('torch', 'jax', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_mask_of_padded_ranks_is_not_left_out() -> None:
    padded = numbers(41).shard(1, 2, even="pad")
    for verb in ("to_torch", "to_jax", "to_tf", "to_keras"):
        to = getattr(padded, verb)
        with pytest.raises(rm.OptionError, match=r"\['x', 'mask'\]"):
            to(features="x", label="y")
        to(features=["x", "mask"], label="y")
    features, _ = list(padded.to_torch(label="y"))[-1]
    assert not features["mask"].all()
    padded.to_keras(features="x", label="y", sample_weight="mask")
    padded.to_torch(features="x", label=["y", "mask"])
