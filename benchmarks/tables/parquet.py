"""Parquet files, written from TFRecord and read."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "Write: rm.convert of one TFRecord file to one Parquet file (zstd, checksums of pages), rows "
    "counted afterwards; fsync is never called. pyarrow writes the same columns from memory with "
    "write_table: the same compression and about the same row groups, no dictionaries. Ray: "
    "read_tfrecords, then write_parquet. datasets: from_generator over tf.data, which parses one "
    "Example at a time, then to_parquet. Read: all rows of the file that recmap wrote, as NumPy, "
    "in batches of {batches} rows, opened within the time. pyarrow: dataset.to_batches, "
    "checksums verified, which cuts batches where row groups end. Ray: read_parquet, then "
    'iter_batches. datasets: from_parquet, then with_format("numpy").iter, cached after the '
    "first run. Those that handle one row at a time get fewer rows, the first ones."
)
# As fast as pyarrow, or up to 20% slower; hundreds of times a loop over rows.
_NEAR, _LOOP = 0.83, 100.0
_PYARROW = "pyarrow"
_RAY, _LISTS = "Ray, per Example", "datasets, from_generator"
_GROUP_BYTES = 8 << 20


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("40B", "4KB", "tokens")]
    table = Table("Parquet", _NOTE.format(batches=" / ".join(str(w.batch) for w in chosen)))
    if bench.worker("pyarrow").missing:
        table.note += " Not measured: pyarrow is not installed."
        return table
    for workload in chosen:
        table.rows += _write(bench, workload)
    for workload in chosen:
        table.rows += _read(bench, workload)
    return table


def _write(bench: Bench, workload: Workload) -> list[Row]:
    form = workload.forms[0]
    source, out = bench.file(workload, form), str(bench.folder / "scratch")
    entrants = bench.entrants(
        "recmap", "recmap", "convert",
        source=source, path=f"{out}-recmap.parquet", rows=workload.rows,
    )  # fmt: skip
    entrants += bench.entrants(
        "pyarrow", _PYARROW, "write", source=source, path=f"{out}-pyarrow.parquet",
        group_rows=max(1, int(_GROUP_BYTES / workload.row_bytes)),
    )  # fmt: skip
    if workload.name == "40B":
        few = bench.file(workload, form, workload.loop_rows)
        entrants += bench.entrants("ray", _RAY, "to_parquet", path=few, out=f"{out}-ray")
        entrants += bench.entrants(
            "datasets", _LISTS, "generate_parquet",
            source=few, path=f"{out}-datasets.parquet", folder=f"{out}-datasets",
        )  # fmt: skip
    targets = {_PYARROW: _NEAR, _RAY: _LOOP, _LISTS: _LOOP}
    return _compared(bench, f"{workload.title}, TFRecord to Parquet", entrants, workload, targets)


def _read(bench: Bench, workload: Workload) -> list[Row]:
    source = bench.file(workload, workload.forms[0])
    path = str(Path(source).with_suffix(".parquet"))
    bench.worker("pyarrow").call("make", source=source, path=path)
    batch = workload.batch
    entrants = bench.entrants("recmap", "recmap", "read", path=path, batch=batch, checked=True)
    entrants += bench.entrants("pyarrow", _PYARROW, "scan", path=path, batch=batch, checked=True)
    if workload.width:
        entrants += bench.entrants("ray", "Ray, read_parquet", "read", path=path, by="read_parquet")
        entrants += bench.entrants(
            "datasets", "datasets, from_parquet", "read_parquet",
            path=path, batch=batch, folder=str(bench.folder / "datasets-cache"),
        )  # fmt: skip
    case = f"{workload.title}, Parquet to NumPy"
    return _compared(bench, case, entrants, workload, {_PYARROW: _NEAR})


def _compared(
    bench: Bench,
    case: str,
    entrants: list[Entrant],
    workload: Workload,
    targets: dict[str, float],
) -> list[Row]:
    timings = bench.race(f"parquet {case}", entrants, workload.row_bytes, rounds=3)
    ours = timings.pop("recmap")
    return [compare(case, ours, peer, targets.get(name)) for name, peer in timings.items()]
