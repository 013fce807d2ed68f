"""recmap index: index files beside the data."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.progress import watching_bytes
from recmap.cli.verb import add_verb
from recmap.cli.wording import printable
from recmap.tfrecord.indexing import index

__all__ = ["add"]

_EXAMPLES = """  recmap index train.tfrecord
  recmap index 'train-*.tfrecord'
  recmap index --text train.tfrecord     # train.tfrecord.idx, for DALI and others
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "index",
        run,
        help="write an index beside each TFRecord file",
        description=(
            "Checks every record and writes an index beside each file, so that the next "
            "open takes milliseconds."
        ),
        examples=_EXAMPLES,
    )
    parser.add_argument("path", nargs="+", help="files, folders or patterns")
    parser.add_argument(
        "--text", action="store_true", help="write FILE.idx with a line of offset and size each"
    )


def run(args: argparse.Namespace) -> int:
    with watching_bytes("index") as watcher:
        names = index(args.path, text=args.text, progress=watcher)
    for name in names:
        print(printable(name))
    return 0
