"""recmap bench: how fast the rows of a file come to a training loop."""

from __future__ import annotations

import argparse
import time
from typing import Any

from recmap.cli.json import json_text
from recmap.cli.source_options import add_source, opened
from recmap.cli.terminal import show_table
from recmap.cli.verb import add_verb
from recmap.errors import OptionError
from recmap.model.byte_size import size_text
from recmap.pipeline.meter import Stats

__all__ = ["add"]

_EXAMPLES = """  recmap bench train.tfrecord
  recmap bench images.npy --batch 32 --shuffle --seconds 10
  recmap bench 'part-*.tfrecord.gz' --shuffle --window 10000
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "bench",
        run,
        help="how fast rows come to a training loop, and what holds them up",
        description=(
            "Reads batches as a training loop would, for a few seconds, and says how fast they "
            "came and where the time went. The loop does nothing, so it waits all the time: what "
            "is printed is the most that your file, disk and processors give."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    group = parser.add_argument_group("the loop")
    group.add_argument(
        "--batch", type=int, default=256, metavar="ROWS", help="rows of a batch (256)"
    )
    group.add_argument("--shuffle", action="store_true", help="in a random order")
    group.add_argument("--seed", type=int, metavar="N", help="the order of --shuffle (any)")
    group.add_argument(
        "--window", type=int, metavar="ROWS", help="shuffled within windows of so many rows"
    )
    group.add_argument(
        "--pad", action="store_true", help="rows of different lengths padded to the longest"
    )
    group.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="how long to read, at most (5)"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    rows = opened(args)
    chain = rows.prefetch()
    if not args.shuffle and (args.window is not None or args.seed is not None):
        raise OptionError("--window and --seed are of a shuffle: give --shuffle too")
    if args.shuffle:
        chain = chain.shuffle(seed=args.seed, window=args.window)
    chain = chain.batch(args.batch, pad="longest" if args.pad else None)
    end = time.monotonic() + args.seconds
    for _ in chain:
        if time.monotonic() >= end:
            break
    stats = chain.stats()
    if args.json:
        print(json_text(_plain(stats)))
    else:
        _show(stats)
    return 0


def _show(stats: Stats) -> None:
    rows = [
        [
            stage.name,
            f"{stage.working:.3f} s",
            f"{stage.rows_per_second:,.0f}",
            f"{size_text(int(stage.bytes_per_second))}/s",
        ]
        for stage in stats.stages
    ]
    total = f"{size_text(int(stats.bytes_per_second))}/s"
    rows.append(["loop", f"{stats.elapsed:.3f} s", f"{stats.rows_per_second:,.0f}", total])
    show_table(["stage", "time", "rows/s", "bytes/s"], rows, right=range(1, 4))
    print(f"{stats.batches:,} batches, {stats.rows:,} rows, {size_text(stats.bytes)}")


def _plain(stats: Stats) -> dict[str, Any]:
    return {
        "batches": stats.batches,
        "rows": stats.rows,
        "bytes": stats.bytes,
        "seconds": stats.elapsed,
        "rows_per_second": stats.rows_per_second,
        "bytes_per_second": stats.bytes_per_second,
        "stages": [
            {"name": stage.name, "seconds": stage.working, "rows_per_second": stage.rows_per_second}
            for stage in stats.stages
        ],
    }
