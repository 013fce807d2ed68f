"""PyTorch on the other side of a pipeline: loaders, workers, samplers, training."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

import recmap as rm

ROWS = 103
METHODS = ["fork", "spawn"]


@pytest.fixture
def ds() -> rm.Dataset:
    """A file of rows of which each knows its number."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, 3), np.float32)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(
            {
                "id": np.arange(ROWS),
                "x": x,
                "y": x @ np.array([1, -2, 3], np.float32),
                "t": rm.Ragged.from_rows([np.arange(i % 5) + i for i in range(ROWS)]),
                "u": rm.Ragged.from_rows([np.arange(i % 5) * 2 for i in range(ROWS)]),
                "name": [b"row %d" % i for i in range(ROWS)],
            }
        )
    return rm.open("x.tfrecord")


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def flat(lists: list[list[int]]) -> list[int]:
    return [number for numbers in lists for number in numbers]


def trained(loader: Any, epochs: int = 8) -> list[float]:
    """The loss of a small model, epoch by epoch."""
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


def test_rows_have_numbers(ds: rm.Dataset) -> None:
    rows = ds.to_torch()
    assert len(rows) == ROWS
    row = rows[7]
    assert row["id"].item() == 7
    assert row["x"].tolist() == ds[7]["x"].tolist()
    assert row["t"].tolist() == [7, 8]
    assert row["name"] == b"row 7"
    assert rows[-1]["id"].item() == ROWS - 1
    assert [row["id"].item() for row in rows.__getitems__([5, 3])] == [5, 3]
    with pytest.raises(IndexError, match="row 103 of 103"):
        rows[103]


def test_a_list_of_numbers_is_a_batch(ds: rm.Dataset) -> None:
    batch = ds.to_torch()[[5, 3, 9]]
    assert batch["id"].tolist() == [5, 3, 9]
    assert [row.tolist() for row in batch["t"].unbind()] == [[], [3, 4, 5], [9, 10, 11, 12]]
    assert batch["name"] == [b"row 5", b"row 3", b"row 9"]


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_through_a_loader(ds: rm.Dataset, workers: int) -> None:
    rows = ds.select("id", "x").to_torch()
    batches = list(DataLoader(rows, batch_size=10, shuffle=True, num_workers=workers))
    assert sorted(flat(ids(batches))) == list(range(ROWS))
    assert batches[0]["x"].shape == (10, 3)
    assert batches[-1]["x"].shape == (3, 3)


def test_a_batch_sampler_reads_batches_at_once(ds: rm.Dataset) -> None:
    rows = ds.to_torch(ragged="list")
    sampler = BatchSampler(RandomSampler(range(ROWS)), 16, drop_last=True)
    batches = list(DataLoader(rows, sampler=sampler, batch_size=None))
    assert len(batches) == ROWS // 16
    for batch in batches:
        assert [t.tolist() for t in batch["t"]] == [
            list(range(i, i + i % 5)) for i in batch["id"].tolist()
        ]


def test_a_distributed_sampler_deals_rows_out(ds: rm.Dataset) -> None:
    rows = ds.select("id").to_torch()
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(rows, num_replicas=2, rank=rank, drop_last=True)
        sampler.set_epoch(3)
        seen += flat(ids(DataLoader(rows, batch_size=8, sampler=sampler)))
    assert len(seen) == len(set(seen)) == ROWS - 1


def test_set_epoch_gives_rows_another_order_and_other_chances(ds: rm.Dataset) -> None:
    def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"id": row["id"], "noise": rng.random()}

    rows = ds.shuffle(1).map(noisy).to_torch()
    first = [(row["id"].item(), row["noise"].item()) for row in rows.__getitems__(range(9))]
    assert first == [(r["id"].item(), r["noise"].item()) for r in map(rows.__getitem__, range(9))]
    rows.set_epoch(1)
    second = [(row["id"].item(), row["noise"].item()) for row in rows.__getitems__(range(9))]
    assert {n for _, n in first}.isdisjoint(n for _, n in second)
    assert [i for i, _ in first] != [i for i, _ in second]


