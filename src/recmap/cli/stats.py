"""recmap stats: show statistics of each field."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import json_text, number, show_table, watching
from recmap.dataset.stats import FieldStats, Histogram, Numbers

__all__ = ["add"]

_EXAMPLES = """  recmap stats train.tfrecord
  recmap stats train.tfrecord --field label --field data='float32[10]'
  recmap stats numbers.npy --json
"""

_HEADER = ["field", "of", "count", "nan", "min", "max", "mean", "std", "histogram"]
_BARS, _PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "stats",
        run,
        help="show count, min, max, mean, std, NaN and lengths of each field",
        description=(
            "Reads all rows once, in bounded memory, and prints statistics of the values of each "
            "field, of the lengths of ragged rows, and of the sizes of byte strings. The "
            "histogram goes from min to max, in bins of equal width."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    with watching("stats") as watcher:
        found = dataset.stats(progress=watcher)
    if args.json:
        print(json_text(found))
        return 0
    rows = [row for name, stats in found.items() for row in _rows(name, stats)]
    show_table(_HEADER, rows, right=range(2, 8))
    return 0


def _rows(name: str, stats: FieldStats) -> list[list[str]]:
    rows = []
    if stats.values is not None:
        rows.append(_row(name, str(stats.field), stats.values))
    axes = ["row lengths", "step lengths"]
    for axis, lengths in zip(axes, stats.lengths, strict=False):
        rows.append(_row(name, axis, lengths))
    if stats.sizes is not None:
        rows.append(_row(name, "bytes of strings", stats.sizes))
    return rows


def _row(name: str, of: str, found: Numbers) -> list[str]:
    numbers = [found.min, found.max, found.mean, found.std]
    return [
        name,
        of,
        f"{found.count:,}",
        f"{found.nan:,}",
        *map(number, numbers),
        _drawn(found.histogram),
    ]


def _drawn(histogram: Histogram | None) -> str:
    if histogram is None:
        return ""
    try:
        _BARS.encode(sys.stdout.encoding or "ascii")
        bars = _BARS
    except UnicodeEncodeError:
        bars = _PLAIN_BARS
    most = max(histogram.counts)
    steps = len(bars) - 1
    # Round up, so that a bin with a single value is visible.
    return "".join(bars[-(-count * steps // most)] for count in histogram.counts)
