"""to_torch: rows, batches, samplers, training."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from tests.frameworks import torch
from tests.numbered import double, flat, ids, numbered

ROWS = 103


@pytest.fixture
def ds() -> rm.Dataset:
    return numbered(ROWS)


def trained(loader: Any, epochs: int = 8) -> list[float]:
    """Train a small model; return its loss for each epoch."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = ((model(x)[:, 0] - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total)
    return losses


def test_rows_can_be_read_by_number(ds: rm.Dataset) -> None:
    rows = ds.to_torch()
    assert len(rows) == ROWS
    row = rows[7]
    assert row["id"].item() == 7
    assert row["x"].tolist() == ds[7]["x"].tolist()
    assert row["t"].tolist() == [7, 8]
    assert row["name"] == b"row 7"
    assert rows[-1]["id"].item() == ROWS - 1
    assert [row["id"].item() for row in rows.__getitems__([5, 3])] == [5, 3]
    with pytest.raises(IndexError, match="row 103 is out of range: there are 103"):
        rows[103]


def test_a_list_of_numbers_is_a_batch(ds: rm.Dataset) -> None:
    batch = ds.to_torch()[[5, 3, 9]]
    assert batch["id"].tolist() == [5, 3, 9]
    assert [row.tolist() for row in batch["t"].unbind()] == [[], [3, 4, 5], [9, 10, 11, 12]]
    assert batch["name"] == [b"row 5", b"row 3", b"row 9"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_rows(ds: rm.Dataset, workers: int) -> None:
    rows = ds.select("id", "x").to_torch()
    batches = list(
        torch.utils.data.DataLoader(rows, batch_size=10, shuffle=True, num_workers=workers)
    )
    assert sorted(flat(ids(batches))) == list(range(ROWS))
    assert batches[0]["x"].shape == (10, 3)
    assert batches[-1]["x"].shape == (3, 3)


def test_a_batch_sampler_reads_batches_at_once(ds: rm.Dataset) -> None:
    rows = ds.to_torch(ragged="list")
    sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(range(ROWS)), 16, drop_last=True
    )
    batches = list(torch.utils.data.DataLoader(rows, sampler=sampler, batch_size=None))
    assert len(batches) == ROWS // 16
    for batch in batches:
        assert [t.tolist() for t in batch["t"]] == [
            list(range(i, i + i % 5)) for i in batch["id"].tolist()
        ]


def test_a_distributed_sampler_divides_the_rows(ds: rm.Dataset) -> None:
    rows = ds.select("id").to_torch()
    seen = []
    for rank in range(2):
        sampler = torch.utils.data.DistributedSampler(
            rows, num_replicas=2, rank=rank, drop_last=True
        )
        sampler.set_epoch(3)
        seen += flat(ids(torch.utils.data.DataLoader(rows, batch_size=8, sampler=sampler)))
    assert len(seen) == len(set(seen)) == ROWS - 1


def test_set_epoch_changes_the_order_and_the_random_numbers(ds: rm.Dataset) -> None:
    def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"id": row["id"], "noise": rng.random()}

    rows = ds.shuffle(seed=1).map(noisy).to_torch()
    first = [(row["id"].item(), row["noise"].item()) for row in rows.__getitems__(range(9))]
    assert first == [(r["id"].item(), r["noise"].item()) for r in map(rows.__getitem__, range(9))]
    rows.set_epoch(1)
    second = [(row["id"].item(), row["noise"].item()) for row in rows.__getitems__(range(9))]
    assert {n for _, n in first}.isdisjoint(n for _, n in second)
    assert [i for i, _ in first] != [i for i, _ in second]


def test_tensors_share_memory_with_the_batches_of_the_pipeline() -> None:
    kept: list[Any] = []

    def keep(batch: dict[str, Any]) -> dict[str, Any]:
        kept.append(batch["x"])
        return batch

    ds = rm.from_arrays({"x": np.arange(40.0).reshape(20, 2)})
    stream = ds.batch(8).map(keep).prefetch(0).to_torch()
    kept.clear()  # the function was tried on the first rows
    for batch, array in zip(stream, kept, strict=False):
        assert batch["x"].data_ptr() == array.ctypes.data