def test_batches_share_memory_with_the_pipelines() -> None:
    kept: list[Any] = []

    def keep(batch: dict[str, Any]) -> dict[str, Any]:
        kept.append(batch["x"])
        return batch

    ds = rm.from_arrays({"x": np.arange(40.0).reshape(20, 2)})
    stream = ds.batch(8).map(keep).prefetch(0).to_torch()
    kept.clear()  # those of the first rows, on which it was tried
    for batch, array in zip(stream, kept, strict=False):
        assert batch["x"].data_ptr() == array.ctypes.data


def test_batches_are_those_of_the_pipeline(ds: rm.Dataset) -> None:
    plain = list(ds.shuffle(1).batch(10))
    batches = list(DataLoader(ds.shuffle(1).batch(10).to_torch(), batch_size=None))
    assert len(batches) == 11
    for ours, theirs in zip(plain, batches, strict=True):
        assert set(ours) == set(theirs)
        assert theirs["x"].numpy().tolist() == ours["x"].tolist()
        assert [row.tolist() for row in theirs["t"].unbind()] == ours["t"].tolist()
        assert theirs["name"] == ours["name"].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_a_loader_give_the_batches_of_one_process(ds: rm.Dataset, method: str) -> None:
    chain = ds.shuffle(1).batch(10)
    epochs = 2 if method == "fork" else 1
    plain = [list(chain) for _ in range(epochs)]
    chain.epoch = 0
    loader = DataLoader(
        chain.to_torch(), batch_size=None, num_workers=2, multiprocessing_context=method
    )
    assert len(loader) == 11
    # Workers of the second epoch are new processes, and still know which it is.
    for epoch in range(epochs):
        for theirs, ours in zip(loader, plain[epoch], strict=True):
            assert theirs["id"].tolist() == ours["id"].tolist()
            assert [row.tolist() for row in theirs["t"].unbind()] == ours["t"].tolist()
            assert theirs["name"] == ours["name"].tolist()


def test_workers_that_stay_go_on_to_the_next_epoch(ds: rm.Dataset) -> None:
    chain = ds.shuffle(1).batch(10)
    plain = [ids(chain) for _ in range(2)]
    stream = ds.shuffle(1).batch(10).to_torch()
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True)
    assert [ids(loader) for _ in range(2)] == plain
    stream.set_epoch(0)
    assert ids(loader) == plain[0]


def test_workers_split_the_share_of_a_rank(ds: rm.Dataset) -> None:
    def make() -> rm.Pipeline:
        return ds.select("id").shuffle(2).batch(8).shard(1, 2, even="pad")

    loader = DataLoader(make().to_torch(), batch_size=None, num_workers=2)
    assert ids(loader) == ids(make())
    assert len(loader) == len(make())


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even", ["uneven", "pad", "drop"])
@pytest.mark.parametrize("parts", [1, 2, 3, 20])
def test_parts_in_turn_are_the_whole(
    ds: rm.Dataset, even: Any, drop_last: bool, parts: int
) -> None:
    chain = ds.select("id").shuffle(2).batch(8, drop_last=drop_last).shard(1, 2, even=even)
    whole = ids(chain)
    each = [ids(chain.part(i, parts)) for i in range(parts)]
    assert [len(part) for part in each] == [len(chain.part(i, parts)) for i in range(parts)]
    assert [each[i % parts][i // parts] for i in range(len(whole))] == whole
    assert sum(map(len, each)) == len(whole)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.filter(lambda row: row["id"] % 3 == 0).batch(4),
        lambda ds: ds.bucket("t", [2, 4]).batch(4, pad="longest"),
        lambda ds: ds.shuffle(3, window=20).batch(7),
        lambda ds: ds.batch(8).repeat(2),
    ],
    ids=["filter", "bucket", "window", "repeat"],
)
def test_every_row_comes_once_with_workers(ds: rm.Dataset, chain: Any) -> None:
    pipeline = chain(ds.select("id", "t"))
    there = sorted(flat(ids(pipeline)))
    assert sorted(flat(ids([b for i in range(3) for b in pipeline.part(i, 3)]))) == there
    pipeline.epoch = 0
    loader = DataLoader(pipeline.to_torch(), batch_size=None, num_workers=2)
    assert sorted(flat(ids(loader))) == there


