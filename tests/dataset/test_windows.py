"""ds.windows against a plain loop over rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

Rows = list[dict[str, Any]]


def plain(value: Any) -> Any:
    """Return a value as Python numbers, strings and lists."""
    if isinstance(value, rm.Ragged | np.ndarray | np.generic):
        return plain(value.tolist())
    return [plain(item) for item in value] if isinstance(value, list) else value


def plain_rows(ds: Any) -> Rows:
    return [{name: plain(value) for name, value in row.items()} for row in ds]


def zero_like(value: Any) -> Any:
    if isinstance(value, list):
        return [zero_like(item) for item in value]
    return type(value)()


def expected(
    rows: Rows,
    size: Any,
    *,
    stride: int = 1,
    within: str | None = None,
    edges: str = "drop",
    horizon: Any = None,
    lists: tuple[str, ...] = (),
) -> Rows:
    """Return the windows of rows, one at a time. ``lists`` are ragged: they are padded empty."""
    names = [name for name in rows[0] if name != within]
    offsets = size if isinstance(size, dict) else {name: range(size) for name in names}
    parts: dict[str, tuple[str, Any]] = {name: (name, offsets.get(name)) for name in rows[0]}
    ahead = horizon if isinstance(horizon, dict) else dict.fromkeys(names, horizon)
    for name, count in ahead.items():
        if count:
            parts[name + "/target"] = (name, range(size, size + count))
    episodes: list[Rows] = []
    for row in rows:
        if not episodes or (within and episodes[-1][-1][within] != row[within]):
            episodes.append([])
        episodes[-1].append(row)
    every = [o for _, some in parts.values() if some is not None for o in some] + [0]
    made = []
    for episode in episodes:
        start = -min(every) if edges == "drop" else 0
        stop = len(episode) - (max(every) if edges == "drop" else 0)
        for at in range(start, stop, stride):
            window: dict[str, Any] = {}
            for name, (column, some) in parts.items():
                if some is None:
                    window[name] = episode[at][column]
                    continue
                inside = [0 <= at + o < len(episode) for o in some]
                near = [episode[min(max(at + o, 0), len(episode) - 1)][column] for o in some]
                if edges == "pad":
                    blank = [[] if column in lists else zero_like(v) for v in near]
                    near = [
                        v if there else b for v, b, there in zip(near, blank, inside, strict=True)
                    ]
                window[name] = near
                if edges == "pad":
                    window[name + "/is_pad"] = [not there for there in inside]
            made.append(window)
    return made


def dataset(rng: np.random.Generator, rows: int, where: Path | None = None) -> Any:
    columns: dict[str, Any] = {
        "x": rng.integers(0, 100, (rows, 2)),
        "episode": np.sort(rng.integers(0, max(1, rows // 5), rows)),
        "name": rm.Ragged.from_text([f"r{i}" * int(rng.integers(0, 3)) for i in range(rows)]),
        "list": rm.Ragged.from_rows(
            [rng.integers(0, 9, rng.integers(0, 4)) for _ in range(rows)], "int64"
        ),
    }
    ds = rm.from_arrays(columns)
    if where is None:
        return ds
    ds.save(where)
    return rm.open(where)


def options(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Return random arguments of windows."""
    some: dict[str, Any] = {
        "stride": int(rng.integers(1, 4)),
        "within": "episode" if rng.random() < 0.7 else None,
        "edges": str(rng.choice(["drop", "repeat", "pad"])),
    }
    if rng.random() < 0.4:
        return {
            "x": sorted(rng.integers(-3, 4, rng.integers(1, 4)).tolist()),
            "list": range(int(rng.integers(1, 4))),
        }, some
    if rng.random() < 0.4:
        some["horizon"] = 2 if rng.random() < 0.5 else {"x": 1}
    return int(rng.integers(1, 5)), some


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("name", [None, "a.tfrecord", "a.parquet", "a.tfrecord.gz"])
def test_windows_are_those_of_a_plain_loop(tmp_path: Path, name: str | None) -> None:
    rng = np.random.default_rng(1 if name is None else len(name))
    for case in range(20 if name is None else 4):
        rows = int(rng.integers(1, 40))
        ds = dataset(rng, rows, tmp_path / f"{case}{name}" if name else None)
        size, some = options(rng)
        windows = ds.windows(size, **some)
        want = expected(plain_rows(ds), size, **some, lists=("list",))
        assert plain_rows(windows) == want, (size, some)
        assert len(windows) == len(want)
        if not want:
            continue
        at = rng.integers(0, len(want), 5)
        assert [windows[int(i)].keys() for i in at[:1]] == [windows.schema.keys()]
        assert plain_rows([windows[int(i)] for i in at]) == [want[i] for i in at]
        again = [row for batch in windows.shuffle(seed=3).batch(3) for row in unbatched(batch)]
        assert sorted(map(repr, again)) == sorted(map(repr, want))
        column = str(rng.choice(list(windows.schema)))
        assert plain(windows[column][:]) == [row[column] for row in want]


