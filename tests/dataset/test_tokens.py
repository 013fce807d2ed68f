"""ds.tokens against a plain loop over documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

Documents = list[list[int]]


def expected(documents: Documents, length: int, target: bool, end: int | None) -> dict[str, Any]:
    """Return the columns of rows, one token at a time."""
    stream = []
    for number, document in enumerate(documents):
        stream += [(token, number) for token in document]
        if end is not None:
            stream.append((end, number))
    made: dict[str, Any] = {
        name: [] for name in ("ids", "ids/target", "segments", "positions", "cu_seqlens")
    }
    for start in range(0, len(stream) - length + 1 - target, length):
        row = stream[start : start + length]
        made["ids"].append([token for token, _ in row])
        made["ids/target"].append([t for t, _ in stream[start + 1 : start + 1 + length]])
        segments: list[int] = []
        positions: list[int] = []
        edges = [0]
        for at, (_, number) in enumerate(row):
            new = at == 0 or number != row[at - 1][1]
            segments.append(1 if at == 0 else segments[-1] + new)
            positions.append(0 if new else positions[-1] + 1)
            if new and at:
                edges.append(at)
        made["segments"].append(segments)
        made["positions"].append(positions)
        made["cu_seqlens"].append([*edges, length])
    if not target:
        del made["ids/target"]
    return made


def columns(ds: Any) -> dict[str, Any]:
    return {name: column.tolist() for name, column in ds[:].items()}


def documents_of(rng: np.random.Generator) -> Documents:
    longest = int(rng.choice([4, 30, 300]))
    sizes = rng.integers(0, longest, rng.integers(1, 12))
    return [rng.integers(0, 1000, size).tolist() for size in sizes]


ADD: Any = ["segments", "positions", "cu_seqlens"]


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("name", [None, "a.npz", "a.tfrecord", "a.arrow", "a.h5", "a.parquet"])
def test_rows_are_those_of_a_plain_loop(tmp_path: Path, name: str | None) -> None:
    rng = np.random.default_rng(3)
    for case in range(6 if name is None else 2):
        documents = documents_of(rng)
        dtype = str(rng.choice(["int64", "int32"]))
        ds = rm.from_arrays(
            {"ids": rm.Ragged.from_rows(documents, dtype), "n": np.arange(len(documents))}
        )
        if name is not None:
            ds.save(tmp_path / f"{case}{name}")
            ds = rm.open(tmp_path / f"{case}{name}")
        length, target = int(rng.integers(1, 20)), bool(rng.random() < 0.7)
        end = 7 if rng.random() < 0.5 else None
        rows = ds.tokens("ids", length, target=target, end=end, add=ADD)
        want = expected(documents, length, target, end)
        assert columns(rows) == want
        assert len(rows) == len(want["ids"])
        assert rows.schema["ids"].shape == (length,)
        if not want["ids"]:
            continue
        at = rng.integers(0, len(rows), 6)
        assert rows[at]["ids"].tolist() == [want["ids"][i] for i in at]
        assert rows.select("cu_seqlens")[at]["cu_seqlens"].tolist() == [
            want["cu_seqlens"][i] for i in at
        ]
        places = rm.from_arrays({"i": np.arange(len(rows))}).shuffle(seed=2)
        order = places[:]["i"].tolist()
        shuffled = [row for b in rows.shuffle(seed=2).batch(3) for row in b["ids"].tolist()]
        assert shuffled == [want["ids"][i] for i in order]
        # Documents are shuffled, in a new order in every epoch.
        mixed = ds.shuffle(seed=4).tokens("ids", length, target=target, end=end, add=ADD)
        stream = mixed.batch(5)
        for epoch in range(2):
            order = [int(i) for b in numbered(ds, 4, epoch) for i in b["n"]]
            want = expected([documents[i] for i in order], length, target, end)
            got: dict[str, Any] = {name: [] for name in want}
            for batch in stream:
                for name_, column in batch.items():
                    got[name_] += column.tolist()
            assert got == want
            if epoch == 0:
                assert columns(mixed) == want


def numbered(ds: Any, seed: int, epoch: int) -> Any:
    stream = ds.select("n").shuffle(seed=seed).batch(2)
    stream.epoch = epoch
    return stream


def test_a_column_of_single_tokens_is_one_stream(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    flat = rng.integers(0, 6, 1000).astype(np.uint16)
    np.save(tmp_path / "a.npy", flat)
    documents: Documents = [[]]
    for token in flat.tolist():
        documents[-1].append(token)
        if token == 0:
            documents.append([])
    ds = rm.open(tmp_path / "a.npy").rename({"data": "ids"})
    want = expected(documents, 16, True, None)
    assert columns(ds.tokens("ids", 16, end=0, add=ADD)) == want
    gz = rm.open(tmp_path / "a.npy").rename({"data": "ids"}).select("ids").where("ids >= 0")
    assert columns(gz.tokens("ids", 16, end=0, add=ADD)) == want
    wide = rm.from_arrays({"ids": flat.reshape(-1, 10)})
    assert columns(wide.tokens("ids", 16)) == {n: want[n] for n in ("ids", "ids/target")}


def test_rows_are_saved_and_resumed(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    documents = [rng.integers(0, 50, rng.integers(0, 40)).tolist() for _ in range(60)]
    rm.from_arrays({"ids": rm.Ragged.from_rows(documents, "int64")}).save(tmp_path / "a.npz")

    def run() -> Any:
        ds = rm.open(tmp_path / "a.npz").shuffle(seed=1).tokens("ids", 8)
        return ds.shuffle(seed=2).batch(4)

    whole = [batch["ids"].tolist() for batch in run()]
    for stop in range(0, len(whole), 3):
        first, other = run(), run()
        batches = iter(first)
        seen = [next(batches)["ids"].tolist() for _ in range(stop)]
        other.restore(first.state())
        assert seen + [batch["ids"].tolist() for batch in other] == whole
    rows = rm.open(tmp_path / "a.npz").shuffle(seed=1).tokens("ids", 8)
    rows.save(tmp_path / "b.tfrecord", memory="2MB")
    assert columns(rm.open(tmp_path / "b.tfrecord")) == columns(rows)


@pytest.mark.parametrize("workers", ["processes:2", "spawn:2"])
def test_documents_are_joined_in_worker_processes(tmp_path: Path, workers: str) -> None:
    documents = [list(range(i)) for i in range(30)]
    rm.from_arrays({"ids": rm.Ragged.from_rows(documents, "int64")}).save(tmp_path / "a.npz")
    rows = rm.open(tmp_path / "a.npz").shuffle(seed=1).tokens("ids", 8, end=5)
    made = rows.map(negated, workers=workers).batch(4)
    got = [row for batch in made for row in batch["ids"].tolist()]
    assert got == (-rows[:]["ids"]).tolist()


def negated(row: dict[str, Any]) -> dict[str, Any]:
    return {"ids": -row["ids"]}


def longer(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"ids": np.append(row["ids"], rng.integers(0, 9, rng.integers(0, 9)))}


def test_what_holds_no_tokens_is_refused() -> None:
    ds: Any = rm.from_arrays(
        {
            "ids": rm.Ragged.from_rows([[1, 2], [3]], "uint8"),
            "x": np.arange(2.0),
            "two": np.zeros((2, 2, 2), int),
            "null": np.ma.array([1, 2], mask=[True, False]),
        }
    )
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: ds.tokens("x", 2), "'x' is float64"),
        (lambda: ds.tokens("two", 2), "'two' is int64"),
        (lambda: ds.tokens("null", 2), "without nulls"),
        (lambda: ds.tokens("id", 2), "'ids'"),
        (lambda: ds.tokens("ids", 0), "length=0"),
        (lambda: ds.tokens("ids", 2, end=256), "end=256"),
        (lambda: ds.tokens("ids", 2, add=["mask"]), "mask"),
        (lambda: ds.sample(seed=1).tokens("ids", 2), "only shuffle"),
        (lambda: ds.map(longer).shuffle(seed=1).tokens("ids", 2), "only shuffle"),
        (lambda: ds.rename({"ids": "segments"}).tokens("segments", 2, add=["segments"]), "rename"),
        (lambda: ds.tokens("ids", seq_length=2), "length"),
    ]
    for wrong, message in refused:
        with pytest.raises(rm.RecmapError, match=message):
            wrong()
    assert len(ds.tokens("ids", 2)) == 1
    assert len(ds.tokens("ids", 3)) == 0
    assert len(ds.tokens("ids", 3, target=False)) == 1


def test_offsets_of_a_damaged_file_are_refused(tmp_path: Path) -> None:
    arrays: Any = {"ids/values": np.arange(4), "ids/offsets": np.array([0, 3, 1, 4])}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(rm.DataError, match="offsets that do not fit"):
        len(rm.open(tmp_path / "a.npz").tokens("ids", 2))


@pytest.mark.parametrize(
    ("samples", "firsts"),
    [
        (5, [316, 604, 620, 324, 612, 308, 200, 113, 401, 300, 105]),
        (15, [604, 316, 113, 105, 300, 620, 612, 200, 308, 401, 324, 318, 402, 500, 615, 607, 310,
              202, 334, 101, 326, 332, 302]),
        (30, [610, 300, 108, 307, 331, 101, 308, 606, 100, 316, 500, 602, 323, 201, 402, 315, 339,
              109, 324, 614, 116, 618, 407, 338, 107, 609, 406, 322, 332, 306, 314, 601, 500, 330,
              115]),
    ],
)  # fmt: skip
def test_the_order_is_that_of_megatron(samples: int, firsts: list[int]) -> None:
    """The first token of each sample was computed by megatron-core 0.16.1."""
    documents = [list(range(100 * i, 100 * i + n)) for i, n in enumerate([5, 17, 3, 40, 8, 1, 22])]
    ds = rm.from_arrays({"ids": rm.Ragged.from_rows(documents, "int64")})
    rows = ds.tokens("ids", 8, megatron={"seed": 1234, "samples": samples})
    assert rows[:]["ids"][:, 0].tolist() == firsts
    assert [row["ids"][0] for row in rows] == firsts
    assert (rows[:]["ids"][:, 1:] == rows[:]["ids/target"][:, :-1]).all()
    with pytest.raises(rm.OptionError, match="leave out shuffle"):
        ds.shuffle(seed=1).tokens("ids", 8, megatron={"seed": 1, "samples": 1})
    with pytest.raises(rm.OptionError, match="the seed of the run"):
        ds.tokens("ids", 8, megatron={"seed": 1})


def test_shuffled_single_tokens_are_refused() -> None:
    ds = rm.from_arrays({"t": np.arange(12)})
    for seed in range(20):
        with pytest.raises(rm.OptionError, match="put shuffle after tokens"):
            ds.shuffle(seed=seed).tokens("t", 4)
    assert len(ds.tokens("t", 4, target=False).shuffle(seed=1)) == 3