def test_batches_equal_those_of_the_pipeline(ds: rm.Dataset) -> None:
    plain = list(ds.shuffle(seed=1).batch(10))
    batches = list(
        torch.utils.data.DataLoader(ds.shuffle(seed=1).batch(10).to_torch(), batch_size=None)
    )
    assert len(batches) == 11
    for ours, theirs in zip(plain, batches, strict=True):
        assert set(ours) == set(theirs)
        assert theirs["x"].numpy().tolist() == ours["x"].tolist()
        assert [row.tolist() for row in theirs["t"].unbind()] == ours["t"].tolist()
        assert theirs["name"] == ours["name"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_learns(ds: rm.Dataset, workers: int) -> None:
    stream = ds.shuffle(seed=1).batch(16).to_torch(features="x", label="y")
    losses = trained(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers), 4)
    assert losses[-1] < losses[0] / 4
    if workers == 0:
        rows = ds.to_torch(features="x", label="y")
        losses = trained(torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True), 4)
        assert losses[-1] < losses[0] / 4


def test_features_and_labels(ds: rm.Dataset) -> None:
    chain = ds.select("id", "x", "y").batch(4)
    features, label = next(iter(chain.to_torch(label="y")))
    assert set(features) == {"id", "x"}
    assert label.shape == (4,)
    both, label = next(iter(chain.to_torch(features=["x", "id"], label=["y"])))
    assert list(both) == ["x", "id"]
    assert list(label) == ["y"]
    row, label = ds.to_torch(features="x", label="y")[3]
    assert row.shape == (3,)
    assert label.ndim == 0
    with pytest.raises(rm.FieldNotFoundError, match="no column 'z'"):
        chain.to_torch(label="z")


def test_state_in_the_middle_of_an_epoch(ds: rm.Dataset) -> None:
    def make() -> Any:
        return ds.shuffle(seed=1).batch(10).to_torch()

    stream = make()
    whole = [ids(stream), ids(stream)]
    stream = make()
    some = iter(stream)
    for _ in range(4):
        next(some)
    state = json.loads(json.dumps(stream.state_dict()))
    again = make()
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert ids(again) == whole[0][4:]
    assert ids(again) == whole[1]


def test_rows_by_number_cannot_be_restored(ds: rm.Dataset) -> None:
    chain = ds.shuffle(seed=1)
    next(iter(chain))
    with pytest.raises(rm.OptionError, match=r"sampler.*put batch\(n\) before"):
        ds.shuffle(seed=1).restore(chain.state()).to_torch()


def test_ragged_columns(ds: rm.Dataset) -> None:
    batch = next(iter(ds.batch(6).to_torch()))
    assert batch["t"].layout == torch.jagged
    # They share their offsets, so that they can be added.
    total = batch["t"] + batch["u"]
    assert [row.tolist() for row in total.unbind()][3] == [3, 6, 9]
    parts = next(iter(ds.batch(6).to_torch(ragged="parts")))["t"]
    assert parts.values.tolist()[:3] == [1, 2, 3]
    assert parts.offsets.tolist() == [0, 0, 1, 3, 6, 10, 10]
    rows = next(iter(ds.batch(6).to_torch(ragged="list")))["t"]
    assert [row.tolist() for row in rows][:3] == [[], [1], [2, 3]]
    padded = next(iter(ds.batch(6, pad={"t": 3, "u": "longest"}).to_torch()))
    assert padded["t"].shape == (6, 3)
    assert padded["u"].shape == (6, 4)
    with pytest.raises(rm.OptionError, match="nested"):
        ds.to_torch(ragged="dense")  # type: ignore[call-overload]


def test_ragged_axes_in_ragged_axes_are_lists() -> None:
    inner = rm.Ragged.from_rows([[1], [2, 3], [4]])
    words = rm.Ragged(rm.Ragged.from_bytes([b"a", b"bc", b""]), [0, 2, 3])
    ds = rm.from_arrays({"n": rm.Ragged(inner, [0, 2, 3]), "w": words})
    batch = next(iter(ds.batch(2).to_torch(ragged="list")))
    assert [[t.tolist() for t in row] for row in batch["n"]] == [[[1], [2, 3]], [[4]]]
    assert batch["w"] == [[b"a", b"bc"], [b""]]
    row = ds.to_torch()[0]
    assert row["w"] == [b"a", b"bc"]


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "uint64", "float16", "float64",
          "complex64", ">i4", ">f8", ">u2", "bfloat16", "float8_e4m3fn"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_values(dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype, None) or dtype
    x = (np.arange(12).reshape(6, 2) % 2).astype(kind)
    ds = rm.from_arrays({"x": x})
    batch = next(iter(ds.batch(6).to_torch()))["x"]
    name = x.dtype.name if x.dtype.kind == "V" else x.dtype.newbyteorder("=").name
    assert batch.dtype == getattr(torch, name)
    assert batch.to(torch.complex64).tolist() == x.astype(np.complex64).tolist()
    assert ds.to_torch()[1]["x"].dtype == batch.dtype