def test_what_one_process_has_to_count_is_refused_with_workers(ds: rm.Dataset) -> None:
    stream = ds.filter(lambda row: row["id"] > 3).take(5).batch(2).to_torch()
    assert sum(len(batch["id"]) for batch in stream) == 5
    with pytest.raises(rm.OptionError, match="num_workers=0"):
        list(DataLoader(stream, batch_size=None, num_workers=2))


def test_filtered_rows_are_a_stream_that_the_loader_batches(ds: rm.Dataset) -> None:
    stream = ds.select("id", "x").filter(lambda row: row["id"] % 2 == 1).to_torch()
    batches = list(DataLoader(stream, batch_size=10, num_workers=2))
    assert sorted(flat(ids(batches))) == list(range(1, ROWS, 2))
    with pytest.raises(TypeError, match="not known"):
        len(stream)


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "x": row["x"] * 2}


def test_the_workers_of_a_map_do_not_start_inside_those_of_a_loader(ds: rm.Dataset) -> None:
    chain = ds.map(double, workers=2).batch(20)
    inside = list(DataLoader(chain.to_torch(), batch_size=None, num_workers=2))
    here = list(chain.to_torch())
    assert ids(inside) == ids(here)
    assert torch.equal(inside[3]["x"], here[3]["x"])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_learns(ds: rm.Dataset, workers: int) -> None:
    stream = ds.shuffle(1).batch(16).to_torch(features="x", label="y")
    losses = trained(DataLoader(stream, batch_size=None, num_workers=workers), 4)
    assert losses[-1] < losses[0] / 4
    if workers == 0:
        rows = ds.to_torch(features="x", label="y")
        losses = trained(DataLoader(rows, batch_size=16, shuffle=True), 4)
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
        return ds.shuffle(1).batch(10).to_torch()

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


def test_state_of_another_number_of_workers_is_refused(ds: rm.Dataset) -> None:
    stream = ds.batch(10).to_torch()
    stream.load_state_dict({**stream.state_dict(), "workers": 3})
    with pytest.raises(rm.OptionError, match="num_workers=3"):
        next(iter(stream))


RESUMED: dict[str, Any] = {
    "batches": lambda ds: ds.shuffle(1).batch(7),
    "drop_last": lambda ds: ds.shuffle(1).batch(7, drop_last=True),
    "window": lambda ds: ds.shuffle(1, window=16).batch(7),
    "padded": lambda ds: ds.batch(7, pad="longest"),
    "rank": lambda ds: ds.shuffle(1).batch(7).shard(1, 3),
    "even": lambda ds: ds.shuffle(1).batch(7).shard(2, 3, even="pad"),
}


