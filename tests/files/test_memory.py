"""Batches reuse the memory of freed batches, and only of those."""

from __future__ import annotations

import gc
import pickle

import numpy as np

import recmap as rm
from recmap.files.memory import Buffers

_LARGE = (1024, 256)
_FLOAT = np.dtype("float32")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_reused_when_the_array_is_freed() -> None:
    buffers = Buffers()
    first = buffers.empty(_LARGE, _FLOAT)
    where = _address(first)
    del first
    assert _address(buffers.empty(_LARGE, _FLOAT)) == where


def test_an_array_that_is_held_keeps_its_memory() -> None:
    buffers = Buffers()
    held = buffers.empty(_LARGE, _FLOAT)
    held[:] = 7
    buffers.empty(_LARGE, _FLOAT)[:] = 1
    assert (held == 7).all()


def test_a_view_of_a_view_keeps_the_memory() -> None:
    buffers = Buffers()
    view = buffers.empty(_LARGE, _FLOAT).reshape(-1)[10:].view(np.uint32)[::2]
    view[:] = 7
    gc.collect()
    buffers.empty(_LARGE, _FLOAT)[:] = 1
    assert (view == 7).all()


def test_a_memoryview_keeps_the_memory() -> None:
    buffers = Buffers()
    array = buffers.empty(_LARGE, _FLOAT)
    array[:] = 7
    shared = array.data
    del array
    buffers.empty(_LARGE, _FLOAT)[:] = 1
    assert (np.asarray(shared) == 7).all()


def test_a_smaller_batch_reuses_a_buffer_but_not_a_much_larger_one() -> None:
    buffers = Buffers()
    where = _address(buffers.empty((1024, 1024), _FLOAT))
    smaller = buffers.empty((1000, 1024), _FLOAT)
    assert _address(smaller) == where
    del smaller
    assert _address(buffers.empty((100, 1024), _FLOAT)) != where


def test_small_and_huge_arrays_are_not_pooled() -> None:
    for rows in (0, 1, 1 << 15):
        assert Buffers().empty((rows, 256), _FLOAT).base is None


def test_a_pickled_pool_is_empty() -> None:
    assert pickle.loads(pickle.dumps(Buffers())).empty((2,), _FLOAT).shape == (2,)


def test_batches_of_a_mapped_file_do_not_change_while_held() -> None:
    values = np.random.default_rng(0).random((4096, 1024), np.float32)
    np.save("x.npy", values)
    train = rm.open("x.npy").shuffle(seed=1).batch(256)
    kept = np.concatenate([batch["data"] for batch in list(train)])
    assert np.array_equal(np.sort(kept, 0), np.sort(values, 0))


def test_batches_of_records_do_not_change_while_held() -> None:
    rows = [np.full(n, n) for n in range(1000)]
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": rm.Ragged.from_rows(rows), "y": np.ones((1000, 200), np.float32)})
    batches = list(rm.open("x.tfrecord").batches(250))
    assert all(batch["x"].values.nbytes > 1 << 18 for batch in batches[1:])
    found = [row for batch in batches for row in batch["x"]]
    assert all(np.array_equal(row, wanted) for row, wanted in zip(found, rows, strict=True))
    assert all((batch["y"] == 1).all() for batch in batches)


def test_a_slightly_larger_batch_fits_and_the_pool_is_bounded() -> None:
    buffers = Buffers(kept=3 << 20)
    where = _address(buffers.empty((1000, 1001), _FLOAT))
    assert _address(buffers.empty((1000, 1010), _FLOAT)) == where
    arrays = [buffers.empty((1 << 18,), _FLOAT) for _ in range(8)]
    del arrays
    assert sum(map(len, buffers._free)) <= 3 << 20
