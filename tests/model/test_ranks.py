"""Byte strings have the ranks that Python's comparison gives them."""

from __future__ import annotations

import random

import recmap as rm
from recmap.model.ranks import byte_ranks


def test_ranks_are_those_of_a_sort() -> None:
    draw = random.Random(1)
    for trial in range(300):
        base = bytes(draw.choice(b"\0ab") for _ in range(draw.choice([0, 3, 8, 9, 40])))
        rows = [
            base[: draw.randint(0, len(base))]
            + bytes(draw.choice(b"\0a") for _ in range(draw.choice([0, 1, 3, 20])))
            for _ in range(draw.randint(0, 12))
        ]
        column = rm.Ragged.from_bytes([b"before", *rows, b"after"])[1 : len(rows) + 1]
        wanted = [sum(other < row for other in rows) for row in rows]
        assert byte_ranks(column).tolist() == wanted, (trial, rows)


def test_text_is_ranked_by_code_points() -> None:
    rows = ["é", "z", "", "日本", "𝄞", "￿", "z"]
    ranks = byte_ranks(rm.Ragged.from_text(rows)).tolist()
    assert ranks == [sum(other < row for other in rows) for row in rows]


def test_long_equal_strings_are_ranked() -> None:
    rows = [b"x" * 100_000 + end for end in (b"b", b"", b"a", b"b", b"\0")]
    assert byte_ranks(rm.Ragged.from_bytes(rows)).tolist() == [3, 0, 2, 3, 1]
