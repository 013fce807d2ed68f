"""``rm.concat``: the rows of several datasets, one after another."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.numbered import flat


def numbers(start: int, stop: int) -> rm.Dataset:
    names = [b"n%d" % i for i in range(start, stop)]
    return rm.from_arrays({"x": np.arange(start, stop), "name": names})


def on_disk() -> tuple[rm.Dataset, rm.Dataset]:
    numbers(0, 12).save("a.tfrecord")
    numbers(12, 20).save("b.npz")
    return rm.open("a.tfrecord"), rm.open("b.npz")


def is_even(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2 == 0)


def chain() -> rm.Dataset:
    """Return parts that are filtered, shuffled, mapped and empty."""
    a, b = on_disk()
    return rm.concat(
        a.filter(is_even),
        b.shuffle(seed=1),
        a.take(0),
        a.map(jittered).take(5),
    )


def jittered(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "x": row["x"] + 100 * rng.integers(1, 5)}


def values(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


def test_lists_of_which_none_is_kept_are_concatenated() -> None:
    rm.from_arrays({"x": rm.Ragged.from_rows([[1], [2, 3]], "int64")}).save("x.tfrecord")
    none = rm.open("x.tfrecord").filter(lambda row: len(row["x"]) > 5)
    assert list(rm.concat(none, none.take(2))) == []


def test_rows_come_one_dataset_after_another() -> None:
    a, b = on_disk()
    both = rm.concat(a, b)
    assert isinstance(both, rm.Dataset)
    assert len(both) == 20
    assert both["x"][:].tolist() == list(range(20))
    assert both[[19, 0, -8, 11, 12]]["x"].tolist() == [19, 0, 12, 11, 12]
    assert both[13] == {"x": 13, "name": b"n13"}
    assert both[10:14]["name"].tolist() == [b"n10", b"n11", b"n12", b"n13"]
    assert [int(row["x"]) for row in rm.concat([b, a])] == [*range(12, 20), *range(12)]
    assert "concat(2 parts)" in repr(both)
    assert both.files == [*a.files, *b.files]
    found = both.stats()["x"].values
    assert found is not None
    assert found.max == 19
    both.save("out/", format="npz", shards=3)
    assert rm.diff("out/", both).same
    assert rm.open({"x": both, "y": np.arange(20)})[15] == {"x": 15, "y": 15}
    assert pickle.loads(pickle.dumps(both))["x"][:].tolist() == list(range(20))
    assert rm.concat(both, both)["x"][18:22].tolist() == [18, 19, 0, 1]


def test_parts_keep_their_verbs_and_are_searched_when_needed() -> None:
    made = chain()
    assert "rows not counted yet" in repr(made)
    steps = "1: filter(is_even) > 2: shuffle(seed=1) > 3: take(0) > 4: map(jittered) > 4: take(5)"
    assert f"{steps} > concat(4 parts)" in repr(made)
    assert len(made) == 6 + 8 + 5
    epochs = [[int(row["x"]) for row in made] for _ in range(3)]
    assert epochs[0] == flat(values(made.batch(4))) == made["x"][:].tolist()  # the first epoch
    for one, other in pairwise(epochs):
        assert one[:6] == other[:6] == list(range(0, 12, 2))
        assert sorted(one[6:14]) == sorted(other[6:14]) == list(range(12, 20))
        assert one[6:14] != other[6:14]
        assert [x % 100 for x in one[14:]] == [x % 100 for x in other[14:]] == list(range(5))
        assert one[14:] != other[14:]
    assert made.shuffle(seed=2)["x"][:].tolist() != epochs[0]


def test_training_resumes_at_every_batch_on_any_number_of_ranks() -> None:
    made = chain()
    whole = values(made.batch(3).run(2))
    train = made.batch(3)
    batches = train.run(2)
    for taken in range(len(whole)):
        state = json.loads(json.dumps(train.state()))
        again = made.batch(3).restore(state)
        rest = [*values(again), *(values(again) if taken < len(whole) // 2 else [])]
        assert rest == whole[taken:]
        next(batches)
    first = sorted(flat(whole[: len(whole) // 2]))
    streams = [made.batch(2).shard(rank, 2) for rank in range(2)]
    begun = [iter(stream) for stream in streams]
    taken_rows = flat([next(each)["x"].tolist() for each in begun])
    states = [stream.state() for stream in streams]
    resumed = [made.batch(2).shard(rank, 3).restore(states) for rank in range(3)]
    left = [row for stream in resumed for row in flat(values(stream))]
    assert sorted(taken_rows + left) == first


def test_workers_and_adapters_get_the_same_rows() -> None:
    torch = pytest.importorskip("torch")
    made = chain()
    wanted = values(made.batch(4))
    in_workers = rm.concat(made, made.map(unchanged, workers=2).take(3))
    assert flat(values(in_workers.batch(5))) == [*flat(wanted), *flat(wanted)[:3]]
    assert flat(values(made.batch(4).to_torch())) == flat(wanted)
    loader = torch.utils.data.DataLoader(made.batch(4).to_torch(), batch_size=None)
    assert flat(values(loader)) == flat(wanted)
    made.save("out.npz", workers=2)
    assert rm.open("out.npz")["x"][:].tolist() == made["x"][:].tolist()


def unchanged(row: dict[str, Any]) -> dict[str, Any]:
    return row


def test_columns_have_to_agree() -> None:
    a = numbers(0, 3)
    other_order = a.select("name", "x")
    assert rm.concat(a, other_order).columns == ["x", "name"]
    assert rm.concat(a, other_order)["x"][:].tolist() == [0, 1, 2, 0, 1, 2]
    for wrong, remedy in {
        a.cast({"x": "float32"}): r'float32 in column \'x\'.*cast both: cast\({"x": "float64"}\)',
        a.cast({"x": "int32"}): r'int32 in column \'x\'.*cast it: cast\({"x": "int64"}\)',
        a.cast({"x": "float64"}): r'cast dataset 1: cast\({"x": "float64"}\)',
        a.map(lambda row: {**row, "x": "a"}): "text in column 'x'.*one type with map",
        a.rename({"x": "y"}): "no column 'x'.*rename",
        a.select("x"): "no column 'name'",
        rm.zip(a, a.select("x").rename({"x": "y"})): "a column 'y'.*select",
        a.map(lambda row: {**row, "x": [1, 2]}): "int64\\[2\\] in column 'x'",
    }.items():
        with pytest.raises(rm.FieldMismatchError, match=remedy):
            rm.concat(a, wrong)
    with pytest.raises(rm.OptionError, match="endless"):
        rm.concat(a, a.repeat())
    with pytest.raises(rm.OptionError, match="takes datasets"):
        rm.concat(a, 7)  # type: ignore[call-overload]
    a.save("a.tfrecord")
    both: Any = [a, "a.tfrecord"]
    assert rm.concat(*both)["x"][:].tolist() == [0, 1, 2, 0, 1, 2]
    assert len(rm.concat(both)) == 6
    with pytest.raises(rm.OptionError, match="nothing to concat"):
        rm.concat()


def test_a_column_with_nulls_makes_the_result_nullable() -> None:
    a = rm.from_arrays({"x": np.arange(2)})
    b = rm.from_arrays({"x": np.ma.array([5, 6], mask=[True, False])})
    for made, wanted in ((rm.concat(a, b), [0, 1, None, 6]), (rm.concat(b, a), [None, 6, 0, 1])):
        assert str(made.schema["x"]) == "int64?"
        assert made["x"][:].tolist() == wanted
        assert rm.concat(made, a).fill_null(0)["x"][:].dtype == np.int64


def test_shuffled_columns_and_selections_have_a_new_order_in_every_epoch() -> None:
    a, _ = on_disk()
    for ds in (
        rm.open({"x": a.shuffle(seed=1), "y": np.arange(12)}),
        rm.open(a.shuffle(seed=1), fields=["x"]),
        rm.zip(a.shuffle(seed=1), rm.from_arrays({"y": np.arange(12)})),
    ):
        one, two = ([int(row["x"]) for row in ds] for _ in range(2))
        assert one != two
        assert sorted(one) == sorted(two) == list(range(12))
        assert ds["x"][:].tolist() == one
        assert "shuffle(seed=1)" in repr(ds)
    with pytest.raises(rm.OptionError, match="draw a different seed"):
        rm.open({"x": a.shuffle()}).batch(2).shard(0, 2)
    with pytest.raises(rm.DataError, match="'x' has 12, 'y' has 5"):
        rm.open({"x": a.shuffle(seed=1), "y": np.arange(5)})


def test_many_rows_of_a_mix_or_zip_are_saved_in_few_reads() -> None:
    a = rm.from_arrays({"x": np.arange(5000)})
    b = rm.from_arrays({"y": np.arange(5000)})
    for ds in (rm.zip(a, b), rm.mix(a, a), rm.concat(a, a)):
        assert max(len(batch["x"]) for batch in ds.batches(10_000)) >= 5000
