"""recmap bench and recmap tune: how fast a training loop could read, and the fastest way to."""

from __future__ import annotations

import argparse
import gc
import os
import time
from typing import Any

from recmap.cli.arguments import add_source, add_verb, call_text, opened
from recmap.cli.output import say, show, show_table
from recmap.dataset.dataset import opened_rows
from recmap.errors import OptionError
from recmap.model.arguments import size_text
from recmap.model.json_text import json_text
from recmap.pipeline.meter import Timings
from recmap.pipeline.tune import Measurement, fits_memory, tune

_BENCH_EXAMPLES = """  recmap bench train.tfrecord
  recmap bench images.npy --batch 32 --shuffle --seconds 10
  recmap bench 'part-*.tfrecord.gz' --shuffle --window 10000
"""
_TUNE_EXAMPLES = """  recmap tune train.tfrecord
  recmap tune 'part-*.tfrecord' --batch 512
  recmap tune images.h5 --seconds 60 --cold
"""


def add_bench(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "bench",
        _run_bench,
        help="measure how fast a training loop could read, and what limits it",
        description=(
            "Reads batches as a training loop would, for a few seconds, and prints how fast they "
            "came and where the time went. The loop itself does nothing, so this is the most that "
            "your file, disk and CPUs can deliver."
        ),
        examples=_BENCH_EXAMPLES,
    )
    add_source(parser)
    group = parser.add_argument_group("the loop")
    group.add_argument(
        "--batch", type=int, default=256, metavar="ROWS", help="rows per batch (256)"
    )
    group.add_argument("--shuffle", action="store_true", help="read in a random order")
    group.add_argument("--seed", type=int, metavar="N", help="seed of --shuffle")
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


def _run_bench(args: argparse.Namespace) -> int:
    rows = opened(args)
    chain = rows.prefetch()
    if not args.shuffle and (args.window is not None or args.seed is not None):
        raise OptionError("--window and --seed need --shuffle")
    if args.shuffle:
        chain = chain.shuffle(seed=args.seed, window=args.window)
    batches = chain.batch(args.batch, pad="longest" if args.pad else None)
    end = time.monotonic() + args.seconds
    for _ in batches:
        if time.monotonic() >= end:
            break
    timings = batches.timings()
    if args.json:
        print(json_text(_plain(timings)))
        return 0
    show(timings.table())
    for line in timings.summary():
        say(line)
    return 0


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


def add_tune(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "tune",
        _run_tune,
        help="find the fastest way to read a file on this machine",
        description=(
            "Tries several ways to read batches, each for a moment: an exact shuffle or windows, "
            "several batch sizes, one reader or more. Prints how fast each was, and the line of "
            "code to use. A way that shuffles less or uses more memory is chosen only if it is "
            "clearly faster."
        ),
        examples=_TUNE_EXAMPLES,
    )
    add_source(parser)
    group = parser.add_argument_group("what to try")
    group.add_argument(
        "--batch", type=int, metavar="ROWS", help="try only batches of this many rows"
    )
    group.add_argument("--in-order", action="store_true", help="do not shuffle")
    group.add_argument(
        "--seconds",
        type=float,
        default=15.0,
        metavar="S",
        help="seconds for all trials, about (15)",
    )
    cache = group.add_mutually_exclusive_group()
    cache.add_argument(
        "--cold",
        action="store_true",
        default=None,
        dest="cold",
        help="read from disk: drop the files from the page cache before each trial (default for "
        "files larger than half of the memory)",
    )
    cache.add_argument(
        "--warm", action="store_false", default=None, dest="cold", help="read from the page cache"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object")


def _run_tune(args: argparse.Namespace) -> int:
    if args.batch is not None and args.batch < 1:
        raise OptionError(f"--batch {args.batch}: a batch has 1 row or more")
    rows = opened(args)
    files, count, row_bytes = rows.files, len(rows), opened_rows(rows).source.row_bytes()
    if count == 0:
        raise OptionError(f"{files[0]}: there are no rows to read")
    cold = not fits_memory(files) if args.cold is None else args.cold
    del rows

    def forget() -> None:
        gc.collect()  # pages that are still mapped cannot be dropped
        for file in files if cold else []:
            _forget(file)

    trials = list(
        tune(
            lambda: opened(args),
            count,
            row_bytes,
            batch=args.batch,
            shuffle=not args.in_order,
            seconds=args.seconds,
            forget=forget,
        )
    )
    line = call_text(args) + str([trial for trial in trials if trial.chosen][-1].choice)
    if args.json:
        print(json_text({"trials": [_trial(t) for t in trials], "cold": cold, "line": line}))
    else:
        _show_trials(trials, line, cold)
    return 0


def _forget(path: str) -> None:
    for folder, _, names in os.walk(path) if os.path.isdir(path) else [(path, [], [""])]:
        for name in names:
            with open(os.path.join(folder, name) if name else folder, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _show_trials(trials: list[Measurement], line: str, cold: bool) -> None:
    rows = [
        [
            trial.stage,
            str(trial.choice).removeprefix("."),
            f"{trial.rows_per_second:,.0f}",
            f"{size_text(int(trial.bytes_per_second))}/s",
            "best" if trial.chosen else "",
        ]
        for trial in trials
    ]
    show_table(["tried", "rm.open(...)", "rows/s", "bytes/s", ""], rows, right=(2, 3))
    print(f"read from {'disk' if cold else 'memory'}; the line to use:")
    print(f"  {line}")


def _trial(trial: Measurement) -> dict[str, Any]:
    return {
        "stage": trial.stage,
        "chain": str(trial.choice),
        "rows_per_second": trial.rows_per_second,
        "bytes_per_second": trial.bytes_per_second,
        "chosen": trial.chosen,
    }
