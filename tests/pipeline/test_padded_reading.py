"""Padding TFRecord sequences while they are read gives the same as padding them afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.model.batch import PadSpec
from recmap.pipeline.transforms.pad import Padding
from tests.jobs import same

ROWS = 350
FIELDS = {
    "id": "int64",
    "tokens": "int64[*]",
    "small": "int16[*]",
    "scores": "float32[*]",
    "boxes": "float32[*,4]",
    "raw": "float64[*]",
    "steps": "int64[*,*]",
    "name": "bytes",
    "words": "bytes[*]",
}

NUMBERS = ["id", "tokens", "small", "scores", "boxes", "raw", "steps"]


@cache
def columns(rows: int = ROWS, longest: int = 40) -> dict[str, Any]:
    """Every kind of column that can be padded, and some that cannot."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, longest + 1, rows)
    lengths[rng.integers(0, rows, rows // 10)] = 0

    def ragged(make: Callable[[int], Any]) -> rm.Ragged:
        return rm.Ragged.from_rows([make(int(n)) for n in lengths])

    steps = rm.Ragged.from_rows([np.arange(n % 4) for n in range(int(lengths.sum()))], np.int64)
    return {
        "id": np.arange(rows),
        "tokens": ragged(lambda n: rng.integers(-5, 1 << 20, n)),
        "small": ragged(lambda n: rng.integers(-300, 300, n).astype(np.int16)),
        "scores": ragged(lambda n: rng.standard_normal(n).astype(np.float32)),
        "boxes": ragged(lambda n: rng.standard_normal((n, 4)).astype(np.float32)),
        "raw": ragged(rng.standard_normal),
        "steps": rm.Ragged(steps, np.concatenate([[0], np.cumsum(lengths)])),
        "name": [b"row %d" % i for i in range(rows)],
        "words": rm.Ragged(
            rm.Ragged.from_bytes([b"w%d" % i for i in range(2 * rows)]), np.arange(rows + 1) * 2
        ),
    }


def write(path: str, data: dict[str, Any], begin: int = 0, end: int | None = None) -> None:
    part = {name: column[begin:end] for name, column in data.items()}
    with rm.TFRecordWriter(path, index=False) as writer:
        writer.write(part)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of batches that are read together depends on the number of CPUs."""
    monkeypatch.setenv("RECMAP_THREADS", "2")


@pytest.fixture
def read_apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[Any]]:
    """Return the batches of a pipeline whose rows are read first and padded afterwards."""

    def batches(chain: Any) -> list[Any]:
        with monkeypatch.context() as patch:
            patch.setattr(Padding, "read", lambda *_: [])
            return list(chain)

    return batches


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the batches that were padded while they were read, block by block."""
    blocks: list[int] = []
    read = Padding.read

    def counting(*arguments: Any) -> Any:
        made = read(*arguments)
        blocks.append(len(made))
        return made

    monkeypatch.setattr(Padding, "read", counting)
    return blocks


def alike(made: list[Any], expected: list[Any]) -> None:
    assert len(made) == len(expected)
    for one, other in zip(made, expected, strict=True):
        assert list(one) == list(other)
        for name, column in one.items():
            same(column, other[name])


PADS: dict[str, Any] = {
    "longest": "longest",
    "short": 7,
    "long": 64,
    "left": rm.Pad(fill=-1, side="left", cut="left"),
    "cut left": rm.Pad(5, cut="left"),
    "multiple": rm.Pad(multiple=16),
    "some": {"tokens": "longest", "boxes": rm.Pad(3, fill=2.5), "steps": (4, 2)},
}


TOLD = {"lengths": True, "mask": True}


@pytest.mark.parametrize("pad", PADS.values(), ids=list(PADS))
@pytest.mark.parametrize(
    ("shuffled", "names", "options"),  # every two of them meet
    [
        (False, list(FIELDS), {}),
        (False, NUMBERS, TOLD),
        (True, list(FIELDS), TOLD),
        (True, NUMBERS, {}),
    ],
    ids=["in order", "in order, numbers, told", "shuffled, told", "shuffled, numbers"],
)
def test_batches_equal_those_padded_after_reading(
    pad: Any,
    shuffled: bool,
    names: list[str],
    options: dict[str, Any],
    read_apart: Callable[[Any], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("d.tfrecord", columns())
    ds = rm.open("d.tfrecord", fields=FIELDS).select(names)
    chain = (ds.shuffle(seed=3) if shuffled else ds).batch(16, pad=pad, **options)
    expected = read_apart(chain)
    chain.epoch = 0
    blocks = counted(monkeypatch)
    alike(list(chain), expected)
    assert sum(blocks) == len(expected)
    assert max(blocks) == 8


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    size=st.integers(1, 12),
    pad=st.sampled_from(list(PADS.values())[:-1]),
)
def test_any_rows_and_sizes_equal_those_padded_after_reading(
    lengths: list[int], size: int, pad: Any
) -> None:
    rows = rm.Ragged.from_rows([np.arange(n) * 1000 - 7 for n in lengths], np.int64)
    with rm.TFRecordWriter("h.tfrecord", index=False, overwrite=True) as writer:
        writer.write({"x": rows})
    made = list(rm.open("h.tfrecord", fields={"x": "int64[*]"}).batch(size, pad=pad))
    alike(made, list(rm.from_arrays({"x": rows}).batch(size, pad=pad)))


def test_all_or_some_rows_of_several_files_are_padded_while_they_are_read(
    read_apart: Callable[[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = columns()
    for number, (begin, end) in enumerate([(0, 150), (150, 151), (151, ROWS)]):
        write(f"part-{number}.tfrecord", data, begin, end)
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    chosen = ds.select(["tokens", "id"]).skip(5).take(325)
    for chain in (chosen.batch(8, pad="longest"), chosen.shuffle(seed=1).batch(8, pad="longest")):
        expected = read_apart(chain)
        chain.epoch = 0
        with monkeypatch.context() as patch:
            blocks = counted(patch)
            alike(list(chain), expected)
        # Batches with rows of two files, too.
        assert sum(blocks) == len(expected) == 41


def test_rows_that_repeat_are_padded_while_they_are_read(
    read_apart: Callable[[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("d.tfrecord", columns())
    ds = rm.open("d.tfrecord", fields=FIELDS).select(["tokens", "id"])
    chain = ds.shuffle(seed=1).repeat(3).batch(8, pad="longest")
    expected = read_apart(chain)
    chain.epoch = 0
    blocks = counted(monkeypatch)
    alike(list(chain), expected)
    # Some batches have rows of two epochs, which are not read together.
    assert len(expected) - 2 * max(blocks) <= sum(blocks) < len(expected)


@pytest.mark.parametrize("pad", PADS.values(), ids=list(PADS))
@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
def test_columns_of_several_datasets_are_padded_while_they_are_read(
    pad: Any,
    shuffled: bool,
    read_apart: Callable[[Any], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("d.tfrecord", columns())
    np.save("y.npy", np.arange(ROWS) * 3)
    parts = {
        "y": "y.npy",
        "number": rm.open("d.tfrecord", fields={"id": "int64"}),
        "tokens": rm.open("d.tfrecord", fields=FIELDS),
        "b": rm.open("d.tfrecord", fields={"boxes": FIELDS["boxes"]}),
    }
    if isinstance(pad, dict):
        pad = {"tokens": "longest", "b": rm.Pad(3, fill=2.5)}
    ds = rm.open(parts)
    chain = (ds.shuffle(seed=3) if shuffled else ds).batch(16, pad=pad, lengths=True)
    expected = read_apart(chain)
    chain.epoch = 0
    blocks = counted(monkeypatch)
    made = list(chain)
    alike(made, expected)
    assert sum(blocks) == len(expected)
    assert sorted(np.concatenate([batch["y"] for batch in made]) // 3) == list(range(ROWS))


def test_a_column_under_two_names_is_padded_in_two_ways(
    read_apart: Callable[[Any], list[Any]],
) -> None:
    write("d.tfrecord", columns())
    file = rm.open("d.tfrecord", fields={"tokens": FIELDS["tokens"]})
    chain = rm.open({"a": file, "b": file}).batch(16, pad={"a": 5, "b": "longest"})
    expected = read_apart(chain)
    chain.epoch = 0
    alike(list(chain), expected)


def test_compressed_files_are_padded_after_reading(read_apart: Callable[[Any], list[Any]]) -> None:
    write("d.tfrecord.gz", columns())
    chain = rm.open("d.tfrecord.gz", fields=FIELDS).batch(16, pad="longest")
    expected = read_apart(chain)
    chain.epoch = 0
    alike(list(chain), expected)


def test_a_row_that_must_not_be_cut_is_refused_when_its_turn_comes() -> None:
    rows = [np.arange(50 if i == 575 else i % 40) for i in range(1000)]
    with rm.TFRecordWriter("d.tfrecord") as writer:
        writer.write({"x": np.arange(1000), "tokens": rm.Ragged.from_rows(rows)})
    batches = iter(rm.open("d.tfrecord").batch(10, pad={"tokens": rm.Pad(40, cut="error")}))
    for number in range(57):
        assert next(batches)["x"][0] == 10 * number
    with pytest.raises(rm.DataError, match="row 5 of the batch has 50 items"):
        next(batches)


def test_a_damaged_record_is_named_and_those_before_it_come_first() -> None:
    write("d.tfrecord", columns())
    whole = list(rm.open("d.tfrecord", fields=FIELDS).batch(10, pad="longest"))
    data = bytearray(Path("d.tfrecord").read_bytes())
    data[data.index(b"row 345")] ^= 1
    Path("d.tfrecord").write_bytes(data)
    batches = iter(rm.open("d.tfrecord", fields=FIELDS).batch(10, pad="longest"))
    alike(list(islice(batches, 34)), whole[:34])
    assert next(batches)["name"].tolist() == whole[34]["name"].tolist()[:5]
    with pytest.raises(rm.CorruptRecordError, match="record 345 "):
        next(batches)


def test_a_value_that_is_cut_off_must_fit_too() -> None:
    rows = [[1, 2], [3, 4, 70_000]]
    with rm.TFRecordWriter("d.tfrecord", index=False) as writer:
        writer.write({"x": rm.Ragged.from_rows(rows, np.int64)})
    with pytest.raises(rm.FieldMismatchError, match="record 1 .*70,?000"):
        list(rm.open("d.tfrecord", fields={"x": "int16[*]"}).batch(2, pad=2))


@pytest.mark.slow
def test_batches_do_not_share_memory() -> None:
    write("d.tfrecord", columns(longest=600))
    chain = rm.open("d.tfrecord", fields=FIELDS).batch(64, pad={"tokens": 600})
    batches = list(chain)
    for number, batch in enumerate(batches):
        batch["tokens"][:] = number
    assert all((batch["tokens"] == number).all() for number, batch in enumerate(batches))


def test_batches_that_turn_out_too_large_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first rows are short, so many batches are read together.
    lengths = np.full(2048, 4)
    lengths[1000::64] = 20_000
    rows = rm.Ragged.from_rows([np.full(n, n) for n in lengths], np.int64)
    with rm.TFRecordWriter("d.tfrecord") as writer:
        writer.write({"x": rows})
    chain = rm.open("d.tfrecord").batch(64, pad="longest").prefetch(memory="48MB")
    ready = chain._feed().ready
    assert ready.batches_per_block == 8
    assert ready.block_memory < 8 * 64 * 20_000 * 8
    blocks = counted(monkeypatch)
    made = [batch["x"] for batch in chain]
    assert [len(array) for array in made] == [64] * 32
    assert [array.shape[1] for array in made] == [4] * 15 + [20_000] * 17
    # One block has no long row, and one has a single long row; the others are tried, and
    # then read one by one.
    assert blocks[:2] == [8, 8]
    assert set(blocks[2:]) == {1}
    for array, start in zip(made, range(0, 2048, 64), strict=True):
        assert np.array_equal(array, rows[start : start + 64].pad())


def test_sizes_beyond_any_memory_are_refused() -> None:
    write("d.tfrecord", columns(20))
    source = TFRecordSource(["d.tfrecord"], {"tokens": "int64[*]"})
    for width, multiple in [(1 << 62, 1), (1 << 40, 1), (None, 1 << 61)]:
        pad = PadSpec(width, multiple, bytes(8), False, False)
        with pytest.raises(MemoryError):
            source.read_padded(range(20), {"tokens": pad}, 8, lambda n: np.empty(n, np.uint8))


def test_pads_that_do_not_fit_the_column_are_refused() -> None:
    write("d.tfrecord", columns(20))
    source = TFRecordSource(["d.tfrecord"], FIELDS)
    four, eight = (PadSpec(3, 1, bytes(n), False, False) for n in (4, 8))
    wrong = [("tokens", four, 8), ("name", eight, 8), ("steps", eight, 8), ("tokens", eight, 0)]
    for name, pad, rows in wrong:
        with pytest.raises(ValueError, match="pad"):
            source.read_padded(range(20), {name: pad}, rows, lambda n: np.empty(n, np.uint8))
    with pytest.raises(ValueError, match="size asked for"):
        source.read_padded(range(20), {"tokens": eight}, 8, lambda n: np.empty(n - 1, np.uint8))


def test_a_pipeline_can_be_sent_to_another_process(read_apart: Callable[[Any], list[Any]]) -> None:
    write("d.tfrecord", columns())
    chain = rm.open("d.tfrecord", fields=FIELDS).shuffle(seed=1).batch(32, pad="longest")
    expected = read_apart(chain)
    chain.epoch = 0
    list(chain)
    chain.epoch = 0
    alike(list(pickle.loads(pickle.dumps(chain))), expected)


def test_functions_of_batches_get_padded_batches() -> None:
    write("d.tfrecord", columns())
    ds = rm.open("d.tfrecord", fields=FIELDS).select(["id", "tokens"])
    made = list(ds.batch(16, pad="longest").map(lambda b: {"sum": b["tokens"].sum(1)}))
    plain = [batch["tokens"].sum(1) for batch in ds.batch(16, pad="longest")]
    assert all(np.array_equal(a["sum"], b) for a, b in zip(made, plain, strict=True))
    assert len(made) == 22
