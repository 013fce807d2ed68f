"""Short sequences joined into rows of one length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.pipeline.transforms.batch import Group
from recmap.pipeline.transforms.packer import Packer

SCHEMA = rm.Schema(
    {
        "tokens": "int32[*]",
        "labels": "int64[*]",
        "text": "bytes",
        "image": "uint8[4]",
        "nested": "int64[*,*]",
    }
)


def tokens(*lengths: int) -> rm.Ragged:
    """Make sequences whose items tell where they come from: 100, 101, ... 200, 201, ..."""
    return rm.Ragged.from_rows([100 * (i + 1) + np.arange(n) for i, n in enumerate(lengths)], "i4")


def pack(packer: Packer, column: rm.Ragged) -> dict[str, Any]:
    packer.add(np.arange(len(column)), {"tokens": column})
    return flushed(packer)


def flushed(packer: Packer) -> dict[str, Any]:
    packer.end()
    return packer.take(packer.waiting).batch


def held(group: Group) -> dict[str, Any]:
    words: dict[str, Any] = json.loads(json.dumps(group.held()))
    return words


Row = list[tuple[int, int, int]]


def reference(
    lengths: list[int], length: int, long: str, open_rows: int, window: int | None
) -> list[Row]:
    """Pack as somebody would who has all lengths in a list; return the segments of each row."""
    made: list[Row] = []
    open_ones: list[Row] = []

    def used(row: Row) -> int:
        return sum(end - begin for _, begin, end in row)

    def put(segment: tuple[int, int, int]) -> None:
        size = segment[2] - segment[1]
        fitting = [row for row in open_ones if used(row) + size <= length]
        full = window is None and size < length and len(open_ones) == open_rows
        if not fitting and full:
            made.append(open_ones.pop(open_ones.index(max(open_ones, key=used))))
        if not fitting:
            fitting = [[]]
            open_ones.extend(fitting)
        row = max(fitting, key=used)
        row.append(segment)
        if used(row) == length and window is None:
            open_ones[:] = [each for each in open_ones if each is not row]
            made.append(row)

    sequences = [(i, min(n, length) if long == "cut" else n) for i, n in enumerate(lengths)]
    sequences = [(i, n) for i, n in sequences if n]
    step = window or max(1, len(sequences))
    for start in range(0, len(sequences), step):
        segments = [
            (i, begin, min(begin + length, n))
            for i, n in sequences[start : start + step]
            for begin in range(0, n, length)
        ]
        if window is not None:
            segments.sort(key=lambda segment: segment[1] - segment[2])
        for segment in segments:
            put(segment)
        if window is not None:
            emptiest = sorted(open_ones, key=used)
            kept = [row for row in emptiest if used(row) < length]
            # Of rows that are equally full, the oldest are finished.
            kept = sorted(kept, key=lambda row: (used(row), -open_ones.index(row)))[:open_rows]
            made += [row for row in open_ones if not any(row is each for each in kept)]
            open_ones[:] = [row for row in open_ones if any(row is each for each in kept)]
    return made + open_ones


def test_sequences_are_joined_with_segments_and_positions() -> None:
    packed = pack(Packer(6, ["tokens"], fill=-1), tokens(4, 3, 2, 1))
    assert packed["tokens"].tolist() == [
        [100, 101, 102, 103, 300, 301],
        [200, 201, 202, 400, -1, -1],
    ]
    assert packed["segments"].tolist() == [[1, 1, 1, 1, 2, 2], [1, 1, 1, 2, 0, 0]]
    assert packed["positions"].tolist() == [[0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 0, 0]]
    assert [packed[n].dtype for n in packed] == [np.int32, np.int32, np.int32]


def test_a_row_knows_its_segments() -> None:
    packer = Packer(6, ["tokens"])
    packer.add(np.array([3, 7, 9]), {"tokens": tokens(4, 3, 2)})
    group = packer.take(packer.waiting)
    assert (group.numbers.tolist(), group.at) == ([3], 10)
    assert held(group) == {"open": [[[7, 0, 3]]], "full": []}
    packer.end()
    group = packer.take(5)
    assert group.numbers.tolist() == [7]
    assert held(group) == {"open": [], "full": []}
    packer.end()
    assert packer.waiting == 0


def test_the_fullest_row_with_room_is_filled() -> None:
    packer = Packer(10, ["tokens"])
    packer.add(np.arange(4), {"tokens": tokens(6, 8, 3, 2)})
    assert held(packer.take(1))["open"] == [[[0, 0, 6], [2, 0, 3]]]


def test_the_fullest_row_is_finished_when_too_many_are_open() -> None:
    packer = Packer(10, ["tokens"], open_rows=2)
    packer.add(np.arange(3), {"tokens": tokens(6, 7, 8)})
    group = packer.take(3)
    assert (group.numbers.tolist(), group.at) == ([1], 2)
    assert held(group)["open"] == [[[0, 0, 6]]]


def test_columns_are_packed_in_the_same_way_each_with_its_own_fill() -> None:
    packer = Packer(5, ["tokens", "labels"], fill={"labels": -100})
    column = tokens(3, 1)
    labels = rm.Ragged(np.asarray(column.values, np.int64) * 2, column.offsets)
    packer.add(np.arange(2), {"tokens": column, "labels": labels, "image": np.zeros((2, 4))})
    packed = flushed(packer)
    assert list(packed) == ["tokens", "labels", "segments", "positions"]
    assert packed["tokens"].tolist() == [[100, 101, 102, 200, 0]]
    assert packed["labels"].tolist() == [[200, 202, 204, 400, -100]]


def test_items_may_have_axes_of_their_own() -> None:
    packer = Packer(3, ["x"])
    rows = [np.arange(4).reshape(2, 2), np.full((1, 2), 9)]
    packer.add(np.arange(2), {"x": rm.Ragged.from_rows(rows)})
    packed = flushed(packer)
    assert packed["x"].tolist() == [[[0, 1], [2, 3], [9, 9]]]


def test_slices_and_dense_columns_are_packed_too() -> None:
    column = tokens(2, 3, 1)
    assert pack(Packer(4, ["tokens"]), column[1:])["tokens"].tolist() == [[200, 201, 202, 300]]
    packer = Packer(4, ["tokens"])
    packer.add(np.arange(2), {"tokens": np.arange(4).reshape(2, 2)})
    packed = flushed(packer)
    assert packed["segments"].tolist() == [[1, 1, 2, 2]]


def test_without_names_every_sequence_of_numbers_is_packed() -> None:
    packer = Packer(8)
    text = rm.Ragged.from_bytes([b"ab"])
    nested = rm.Ragged(rm.Ragged.from_rows([[1], [2]]), [0, 2])
    batch: Any = {"a": tokens(2), "text": text, "nested": nested, "b": tokens(2), "n": np.zeros(1)}
    packer.add(np.arange(1), batch)
    assert list(flushed(packer)) == ["a", "b", "segments", "positions"]


def test_empty_sequences_leave_no_trace() -> None:
    packed = pack(Packer(3, ["tokens"]), tokens(0, 2, 0, 1, 0))
    assert packed["tokens"].tolist() == [[200, 201, 400]]
    assert packed["segments"].tolist() == [[1, 1, 2]]


def test_no_rows_make_an_empty_batch() -> None:
    packer = Packer(3, ["tokens"])
    packer.add(np.arange(0), {"tokens": tokens()})
    batch = flushed(packer)
    assert {name: column.shape for name, column in batch.items()} == {
        "tokens": (0, 3),
        "segments": (0, 3),
        "positions": (0, 3),
    }


def test_a_sequence_longer_than_a_row_is_refused_before_any_is_packed() -> None:
    packer = Packer(4, ["tokens"])
    with pytest.raises(rm.DataError, match=r"row 12: a sequence of 5 items.*have 4 .long='cut'"):
        packer.add(np.array([11, 12]), {"tokens": tokens(1, 5)})
    packer.end()
    assert packer.waiting == 0


def test_long_sequences_are_cut() -> None:
    assert pack(Packer(3, ["tokens"], long="cut"), tokens(5, 1))["tokens"].tolist() == [
        [100, 101, 102],
        [200, 0, 0],
    ]


def test_long_sequences_are_split_and_each_part_is_a_segment() -> None:
    packer = Packer(3, ["tokens"], long="split", open_rows=1)
    packer.add(np.arange(2), {"tokens": tokens(1, 8)})
    packed: Any = packer.take(3).batch
    assert packed["tokens"].tolist() == [[200, 201, 202], [203, 204, 205], [100, 206, 207]]
    assert packed["positions"].tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 1]]


def test_columns_of_different_lengths_are_refused_with_the_row() -> None:
    packer = Packer(9, ["tokens", "labels"])
    with pytest.raises(rm.DataError, match="row 31: 2 items in 'tokens', but 3 in 'labels'"):
        packer.add(np.array([30, 31]), {"tokens": tokens(1, 2), "labels": tokens(1, 3)})


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": tokens(1)}, "lacks 'tokens'"),
        ({"tokens": np.zeros(1)}, "'tokens': an array of 1 axes"),
        ({"tokens": rm.Ragged.from_bytes([b"a"])}, "no sequences of numbers"),
        ({"tokens": rm.Ragged(tokens(1), [0, 1])}, "no sequences of numbers"),
        ({"tokens": tokens(1, 1)}, "1 positions of 2 rows"),
    ],
)
def test_batches_that_cannot_be_packed_are_refused(batch: Any, message: str) -> None:
    with pytest.raises(rm.ColumnError, match=message):
        Packer(4, ["tokens"]).add(np.arange(1), batch)


def test_sequences_of_another_dtype_are_refused() -> None:
    packer = Packer(4, ["tokens"])
    packer.add(np.arange(1), {"tokens": tokens(1)})
    with pytest.raises(rm.ColumnError, match="tokens: float64.* after .*tokens: int32"):
        packer.add(np.arange(1), {"tokens": rm.Ragged.from_rows([[0.5]])})


def test_the_schema_describes_packed_rows() -> None:
    expected = {"tokens": "int32[8]", "segments": "int32[8]", "positions": "int32[8]"}
    assert Packer(8, ["tokens"]).schema(SCHEMA) == rm.Schema(expected)
    assert list(Packer(8).schema(SCHEMA)) == ["tokens", "labels", "segments", "positions"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length=0"),
        ({"open_rows": 0}, "open_rows=0"),
        ({"long": "drop"}, "long='drop'"),
        ({"columns": []}, "name columns to pack"),
        ({"columns": ["tokens", "tokens"]}, "each once"),
        ({"columns": ["nope"]}, "'nope': no such column"),
        ({"columns": ["text"]}, "'text': it is bytes"),
        ({"columns": ["image"]}, r"'image': it is uint8\[4\]"),
        ({"columns": ["nested"]}, "'nested': it is int64"),
        ({"fill": 0.5}, "'tokens': int32 cannot hold the fill value 0.5"),
        ({"columns": ["tokens"], "fill": {"labels": 1}}, "fill names 'labels'"),
    ],
)
def test_columns_that_cannot_be_packed_are_refused_before_any_row_is_read(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(rm.OptionError, match=message):
        Packer(**{"length": 8} | options).schema(SCHEMA)


def test_columns_named_like_those_that_packing_adds_are_refused() -> None:
    with pytest.raises(rm.OptionError, match="adds a column 'segments'"):
        Packer(8).schema(rm.Schema({"segments": "int64[*]"}))


@pytest.mark.parametrize(
    "rows",
    [
        [[[0, 0, 3]]],
        [[[0, -1, 1]]],
        [[[0, 1, 1]]],
        [[[0, 0, 2]], []],
        [[[0, 0, 2], [0, 0, 2], [0, 0, 2]]],
    ],
)
def test_a_state_of_other_sequences_is_refused(rows: list[list[list[int]]]) -> None:
    def fetch(numbers: Any) -> Any:
        return {"tokens": tokens(*(2 for _ in numbers))}

    for kind in ({"open": rows, "full": []}, {"open": [], "full": rows}):
        with pytest.raises(rm.OptionError, match="state"):
            Packer(5, ["tokens"]).restore(kind, fetch)
    two = {"open": [[[0, 0, 1]], [[1, 0, 1]]], "full": []}
    with pytest.raises(rm.OptionError, match="2 open rows to restore, but open_rows=1"):
        Packer(5, ["tokens"], open_rows=1).restore(two, fetch)


LENGTHS = st.lists(st.integers(0, 20), max_size=60)
OPTIONS = {
    "length": st.integers(1, 24),
    "long": st.sampled_from(["cut", "split"]),
    "open_rows": st.integers(1, 5),
    "window": st.sampled_from([None, 1, 2, 7, 100]),
}


@given(LENGTHS, st.fixed_dictionaries(OPTIONS), st.lists(st.integers(0, 60), max_size=4))
def test_rows_are_those_of_a_plain_list_however_the_input_was_batched(
    lengths: list[int], options: dict[str, Any], cuts: list[int]
) -> None:
    column, length = tokens(*lengths), options["length"]
    added: Any = ("segments", "positions", "cu_seqlens")
    packer = Packer(columns=["tokens"], add=added, **options)
    made: list[dict[str, Any]] = []
    bounds = sorted({0, len(column), *(cut for cut in cuts if cut < len(column))})
    for start, stop in pairwise(bounds):
        packer.add(np.arange(start, stop), {"tokens": column[start:stop]})
        while packer.waiting > 1:
            made.append(packer.take(2).batch)
    packer.end()
    while packer.waiting:
        made.append(packer.take(3).batch)
    wanted = reference(lengths, **options)
    found: dict[str, list[Any]] = {name: [] for name in ("tokens", *added)}
    for batch in made:
        for name in found:
            found[name] += batch[name].tolist()
    for i, row in enumerate(wanted):
        sizes = [end - begin for _, begin, end in row]
        filler = length - sum(sizes)
        joined = [item for p, begin, end in row for item in column[p][begin:end].tolist()]
        assert found["tokens"][i] == joined + [0] * filler
        numbers = [n for n, size in enumerate(sizes, 1) for _ in range(size)]
        assert found["segments"][i] == numbers + [0] * filler
        within = [n for size in sizes for n in range(size)]
        assert found["positions"][i] == within + [0] * filler
        edges = [0, *np.cumsum(sizes).tolist()]
        assert found["cu_seqlens"][i] == edges + [length] * (filler > 0)
    assert len(found["tokens"]) == len(wanted)


@given(LENGTHS, st.fixed_dictionaries(OPTIONS), st.integers(1, 3), st.integers(1, 40))
def test_a_restored_packer_gives_the_same_rows(
    lengths: list[int], options: dict[str, Any], size: int, block: int
) -> None:
    column = tokens(*lengths)

    def batches(packer: Packer, start: int) -> Iterator[Group]:
        for begin in range(start, len(column), block):
            stop = min(begin + block, len(column))
            packer.add(np.arange(begin, stop), {"tokens": column[begin:stop]})
            while packer.waiting >= size:
                yield packer.take(size)
        packer.end()
        while packer.waiting:
            yield packer.take(size)

    def rows(groups: Iterator[Group]) -> list[Any]:
        return [group.batch["tokens"].tolist() for group in groups]

    whole = rows(batches(Packer(columns=["tokens"], **options), 0))
    for i, group in enumerate(batches(Packer(columns=["tokens"], **options), 0), 1):
        if group.at < 0:
            break
        again = Packer(columns=["tokens"], **options)
        words = held(group)
        assert all(
            number < group.at for rows in words.values() for row in rows for number, _, _ in row
        )
        if words["open"] or words["full"]:
            again.restore(words, lambda numbers: {"tokens": column[list(numbers)]})
        assert rows(batches(again, group.at)) == whole[i:]


def test_best_fit_leaves_less_filler() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 5_000)
    ds = rm.from_arrays(
        {"t": rm.Ragged(np.ones(lengths.sum(), np.int32), np.cumsum([0, *lengths]))}
    )
    rows = {
        fit: sum(len(b["t"]) for b in ds.pack(100, fit=fit).batch(64)) for fit in ("online", "best")
    }
    least = -(-int(lengths.sum()) // 100)
    assert rows["best"] < rows["online"]
    assert rows["best"] < 1.02 * least


@pytest.mark.slow
def test_batches_of_best_fit_resume_after_any_of_them_on_any_number_of_ranks() -> None:
    lengths = np.random.default_rng(1).integers(0, 12, 600)
    ds = rm.from_arrays({"t": rm.Ragged.from_rows([np.full(n, i) for i, n in enumerate(lengths)])})

    def ranks(world: int) -> list[rm.Stream]:
        rows = ds.shuffle(seed=1).pack(16, fit="best", window=50, add=["cu_seqlens"]).batch(4)
        return [rows.shard(rank, world) for rank in range(world)]

    def items(made: Any) -> list[int]:
        return sorted(item for batch in made for item in batch["t"].ravel().tolist() if item)

    every = items([{"t": ds["t"][:].flat}])
    for world, then in ((1, 1), (2, 2), (2, 1)):
        wholes = [list(rank) for rank in ranks(world)]
        assert items(batch for whole in wholes for batch in whole) == every
        for steps in (1, 5, 13):
            running = ranks(world)
            taken = [[next(loop) for _ in range(steps)] for loop in map(iter, running)]
            states = json.loads(json.dumps([rank.state() for rank in running]))
            rest = [list(rank.restore(states)) for rank in ranks(then)]
            if world == then:
                for one, other in zip(rest, wholes, strict=True):
                    assert [b["t"].tolist() for b in one] == [
                        b["t"].tolist() for b in other[steps:]
                    ]
            assert items(batch for each in (*taken, *rest) for batch in each) == every


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fit": "first"}, "fit='first'"),
        ({"window": 0}, "window"),
        ({"add": ["lengths"]}, "add='lengths'"),
        ({"length": 2**31}, "length=2147483648"),
    ],
)
def test_other_ways_to_pack_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(rm.OptionError, match=says):
        words().pack(**{"length": 8, **options})


def words() -> rm.Dataset:
    return rm.from_arrays({"tokens": tokens(*(1 + i % 4 for i in range(30)))})


def test_what_pack_makes_are_rows_until_batch() -> None:
    plain = [row for batch in words().pack(6).batch(4) for row in batch["tokens"].tolist()]

    def of_row(row: dict[str, Any]) -> dict[str, Any]:
        assert row["tokens"].shape == row["segments"].shape == (6,)
        return {"tokens": row["tokens"] * 2, "count": row["segments"].max()}

    def of_rows(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["tokens"].shape == (len(batch["tokens"]), 6)
        return {"tokens": batch["tokens"] * 2}

    for workers in (None, "threads:2"):
        for made in (
            words().pack(6).map(of_row, workers=workers).batch(4),
            words().pack(6).select("tokens", "segments").map(of_row, workers=workers).batch(4),
            words().pack(6).map(of_rows, batched=True, workers=workers).batch(4),
            words().pack(6).batch(4).map(of_rows, workers=workers),
            words().pack(6).map(of_row).select("tokens").batch(4),
        ):
            batches = [batch["tokens"].tolist() for batch in made]
            assert list(map(len, batches)) == [4, 4, 4, 1]
            assert [row for batch in batches for row in batch] == [
                [2 * token for token in row] for row in plain
            ]


def test_a_function_of_packed_rows_goes_on_from_a_state() -> None:
    def draw(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**row, "drawn": rng.random()}

    def made() -> rm.Stream:
        return words().shuffle(seed=1).pack(6).map(draw).batch(3)

    whole = [batch["drawn"].tolist() for batch in made()]
    stopped = made()
    batches = iter(stopped)
    next(batches)
    again = made().restore(json.loads(json.dumps(stopped.state())))
    assert [batch["drawn"].tolist() for batch in again] == whole[1:]
    with pytest.raises(rm.OptionError, match="pack"):
        words().shuffle(seed=1).pack(6).batch(3).map(draw).restore(stopped.state())


@pytest.mark.parametrize("verb", ["filter", "bucket", "take", "shuffle", "pack", "select of rows"])
def test_verbs_that_would_rearrange_packed_rows_are_refused(verb: str) -> None:
    packed, made = words().pack(6), words().pack(6).batch(2)
    for pipeline in (packed,) if verb == "take" else (packed, made):
        with pytest.raises(rm.OptionError, match=verb):
            {
                "filter": lambda p: p.filter(lambda _: True),
                "bucket": lambda p: p.bucket("tokens", [2]),
                "take": lambda p: p.take(2),
                "shuffle": lambda p: p.shuffle(seed=1),
                "pack": lambda p: p.pack(12),
                "select of rows": lambda p: p.select([0]),
            }[verb](pipeline)


def test_an_epoch_of_packed_rows_ends_with_a_batch() -> None:
    once = [len(batch["tokens"]) for batch in words().pack(6).batch(4)]
    assert [len(b["tokens"]) for b in words().pack(6).repeat(2).batch(4)] == once * 2
    assert [len(b["tokens"]) for b in words().pack(6).batch(4).repeat(2)] == once * 2


def test_a_function_is_tried_on_a_later_epoch_if_the_first_has_no_packed_row() -> None:
    first = []
    for seed in range(4):
        rows = rm.from_arrays({"t": rm.Ragged.from_rows([[], [7]], np.int64)}).shuffle(seed=seed)
        packed = rows.take(1).pack(4).map(lambda row: {**row, "size": row["segments"].sum()})
        stream = packed.batch(1)
        assert "size" in stream.schema
        epochs = [[batch["size"].tolist() for batch in stream] for _ in range(8)]
        assert all(epoch in ([], [[1]]) for epoch in epochs)
        assert [[1]] in epochs
        first.append(epochs[0])
    assert [] in first
