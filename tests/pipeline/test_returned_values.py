"""What functions return: types that change along the way, and arrays that are used again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

ROWS, CHANGE = 12, 6
DAY = np.datetime64("2020-01-01")
#: The first rows, a later one that their type cannot hold, and a later one that it can.
CHANGES: dict[str, tuple[Any, Any, Any]] = {
    "float64 after float32": (np.float32(1), 0.1, 0.5),
    "float32 after float16": (np.float16(1), np.float32(0.1), np.float32(0.25)),
    "int64 after int32": (np.int32(1), 2**40, np.int64(7)),
    "int after uint8": (np.uint8(1), -1, 255),
    "uint64 after int64": (1, np.uint64(2**63), np.uint64(5)),
    "float after int": (1, 1.5, 2.0),
    "NaN after int": (1, float("nan"), 3),
    "None after int": (1, None, 3),
    "large int after float32": (np.float32(1), 2**24 + 1, 2**24),
    "large int after float64": (1.0, 2**53 + 1, 2**53),
    "infinity after float32": (np.float32(1), 1e300, float("inf")),
    "int after bool": (True, 2, 1),
    "complex after float": (1.0, 1j, 2.0),
    "number after date": (DAY, 5, np.datetime64("2021-01-01")),
    "second after day": (DAY, np.datetime64("2020-01-01T00:00:01"), np.datetime64("2021-01-01T00")),
    "vector": (np.ones(2, "f4"), np.full(2, 0.1), np.full(2, 0.5)),
    "bytes after text": ("a", b"longer", "a much longer text"),
    "text after bytes": (b"a", "b", b"longer"),
    "number after text": ("a", 1, ""),
}


def dataset() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(ROWS), "f": np.arange(float(ROWS))})


def changing(first: Any, later: Any) -> Callable[[Any], Any]:
    def of_row(row: dict[str, Any]) -> dict[str, Any]:
        return {"y": first if row["x"] < CHANGE else later}

    return of_row


def changing_batches(first: Any, later: Any) -> Callable[[Any], Any]:
    def of_batch(batch: dict[str, Any]) -> dict[str, Any]:
        value = first if batch["x"][0] < CHANGE else later
        return {"y": [value] * len(batch["x"])}

    return of_batch


def pipelines(first: Any, later: Any, workers: Any = None) -> list[rm.Stream]:
    rows, batches = changing(first, later), changing_batches(first, later)
    return [
        dataset().map(rows, workers=workers).batch(4),
        dataset().filter(lambda row: row["x"] >= 0).map(rows, workers=workers).batch(5),
        dataset().map(batches, batched=True, workers=workers).batch(3),
        dataset().batch(3).map(batches, workers=workers),
    ]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_later_value_is_kept_exactly_or_refused(kind: str) -> None:
    first, unfit, fit = CHANGES[kind]
    for pipeline in pipelines(first, unfit):
        with pytest.raises(rm.MapError, match=r"row \d+.*'y'"):
            list(pipeline)
    for pipeline in pipelines(first, fit):
        values = [value for batch in pipeline for value in batch["y"]]
        assert np.array_equal(np.asarray(values[CHANGE:]), np.asarray([fit] * 6))


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["threads:2", "fork:2"])
def test_workers_refuse_what_would_be_rounded(workers: str) -> None:
    said = r"row \d+: 'y' is float64, which does not fit float32: 0.1; .*\"y\": \"float64\""
    for pipeline in pipelines(np.float32(1), 0.1, workers):
        with pytest.raises(rm.MapError, match=said):
            list(pipeline)


def test_ragged_rows_are_not_rounded_either() -> None:
    def of_row(value: Any) -> Callable[[Any], Any]:
        return lambda row: {
            "y": np.ones(int(row["x"]) + 1, "f4")
            if row["x"] < CHANGE
            else np.full(3, value, np.float64),
            "nested": rm.Ragged(
                np.ones(3, "f4") if row["x"] < CHANGE else np.full(3, value), [0, 1, 3]
            ),
        }

    for name in ("y", "nested"):
        of_one = dataset().map(of_row(0.1)).map(lambda row, name=name: {name: row[name]})
        with pytest.raises(rm.MapError, match=f"row {CHANGE}: '(y|nested)' is float64"):
            list(of_one.batch(4))
    rows = list(dataset().map(of_row(0.5)))
    assert rows[-1]["y"].tolist() == [0.5, 0.5, 0.5]
    assert rows[-1]["nested"].tolist() == [[0.5], [0.5, 0.5]]


def test_a_given_type_rounds() -> None:
    fields = {"y": "float32"}
    rows = dataset().map(changing(1, 0.1), columns=fields)
    batches = dataset().batch(3).map(changing_batches(1, 0.1), columns=fields)
    assert [row["y"] for row in rows][-1] == np.float32(0.1)
    assert list(batches)[-1]["y"].tolist() == [np.float32(0.1)] * 3


def test_fields_after_batch_may_name_only_some_columns() -> None:
    made = dataset().batch(4).map(lambda b: {"x": b["x"], "y": [1] * 4}, columns={"y": "int8"})
    batch = next(iter(made))
    assert (batch["x"].dtype, batch["y"].dtype) == (np.int64, np.int8)


@pytest.mark.parametrize("workers", [None, "threads:2", "fork:2"])
def test_text_under_a_new_name_is_text(workers: Any) -> None:
    def named(row: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"row {row['x']}", "words": ["é"] * int(row["x"] % 3)}

    def all_named(batch: dict[str, Any]) -> dict[str, Any]:
        return {"name": np.array([f"row {x}" for x in batch["x"]]), "words": [["é"]] * 4}

    for pipeline in (
        dataset().map(named, workers=workers).batch(4),
        dataset().batch(4).map(all_named, workers=workers),
    ):
        assert pipeline.schema == {"name": "text", "words": "text[*]"}
        names = [name for batch in pipeline for name in batch["name"].tolist()]
        assert names == [f"row {x}" for x in range(ROWS)]
    saved = rm.open(dataset().map(named).to_arrow())
    assert saved["name"][3] == "row 3"


def test_text_of_a_data_frame_or_an_iterator_is_text() -> None:
    pandas = pytest.importorskip("pandas")
    for made in (
        lambda b: {"y": pandas.Series([str(x) for x in b["x"]])},
        lambda b: {"y": map(str, b["x"])},
    ):
        assert [text for b in dataset().batch(4).map(made) for text in b["y"]] == [
            str(x) for x in range(ROWS)
        ]


BUFFER, TURN = np.zeros(ROWS), [np.zeros(ROWS), np.zeros(ROWS)]
BYTES = bytearray(8 * ROWS)


def whole(batch: dict[str, Any]) -> dict[str, Any]:
    BUFFER[: len(batch["f"])] = batch["f"]
    return {"y": BUFFER[: len(batch["f"])]}


def into_the_input(batch: dict[str, Any]) -> dict[str, Any]:
    batch["y"] = whole(batch)["y"].reshape(-1, 1)
    return batch


def in_turn(batch: dict[str, Any]) -> dict[str, Any]:
    TURN.reverse()
    TURN[0][: len(batch["f"])] = batch["f"]
    return {"y": TURN[0][: len(batch["f"])]}


def over_bytes(batch: dict[str, Any]) -> dict[str, Any]:
    array = np.frombuffer(BYTES)[: len(batch["f"])]
    array[:] = batch["f"]
    return {"y": array}


def ragged(batch: dict[str, Any]) -> dict[str, Any]:
    return {"y": rm.Ragged(whole(batch)["y"], np.arange(len(batch["f"]) + 1))}


@cache
def scratch(size: int) -> Any:
    return np.zeros(size)


def remembered(batch: dict[str, Any]) -> dict[str, Any]:
    array = scratch(len(batch["f"]))
    array[:] = batch["f"]
    return {"y": array, "again": array}


class Kept:
    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        for array in self.arrays:
            array[:] = -1
        self.arrays.append(batch["f"] * 1)
        return {"y": self.arrays[-1]}


REUSING: list[Callable[..., Any]] = [
    whole,
    into_the_input,
    in_turn,
    over_bytes,
    ragged,
    remembered,
    Kept(),
]


@pytest.mark.parametrize("workers", [None, "threads:1", "threads:3", "fork:1"])
def test_batches_stay_as_they_are_when_a_function_uses_its_arrays_again(workers: Any) -> None:
    for fn in REUSING if workers != "fork:1" else REUSING[:1]:
        for pipeline in (
            dataset().map(fn, batched=True, workers=workers).batch(4),
            dataset().batch(4).map(fn, workers=workers),
            dataset().filter(lambda row: row["x"] >= 0).batch(5).map(fn, workers=workers),
            dataset().batch(4).map(fn).prefetch(3),
        ):
            held = [np.hstack(list(batch["y"])) for batch in list(pipeline)]
            assert np.hstack(held).tolist() == list(range(ROWS)), fn


def test_rows_stay_as_they_are_when_a_function_uses_its_lists_again() -> None:
    words: list[bytes] = []
    values = np.zeros(2)

    def fn(row: dict[str, Any]) -> dict[str, Any]:
        words[:] = [b"w"] * int(row["x"] % 3)
        values[:] = row["x"]
        return {"words": words, "ragged": rm.Ragged(values, [0, 1, 2])}

    batch = next(iter(dataset().map(fn).batch(ROWS)))
    assert batch["words"].lengths.tolist() == [x % 3 for x in range(ROWS)]
    assert batch["ragged"].tolist() == [[[x], [x]] for x in range(ROWS)]


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_arrays_that_a_function_makes_anew_are_not_copied() -> None:
    addresses: list[list[int]] = []

    def fn(batch: dict[str, Any]) -> dict[str, Any]:
        half = (batch["f"] / 2).reshape(-1, 1)
        made = {"new": batch["f"] * 2, "view": half, "same": batch["x"], "part": batch["x"][::-1]}
        addresses.append([address(array) for array in made.values()])
        return made

    for pipeline in (
        dataset().batch(4).map(fn),
        dataset().batch(4).map(fn, workers="threads:2"),
        dataset().map(fn, batched=True).batch(4),
    ):
        assert list(pipeline.schema)
        addresses.clear()
        held = list(pipeline)
        given = [[address(array) for array in batch.values()] for batch in held]
        assert sorted(given) == sorted(addresses)


def test_rows_of_empty_lists_have_the_type_of_the_others() -> None:
    def fn(row: dict[str, Any]) -> dict[str, Any]:
        return {"words": ["é"] if row["x"] < CHANGE else []}

    for size in (1, 3, 5):
        batches = list(dataset().map(fn).batch(size))
        assert all(batch["words"].values.is_text for batch in batches)
        lengths = [len(row) for batch in batches for row in batch["words"]]
        assert lengths == [1] * CHANGE + [0] * (ROWS - CHANGE)


def test_empty_lists_in_the_first_rows_do_not_fix_a_length() -> None:
    def lists(row: dict[str, Any]) -> dict[str, Any]:
        return {"y": [0.5] * int(row["x"]) if row["x"] >= CHANGE else []}

    def batched(batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": [lists({"x": x})["y"] for x in batch["x"]]}

    wanted = [len(lists({"x": x})["y"]) for x in range(ROWS)]
    for pipeline in (dataset().map(lists), dataset().map(batched, batched=True)):
        assert str(pipeline.schema["y"]) == "float64[*]"
        assert [len(row["y"]) for row in pipeline] == wanted
    empty = dataset().map(lambda batch: {"y": np.zeros((len(batch["x"]), 0))}, batched=True)
    assert str(empty.schema["y"]) == "float64[0]"


def test_a_ragged_column_keeps_its_type_when_its_first_rows_become_empty_lists() -> None:
    ds = rm.open({"t": rm.Ragged.from_rows([np.arange(n, dtype="int16") for n in range(9)])})
    pipeline = ds.map(lambda row: {"t": [t for t in row["t"] if t > 5]})
    assert pipeline.schema == rm.Schema({"t": "int16[*]"})
    assert [len(row["t"]) for row in pipeline] == [0] * 7 + [1, 2]


def test_strings_after_empty_lists_are_refused_with_the_field_to_give() -> None:
    def words(row: dict[str, Any]) -> dict[str, Any]:
        return {"y": ["é"] if row["x"] >= CHANGE else []}

    with pytest.raises(rm.MapError, match=r'columns=\{"y": "text\[\*\]"\}'):
        list(dataset().map(words))
    rows = list(dataset().map(words, columns={"y": "text[*]"}))
    assert [len(row["y"]) for row in rows] == [0] * CHANGE + [1] * (ROWS - CHANGE)


def test_a_filter_that_uses_its_mask_again_is_called_by_one_thread_at_a_time() -> None:
    rows, mask, met = 64, np.zeros(64, bool), threading.Barrier(2)

    def even(batch: dict[str, Any]) -> Any:
        mine = mask[: len(batch["x"])]
        mine[:] = batch["x"] % 2 == 0
        if trial_is_over:
            with suppress(threading.BrokenBarrierError):
                met.wait(0.2)  # another thread would overwrite the mask meanwhile
        return mine

    trial_is_over = False
    ds = rm.open({"x": np.arange(rows)}).filter(even, batched=True)
    pipeline = ds.batch(8).map(dict, workers="threads:3")
    assert list(pipeline.schema) == ["x"]
    trial_is_over = True
    assert np.hstack([batch["x"] for batch in pipeline]).tolist() == [*range(0, rows, 2)]
    assert met.broken


def test_none_in_a_column_without_nulls_says_how_to_keep_it() -> None:
    def late(row: dict[str, Any]) -> dict[str, object]:
        none = row["x"] == 900
        return {"n": None if none else 1, "t": None if none else "a"}

    ds = rm.from_arrays({"x": np.arange(1_000)})
    with pytest.raises(rm.MapError, match=r"""row 900: 'n' is None.*columns={"n": "int64\?"}"""):
        ds.map(late)[:]
    with pytest.raises(rm.MapError, match=r"""row 900: 't' is None.*columns={"t": "text\?"}"""):
        ds.map(late, columns={"n": "int64?"})[:]
    kept = ds.map(late, columns={"n": "int64?", "t": "text?"})[899:902]
    assert kept["n"].tolist() == [1, None, 1]
    assert kept["t"].tolist() == ["a", None, "a"]
    with pytest.raises(rm.MapError, match=r"""'y' is None in the first rows.*"int64\?"}"""):
        ds.map(lambda _: {"y": None}).schema  # noqa: B018
