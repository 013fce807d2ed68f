"""recmap info: what files hold."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.dataset import open as open_dataset

__all__ = ["add", "run"]

_EXAMPLES = """examples:
  recmap info train.tfrecord
  recmap info 'train-*.tfrecord'
  recmap info old.tfrecord --field data='float32[10]'
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "info",
        help="format, rows, fields and hints",
        description="Shows format, size, rows and fields of TFRecord files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="+", help="files, folders or patterns")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME=TYPE",
        help="read only these fields; a type such as float32[10] for raw bytes",
    )
    parser.add_argument("--errors", choices=("raise", "skip"), default="raise")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    fields = {}
    for text in args.field:
        name, _, kind = text.partition("=")
        fields[name] = kind or None
    dataset = open_dataset(args.path, fields or None, errors=args.errors)
    print(dataset.info())
    for skipped in dataset.skipped:
        print(f"  skipped  {skipped}")
    return 0
