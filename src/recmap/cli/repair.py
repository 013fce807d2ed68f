"""recmap repair: copy the sound records of a damaged file."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_storage, add_verb, storage
from recmap.cli.output import json_text, watching
from recmap.files.atomic_write import writing
from recmap.files.local_path import refuse_existing
from recmap.files.paths import as_path
from recmap.model.preview import printable
from recmap.tfrecord.repair import repair

_EXAMPLES = """  recmap repair damaged.tfrecord sound.tfrecord
  recmap repair damaged.tfrecord.gz sound.tfrecord.gz --report lost.jsonl
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "repair",
        run,
        help="write the sound records of a TFRecord file to a new one",
        description=(
            "Copies the records whose CRCs are right to a new file, byte for byte, and lists the "
            "others by record and byte."
        ),
        examples=_EXAMPLES,
    )
    parser.add_argument("src", help="the damaged file or URL, plain, gzip or zlib")
    parser.add_argument("dst", help="the new file; compressed if it ends with .gz or .zlib")
    parser.add_argument("--report", metavar="FILE", help="also write what was lost, as JSON lines")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    add_storage(parser)


def run(args: argparse.Namespace) -> int:
    report = None if args.report is None else as_path(args.report, "--report")
    if report is not None:
        refuse_existing(report, args.overwrite)
    with watching("repair") as watcher:
        done = repair(
            args.src,
            args.dst,
            overwrite=args.overwrite,
            storage=storage(args),
            progress=watcher,
        )
    if report is not None:
        with writing(report), open(report, "w", encoding="utf-8") as file:
            file.writelines(f"{json_text(damage)}\n" for damage in done.damage)
    for damage in done.damage:
        print(printable(str(damage)))
    print(printable(str(done)))
    return 0
