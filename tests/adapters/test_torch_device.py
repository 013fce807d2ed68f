"""to_torch(device=...): batches on a device, ahead of the loop.

Without a GPU, this runs everything but the copy from page-locked memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import glob
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.forked import run_together
from tests.frameworks import torch
from tests.numbered import numbered

ROWS = 103
# PyTorch is imported only where there is a GPU.
HAS_GPU = bool(glob("/dev/nvidia[0-9]*")) and torch.cuda.is_available()
DEVICES = ["cpu", *(["cuda"] if HAS_GPU else [])]


@pytest.fixture
def ds() -> rm.Dataset:
    return numbered(ROWS)


def ids(batches: Any) -> Iterator[list[int]]:
    for batch in batches:
        yield batch["id"].tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("prefetch", [0, 2, 9, 99])
def test_batches_equal_those_of_the_pipeline(ds: rm.Dataset, device: str, prefetch: int) -> None:
    plain = ds.select("id", "x").shuffle(seed=1).batch(10)
    epochs = [list(plain) for _ in range(2)]
    batches = (
        ds.select("id", "x").shuffle(seed=1).batch(10).to_torch(device=device, prefetch=prefetch)
    )
    assert len(batches) == 11
    for epoch in epochs:
        for ours, theirs in zip(epoch, batches, strict=True):
            assert all(tensor.device.type == device for tensor in theirs.values())
            assert all(np.array_equal(ours[name], theirs[name].cpu()) for name in ours)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ragged", ["nested", "list", "parts"])
def test_ragged_columns_arrive_on_the_device(ds: rm.Dataset, device: str, ragged: Any) -> None:
    batches = ds.batch(10).to_torch(device=device, ragged=ragged)
    for expected, batch in zip(ds.batches(10), batches, strict=True):
        column = batch["t"]
        if ragged == "parts":
            assert column.values.device.type == column.offsets.device.type == device
            rows = np.split(column.values.cpu().numpy(), column.offsets.cpu().numpy()[1:-1])
        else:
            tensors = column.unbind() if ragged == "nested" else column
            assert all(tensor.device.type == device for tensor in tensors)
            rows = [tensor.cpu().numpy() for tensor in tensors]
        assert [row.tolist() for row in rows] == [row.tolist() for row in expected["t"]]
        assert batch["name"] == list(expected["name"])  # byte strings stay


@pytest.mark.parametrize("device", DEVICES)
def test_features_and_labels_are_pairs(ds: rm.Dataset, device: str) -> None:
    x, y = next(iter(ds.batch(10).to_torch(features="x", label="id", device=device)))
    assert x.shape == (10, 3)
    assert y.tolist() == list(range(10))


@pytest.mark.parametrize("prefetch", [0, 2, 9])
def test_the_state_is_that_of_the_last_batch_handed_out(ds: rm.Dataset, prefetch: int) -> None:
    def batches() -> Any:
        return ds.shuffle(seed=3).batch(10).to_torch(device="cpu", prefetch=prefetch)

    whole = list(ids(batches()))
    some, begun = batches(), []
    for batch in some:
        begun.append(batch["id"].tolist())
        if len(begun) == 4:
            break
    state = some.state()
    assert begun + list(ids(batches().restore(state))) == whole


def test_each_iteration_is_an_epoch(ds: rm.Dataset) -> None:
    batches = ds.shuffle(seed=3).batch(10).to_torch(device="cpu")
    first, second = list(ids(batches)), list(ids(batches))
    assert first != second
    batches.set_epoch(0)
    assert list(ids(batches)) == first


@pytest.mark.parametrize("device", DEVICES)
def test_batches_that_are_held_do_not_change(device: str) -> None:
    values = np.random.default_rng(0).random((512, 4096), np.float32)
    np.save("x.npy", values)
    train = rm.open("x.npy").shuffle(seed=1).batch(64).to_torch(device=device, prefetch=3)
    kept = [batch["data"] for _ in range(3) for batch in train]
    for epoch in range(3):
        rows = torch.cat(kept[epoch * 8 : epoch * 8 + 8]).cpu().numpy()
        assert np.array_equal(np.sort(rows, 0), np.sort(values, 0))


def test_batches_before_one_that_fails_are_handed_out(ds: rm.Dataset) -> None:
    def fail(row: Any) -> Any:
        if row["id"] == 35:
            raise ZeroDivisionError
        return row

    seen: list[list[int]] = []
    with pytest.raises(rm.MapError, match="ZeroDivisionError"):
        seen.extend(ids(ds.map(fail).batch(10).to_torch(device="cpu", prefetch=2)))
    assert seen == [list(range(i, i + 10)) for i in (0, 10, 20)]


def test_what_cannot_be_is_refused(ds: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match=r"put batch\(n\) before"):
        ds.to_torch(device="cpu")
    with pytest.raises(rm.OptionError, match=r"put batch\(n\) before"):
        ds.to_torch(pin_memory=True)
    with pytest.raises(rm.OptionError, match="device='abacus'"):
        ds.batch(10).to_torch(device="abacus")
    for wrong in (-1, 201):
        with pytest.raises(rm.OptionError, match=f"prefetch={wrong}: give the number"):
            ds.batch(10).to_torch(device="cpu", prefetch=wrong)
    if not torch.cuda.is_available():
        with pytest.raises(rm.OptionError, match="device='cuda'"):
            ds.batch(10).to_torch(device="cuda")


def test_a_worker_of_a_loader_is_refused(ds: rm.Dataset) -> None:
    class Wrapped(torch.utils.data.IterableDataset):  # type: ignore[misc]  # untyped
        def __iter__(self) -> Any:
            return iter(ds.batch(10).to_torch(device="cpu"))

    with pytest.raises(rm.OptionError, match="iterate over it directly"):
        next(iter(torch.utils.data.DataLoader(Wrapped(), batch_size=None, num_workers=1)))


def test_pinned_batches_equal_others(ds: rm.Dataset) -> None:
    pinned = list(ds.select("id", "x").batch(10).to_torch(pin_memory=True))
    plain = list(ds.select("id", "x").batch(10).to_torch())
    for ours, theirs in zip(plain, pinned, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert theirs["x"].is_pinned() == torch.cuda.is_available()


def test_a_compiled_function_takes_the_batches(ds: rm.Dataset) -> None:
    add = torch.compile(lambda x: x.sum() + 1, backend="eager")
    batches = ds.select("x").batch(10, drop_last=True).to_torch(device="cpu")
    expected = [float(batch["x"].sum()) + 1 for batch in ds.batch(10, drop_last=True)]
    assert np.allclose([float(add(batch["x"])) for batch in batches], expected)


RANK = """
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
import recmap as rm

