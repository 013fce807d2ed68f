"""Tables of ratios, with their targets, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.timing import Timing

__all__ = [
    "Goal",
    "Row",
    "Table",
    "compare",
    "comparisons",
    "count",
    "facts_table",
    "folded",
    "grid",
    "markdown",
    "rate",
    "reach",
]


@dataclass(frozen=True)
class Row:
    """One comparison. ``met`` is None where there is no target.

    ``cpu`` is the processor time per GB of both, in seconds, where it was measured.
    """

    case: str
    ours: str
    peer: str
    theirs: str
    ratio: float | None
    target: str = ""
    met: bool | None = None
    cpu: str = ""

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else _times(self.ratio)
        verdict = {None: "", True: "met", False: "**missed**"}[self.met]
        return [self.case, self.ours, self.peer, self.theirs, ratio, self.cpu, self.target, verdict]


@dataclass(frozen=True)
class Goal:
    """A rate to reach, in ``rows/s`` or ``GB/s``."""

    value: float
    unit: str

    def __str__(self) -> str:
        number = count(self.value) if self.unit == "rows/s" else f"{self.value:.3g}"
        return f"≥ {number} {self.unit}"

    def met(self, rows_per_second: float, row_bytes: float) -> bool:
        """Whether a rate reaches it."""
        gigabytes = rows_per_second * row_bytes / 1e9
        return (rows_per_second if self.unit == "rows/s" else gigabytes) >= self.value


@dataclass
class Table:
    """Rows under a title, and a note on how and when they were measured."""

    title: str
    note: str
    rows: list[Row] = field(default_factory=list)
    date: str = ""


def compare(
    case: str, ours: Timing, theirs: Timing, at_least: float | None = None, reason: str = ""
) -> Row:
    """Return recmap's rate as a multiple of a peer's; ``reason`` says what the target means."""
    ratio = ours.rows_per_second / theirs.rows_per_second
    target = "" if at_least is None else f"≥ {_times(at_least)}{reason}"
    met = None if at_least is None else ratio >= at_least
    cpu = f"{ours.cpu_per_gigabyte:.2g} / {theirs.cpu_per_gigabyte:.2g} s/GB"
    return Row(case, rate(ours), theirs.name, rate(theirs), ratio, target, met, cpu)


def reach(case: str, ours: Timing, goal: Goal) -> Row:
    """Return recmap's rate, and whether it reaches a goal."""
    met = goal.met(ours.rows_per_second, ours.row_bytes)
    return Row(case, rate(ours), "", "", None, str(goal), met, f"{ours.cpu_per_gigabyte:.2g} s/GB")


def rate(timing: Timing) -> str:
    """Return a rate such as ``6.21 M rows/s, 0.25 GB/s``."""
    return f"{count(timing.rows_per_second)} rows/s, {timing.bytes_per_second / 1e9:.3g} GB/s"


def count(number: float) -> str:
    """Return a number such as ``6.21 M``."""
    for size, unit in ((1e6, " M"), (1e3, " K")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


_HEADER = ("case", "recmap", "peer", "its rate", "ratio", "processor time", "target", "")


def markdown(tables: Iterable[Table]) -> str:
    """Return the tables as Markdown that also reads well as plain text."""
    return "\n".join(
        f"## {table.title}\n\n{table.note}\n\n{comparisons(table)}\n" for table in tables
    )


def folded(summary: str, *parts: str) -> str:
    """Return Markdown that a page shows when its summary is clicked."""
    body = "\n\n".join(parts)
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{body}\n\n</details>\n'


def comparisons(table: Table) -> str:
    """Return the rows of a table as Markdown."""
    return grid(_HEADER, [row.cells() for row in table.rows])


def facts_table(facts: dict[str, str]) -> str:
    """Describe the machine, one fact per line."""
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that also reads well as plain text."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    rule = ["-" * max(width, 3) for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in (lines[0], rule, *lines[1:])
    )
