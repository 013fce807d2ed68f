"""Random Parquet files, read in pieces that fit: the rows of pyarrow, and no more bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.formats.parquet import open_parquet
from recmap.formats.row_group_file import even_cuts
from recmap.model.row_sizes import measure
from tests.formats.foreign_tables import Struct, with_footer

Random = np.random.Generator


def sizes(random: Random, rows: int) -> Any:
    """Return small numbers, and in some tables a few large ones somewhere."""
    found = random.integers(0, int(random.choice([2, 9])), rows)
    if random.random() < 0.6:
        at = int(random.integers(rows))
        found[at : at + int(random.integers(1, 40))] = random.integers(50, 100)
    return found


def lists(random: Random, rows: int, inside: Any) -> Any:
    offsets = np.append(0, np.cumsum(sizes(random, rows))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), inside(random, int(offsets[-1])))


def numbers(random: Random, rows: int) -> Any:
    kind = random.choice(["int8", "int32", "int64", "float32", "float64", "bool"])
    return pa.array(random.integers(0, 2, rows).astype(kind))


def strings(random: Random, rows: int) -> Any:
    words = [bytes([97 + i % 26]) * int(n) for i, n in enumerate(sizes(random, max(1, rows)))]
    picked = random.integers(0, int(random.integers(1, 1 + len(words))), rows)
    return pa.array([words[i] for i in np.sort(picked)], pa.binary())


def table(random: Random) -> Any:
    rows = int(random.integers(1, 700))
    kinds = [
        numbers,
        strings,
        lambda random, rows: lists(random, rows, numbers),
        lambda random, rows: lists(random, rows, strings),
        lambda random, rows: lists(random, rows, lambda r, n: lists(r, n, numbers)),
    ]
    picked = random.integers(0, len(kinds), int(random.integers(1, 4)))
    return pa.table({f"c{i}": kinds[kind](random, rows) for i, kind in enumerate(picked)})


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_random_tables_in_pieces_are_those_that_pyarrow_reads(codec: str) -> None:
    random = np.random.default_rng(sum(codec.encode()))
    for _ in range(4):
        made = table(random)
        pq.write_table(
            made,
            "x.parquet",
            compression=codec,
            use_dictionary=bool(random.random() < 0.6),
            data_page_version=str(random.choice(["1.0", "2.0"])),
            data_page_size=int(random.choice([100, 1000, 1 << 20])),
            write_batch_size=int(random.choice([1, 16, 1024])),
            row_group_size=int(random.choice([50, 400, 2000])),
        )
        source, at = open_parquet("x.parquet"), 0
        limit = int(random.choice([100_000, 400_000]))
        while at < made.num_rows:
            batch = source.read(at, made.num_rows, limit)
            rows, size = measure(batch)
            assert rows > 0
            assert size <= limit
            expected = made.slice(at, rows)
            for name, column in batch.items():
                assert column.tolist() == expected[name].to_pylist()
            at += rows


def test_a_row_group_that_fits_is_one_piece() -> None:
    assert even_cuts(700, 10, 7_000).starts.tolist() == [0, 700]
    assert even_cuts(700, 10, 6_999).starts.tolist() == [0, 512, 700]
    assert even_cuts(0, 10, 7_000).starts.tolist() == [0]


def test_pieces_take_no_more_than_is_said_of_them() -> None:
    random = np.random.default_rng(8)
    for _ in range(20):
        made = table(random)
        pq.write_table(
            made,
            "x.parquet",
            use_dictionary=bool(random.random() < 0.5),
            data_page_size=200,
            write_batch_size=1,
        )
        source = open_parquet("x.parquet")
        file = source._file  # what it does to read
        names = list(source.schema)
        cuts = file.cuts(0, {name: file.row_bytes(name) for name in names}, 30_000, 0)
        for start, stop, said in zip(cuts.starts, cuts.starts[1:], cuts.sizes, strict=False):
            taken = measure(source.read(int(start), int(stop)))[1]
            assert taken <= said + 5_000 * len(names)


@pytest.mark.slow
def test_no_memory_is_taken_for_rows_that_a_footer_only_claims(tmp_path: Path) -> None:
    path, claimed = str(tmp_path / "x.parquet"), 1 << 50

    def claim(footer: Struct) -> None:
        footer[3] = (footer[3][0], claimed)
        for group in footer[4][1][1]:
            group[3] = (group[3][0], claimed)
            for column in group[1][1][1]:
                column[3][1][5] = (column[3][1][5][0], claimed)

    reads: list[Callable[[rm.Dataset], object]] = [
        lambda ds: ds[5],
        lambda ds: ds[-5],
        lambda ds: next(ds.batches(10)),
        lambda ds: ds.save(tmp_path / "x.npz", memory="60MB", overwrite=True, progress=False),
    ]
    for column in (np.arange(99), [[i] for i in range(99)], [str(i) for i in range(99)]):
        pq.write_table(pa.table({"x": column}), path)
        with_footer(path, claim)
        for read in reads:
            tracemalloc.start()
            try:
                with pytest.raises(rm.DataError, match="99 rows were found"):
                    read(rm.open(path))
                assert tracemalloc.get_traced_memory()[1] < 256 << 20
            finally:
                tracemalloc.stop()


@pytest.mark.slow
def test_strings_inside_of_objects_are_read_in_pieces(tmp_path: Path) -> None:
    words = [f"{number:03d}" * 100 for number in range(50)]
    rows = [
        None if i % 97 == 0 else {"word": None if i % 89 == 0 else words[i % 50], "inner": {"i": i}}
        for i in range(20_000)
    ]
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"s": rows}), path)
    source = open_parquet(path)
    read: list[str | None] = []
    while len(read) < len(rows):
        read += source.read(len(read), len(rows), 1 << 18)["s/word"].tolist()
    said = [row and row["word"] for row in rows]
    assert read == said