@pytest.mark.parametrize("given", [1, 4, 6])
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("chain", RESUMED)
def test_what_is_left_of_an_epoch_is_split_in_its_order(
    ds: rm.Dataset, chain: str, parts: int, given: int
) -> None:
    def make() -> Any:
        return RESUMED[chain](ds.select("id", "t"))

    whole = ids(make())
    begun = make()
    batches = iter(begun)
    for _ in range(min(given, len(whole) - 1)):
        next(batches)
    restored = make().restore(json.loads(json.dumps(begun.state())))
    rest = ids(batches)
    each = [ids(restored.part(i, parts)) for i in range(parts)]
    assert [each[i % parts][i // parts] for i in range(len(rest))] == rest
    assert sum(map(len, each)) == len(rest)


@pytest.mark.parametrize("chain", ["filter", "bucket", "rows", "repeat"])
def test_what_is_left_of_other_epochs_is_split_with_each_row_once(
    ds: rm.Dataset, chain: str
) -> None:
    def make() -> Any:
        rows = ds.select("id", "t").shuffle(1)
        if chain == "repeat":
            return rows.batch(20).repeat(3)
        if chain == "rows":
            return rows.filter(lambda row: row["id"] % 3 > 0)
        if chain == "filter":
            return rows.filter(lambda row: row["id"] % 3 > 0).batch(4)
        return rows.bucket("t", [2, 4]).batch(4, pad="longest")

    begun = make()
    batches = iter(begun)
    for _ in range(5):
        next(batches)
    restored = make().restore(json.loads(json.dumps(begun.state())))
    parts = [batch for i in range(3) for batch in restored.part(i, 3)]

    def numbers(found: Any) -> list[int]:
        return sorted(int(n) for batch in found for n in np.atleast_1d(batch["id"]))

    assert numbers(parts) == numbers(batches)


def test_a_restored_pipeline_goes_on_in_the_workers_of_a_loader(ds: rm.Dataset) -> None:
    chain = ds.select("id").shuffle(1).batch(10)
    whole = [ids(chain) for _ in range(3)]
    chain.epoch = 0
    batches = iter(chain)
    for _ in range(3):
        next(batches)
    for persistent in (False, True):
        again = ds.select("id").shuffle(1).batch(10).restore(chain.state())
        loader = DataLoader(
            again.to_torch(), batch_size=None, num_workers=2, persistent_workers=persistent
        )
        assert [ids(loader) for _ in range(3)] == [whole[0][3:], *whole[1:]]
    stream = ds.select("id").shuffle(1).batch(10).restore(chain.state()).to_torch()
    stream.set_epoch(0)
    assert ids(DataLoader(stream, batch_size=None, num_workers=2)) == whole[0]


@pytest.mark.parametrize("method", METHODS)
def test_workers_go_on_from_where_a_pipeline_is_restored_to_behind_to_torch(
    ds: rm.Dataset, method: str
) -> None:
    chain = ds.select("id").shuffle(1).batch(10)
    whole = [ids(chain) for _ in range(4)]
    chain.epoch = 0
    batches = iter(chain)
    for _ in range(3):
        next(batches)
    middle = chain.state()
    assert len(ids(batches)) == len(whole[0]) - 3
    end = chain.state()

    again = ds.select("id").shuffle(1).batch(10)
    stream = again.to_torch()
    loader = DataLoader(stream, batch_size=None, num_workers=2, multiprocessing_context=method)
    for _ in range(2):  # the same place once more is a place, too
        again.restore(middle)
        assert [ids(loader) for _ in range(2)] == [whole[0][3:], whole[1]]
    again.restore(end)
    assert ids(loader) == whole[1]
    again.epoch = 3
    assert ids(loader) == whole[3]
    stream.set_epoch(2)
    assert [ids(loader) for _ in range(2)] == whole[2:]


def test_rows_by_number_cannot_be_restored(ds: rm.Dataset) -> None:
    chain = ds.shuffle(1)
    next(iter(chain))
    with pytest.raises(rm.OptionError, match=r"sampler.*put batch\(n\) before"):
        ds.shuffle(1).restore(chain.state()).to_torch()


def test_what_one_of_several_ranks_has_left_is_not_split_after_a_filter(ds: rm.Dataset) -> None:
    def make() -> Any:
        return ds.select("id").filter(lambda row: row["id"] >= 0).batch(4).shard(0, 2)

    begun = make()
    next(iter(begun))
    with pytest.raises(rm.OptionError, match="num_workers=0"):
        make().restore(begun.state()).part(0, 2)


def test_ragged_columns(ds: rm.Dataset) -> None:
    batch = next(iter(ds.batch(6).to_torch()))
    assert batch["t"].layout == torch.jagged
    # One length for both, so that they can be worked on together.
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
        ds.to_torch(ragged="dense")  # type: ignore[arg-type]


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
def test_every_dtype(dtype: str) -> None:
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


def test_arrays_that_pytorch_cannot_look_at_are_copied() -> None:
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
    loader = DataLoader(stream, batch_size=None, pin_memory=True)
    assert flat(ids(loader)) == list(range(ROWS))


def test_dense_columns_are_exchanged_by_dlpack(ds: rm.Dataset) -> None:
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
    assert run.stdout.strip() == "to_torch() needs PyTorch: pip install recmap[torch]"
