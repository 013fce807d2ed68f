"""Sequences in padded batches."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Row, Table, compare, reach

__all__ = ["measure"]

_NOTE = (
    "One TFRecord file of sequences, in batches of {batch} rows padded to the longest of each. "
    'recmap: rm.open(path).batch({batch}, pad="longest"), CRCs checked. tf.data, tuned: batch, '
    "parse_example, to_tensor or to_dense in parallel, prefetch, with the settings that a trial "
    "found fastest. tf.data, row by row: parse_single_example and padded_batch. In {files} files, "
    "shuffled: recmap shuffles all rows (shuffle(seed=1)), tf.data those of 16 files at a time "
    "through a buffer of 10,000. The last rows compare recmap with itself: the file as a column "
    "of a dict, under its own name or another one, pads as fast as rm.open(path). The target in "
    "rows/s is for two cores of Neoverse-N1."
)
_FILES = 64
_TARGET = 10.0
# For two cores of Neoverse-N1.
_GOAL = Goal(2.06e6, "rows/s")
# A wrapped source is as fast as the one it wraps, within noise.
_NO_SLOWER = 0.9


def measure(bench: Bench) -> Table:
    workload = bench.workloads["text"]
    path, batch = bench.file(workload, "tokens"), workload.batch
    options: dict[str, Any] = {"path": path, "batch": batch, "checked": True}
    entrants = bench.entrants("training", "recmap", "pad", **options)
    entrants += bench.entrants(
        "tf training", "tf.data, tuned", "pad", rows=workload.tuned_rows, **options
    )
    entrants += bench.entrants(
        "tensorflow", "tf.data, row by row", "loop_read",
        form="tokens", width=0, rows=workload.loop_rows, **options,
    )  # fmt: skip
    timings = bench.race(f"pad {workload.title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    rows = [compare(workload.title, ours, peer, _TARGET) for peer in timings.values()]
    rows.append(reach(workload.title, ours, _GOAL))
    options["path"] = bench.shards(workload, "tokens", _FILES)
    entrants = bench.entrants("training", "recmap", "pad_shuffled", **options)
    entrants += bench.entrants(
        "tf training", "tf.data, tuned", "pad_shuffled", rows=workload.tuned_rows, **options
    )
    timings = bench.race(f"pad {_FILES} files", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    case = f"the same in {_FILES} files, shuffled"
    rows += [compare(case, ours, peer) for peer in timings.values()]
    rows += _as_a_column(bench, {"path": path, "batch": batch, "checked": True})
    return Table("Padded sequences", _NOTE.format(batch=batch, files=_FILES), rows)


def _as_a_column(bench: Bench, options: dict[str, Any]) -> list[Row]:
    """Pad the same file as a column of a dict: its source is wrapped."""
    workload = bench.workloads["text"]
    cases = {'rm.open({"tokens": path})': "tokens", 'rm.open({"text": path})': "text"}
    entrants = bench.entrants("training", "recmap, rm.open(path)", "pad", **options)
    for case, column in cases.items():
        entrants += bench.entrants("training", case, "pad", column=column, **options)
    timings = bench.race("pad a column", entrants, workload.row_bytes)
    plain = timings.pop("recmap, rm.open(path)")
    return [compare(case, timing, plain, _NO_SLOWER) for case, timing in timings.items()]
