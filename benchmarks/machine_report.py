"""Reports of one machine, which ``--cores`` and ``--gpu`` write, and docs/benchmarks.md shows.

They are measured where the CPUs and the GPU are, and kept in benchmarks/reports.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import cores, gpu
from benchmarks.bench import Bench
from benchmarks.machine import describe
from benchmarks.plots import draw_cores
from benchmarks.report import Row, Table, comparisons, folded

__all__ = ["EMPTY", "REPORTS", "measure", "put_into_page", "sections", "text"]

REPORTS = Path(__file__).parent / "reports"

_BEGIN, _END = "<!-- other machines -->\n", "<!-- end of other machines -->\n"
# The place for the reports in a page.
EMPTY = _BEGIN + _END
_BLOCK = re.compile(f"{_BEGIN}.*?{_END}", re.DOTALL)


def measure(bench: Bench, on_cores: bool, on_gpu: bool) -> Iterator[dict[str, Any]]:
    """Measure what is asked for and can be measured here.

    Give the report, as JSON, after each part: a later one may fail.
    """
    facts = {name: fact for name, fact in describe().items() if fact != "not installed"}
    report: dict[str, Any] = {"machine": facts}
    if on_cores and not hasattr(os, "sched_setaffinity"):
        print("--cores: only Linux limits a process to some CPUs", flush=True)
    elif on_cores:
        report["cores"] = cores.measure(bench, cores.cpu_counts())
        facts["use by others"] = bench.idle.describe()
        print(text({**report, "gpu": None}), flush=True)
        yield report
    if on_gpu:
        name = gpu.find_gpu()
        if name is None:
            print("--gpu: PyTorch is not installed, or sees no GPU", flush=True)
        else:
            facts["GPU"] = name
            report["gpu"] = asdict(gpu.measure(bench))
            print(text({**report, "cores": None}), flush=True)
    facts["use by others"] = bench.idle.describe()
    yield report


def text(report: dict[str, Any], plot: str = "") -> str:
    """Return the sections of a report as Markdown; ``plot`` shows its cores."""
    parts = []
    if report.get("cores"):
        parts.append(f"## More cores\n\n{cores.NOTE} {_where(report)}\n")
        parts += [plot] if plot else []
        parts.append(folded("All figures", cores.table(report["cores"])))
    if report.get("gpu"):
        found = report["gpu"]
        rows = [Row(**row) for row in found["rows"]]
        table = comparisons(Table(found["title"], found["note"], rows))
        parts.append(f"## {found['title']}\n\n{found['note']} {_where(report)}\n")
        parts.append(folded("All figures", table))
    return "\n".join(parts)


def _where(report: dict[str, Any]) -> str:
    facts = report["machine"]
    gpu_name = f", {facts['GPU']}" if "GPU" in facts else ""
    names = ("Python", "recmap", "numpy", "torch", "jax")
    versions = ", ".join(f"{name} {facts[name]}" for name in names if name in facts)
    return (
        f"Measured {facts['date']}: {facts['cores']} CPUs of {facts['CPU']}{gpu_name}, "
        f"{facts['memory']}, {versions}."
    )


def sections(folder: Path, images: Path) -> str:
    """Return all reports of a folder as Markdown, and draw their plots."""
    made = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        plot = ""
        if report.get("cores"):
            drawing = images / f"{path.stem}.svg"
            draw_cores(report["cores"], report["machine"], drawing)
            plot = f"![rows a second by number of CPUs](images/{drawing.name})\n"
        made.append(text(report, plot))
    return _block(made)


def put_into_page(page: Path, block: str) -> None:
    """Replace the sections of a page that show other machines."""
    shown = page.read_text()
    if not _BLOCK.search(shown):
        raise ValueError(f"{page}: no place for other machines")
    page.write_text(_BLOCK.sub(lambda _: block, shown))


def _block(made: Sequence[str]) -> str:
    return "\n".join([_BEGIN, *made, _END])
