"""Windows of consecutive rows, and rows of tokens for language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Row, Table, compare, reach

__all__ = ["measure"]

_NOTE = (
    "Windows of {size} rows of a mapped .npy file of 4 KB rows, shuffled, in batches of {batch}, "
    "compared with the same number of rows of the file, shuffled and gathered one by one. Tokens: "
    "rows of {length} uint16 tokens and their targets, cut from documents of 1 to 2,000 tokens in "
    "an .npz file, shuffled, in batches of {batch}, compared with copying such batches in order "
    "with NumPy. First batch: from rm.open to a shuffled batch of {count} tokens, compared with "
    "one second. Packing: {sequences} sequences of 1 to 40 int32 tokens in an .npz file, joined "
    "into rows of {length}, in batches of {batch}. By cost: sequences, shuffled, in batches of "
    "up to {tokens} tokens, compared with shuffled batches of as many rows on average."
)
_SIZE, _BATCH, _LENGTH = 16, 64, 2048
_SEQUENCES, _LIMIT = 4_000_000, 8_192
_PACKING = Goal(5e6, "rows/s")


def measure(bench: Bench) -> Table:
    count = 10_000_000 if bench.quick else 1_000_000_000
    note = _NOTE.format(
        size=_SIZE,
        batch=_BATCH,
        length=_LENGTH,
        count=f"{count:,}",
        sequences=f"{_sequences(bench):,}",
        tokens=f"{_LIMIT:,}",
    )
    rows = [*_windows(bench), *_tokens(bench, count), *_packed(bench), *_by_cost(bench)]
    return Table("Windows and tokens", note, rows)


def _windows(bench: Bench) -> list[Row]:
    workload = bench.workloads["4KB"]
    path = str(Path(bench.source(workload), "values.npy"))
    entrants = [
        *bench.entrants("verbs", "windows", "windows", path=path, size=_SIZE, batch=_BATCH),
        *bench.entrants("verbs", "rows", "gathered", path=path, size=_SIZE, batch=_BATCH),
    ]
    timings = bench.race("windows", entrants, workload.row_bytes)
    return [compare(f"windows of {_SIZE}, shuffled", timings["windows"], timings["rows"], 0.7)]


def _tokens(bench: Bench, count: int) -> list[Row]:
    path = str(bench.folder / "documents.npz")
    bench.worker("verbs").call("make_documents", path=path, tokens=count)
    found: dict[str, Any] = {"path": path, "length": _LENGTH}
    entrants = [
        *bench.entrants("verbs", "tokens", "token_rows", batch=_BATCH, **found),
        *bench.entrants("verbs", "memcpy", "copied", batch=_BATCH, **found),
    ]
    timings = bench.race("tokens", entrants, 4)
    rows = [compare("rows of tokens, shuffled", timings["tokens"], timings["memcpy"], 0.7)]
    first = bench.race(
        "first tokens",
        [
            *bench.entrants("verbs", "first", "first_tokens", batch=_BATCH, **found),
            *bench.entrants("verbs", "one second", "one_second"),
        ],
        4,
    )
    title = f"first batch of {count:,} tokens"
    return [*rows, compare(title, first["first"], first["one second"], 1.0)]


def _sequences(bench: Bench) -> int:
    return _SEQUENCES // 20 if bench.quick else _SEQUENCES


def _short(bench: Bench) -> str:
    path = str(bench.folder / "sequences.npz")
    bench.worker("verbs").call("make_sequences", path=path, rows=_sequences(bench))
    return path


def _packed(bench: Bench) -> list[Row]:
    given: dict[str, Any] = {"path": _short(bench), "length": _LENGTH, "batch": _BATCH}
    entrants = [
        *bench.entrants("verbs", "as they come", "packed", fit="online", **given),
        *bench.entrants("verbs", "best fit", "packed", fit="best", **given),
    ]
    timings = bench.race("packing", entrants, 4 * 20.5)
    return [reach(f"packing, {name}", timing, _PACKING) for name, timing in timings.items()]


def _by_cost(bench: Bench) -> list[Row]:
    path = _short(bench)
    entrants = [
        *bench.entrants("verbs", "by cost", "cost_batches", path=path, limit=_LIMIT),
        *bench.entrants("verbs", "by rows", "row_batches", path=path, size=int(_LIMIT / 20.5)),
    ]
    timings = bench.race("batches by cost", entrants, 4 * 20.5)
    return [compare("batches by tokens, shuffled", timings["by cost"], timings["by rows"], 0.7)]