rank = RANK
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.distributed.init_process_group(
    "gloo", init_method="file://MEETING", rank=rank, world_size=2
)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
train = rm.open("numbers.npy").shuffle(seed=1).shard(rank, 2).batch(8)
for batch in train.to_torch(device=device, prefetch=2):
    numbers = batch["data"]
    assert numbers.device.type == device
    print("rows", *numbers.tolist())
    model.zero_grad()
    model(numbers[:, None] / 64).sum().backward()
    print("gradient", model.module.weight.grad.item())
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_that_train_together_share_the_rows() -> None:
    np.save("numbers.npy", np.arange(64, dtype=np.float32))
    program = RANK.replace("MEETING", os.path.abspath("meeting"))
    printed = run_together(*(program.replace("= RANK", f"= {rank}") for rank in range(2)))
    lines = [each.splitlines() for each in printed]
    rows = [float(n) for line in lines[0] + lines[1] if "rows" in line for n in line.split()[1:]]
    assert sorted(rows) == list(range(64))
    # The ranks add their gradients up after every batch.
    gradients = [[line for line in each if "gradient" in line] for each in lines]
    assert len(gradients[0]) == 4
    assert gradients[0] == gradients[1]


if HAS_GPU:

    def test_every_batch_is_whole_under_load() -> None:
        values = np.random.default_rng(0).integers(0, 1 << 40, (8192, 512))
        np.save("x.npy", values)
        wanted = np.bitwise_xor.reduce(values, 1)
        for epoch in range(3):
            train = (
                rm.open("x.npy").shuffle(seed=epoch).batch(256).to_torch(device="cuda", prefetch=4)
            )
            numbers = [
                n for b in rm.open("x.npy").shuffle(seed=epoch).batch(256) for n in b["data"]
            ]
            found = []
            for batch in train:
                torch.cuda._sleep(1_000_000)  # the loop is slower than the copies
                hashes = batch["data"][:, 0].clone()
                for column in range(1, 512):
                    hashes ^= batch["data"][:, column]
                found.append(hashes)
            expected = np.bitwise_xor.reduce(np.stack(numbers), 1)
            assert np.array_equal(torch.cat(found).cpu().numpy(), expected)
            assert set(expected.tolist()) == set(wanted.tolist())
