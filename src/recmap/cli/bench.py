"""recmap bench: measure how fast a training loop could read a file."""

from __future__ import annotations

import argparse
import time
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import json_text, say, show
from recmap.errors import OptionError
from recmap.pipeline.meter import Timings

_EXAMPLES = """  recmap bench train.tfrecord
  recmap bench images.npy --batch 32 --shuffle --seconds 10
  recmap bench 'part-*.tfrecord.gz' --shuffle --window 10000
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "bench",
        run,
        help="measure how fast a training loop could read, and what limits it",
        description=(
            "Reads batches as a training loop would, for a few seconds, and prints how fast they "
            "came and where the time went. The loop itself does nothing, so this is the most that "
            "your file, disk and CPUs can deliver."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    group = parser.add_argument_group("the loop")
    group.add_argument(
        "--batch", type=int, default=256, metavar="ROWS", help="rows per batch (256)"
    )
    group.add_argument("--shuffle", action="store_true", help="read in a random order")
    group.add_argument("--seed", type=int, metavar="N", help="the order of --shuffle")
    group.add_argument(
        "--window", type=int, metavar="ROWS", help="shuffle within windows of this many rows"
    )
    group.add_argument(
        "--pad", action="store_true", help="pad ragged rows to the longest of a batch"
    )
    group.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="seconds to read at most (5)"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    rows = opened(args)
    chain = rows.prefetch()
    if not args.shuffle and (args.window is not None or args.seed is not None):
        raise OptionError("--window and --seed need --shuffle")
    if args.shuffle:
        chain = chain.shuffle(seed=args.seed, window=args.window)
    chain = chain.batch(args.batch, pad="longest" if args.pad else None)
    end = time.monotonic() + args.seconds
    for _ in chain:
        if time.monotonic() >= end:
            break
    timings = chain.timings()
    if args.json:
        print(json_text(_plain(timings)))
    else:
        _show(timings)
    return 0


def _show(timings: Timings) -> None:
    show(timings.table())
    for line in timings.summary():
        say(line)


def _plain(timings: Timings) -> dict[str, Any]:
    return {
        "batches": timings.batches,
        "rows": timings.rows,
        "bytes": timings.bytes,
        "seconds": timings.elapsed,
        "rows_per_second": timings.rows_per_second,
        "bytes_per_second": timings.bytes_per_second,
        "stages": [
            {"name": stage.name, "seconds": stage.working, "rows_per_second": stage.rows_per_second}
            for stage in timings.stages
        ],
    }
