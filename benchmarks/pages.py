"""Writes the figures of a run into the docs and README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import Row, Table, comparisons, facts_table, folded

__all__ = ["fill", "fill_front", "fill_readme", "front_ratios", "page"]

# Cases to begin a section with.
_MOST = 4

_BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)

_LARGER, _LARGER_CASE = "Larger than memory", "4 KB rows, 6 GB in 2 GB of memory"

# What is cached.
_CACHE = f'page cache warm, except in "{_LARGER}"'

# The cases that a section begins with, by table, each with one peer.
_SHOWN = {
    _LARGER: {_LARGER_CASE: "memmap"},
    "Read": {
        "40 B rows, float_list": "TensorFlow, tuned",
        "4 KB rows, float_list": "TensorFlow, tuned",
        "256 KB rows, float_list": "TensorFlow, tuned",
        "sequences of 10 to 200 int64, int64_list": "TensorFlow, tuned",
    },
    "gzip": {"4 KB rows, read": "TensorFlow, tuned"},
    "Write": {"40 B rows, float_list": "TensorFlow, loop"},
    "Convert": {
        "40 B rows, npy to TFRecord": "TensorFlow, loop",
        "4 KB rows, npy to TFRecord": "cp",
    },
    "HDF5": {"gzip and shuffle": "h5py"},
    "Training batches": {
        "40 B rows": "tf.data, gather",
        "4 KB rows": "DataLoader by batches, 0 workers",
        "200 KB rows": "DataLoader by batches, 0 workers",
    },
    "Padded sequences": {"sequences of 10 to 500 int64": "tf.data, tuned"},
    "Augmentation": {"2 workers": "DataLoader, 2 workers"},
    "Images": {"500x375 to 256x256": "tf.data"},
    "Adapters": {"to_torch()": "plain iterator", "to_tf()": "plain iterator"},
    "Ray": {
        "40 B rows, read TFRecord": "Ray, read_tfrecords",
        "40 B rows, read .npy": "Ray, read_numpy",
    },
}

# Those of them in README.md, of which some are on the front page of the docs, too.
_IN_README = {
    _LARGER: [_LARGER_CASE],
    "Read": ["40 B rows, float_list"],
    "Training batches": ["4 KB rows"],
    "HDF5": ["gzip and shuffle"],
    "Convert": ["4 KB rows, npy to TFRecord"],
}
_ON_THE_FRONT = (_LARGER, "Read", "Training batches", "Convert")


def fill(folder: Path, table: Table, facts: dict[str, str]) -> list[Path]:
    """Write the rows of each question, and where they were measured, into its page.

    Rows and pages begin with the same word, such as ``q0``. Return the pages.
    """
    written = []
    for page in sorted(folder.glob("q*.md")):
        rows = [row for row in table.rows if row.case.split()[0] == page.name.split("-")[0]]
        if not rows:
            raise ValueError(f"{page}: no rows of the table")
        _put(page, _block(rows, facts))
        written.append(page)
    return written


def fill_front(path: Path, tables: Sequence[Table], facts: dict[str, str]) -> None:
    """Write the rows that docs/index.md shows, and where they were measured."""
    _fill_rows(path, tables, facts, _ON_THE_FRONT)


def fill_readme(path: Path, tables: Sequence[Table], facts: dict[str, str]) -> None:
    """Write the rows that README.md shows, and where they were measured."""
    _fill_rows(path, tables, facts, tuple(_IN_README))


def front_ratios(tables: Sequence[Table]) -> list[tuple[str, float]]:
    """Return the rows of README.md, each as a line of text and the ratio."""
    return [
        (f"{title}: {row.case}\nvs. {row.peer}", row.ratio)
        for title, row in _front_rows(tables, tuple(_IN_README))
        if row.ratio is not None
    ]


def _front_rows(tables: Sequence[Table], titles: Sequence[str]) -> Iterator[tuple[str, Row]]:
    by_title = {table.title: table for table in tables}
    for title in titles:
        cases = {case: _SHOWN[title][case] for case in _IN_README[title]}
        yield from ((title, row) for row in _chosen(by_title[title], cases))


def _fill_rows(
    path: Path, tables: Sequence[Table], facts: dict[str, str], titles: Sequence[str]
) -> None:
    lines = ["| | recmap | peer | |", "|---|---|---|---|"]
    for title, row in _front_rows(tables, titles):
        case, ours, peer, theirs, ratio, *_ = row.cells()
        lines.append(f"| {title}: {case} | {ours} | {peer}: {theirs} | {ratio} |")
    dates = sorted({table.date.split()[0] for table in tables if table.title in titles})
    lines += ["", f"`make bench`, {' and '.join(dates)}: {_where(facts)}, {_CACHE}.", ""]
    _put(path, "\n".join(lines))


def page(tables: Sequence[Table], facts: dict[str, str], drawings: Sequence[Path]) -> str:
    """Return docs/benchmarks.md: the figures to remember first, whole tables folded behind them."""
    intro = (
        f"recmap compared with other libraries that do the same work: {_where(facts)}, "
        f"{facts['date']}, {_CACHE}. `3.00x` means three times the rate of the peer, and "
        f"less than `1.00x` that the peer is faster. Our own targets: "
        f"{facts['targets']} ([which, and why](misses.md))."
    )
    guide = (
        "Each section begins with the cases to remember. Unfold it for how they were measured, and "
        "for every case and peer. Processor time is that of recmap / that of the peer. It counts "
        "all processes, and includes what comes before the clock starts."
    )
    parts = [
        "# Benchmarks",
        intro,
        *(f"![{path.stem}](images/{path.name})" for path in drawings),
        guide,
        *(_section(table) for table in tables),
        "## This machine",
        folded("Versions and sizes", facts_table(facts)),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _section(table: Table) -> str:
    lines = []
    for row in _shown(table):
        case, ours, peer, theirs, ratio, *_ = row.cells()
        lines.append(f"- {case}: {ours}" + (f"; **{ratio}** {peer} ({theirs})" if peer else ""))
    verdicts = [row.met for row in table.rows if row.met is not None]
    summary = f"How it was measured, and all {len(table.rows)} comparisons"
    if verdicts:
        summary += f"; {sum(verdicts)} of {len(verdicts)} targets met"
    story = "\n".join(lines)
    note = f"{table.note} Measured {table.date}." if table.date else table.note
    return f"## {table.title}\n\n{story}\n\n{folded(summary, note, comparisons(table))}"


def _shown(table: Table) -> list[Row]:
    """Return the rows to remember: those listed above, or else the first of each case."""
    if table.title in _SHOWN:
        return _chosen(table, _SHOWN[table.title])
    first: dict[str, Row] = {}
    for row in table.rows:
        first.setdefault(row.case, row)
    return list(first.values())[:_MOST]


def _chosen(table: Table, cases: dict[str, str]) -> list[Row]:
    rows = {(row.case, row.peer): row for row in table.rows}
    # Some cannot be measured everywhere.
    return [rows[key] for key in cases.items() if key in rows]


def _put(page: Path, block: str) -> None:
    text = page.read_text()
    if not _BLOCK.search(text):
        raise ValueError(f"{page}: no place for figures")
    page.write_text(_BLOCK.sub(lambda found: found[1] + block + found[2], text))


def _where(facts: dict[str, str]) -> str:
    return f"{facts['cores']} cores of {facts['CPU']}, {facts['memory']}"


def _block(rows: Sequence[Row], facts: dict[str, str]) -> str:
    lines = ["| | recmap | usual | |", "|---|---|---|---|"]
    for row in rows:
        _, case = row.case.split(maxsplit=1)
        assert row.ratio is not None
        lines.append(f"| {case} | {row.ours} | `{row.peer}.py`: {row.theirs} | {row.ratio:.3g}x |")
    versions = f"Python {facts['Python']}, TensorFlow {facts['tensorflow']}"
    busy = f"CPU use by other programs before each run: {facts['use by others']}."
    return "\n".join(
        [*lines, "", f"Measured {facts['date']}: {_where(facts)}, {versions}. {busy}", ""]
    )
