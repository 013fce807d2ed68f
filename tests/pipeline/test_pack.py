"""Short sequences joined into rows of one length."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.pipeline.transforms.pack import PackedRow, Packer

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
    rows = packer.add(np.arange(len(column)), {"tokens": column})
    return dict(packer.batch(rows + packer.flush()))


def segments(rows: list[PackedRow]) -> list[list[tuple[int, ...]]]:
    return [[tuple(segment) for segment in row.segments] for row in rows]


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
    assert segments(packer.add(np.array([7, 3, 9]), {"tokens": tokens(4, 3, 2)})) == [
        [(7, 0, 4), (9, 0, 2)]
    ]
    assert packer.held() == [[[3, 0, 3]]]
    assert segments(packer.flush()) == [[(3, 0, 3)]]
    assert packer.held() == []
    assert packer.flush() == []


def test_the_fullest_row_with_room_is_filled() -> None:
    packer = Packer(10, ["tokens"])
    packer.add(np.arange(4), {"tokens": tokens(6, 8, 3, 2)})
    assert packer.held() == [[[0, 0, 6], [2, 0, 3]]]


def test_the_fullest_row_is_finished_when_too_many_are_open() -> None:
    packer = Packer(10, ["tokens"], open_rows=2)
    finished = packer.add(np.arange(3), {"tokens": tokens(6, 7, 8)})
    assert segments(finished) == [[(1, 0, 7)]]
    assert packer.held() == [[[0, 0, 6]], [[2, 0, 8]]]


def test_columns_are_packed_in_the_same_way_each_with_its_own_fill() -> None:
    packer = Packer(5, ["tokens", "labels"], fill={"labels": -100})
    column = tokens(3, 1)
    labels = rm.Ragged(np.asarray(column.values, np.int64) * 2, column.offsets)
    packer.add(np.arange(2), {"tokens": column, "labels": labels, "image": np.zeros((2, 4))})
    packed = packer.batch(packer.flush())
    assert list(packed) == ["tokens", "labels", "segments", "positions"]
    assert packed["tokens"].tolist() == [[100, 101, 102, 200, 0]]
    assert packed["labels"].tolist() == [[200, 202, 204, 400, -100]]


def test_items_may_have_axes_of_their_own() -> None:
    packer = Packer(3, ["x"])
    rows = [np.arange(4).reshape(2, 2), np.full((1, 2), 9)]
    packed = packer.batch(packer.add(np.arange(2), {"x": rm.Ragged.from_rows(rows)}))
    assert packed["x"].tolist() == [[[0, 1], [2, 3], [9, 9]]]


def test_slices_and_dense_columns_are_packed_too() -> None:
    column = tokens(2, 3, 1)
    assert pack(Packer(4, ["tokens"]), column[1:])["tokens"].tolist() == [[200, 201, 202, 300]]
    packer = Packer(4, ["tokens"])
    packed = packer.batch(packer.add(np.arange(2), {"tokens": np.arange(4).reshape(2, 2)}))
    assert packed["segments"].tolist() == [[1, 1, 2, 2]]


def test_without_names_every_sequence_of_numbers_is_packed() -> None:
    packer = Packer(8)
    text = rm.Ragged.from_bytes([b"ab"])
    nested = rm.Ragged(rm.Ragged.from_rows([[1], [2]]), [0, 2])
    batch: Any = {"a": tokens(2), "text": text, "nested": nested, "b": tokens(2), "n": np.zeros(1)}
    packer.add(np.arange(1), batch)
    assert list(packer.batch(packer.flush())) == ["a", "b", "segments", "positions"]


def test_empty_sequences_leave_no_trace() -> None:
    packed = pack(Packer(3, ["tokens"]), tokens(0, 2, 0, 1, 0))
    assert packed["tokens"].tolist() == [[200, 201, 400]]
    assert packed["segments"].tolist() == [[1, 1, 2]]


def test_no_rows_make_an_empty_batch() -> None:
    packer = Packer(3, ["tokens"])
    packer.add(np.arange(0), {"tokens": tokens()})
    batch: dict[str, Any] = dict(packer.batch([]))
    assert {name: column.shape for name, column in batch.items()} == {
        "tokens": (0, 3),
        "segments": (0, 3),
        "positions": (0, 3),
    }


def test_a_sequence_longer_than_a_row_is_refused_before_any_is_packed() -> None:
    packer = Packer(4, ["tokens"])
    with pytest.raises(rm.DataError, match=r"row 12: a sequence of 5 items.*have 4 .long='cut'"):
        packer.add(np.array([11, 12]), {"tokens": tokens(1, 5)})
    assert packer.held() == []


def test_long_sequences_are_cut() -> None:
    assert pack(Packer(3, ["tokens"], long="cut"), tokens(5, 1))["tokens"].tolist() == [
        [100, 101, 102],
        [200, 0, 0],
    ]


def test_long_sequences_are_split_and_each_part_is_a_segment() -> None:
    packer = Packer(3, ["tokens"], long="split", open_rows=1)
    finished = packer.add(np.arange(2), {"tokens": tokens(1, 8)})
    assert segments(finished) == [[(1, 0, 3)], [(1, 3, 6)], [(0, 0, 1), (1, 6, 8)]]
    packed = packer.batch(finished)
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
    "held",
    [
        [[[0, 0, 3]]],
        [[[0, -1, 1]]],
        [[[0, 1, 1]]],
        [[[0, 0, 2]], []],
        [[[0, 0, 2], [0, 0, 2], [0, 0, 2]]],
    ],
)
def test_a_state_of_other_sequences_is_refused(held: list[list[list[int]]]) -> None:
    batch: Any = {"tokens": tokens(*(2 for row in held for _ in row))}
    with pytest.raises(rm.OptionError, match="state"):
        Packer(5, ["tokens"]).restore(held, batch)
    with pytest.raises(rm.OptionError, match="2 open rows to restore, but open_rows=1"):
        Packer(5, ["tokens"], open_rows=1).restore([[[0, 0, 1]], [[1, 0, 1]]], {"tokens": tokens()})


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, column in one.items():
        assert np.array_equal(column, other[name])


LENGTHS = st.lists(st.integers(0, 20), max_size=60)
OPTIONS = {
    "length": st.integers(1, 24),
    "open_rows": st.integers(1, 5),
    "long": st.sampled_from(["cut", "split"]),
}


@given(LENGTHS, st.fixed_dictionaries(OPTIONS), st.lists(st.integers(0, 60), max_size=4))
def test_every_item_comes_out_once_however_the_input_was_batched(
    lengths: list[int], options: dict[str, Any], cuts: list[int]
) -> None:
    column = tokens(*lengths)
    whole = Packer(columns=["tokens"], **options)
    rows = whole.add(np.arange(len(column)), {"tokens": column}) + whole.flush()
    parts = Packer(columns=["tokens"], **options)
    again: list[PackedRow] = []
    bounds = sorted({0, len(column), *(cut for cut in cuts if cut < len(column))})
    for start, stop in pairwise(bounds):
        again += parts.add(np.arange(start, stop), {"tokens": column[start:stop]})
    again += parts.flush()
    assert segments(rows) == segments(again)
    if lengths:
        assert_same(dict(whole.batch(rows)), dict(parts.batch(again)))
    taken = sorted(segment for row in rows for segment in row.segments)
    kept = [min(n, options["length"]) if options["long"] == "cut" else n for n in lengths]
    assert [(p, i) for p, begin, end in taken for i in range(begin, end)] == [
        (p, i) for p, n in enumerate(kept) for i in range(n)
    ]
    for row in rows:
        joined = [column[p.position][p.begin : p.end] for p in row.segments]
        assert np.array_equal(row.columns["tokens"][: row.used], np.concatenate(joined))
        assert not row.columns["tokens"][row.used :].any()


@given(LENGTHS, st.fixed_dictionaries(OPTIONS), st.data())
def test_a_restored_packer_gives_the_same_rows(
    lengths: list[int], options: dict[str, Any], data: st.DataObject
) -> None:
    column = tokens(*lengths)
    stop = data.draw(st.integers(0, len(column)))
    packer = Packer(columns=["tokens"], **options)
    packer.add(np.arange(stop), {"tokens": column[:stop]})
    held = json.loads(json.dumps(packer.held()))
    restored = Packer(columns=["tokens"], **options)
    restored.restore(held, {"tokens": column[[p[0] for row in held for p in row]]})
    assert restored.held() == held
    rest = np.arange(stop, len(column))
    one = packer.add(rest, {"tokens": column[stop:]}) + packer.flush()
    other = restored.add(rest, {"tokens": column[stop:]}) + restored.flush()
    assert segments(one) == segments(other)
    assert_same(dict(packer.batch(one)), dict(restored.batch(other)))


def test_finished_rows_are_rebuilt_from_their_segments() -> None:
    column = tokens(3, 5, 2, 4, 1, 3)
    packer = Packer(6, ["tokens"])
    rows = packer.add(np.arange(6), {"tokens": column})
    kept = [[list(segment) for segment in row.segments] for row in rows]
    fresh = Packer(6, ["tokens"])
    again = fresh.rows(kept, {"tokens": column[[p[0] for row in kept for p in row]]})
    assert_same(dict(packer.batch(rows)), dict(fresh.batch(again)))


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
