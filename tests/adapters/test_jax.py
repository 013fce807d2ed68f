"""to_jax: arrays on devices, shardings, training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from tests.frameworks import jax, jnp

ROWS = 53


@pytest.fixture
def ds() -> rm.Dataset:
    """Rows that hold their own number, in a file."""
    x = np.random.default_rng(1).standard_normal((ROWS, 3)).astype(np.float32)
    y = x @ np.array([1, -2, 3], np.float32)
    np.savez("x.npz", id=np.arange(ROWS, dtype=np.int32), x=x, y=y)
    return rm.open("x.npz")


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("prefetch", [0, 2, 9])
def test_batches_equal_those_of_the_pipeline(ds: rm.Dataset, prefetch: int) -> None:
    plain = ds.shuffle(seed=1).batch(10)
    epochs = [list(plain) for _ in range(2)]
    batches = ds.shuffle(seed=1).batch(10).to_jax(prefetch=prefetch)
    assert len(batches) == 6
    for epoch in epochs:
        for ours, theirs in zip(epoch, batches, strict=True):
            assert all(isinstance(array, jax.Array) for array in theirs.values())
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_model_learns(ds: rm.Dataset) -> None:
    def step(w: Any, x: Any, y: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        return w - 0.1 * slope, loss

    w, losses, jitted = jnp.zeros(3), [], jax.jit(step)
    batches = ds.shuffle(seed=1).batch(8, drop_last=True).to_jax(features="x", label="y")
    for _ in range(4):
        for x, y in batches:
            w, loss = jitted(w, x, y)
            losses.append(float(loss))
    assert losses[-1] < losses[0] / 50


def test_the_state_is_that_of_the_last_batch_handed_out(ds: rm.Dataset) -> None:
    batches = ds.shuffle(seed=1).batch(10).to_jax(prefetch=3)
    whole = [ids(batches), ids(batches)]
    batches = ds.shuffle(seed=1).batch(10).to_jax(prefetch=3)
    start = batches.state()
    some = iter(batches)
    assert batches.state() == start
    assert [next(some)["id"].tolist() for _ in range(2)] == whole[0][:2]
    state = json.loads(json.dumps(batches.state()))
    again = ds.shuffle(seed=1).batch(10).to_jax().restore(state)
    assert again.state() == state
    assert ids(again) == whole[0][2:]
    assert ids(again) == whole[1]


@pytest.mark.parametrize("prefetch", [0, 2, 9])
def test_batches_before_one_that_fails_are_handed_out(ds: rm.Dataset, prefetch: int) -> None:
    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 35:
            raise ValueError("not this one")
        return row

    train = ds.select("id").map(picky).batch(10).to_jax(prefetch=prefetch)
    found: list[list[int]] = []
    with pytest.raises(rm.MapError, match="not this one"):
        found.extend(batch["id"].tolist() for batch in train)
    assert found == [list(range(start, start + 10)) for start in (0, 10, 20)]
    assert train.state()["at"] == 30


def test_batches_go_to_the_device_asked_for(ds: rm.Dataset) -> None:
    (device,) = jax.local_devices(backend="cpu")[:1]
    for given in ("cpu", "cpu:0", device):
        batches = list(ds.batch(10).to_jax(device=given))
        assert all(array.devices() == {device} for each in batches for array in each.values())
        assert ids(batches) == ids(ds.batch(10))
    with pytest.raises(rm.OptionError, match="device='cpu:99': JAX has no such device"):
        ds.batch(10).to_jax(device="cpu:99")
    with pytest.raises(rm.OptionError, match="give device= or sharding="):
        ds.batch(10).to_jax(device="cpu", sharding=jax.sharding.SingleDeviceSharding(device))


def test_batches_that_are_held_do_not_change() -> None:
    values = np.random.default_rng(0).random((512, 4096), np.float32)
    np.save("y.npy", values)
    train = rm.open("y.npy").shuffle(seed=1).batch(64).to_jax()
    kept = [batch["data"] for _ in range(3) for batch in train]
    for epoch in range(3):
        rows = np.concatenate([np.asarray(each) for each in kept[epoch * 8 : epoch * 8 + 8]])
        assert np.array_equal(np.sort(rows, 0), np.sort(values, 0))


def test_cutting_64_bit_numbers_to_32_warns() -> None:
    chain = rm.from_arrays({"n": np.arange(3), "f": np.ones(3), "i": np.ones(3, np.int32)}).batch(3)
    with pytest.warns(UserWarning, match=r"jax_enable_x64.*'n' \(int64\), 'f' \(float64\)$"):
        batches = chain.to_jax()
    batch = next(iter(batches))
    assert (batch["n"].dtype, batch["f"].dtype) == (jnp.int32, jnp.float32)
    assert batch["n"].tolist() == [0, 1, 2]
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert next(iter(chain.to_jax()))["n"].dtype == jnp.int64


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "float16", "complex64", ">i4",
          ">f4", ">u2", "bfloat16", "float8_e4m3fn"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_values(dtype: str) -> None:
    x = (np.arange(12).reshape(6, 2) % 2).astype(getattr(ml_dtypes, dtype, None) or dtype)
    batch = next(iter(rm.from_arrays({"x": x}).batch(6).to_jax()))["x"]
    assert batch.dtype == (x.dtype if x.dtype.kind == "V" else x.dtype.newbyteorder("="))
    assert np.asarray(batch).astype(np.complex64).tolist() == x.astype(np.complex64).tolist()


def test_columns_that_jax_cannot_take_are_refused(ds: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match="put batch"):
        ds.to_jax()
    with pytest.raises(rm.OptionError, match="prefetch=-1"):
        ds.batch(2).to_jax(prefetch=-1)
    mixed = rm.from_arrays({"b": [b"a", b"b"], "t": rm.Ragged.from_rows([[1], [2, 3]])})
    with pytest.raises(rm.OptionError, match="column 'b': JAX has no byte strings.*select.*map"):
        mixed.batch(2).to_jax()
    with pytest.raises(rm.OptionError, match="column 't': rows differ in length.*pad"):
        mixed.batch(2).to_jax(features="t")
    with pytest.warns(UserWarning, match="'t'"):
        padded = mixed.batch(2, pad={"t": 2}).to_jax(features="t")
    assert next(iter(padded)).tolist() == [[1, 0], [2, 3]]
    with pytest.raises(rm.FieldNotFoundError, match="sharding: no column 'z'"):
        ds.batch(2).to_jax(sharding={"z": None})
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(rm.OptionError, match="JAX has no type"):
            rm.from_arrays({"q": np.zeros(3, np.longdouble)}).batch(2).to_jax()


def test_batches_are_laid_out_over_devices(ds: rm.Dataset) -> None:
    program = """