def test_dates_are_integers_and_unknown_types_are_refused() -> None:
    when = np.array(["2024-01-01", "2024-01-02"], "M8[D]")
    assert rm.from_arrays({"d": when}).to_torch()[1]["d"].item() == 19724
    if np.dtype(np.longdouble).itemsize > 8:
        ds = rm.from_arrays({"q": np.zeros(3, np.longdouble)})
        with pytest.raises(rm.OptionError, match="column 'q': PyTorch has no type"):
            ds.to_torch()[0]


def test_arrays_that_pytorch_cannot_share_are_copied() -> None:
    def odd(batch: dict[str, Any]) -> dict[str, Any]:
        fixed = np.arange(4)
        fixed.flags.writeable = False
        return {"back": batch["x"][:, ::-1], "fixed": fixed}

    batch = next(iter(rm.from_arrays({"x": np.eye(4)}).batch(4).map(odd).to_torch()))
    assert batch["back"].tolist() == np.eye(4)[:, ::-1].tolist()
    assert batch["fixed"].tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_pin_memory_does_no_harm(ds: rm.Dataset) -> None:
    stream = ds.batch(10).to_torch(ragged="parts")
    loader = torch.utils.data.DataLoader(stream, batch_size=None, pin_memory=True)
    assert flat(ids(loader)) == list(range(ROWS))


def test_dense_columns_are_shared_through_dlpack(ds: rm.Dataset) -> None:
    for chain in (ds.batch(10), ds.map(double, workers=1).batch(10)):
        for batch in chain:
            x = batch["x"]
            tensor = torch.from_dlpack(x)
            assert tensor.data_ptr() == x.ctypes.data
            assert np.shares_memory(np.from_dlpack(x), x)


def test_without_pytorch_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, recmap as rm
try:
    rm.from_arrays({"x": np.arange(3)}).to_torch()
except rm.MissingPackageError as e:
    print(e)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith('to_torch() needs PyTorch: pip install "torch>=2.6"')


@pytest.mark.parametrize("option", ["features", "label"])
def test_column_names_that_are_not_text_are_refused(option: str) -> None:
    ds: Any = rm.from_arrays({"x": np.arange(3)})
    for wrong in (3, math.nan, [1], [["x"]], {"x": 1}):
        with pytest.raises(rm.OptionTypeError, match=option):
            ds.to_torch(**{option: wrong})
    with pytest.raises(rm.OptionError, match="ragged"):
        ds.to_torch(ragged=np.arange(2))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_would_make_batches_of_batches_is_refused(workers: int) -> None:
    batches = rm.from_arrays({"id": np.arange(8)}).batch(2).to_torch()
    for given in ({}, {"batch_size": 32}):
        with pytest.raises(rm.OptionError, match=r"batches of batches.*batch_size=None"):
            list(torch.utils.data.DataLoader(batches, num_workers=workers, **given))
    joined = torch.utils.data.DataLoader(
        batches, batch_size=2, num_workers=workers, collate_fn=tuple
    )
    assert [len(pair) for pair in joined] == [2, 2]
    assert (
        len(list(torch.utils.data.DataLoader(batches, batch_size=None, num_workers=workers))) == 4
    )


def test_null_dates_never_reach_a_model_as_numbers() -> None:
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    ds = rm.from_arrays({"d": dates, "t": dates - dates[:1]})
    for name, what in (("d", "date"), ("t", "duration")):
        with pytest.raises(rm.ColumnError, match=f"null {what}.*ds.fill_null.*ds.mask_null"):
            list(ds.select(name).batch(2).to_torch())
    [batch] = ds.mask_null("d", "t").batch(2).to_torch()
    assert [int(each) for each in batch["d"]] == [18262, 0]
    assert [bool(each) for each in batch["d/is_null"]] == [False, True]
    [batch] = ds.fill_null({"d": 3, "t": 4}).batch(2).to_torch()
    assert [int(each) for each in batch["t"]] == [0, 4]
