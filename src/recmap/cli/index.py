"""recmap index: index files beside the data."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.tfrecord.indexing import index

__all__ = ["add", "run"]

_EXAMPLES = """examples:
  recmap index train.tfrecord
  recmap index 'train-*.tfrecord'
  recmap index --text train.tfrecord     # train.tfrecord.idx, for DALI and others
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "index",
        help="write an index beside each file",
        description=(
            "Checks every record and writes an index beside each file, so that the next "
            "open takes milliseconds."
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="+", help="files, folders or patterns")
    parser.add_argument(
        "--text", action="store_true", help="write FILE.idx with a line of offset and size each"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in index(args.path, text=args.text):
        print(name)
    return 0