import jax, numpy as np, recmap as rm
from jax.sharding import NamedSharding, PartitionSpec as P
assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("data"))
ds = rm.open("x.npz")
chain = ds.shuffle(seed=1).batch(8, drop_last=True)
plain = list(ds.shuffle(seed=1).batch(8, drop_last=True))

for ours, theirs in zip(plain, chain.to_jax(sharding=rows), strict=True):
    for name in ours:
        assert theirs[name].sharding == rows
        assert [part.data.shape[0] for part in theirs[name].addressable_shards] == [2] * 4
        assert np.array_equal(theirs[name], ours[name])

everywhere = NamedSharding(mesh, P())
batch = next(iter(chain.to_jax(sharding={"x": rows, "y": everywhere})))
assert batch["x"].sharding == rows and batch["y"].sharding == everywhere
assert len(batch["id"].devices()) == 1

@jax.jit
def step(w, x, y):
    loss, slope = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
    return w - 0.1 * slope, loss

w = jax.device_put(np.zeros(3, np.float32), everywhere)
losses = []
for x, y in chain.to_jax(sharding=rows, features="x", label="y"):
    w, loss = step(w, x, y)
    losses.append(float(loss))
assert losses[-1] < losses[0], losses

try:
    list(ds.batch(8).to_jax(sharding=rows, prefetch=0))
except rm.OptionError as e:
    assert "drop_last=True" in str(e) and "int32[5]" in str(e), e
else:
    raise AssertionError("not refused")
"""
    flags = "--xla_force_host_platform_device_count=4"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(ds) == ROWS


def same(row: dict[str, Any]) -> dict[str, Any]:
    return dict(row)


# Not forked: JAX has threads, and warns about forks.
@pytest.mark.parametrize("workers", [None, "spawn:1"])
def test_dense_columns_are_shared_through_dlpack(ds: rm.Dataset, workers: str | None) -> None:
    chain = ds.map(same, workers=workers).batch(10)
    kept = [(jax.dlpack.from_dlpack(batch["x"]), batch["x"].copy()) for batch in chain]
    assert len(kept) == 6
    for theirs, ours in kept:
        assert np.array_equal(theirs, ours)


def test_without_jax_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["jax"] = None
import numpy as np, recmap as rm
try:
    rm.from_arrays({"x": np.arange(3)}).batch(2).to_jax()
except rm.MissingPackageError as e:
    print(e)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith('to_jax() needs JAX: pip install "jax>=0.5"')


def test_an_iterator_that_is_not_used_costs_no_epoch(ds: rm.Dataset) -> None:
    batches, alone = (
        ds.select("id").shuffle(seed=1).batch(10).to_jax(),
        ds.shuffle(seed=1).batch(10),
    )
    for _ in range(2):
        iter(batches)
        saved = batches.state()
        assert ids(batches) == ids(alone)
        assert batches.state()["epoch"] == saved["epoch"] + 1


@pytest.mark.filterwarnings("ignore:JAX converts numbers to 32 bits")
def test_null_dates_never_reach_a_model_as_numbers() -> None:
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    ds = rm.from_arrays({"d": dates, "t": dates - dates[:1]})
    for name, what in (("d", "date"), ("t", "duration")):
        with pytest.raises(rm.ColumnError, match=f"null {what}.*ds.fill_null.*ds.mask_null"):
            list(ds.select(name).batch(2).to_jax())
    [batch] = ds.mask_null("d", "t").batch(2).to_jax()
    assert [int(each) for each in batch["d"]] == [18262, 0]
    assert [bool(each) for each in batch["d/is_null"]] == [False, True]
    [batch] = ds.fill_null({"d": 3, "t": 4}).batch(2).to_jax()
    assert [int(each) for each in batch["t"]] == [0, 4]
