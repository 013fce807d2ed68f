"""recmap verify: the checksums of whole files."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.tfrecord.verifying import verify

__all__ = ["add", "run"]

_EXAMPLES = """examples:
  recmap verify train.tfrecord
  recmap verify out/
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "verify",
        help="check every record",
        description="Checks the CRCs of every record and lists the damage. Exits with 1 if any.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="+", help="files, folders or patterns")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = verify(args.path)
    for damage in found.damage:
        print(damage)
    print(
        f"{found.records:,} sound records, {len(found.damage):,} damaged, in {found.files:,} "
        f"files of {found.size:,} bytes"
    )
    return 0 if found.ok else 1