def unbatched(batch: dict[str, Any]) -> Rows:
    count = len(next(iter(batch.values())))
    return [{name: plain(column[i]) for name, column in batch.items()} for i in range(count)]


def test_windows_are_saved_and_resumed(tmp_path: Path) -> None:
    ds = dataset(np.random.default_rng(5), 100, tmp_path / "a.tfrecord")
    windows = ds.windows(4, within="episode", edges="pad").drop_null()
    windows.save(tmp_path / "w.parquet", memory="2MB")
    assert plain_rows(rm.open(tmp_path / "w.parquet")) == plain_rows(windows)
    stream = windows.select("x").shuffle(seed=2).batch(8)
    whole = [batch["x"].tolist() for batch in stream]
    for stop in range(len(whole)):
        run = windows.select("x").shuffle(seed=2).batch(8)
        batches = iter(run)
        seen = [next(batches)["x"].tolist() for _ in range(stop)]
        other = windows.select("x").shuffle(seed=2).batch(8)
        other.restore(run.state())
        assert seen + [batch["x"].tolist() for batch in other] == whole


def test_shared_rows_are_made_once() -> None:
    calls = []

    def count(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(int(row["x"]))
        return row

    ds = rm.from_arrays({"x": np.arange(40)}).map(count).windows(8)
    assert ds.schema["x"].shape == (8,)
    calls.clear()
    assert ds[[3, 4, 5]]["x"].tolist() == [list(range(i, i + 8)) for i in (3, 4, 5)]
    assert sorted(calls) == list(range(3, 13))


def test_episodes_have_to_lie_together() -> None:
    ds = rm.from_arrays({"x": np.arange(5), "who": rm.Ragged.from_text(list("aabba"))})
    with pytest.raises(rm.DataError, match=r"'who' is 'a' again at row 4.*ds.sort\('who'\)"):
        len(ds.windows(2, within="who"))
    assert ds.sort("who").windows(2, within="who")["x"][:].tolist() == [[0, 1], [1, 4], [2, 3]]
    null = rm.from_arrays({"x": np.ma.array([1, 1, 2], mask=[False, True, False])})
    with pytest.raises(rm.DataError, match="row 1 has no value in column 'x'"):
        len(null.windows(2, within="x"))


def test_what_cannot_be_a_window_is_refused() -> None:
    ds: Any = rm.from_arrays({"x": np.arange(5.0), "y/is_pad": np.arange(5), "y": np.arange(5)})
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: ds.windows(0), "size=0"),
        (lambda: ds.windows([0, 1]), "offsets by column"),
        (lambda: ds.windows({"z": [0]}), "'z'"),
        (lambda: ds.windows({"x": []}), "one offset or more"),
        (lambda: ds.windows({"x": [0.5]}), "an offset of 'x'"),
        (lambda: ds.windows({"x": [0]}, horizon=2), "horizon= follows a number of rows"),
        (lambda: ds.windows(2, horizon={"z": 1}), "'z'"),
        (lambda: ds.windows(2, within="x"), "'x' is float64"),
        (lambda: ds.windows(2, within="q"), "'q'"),
        (lambda: ds.windows(2, edges="wrap"), "edges='wrap'"),
        (lambda: ds.windows(2, edges="pad"), "already a column 'y/is_pad'"),
        (lambda: ds.shuffle(seed=0).windows(2), "before shuffle"),
        (lambda: ds.windows(2, step=2), "stride"),
        (lambda: ds.windows(window_size=2), "size"),
    ]
    for wrong, message in refused:
        with pytest.raises(rm.RecmapError, match=message):
            wrong()


def test_windows_read_nothing_before_they_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    dataset(np.random.default_rng(7), 20, path)
    ds = rm.open(path)
    path.unlink()
    windows = ds.windows(4, within="episode").shuffle(seed=1)
    assert "windows(4" in repr(windows)
