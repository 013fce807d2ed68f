"""What users see of a pipeline besides its verbs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Progress

DOCUMENTED = {
    "batch", "bucket", "decode_audio", "decode_image", "decode_video", "epoch", "filter", "map",
    "pack", "pipeline", "prefetch", "repeat", "restore", "run", "schema", "select", "shard",
    "shuffle", "skip", "state", "take", "timings", "to_arrow", "to_jax", "to_keras", "to_pandas",
    "to_polars", "to_tf", "to_torch",
}  # fmt: skip


def numbers(rows: int = 10) -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(rows)})


def test_dir_shows_what_is_documented_and_nothing_else() -> None:
    train = numbers().batch(2)
    list(train)
    assert {name for name in dir(train) if not name.startswith("_")} == DOCUMENTED


@pytest.mark.parametrize("count", [0, 1, 5, 13])
def test_take_gives_the_first_batches_of_an_endless_repetition(count: int) -> None:
    train = numbers().batch(4).repeat().take(count)
    batches = [batch["x"].tolist() for batch in train]
    epoch = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(train) == count
    assert batches == [epoch[number % 3] for number in range(count)]


def test_progress_counts_the_rows_of_every_epoch() -> None:
    told: list[Progress] = []
    batches = list(numbers().batch(4).run(epochs=2, progress=told.append))
    assert len(batches) == 6
    ends = [now for now in told if now.rows == now.total_rows]
    assert [(now.rows, now.total_rows, now.fraction) for now in ends[-1:]] == [(10, 10, 1.0)]
    assert ends[-1].bytes == 80


def test_progress_counts_what_is_left_of_a_resumed_epoch() -> None:
    train = numbers().batch(4)
    next(iter(train))
    told: list[Progress] = []
    list(numbers().batch(4).restore(train.state()).run(progress=told.append))
    assert (told[-1].rows, told[-1].total_rows) == (6, 6)


def test_progress_has_no_total_after_a_filter() -> None:
    told: list[Progress] = []
    kept = numbers().filter(lambda row: row["x"] > 3).batch(2)
    list(kept.run(progress=told.append))
    assert (told[-1].rows, told[-1].total_rows) == (6, None)


def test_the_rate_of_progress_is_that_of_the_input() -> None:
    streams = {
        "map": numbers().map(lambda row: {"y": np.zeros(1000) + row["x"]}).batch(4),
        "filter": numbers().filter(lambda row: row["x"] > 8).batch(4),
        "bucket": numbers().bucket(lambda row: int(row["x"]), [5]).batch(2),
        "batches": numbers().batch(5).map(lambda _: {"y": np.zeros((5, 100))}),
    }
    for name, stream in streams.items():
        told: list[Progress] = []
        list(stream.run(progress=told.append))
        assert told[-1].bytes == 80, name


def test_progress_draws_a_bar_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    list(numbers().batch(4).run(progress=True))
    assert "10 of 10 rows" in capsys.readouterr().err


def test_progress_must_be_a_flag_or_a_function() -> None:
    with pytest.raises(rm.OptionTypeError, match="progress=3"):
        numbers().batch(4).run(progress=3)  # type: ignore[arg-type]


def test_timings_name_every_stage() -> None:
    train = numbers().map(lambda row: row).batch(4, pad=None)
    assert train.timings().verdict == "nothing has been read yet"
    list(train)
    timings = train.timings()
    assert (timings.batches, timings.rows, timings.bytes) == (3, 10, 80)
    assert [stage.name.split()[0] for stage in timings.stages] == ["read", "map"]
    assert "3 batches, 10 rows" in str(timings)


def test_mix_takes_datasets_one_by_one() -> None:
    with pytest.raises(rm.OptionTypeError, match=r"rm\.mix\(a, b\)"):
        rm.mix([numbers(), numbers()])  # type: ignore[call-overload]
    with pytest.raises(rm.OptionTypeError, match=r"rm\.zip\(a, b\)"):
        rm.zip([numbers(), numbers()])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "to",
    [
        iter,
        lambda batches: iter(batches.to_torch()),
        lambda batches: iter(batches.to_torch(device="cpu", prefetch=0)),
        lambda batches: iter(batches.to_jax(prefetch=0)),
    ],
    ids=["pipeline", "torch", "placed", "jax"],
)
def test_an_iterator_used_by_two_threads_at_once_says_so(to: Callable[[Any], Any]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(row: dict[str, Any]) -> dict[str, Any]:
        if row["x"] >= 4:  # after the rows that are looked at first
            begun.set()
            assert go_on.wait(60)
        return row

    batches = to(rm.from_arrays({"x": np.arange(8, dtype=np.int32)}).map(wait).batch(8))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, batches)
        assert begun.wait(60)
        with pytest.raises(rm.OptionError, match="another thread is using this iterator"):
            next(batches)
        go_on.set()
        assert first.result()["x"].tolist() == list(range(8))
    assert next(batches, None) is None


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": row["x"] * 2}


def test_the_repr_names_every_step() -> None:
    chain = numbers().map(double).shuffle(seed=1).select([0, 1, 2]).skip(1).filter(double)
    stream = chain.take(1).bucket("x", [2]).batch(2).select("x").map(double).take(5).repeat(2)
    steps = [
        *(
            "map(double)",
            "shuffle(seed=1)",
            "select(3 rows",
            "skip(1)",
            "filter(double)",
            "take(1)",
        ),
        *("bucket('x', [2])", "batch(2)", "select('x')", "map(double)", "take(5)", "repeat(2)"),
        *("shard(0, 2)", "prefetch(3)"),
    ]
    shard = numbers().batch(2).shard(0, 2).prefetch(3)
    text, html = repr(stream) + repr(shard), stream._repr_html_() + shard._repr_html_()
    at = -1
    for step in steps:
        at = text.index(step, at + 1)
        assert step.replace("'", "&#x27;") in html
    packed = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2]])}).pack(8).map(double).batch(4)
    assert repr(packed) == "Stream(2 rows, in batches: pack(8) > map(double) > batch(4))"
    both = rm.zip(numbers().map(double), numbers().select("x").map(lambda row: {"y": row["x"]}))
    assert "map(double)" in repr(both)
    assert repr(numbers().pipeline()) == "Stream(10 rows)"


def test_the_repr_shows_what_was_given() -> None:
    ragged = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2]])})
    for pipeline, shown in {
        ragged.pack(8, long="split"): "2 rows: pack(8, long='split')",
        ragged.pack(8, ["t"], fill=-1): "2 rows: pack(8, ['t'], fill=-1)",
        ragged.batch(2, pad={"t": 4}, mask=True): (
            "2 rows, in batches: batch(2, pad={'t': 4}, mask=True)"
        ),
        ragged.batch(2, drop_last=True): "2 rows, in batches: batch(2, drop_last=True)",
    }.items():
        assert repr(pipeline) == f"Stream({shown})"
    assert repr(ragged.repeat()).startswith("Dataset(in memory > repeat(): endless rows")
    both = rm.mix(ragged.repeat(3), ragged.take(1))
    assert "1: repeat(3)" in repr(both)
