"""Small batches are read several at a time, and the loop sees no difference."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import recmap as rm
from recmap.dataset.dataset import opened_rows

_ROWS = 1003


def _dataset() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(_ROWS), "y": np.arange(_ROWS * 2).reshape(-1, 2)})


def _values(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 10, 59, 1003, 2000])
def test_small_batches_equal_those_read_one_by_one(size: int, drop_last: bool) -> None:
    train = _dataset().shuffle(seed=1).batch(size, drop_last=drop_last)
    assert _values(train) == _values(train.prefetch(0))


def test_ranks_get_the_same_rows() -> None:
    for rank in range(3):
        train = _dataset().shuffle(seed=1).batch(10).shard(rank, 3)
        assert _values(train) == _values(train.prefetch(0))


@pytest.mark.parametrize("given", [0, 1, 50, 100, 101, 150])
def test_a_run_resumes_after_any_small_batch(given: int) -> None:
    def train() -> Any:
        return _dataset().shuffle(seed=1).batch(10).repeat(2)

    stopped = train()
    begun = iter(stopped)
    for _ in range(given):
        next(begun)
    saved = json.loads(json.dumps(stopped.state()))
    assert _values(train().restore(saved)) == _values(train())[given:]


def test_small_batches_are_writable_and_do_not_overlap() -> None:
    train = _dataset().batch(10)
    batches = list(train)
    for number, batch in enumerate(batches):
        batch["x"][:] = number
    assert all((batch["x"] == number).all() for number, batch in enumerate(batches))
    assert _values(_dataset().batch(10)) == _values(_dataset().batch(10).prefetch(0))


def test_timings_count_every_small_batch() -> None:
    train = _dataset().batch(10)
    assert len(list(train)) == train.timings().batches == 101
    assert train.timings().rows == _ROWS


@pytest.mark.parametrize("bad", [0, 57, 995])
def test_batches_before_a_bad_one_come_first(bad: int) -> None:
    def write(bad: int | None) -> None:
        # Three values instead of two: this row cannot be decoded.
        rows = [[i, i] if i != bad else [i, i, i] for i in range(_ROWS)]
        with rm.TFRecordWriter("d.tfrecord", index=False, overwrite=True) as writer:
            writer.write({"x": np.arange(_ROWS), "y": rm.Ragged.from_rows(rows)})

    def train() -> Any:
        return rm.open("d.tfrecord", fields={"x": "int64", "y": "int64[2]"}).batch(10)

    write(bad)
    stopped, seen = train(), []
    with pytest.raises(rm.FieldMismatchError, match=f"record {bad} .*3 values"):
        for batch in stopped:
            seen += batch["x"].tolist()
    assert seen == list(range(bad))
    state = stopped.state()
    write(None)
    with pytest.raises(rm.OptionError, match="check=False"):
        train().restore(state)  # the file is another one
    rest = [n for batch in _values(train().restore(state, check=False)) for n in batch]
    # A state cannot be inside a batch: the incomplete one comes again, whole.
    assert seen[: bad // 10 * 10] + rest == list(range(_ROWS))


def _sequences(bad: int | None = None) -> rm.Dataset:
    lengths = np.random.default_rng(0).integers(0, 40, _ROWS)
    if bad is not None:
        lengths[bad] = 50
    values = [np.arange(n) + 7 * row for row, n in enumerate(lengths)]
    return rm.from_arrays({"x": np.arange(_ROWS), "tokens": rm.Ragged.from_rows(values)})


@pytest.mark.parametrize("length", ["longest", 25])
@pytest.mark.parametrize("size", [1, 10, 59, 2000])
def test_padded_batches_have_their_own_widths(size: int, length: Any) -> None:
    train = (
        _sequences().shuffle(seed=1).batch(size, pad={"tokens": length}, lengths=True, mask=True)
    )
    together, alone = list(train), list(train.prefetch(0))
    assert len(together) == len(alone) == -(-_ROWS // size)
    for one, other in zip(together, alone, strict=True):
        assert list(one) == list(other) == ["x", "tokens", "tokens_length", "tokens_mask"]
        for name, column in one.items():
            assert np.array_equal(column, other[name])


def test_padded_batches_before_a_bad_one_come_first() -> None:
    pad = rm.Pad(40, cut="error")
    batches = iter(_sequences(bad=575).batch(10, pad={"tokens": pad}))
    for number in range(57):
        assert next(batches)["x"][0] == 10 * number
    with pytest.raises(rm.DataError, match="row 5 of the batch has 50 items"):
        next(batches)


def test_padded_batches_that_are_kept_do_not_overlap() -> None:
    train = _sequences().batch(500, pad={"tokens": 2000})
    batches = list(train)
    for number, batch in enumerate(batches):
        batch["tokens"][:] = number
    assert all((batch["tokens"] == number).all() for number, batch in enumerate(batches))


def _saved_sequences() -> rm.Dataset:
    """Return the same rows and a column of strings from a file, which is read in other ways."""
    sequences = _sequences()
    names = rm.Ragged.from_bytes([b"row %d" % row for row in range(_ROWS)])
    with rm.TFRecordWriter("sequences.tfrecord", index=False) as writer:
        writer.write({**sequences[:], "name": names})
    return rm.open("sequences.tfrecord")


def _samples() -> rm.Dataset:
    """Return rows of several files whose sizes are known before they are read."""
    keys = rm.Ragged.from_text([f"{row:x}" for row in range(_ROWS)])
    columns = {"__key__": keys, **_sequences()[:]}
    rm.from_arrays(columns).save("samples.tar", shards=3)
    return rm.open("samples-*.tar")


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("size", [1, 10, 59, 2000])
@pytest.mark.parametrize(
    "made", [_sequences, _saved_sequences, _samples], ids=["arrays", "file", "samples"]
)
def test_ragged_batches_equal_those_read_one_by_one(made: Any, size: int, shuffled: bool) -> None:
    ds = made()
    train = (ds.shuffle(seed=1) if shuffled else ds).batch(size)
    assert size == 2000 or train._feed().ready.batches_per_block > 1
    together, alone = list(train), list(train.prefetch(0))
    assert len(together) == len(alone) == -(-_ROWS // size)
    for one, other in zip(together, alone, strict=True):
        assert list(one) == list(other) == list(ds.schema)
        assert np.array_equal(one["x"], other["x"])
        for name in set(one) - {"x"}:
            assert one[name] == other[name]
            # Each batch has its own offsets, and only its own values.
            assert np.array_equal(one[name].offsets, other[name].offsets)
            assert len(one[name].values) == one[name].offsets[-1]


@pytest.mark.parametrize("made", [_sequences, _saved_sequences], ids=["arrays", "file"])
def test_ragged_batches_that_are_kept_do_not_overlap(made: Any) -> None:
    batches = list(made().batch(10))
    for number, batch in enumerate(batches):
        batch["tokens"].values[:] = number
    assert all((batch["tokens"].values == number).all() for number, batch in enumerate(batches))


def test_ragged_batches_before_a_bad_one_come_first() -> None:
    whole = [batch["tokens"].tolist() for batch in _saved_sequences().batch(10)]
    data = bytearray(Path("sequences.tfrecord").read_bytes())
    data[data.index(b"row 575")] ^= 1
    Path("sequences.tfrecord").write_bytes(data)
    batches = iter(rm.open("sequences.tfrecord").batch(10))
    for number in range(57):
        assert next(batches)["tokens"].tolist() == whole[number]
    assert next(batches)["tokens"].tolist() == whole[57][:5]
    with pytest.raises(rm.CorruptRecordError, match="record 575 "):
        next(batches)


@pytest.mark.parametrize("saved", [False, True], ids=["arrays", "file"])
def test_ragged_batches_that_are_too_large_together_are_read_one_by_one(saved: bool) -> None:
    lengths = np.full(2048, 4)
    lengths[1024:1152] = 20_000
    rows = rm.Ragged.from_rows([np.full(n, n) for n in lengths], np.int64)
    ds = rm.from_arrays({"x": rows})
    if saved:
        ds.save("d.tfrecord")
        ds = rm.open("d.tfrecord")
    train = ds.batch(64).prefetch(memory="16MB")
    ready = train._feed().ready
    assert ready.batches_per_block > 1
    assert ready.block_memory < 64 * 20_000 * 8
    held = []
    for number, batch in enumerate(train):
        assert batch["x"] == rows[64 * number : 64 * number + 64]
        held.append(batch["x"].values.base)
    assert len(held) == 32
    # Batches of short rows share memory, those of long ones do not.
    assert not saved or held[0] is held[1] is not None
    assert held[16] is None or held[16] is not held[17]


def test_the_offsets_of_many_empty_strings_count_as_memory() -> None:
    strings = [1 if row < 200 else 40_000 for row in range(300)]
    values = rm.Ragged(rm.Ragged.from_bytes([b""] * sum(strings)), np.cumsum([0, *strings]))
    with rm.TFRecordWriter("d.tfrecord", {"x": "bytes[*]"}) as writer:
        writer.write({"x": values})
    train = rm.open("d.tfrecord").batch(4).prefetch(memory="32MB")
    ready = train._feed().ready
    assert ready.batches_per_block > 1
    assert ready.block_memory < ready.batches_per_block * 4 * 40_000 * 8
    kept = [batch["x"] for batch in train]
    assert sum(map(len, kept)) == 300
    assert _whole_size(kept[0].offsets) == _whole_size(kept[1].offsets) == 8 * (len(kept[0]) + 1)
    assert max(_whole_size(column.values.offsets) for column in kept) <= ready.block_memory


def _whole_size(array: Any) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.nbytes)


def test_strings_beside_other_columns_stay_within_the_memory() -> None:
    lengths = [5] * 2000 + [20_000] * 2000
    with h5py.File("s.h5", "w") as file:
        strings = [b"x" * n for n in lengths]
        file.create_dataset("text", data=strings, dtype=h5py.string_dtype("ascii"))
    np.save("y.npy", np.arange(4000))
    train = rm.open({"text": "s.h5", "y": "y.npy"}).batch(16).prefetch(memory="16MB")
    ready = train._feed().ready
    assert ready.batches_per_block > 1
    assert ready.block_memory < ready.batches_per_block * 16 * 20_000
    most = 0
    for number, batch in enumerate(train):
        assert batch["text"].lengths.tolist() == lengths[16 * number : 16 * number + 16]
        most = max(most, _whole_size(batch["text"].values))
    assert most <= ready.block_memory


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_any_number_of_threads_reads_the_same_batches(threads: int) -> None:
    train = _dataset().shuffle(seed=1).batch(10)
    assert _values(train.prefetch(threads=threads)) == _values(train.prefetch(0))


def test_reading_ahead_needs_a_thread() -> None:
    with pytest.raises(rm.OptionError, match="threads=0: .*1 or more"):
        _dataset().batch(10).prefetch(2, threads=0)
    with pytest.raises(rm.OptionError, match="one thread or more"):
        _dataset().batch(10).prefetch(0, threads=2)


@pytest.mark.parametrize("size", [1, 2, 32])
def test_the_state_after_any_batch_is_known_under_tensorflow(size: int) -> None:
    train = rm.from_arrays({"x": np.arange(40_000)}).batch(size).take(1500)
    for number, batch in enumerate(train.to_tf(), 1):
        if number % 100 == 1:
            place = train.state(batches=number)
            rest = rm.from_arrays({"x": np.arange(40_000)}).batch(size).take(1500).restore(place)
            assert next(iter(rest))["x"][0] == int(batch["x"][-1]) + 1


def test_only_a_few_padded_batches_are_read_together_as_their_size_is_a_guess() -> None:
    lengths = [2000 if row % 32 == 0 else 5 for row in range(4096)]
    rows = rm.Ragged.from_rows([np.zeros(n, np.int64) for n in lengths])
    train = rm.from_arrays({"tokens": rows}).batch(32, pad="longest")
    assert train._feed().ready.batches_per_block <= 4


def test_blocks_ahead_account_for_batches_that_are_read_together() -> None:
    values = np.zeros((100_000, 256), np.float32)
    train = rm.from_arrays({"x": values}).shuffle(seed=1).batch(64)
    many = train.prefetch(threads=16, memory="64MB")
    ready = many._feed().ready
    block = ready.row_bytes * 64 * ready.batches_per_block
    assert (ready.blocks_ahead + 1) * block <= 64e6


def test_ragged_batches_are_writable_and_do_not_overlap() -> None:
    batches = list(_samples().shuffle(seed=1).batch(10))
    for number, batch in enumerate(batches):
        batch["x"][:] = number
        batch["tokens"].values[:] = number
    for number, batch in enumerate(batches):
        assert (batch["x"] == number).all()
        assert (batch["tokens"].values == number).all()


def test_a_few_huge_rows_are_not_read_together_with_others() -> None:
    lengths = np.where(np.arange(_ROWS) % 300 == 7, 1 << 20, 5)
    rows = rm.Ragged(np.arange(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))
    ds = rm.from_arrays({"x": np.arange(_ROWS), "tokens": rows})
    found = []
    for batch in ds.shuffle(seed=1).batch(10):
        for x, tokens in zip(batch["x"].tolist(), batch["tokens"], strict=True):
            assert (len(tokens), tokens[0]) == (lengths[x], rows.offsets[x])
            found.append(x)
    assert sorted(found) == list(range(_ROWS))


def test_guessed_sizes_are_not_taken_for_bounds(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    rm.from_arrays({"image": [file.getvalue()] * 8}).save(tmp_path / "x.npz")
    ds = rm.open(tmp_path / "x.npz")
    assert opened_rows(ds).source.facts.sized
    decoded = ds.decode_image("image", None, dtype="uint8")
    joined = opened_rows(rm.concat(decoded, decoded)).source
    assert joined.gather_sized(np.arange(4), 1 << 20) is None
