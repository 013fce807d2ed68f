"""The figures in docs/questions, which one run writes into all of the pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row, Table

__all__ = ["fill"]

_BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)


def fill(folder: Path, table: Table, facts: dict[str, str]) -> list[Path]:
    """Puts rows of the table, and where they were measured, into the page whose name
    begins as they do (``q0``); gives the pages that were written.
    """
    written = []
    for page in sorted(folder.glob("q*.md")):
        rows = [row for row in table.rows if row.case.split()[0] == page.name.split("-")[0]]
        text = page.read_text()
        if not rows or not _BLOCK.search(text):
            raise ValueError(f"{page}: no rows of the table, or no place for them")
        block = _block(rows, facts)
        page.write_text(_BLOCK.sub(lambda found: found[1] + block + found[2], text))  # noqa: B023
        written.append(page)
    return written


def _block(rows: Sequence[Row], facts: dict[str, str]) -> str:
    lines = ["| | recmap | usual | |", "|---|---|---|---|"]
    for row in rows:
        _, case = row.case.split(maxsplit=1)
        assert row.ratio is not None
        lines.append(f"| {case} | {row.ours} | `{row.peer}.py`: {row.theirs} | {row.ratio:.3g}x |")
    where = f"{facts['cores']} cores of {facts['CPU']}, {facts['memory']}"
    versions = f"Python {facts['Python']}, TensorFlow {facts['tensorflow']}"
    busy = f"Use of the processors by others before each run: {facts['use by others']}."
    return "\n".join([*lines, "", f"Measured {facts['date']}: {where}, {versions}. {busy}", ""])
