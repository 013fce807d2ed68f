"""recmap view: look at rows in a browser."""

from __future__ import annotations

import argparse
import webbrowser
from contextlib import suppress
from copy import copy
from typing import Any

from recmap.cli.arguments import add_source, add_verb, add_where, is_named, opened
from recmap.cli.output import watching
from recmap.errors import OptionError
from recmap.model.preview import printable

_EXAMPLES = """  recmap view train.tfrecord
  recmap view 'train-*.tfrecord'
  recmap view before.npy after.npy
  recmap view --pipeline train:pipeline
  recmap view train.tfrecord --html report.html
  recmap view before.npy after.npy --html differences.html
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "view",
        run,
        help="look at rows, images and statistics in a browser",
        description=(
            "Serves a page on this machine and opens it: the columns with their statistics, and "
            "all rows, whatever the size of the files. Two paths are compared row by row. The "
            "address has a random token, without which nobody can open the page. Ctrl-C stops it."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser, optional=True)
    add_where(parser)
    parser.add_argument(
        "--pipeline",
        metavar="MODULE:NAME",
        help="show the batches of a pipeline instead: of a variable, or of a function that "
        "returns it",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a report to share instead: one file with the first rows, or those that differ",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing report")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of the page (default: any free one)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, but do not open it"
    )


def run(args: argparse.Namespace) -> int:
    # The package takes a while to import, and the other verbs do not need it.
    from recmap.view.api import Api
    from recmap.view.report import write_report
    from recmap.view.server import Server
    from recmap.view.table import BatchTable, RowTable, load_pipeline

    if bool(args.path) == bool(args.pipeline):
        raise OptionError("give the path of a dataset, or --pipeline MODULE:NAME")
    if not 0 <= args.port < 1 << 16:
        raise OptionError(f"--port {args.port}: give a number from 0 to 65535")
    if args.pipeline:
        tables: list[Any] = [BatchTable(load_pipeline(args.pipeline), args.pipeline)]
    else:
        tables = [RowTable(opened(each), " ".join(each.path)) for each in _datasets(args)]
    if args.html:
        other = tables[1] if len(tables) > 1 else None
        with watching("view") as watcher:
            write_report(
                tables[0], args.html, other=other, overwrite=args.overwrite, progress=watcher
            )
        print(printable(f"wrote {args.html}"))
        return 0
    # Ctrl-C is the way to stop it, and may come as soon as the address is printed.
    with suppress(KeyboardInterrupt), Server(Api(*tables), port=args.port) as server:
        print(f"{server.url}\nCtrl-C stops it.", flush=True)
        if not args.no_browser:
            webbrowser.open(server.url)
        server.wait()
    return 0


def _datasets(args: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the arguments of one dataset, or of each of two."""
    if len(args.path) == 1 or all(map(is_named, args.path)):
        return [args]
    if len(args.path) > 2:
        raise OptionError(
            "give one path, or two to compare; quote a pattern to see all its files as one "
            "dataset: 'train-*.tfrecord'"
        )
    each = []
    for path in args.path:
        one = copy(args)
        one.path = [path]
        each.append(one)
    return each
