"""ds.explode: a row for every item of a list."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.dataset.explode import counted_items
from recmap.model.ordered_rows import OrderedRows
from recmap.model.progress import Progress
from recmap.pipeline.row_source import SourceRows
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.shuffle import Shuffle

LENGTHS = [2, 0, 3, 0, 0, 1, 4, 0]
#: The row and the place in it of each item.
ITEMS = [(row, item) for row, length in enumerate(LENGTHS) for item in range(length)]


def columns() -> dict[str, Any]:
    boxes = rm.Ragged.from_rows(
        [np.arange(4 * n).reshape(n, 4) + 100 * row for row, n in enumerate(LENGTHS)], np.float32
    )
    offsets = np.cumsum([0, *LENGTHS])
    names = rm.Ragged.from_text([f"{row}.{item}" for row, item in ITEMS])
    return {
        "row": np.arange(len(LENGTHS)),
        "boxes": boxes,
        "names": rm.Ragged(names, offsets),
        "image": rm.Ragged.from_bytes([bytes([row]) * row for row in range(len(LENGTHS))]),
        "pair": np.arange(2 * len(LENGTHS)).reshape(-1, 2),
    }


def check(batch: Any, items: list[tuple[int, int]]) -> None:
    assert batch["row"].tolist() == [row for row, _ in items]
    wanted = [[100 * row + 4 * item + n for n in range(4)] for row, item in items]
    assert batch["boxes"].tolist() == wanted
    assert batch["names"].tolist() == [f"{row}.{item}" for row, item in items]
    assert batch["image"].tolist() == [bytes([row]) * row for row, _ in items]
    assert batch["pair"].tolist() == [[2 * row, 2 * row + 1] for row, _ in items]


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "x.npz", "x.parquet", None])
def test_items_are_read_like_any_rows(tmp_path: Path, name: str | None) -> None:
    ds = rm.from_arrays(columns())
    if name is not None:
        ds.save(tmp_path / name)
        ds = rm.open(tmp_path / name)
    made = ds.explode("boxes", "names")
    assert str(made.schema["boxes"]) == "float32[4]"
    assert str(made.schema["names"]) == "text"
    assert len(made) == len(ITEMS)
    check(made[:], ITEMS)
    for start in range(len(ITEMS)):
        for stop in range(start, len(ITEMS) + 1):
            check(made[start:stop], ITEMS[start:stop])
    check(made[[3, 0, -1, 3]], [ITEMS[3], ITEMS[0], ITEMS[-1], ITEMS[3]])
    check(made[np.arange(len(ITEMS)) % 2 == 0], ITEMS[::2])
    assert [row["names"] for row in made] == [f"{row}.{item}" for row, item in ITEMS]
    assert made["row"][:].tolist() == [row for row, _ in ITEMS]
    check(pickle.loads(pickle.dumps(made))[:], ITEMS)
    made.save(tmp_path / "items.npz")
    check(rm.open(tmp_path / "items.npz")[:], ITEMS)


def test_items_are_trained_from_in_every_order(tmp_path: Path) -> None:
    rm.from_arrays(columns()).save(tmp_path / "x.tfrecord")
    made = rm.open(tmp_path / "x.tfrecord").explode("boxes", "names")
    batches = list(made.batch(3))
    for number, batch in enumerate(batches):
        check(batch, ITEMS[3 * number : 3 * number + 3])
    train = made.shuffle(seed=1).batch(4)
    names = [name for batch in train for name in batch["names"].tolist()]
    assert sorted(names) == sorted(f"{row}.{item}" for row, item in ITEMS)
    shares = [made.shuffle(seed=1).batch(2).shard(rank, 2) for rank in range(2)]
    dealt = [name for share in shares for batch in share for name in batch["names"].tolist()]
    assert sorted(dealt) == sorted(names)
    stopped = made.batch(3)
    next(iter(stopped))
    again = made.batch(3).restore(stopped.state())
    check(next(iter(again)), ITEMS[3:6])
    few = made.sample(50, balance="row", seed=1)
    assert {int(row["row"]) for row in few} == {row for row, _ in ITEMS}
    assert made.sort("row", descending=True)[0]["row"] == 6


def test_rows_of_a_fixed_shape_are_divided_without_reading(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(24).reshape(4, 3, 2))
    passes: list[Progress] = []
    made = rm.open(tmp_path / "x.npy").explode("data", progress=passes.append)
    assert len(made) == 12
    assert made["data"][:].tolist() == np.arange(24).reshape(12, 2).tolist()
    assert made[[11, 0]]["data"].tolist() == [[22, 23], [0, 1]]
    assert len(made.explode("data")) == 24
    assert passes == []


def test_nested_lists_are_divided_one_level_at_a_time() -> None:
    inner = rm.Ragged.from_rows([[1], [2, 3], [], [4, 5, 6]])
    ds = rm.from_arrays({"x": rm.Ragged(inner, [0, 2, 2, 4]), "id": np.arange(3)})
    once = ds.explode("x")
    assert once[:]["x"].tolist() == [[1], [2, 3], [], [4, 5, 6]]
    assert once[:]["id"].tolist() == [0, 0, 2, 2]
    assert once.explode("x")[:]["x"].tolist() == [1, 2, 3, 4, 5, 6]


def test_lengths_are_counted_once_and_when_needed(tmp_path: Path) -> None:
    rm.from_arrays(columns()).save(tmp_path / "x.tfrecord")
    passes: list[Progress] = []
    made = rm.open(tmp_path / "x.tfrecord").explode("boxes", progress=passes.append)
    assert made.schema["boxes"].shape == (4,)
    assert passes == []
    for _ in range(2):
        assert len(made.select("row").batch(3)) == 4
        assert len(made[:]["row"]) == len(ITEMS)
    assert len(passes) <= 2  # an update and the end
    assert made.select("row", "pair").batch(20).schema["pair"].shape == (2,)
    assert [b["row"].tolist() for b in made.select("row").batch(20)] == [[r for r, _ in ITEMS]]


def test_nothing_but_empty_lists_gives_no_rows() -> None:
    ds = rm.from_arrays({"x": rm.Ragged.from_rows([[], []], np.int64), "y": np.arange(2)})
    made = ds.explode("x")
    assert len(made) == 0
    assert made[:]["y"].tolist() == []
    assert list(made) == []


def test_a_repeated_image_stays_within_the_memory_limit() -> None:
    source = (
        rm.from_arrays(
            {
                "image": np.zeros((3, 1000), np.uint8),
                "box": rm.Ragged.from_rows([np.arange(500), [1], np.arange(40)]),
            }
        )
        .explode("box")
        ._source
    )
    start = 0
    while start < len(source):
        batch = source.read(start, len(source), 20_000)
        assert 0 < len(batch["box"]) * 1008 <= 10_000
        start += len(batch["box"])
    assert start == 541
    with pytest.raises(rm.MemoryLimitError):
        source.read(0, 10, 100)


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    given = columns()
    given["other"] = rm.Ragged.from_rows([[1] * n for n in [2, 0, 3, 0, 1, 1, 4, 0]])
    rm.from_arrays(given).save(tmp_path / "x.npz")
    ds = rm.open(tmp_path / "x.npz")
    with pytest.raises(rm.DataError, match=r"row 4 of .*x.npz has 0 items in 'boxes' and 1 in"):
        len(ds.explode("boxes", "other"))
    with pytest.raises(rm.DataError, match="row 1 of .* has 0 items in 'boxes' and 2 in 'pair'"):
        len(ds.explode("boxes", "pair"))
    with pytest.raises(rm.OptionError, match="'row' is int64, one value per row"):
        ds.explode("row")
    with pytest.raises(rm.OptionError, match="'image' is bytes, one value per row"):
        ds.explode("image")
    with pytest.raises(rm.FieldNotFoundError, match="no column 'box'"):
        ds.explode("box")
    with pytest.raises(rm.OptionTypeError, match="give the columns"):
        ds.explode()
    with pytest.raises(rm.OptionTypeError, match="name of a column is text"):
        ds.explode(["boxes"])  # type: ignore[arg-type]
    wide = rm.from_arrays({"a": np.zeros((2, 3)), "b": np.zeros((2, 4))})
    with pytest.raises(rm.OptionError, match="3 in 'a' and 4 in 'b'"):
        wide.explode("a", "b")
    rows = OrderedRows(SourceRows(ds._opened.source, None), Shuffle(len(ds), Seed(1)))
    with pytest.raises(rm.OptionError, match="put explode before shuffle"):
        counted_items(rows, ["boxes"], None, None)


def test_an_error_names_the_item() -> None:
    made = rm.from_arrays(columns()).explode("boxes")

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["row"] == 2:
            raise ValueError("no")
        return row

    with pytest.raises(rm.MapError, match="item 0 of row 2"):
        list(made.map(fail))
