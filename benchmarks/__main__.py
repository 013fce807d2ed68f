"""``python -m benchmarks``: run the benchmarks, and print tables of ratios."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import machine_report
from benchmarks.bench import Bench
from benchmarks.machine import IdleWait, describe
from benchmarks.measured import Measured
from benchmarks.pages import fill, fill_front, fill_readme, front_ratios, page
from benchmarks.plots import draw, draw_ratios
from benchmarks.report import Table, facts_table, markdown
from benchmarks.tables import (
    adapters,
    arrow,
    augment,
    checked,
    column,
    convert,
    crops,
    dlio,
    gzip,
    hdf5,
    images,
    imports,
    larger,
    memory,
    pad,
    parquet,
    questions,
    ray,
    read,
    scan,
    statistics,
    stores,
    tfds,
    train,
    verbs,
    windows,
    write,
    zarr,
)

_TABLES: dict[str, Callable[[Bench], Table]] = {
    "larger": larger.measure,
    "write": write.measure,
    "read": read.measure,
    "checked": checked.measure,
    "column": column.measure,
    "scan": scan.measure,
    "memory": memory.measure,
    "import": imports.measure,
    "gzip": gzip.measure,
    "convert": convert.measure,
    "hdf5": hdf5.measure,
    "zarr": zarr.measure,
    "train": train.measure,
    "pad": pad.measure,
    "augment": augment.measure,
    "verbs": verbs.measure,
    "statistics": statistics.measure,
    "windows": windows.measure,
    "images": images.measure,
    "crops": crops.measure,
    "adapters": adapters.measure,
    "ray": ray.measure,
    "stores": stores.measure,
    "arrow": arrow.measure,
    "parquet": parquet.measure,
    "tfds": tfds.measure,
    "dlio": dlio.measure,
    "questions": questions.measure,
}


def main() -> None:
    options = _parse()
    if options.cores or options.gpu:
        _measure_machine(options)
    elif not options.reports:
        _measure_tables(options)
    if options.docs:
        block = machine_report.sections(machine_report.REPORTS, options.docs / "images")
        machine_report.put_into_page(options.docs / "benchmarks.md", block)


def _measure_machine(options: argparse.Namespace) -> None:
    idle = IdleWait(options.wait)
    with (
        tempfile.TemporaryDirectory(prefix="recmap-bench-", dir=options.folder) as folder,
        Bench(Path(folder), options.quick, options.rounds, idle) as bench,
    ):
        for report in machine_report.measure(bench, options.cores, options.gpu):
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(report, indent=1) + "\n")


def _measure_tables(options: argparse.Namespace) -> None:
    facts = describe() | {"sizes": "quick" if options.quick else "full"}
    print(f"# Benchmarks\n\n{facts_table(facts)}\n", flush=True)
    measured = Measured.kept_in(options.json, facts)
    begin, idle = time.perf_counter(), IdleWait(options.wait)
    with (
        tempfile.TemporaryDirectory(prefix="recmap-bench-", dir=options.folder) as folder,
        Bench(Path(folder), options.quick, options.rounds, idle) as bench,
    ):
        for name in options.only or _TABLES:
            bench.races.clear()
            table = _TABLES[name](bench)
            measured.put(name, table, [*bench.races], options.json)
            if name == "questions" and options.docs:
                fill(options.docs / "questions", table, facts | {"use by others": idle.describe()})
            print(markdown([table]), flush=True)
    facts["use by others"] = idle.describe()
    spent = time.perf_counter() - begin - idle.waited
    facts["took"] = f"{spent:.0f} s, and {idle.waited:.0f} s of waiting for others"
    print(facts_table({name: facts[name] for name in ("targets", "use by others", "took")}))
    if options.docs:
        _write_docs(options.docs, measured)


def _write_docs(folder: Path, measured: Measured) -> None:
    facts = measured.facts
    tables = [measured.tables[name] for name in _TABLES if name in measured.tables]
    races = [race for each in measured.races.values() for race in each]
    drawings = draw(races, facts, folder / "images")
    text = page(tables, facts, drawings)
    (folder / "benchmarks.md").write_text(f"{text}\n{machine_report.EMPTY}")
    if len(tables) == len(_TABLES):
        fill_front(folder / "index.md", tables, facts)
        fill_readme(folder.parent / "README.md", tables, facts)
        draw_ratios(front_ratios(tables), facts, folder / "images" / "ratios.svg")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--json", type=Path, metavar="FILE",
        help="write the raw numbers after each table; tables that FILE has already and that are "
        "not measured now stay, and are written into --docs, too",
    )  # fmt: skip
    parser.add_argument(
        "--docs", type=Path, metavar="FOLDER",
        help="write the tables, the plots and the figures of the questions into this folder "
        "(docs), and the figures of README.md next to it",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "--only", action="append", choices=_TABLES, metavar="NAME",
        help=f"measure only this table; repeatable: {', '.join(_TABLES)}",
    )  # fmt: skip
    parser.add_argument(
        "--cores", action="store_true",
        help="measure only recmap, on 1, 2, 4 ... CPUs of this machine; --json keeps the report",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", action="store_true",
        help="measure only batches to the GPU of this machine; with --cores, both",
    )  # fmt: skip
    parser.add_argument(
        "--reports", action="store_true",
        help="measure nothing, but write the reports in benchmarks/reports into --docs",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="turns per entrant (5)")
    parser.add_argument(
        "--wait", type=float, default=60, metavar="SECONDS",
        help="seconds to wait, in all, until other programs leave the CPUs idle",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, help="where to write the data; not a tmpfs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
