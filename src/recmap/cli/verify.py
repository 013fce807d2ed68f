"""recmap verify: check the checksums of whole files."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_storage, add_verb, storage, workers
from recmap.cli.output import json_text, watching
from recmap.errors import OptionError
from recmap.files.paths import expand
from recmap.formats.detect import detect
from recmap.formats.registry import FORMATS
from recmap.formats.verify import verify
from recmap.model.preview import printable

_EXAMPLES = """  recmap verify train.tfrecord
  recmap verify out/
  recmap verify out/ --json | jq '.damage[].file'
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "verify",
        run,
        help="check the checksums of whole files",
        description=(
            "Checks the CRCs of every TFRecord record and every member of .npz files, and lists "
            "the damage by file, record and byte. HDF5 and Zarr are read from beginning to end; "
            ".npy files have no checksums. The exit code is 1 if there is any damage."
        ),
        examples=_EXAMPLES,
    )
    parser.add_argument("path", nargs="+", help="files, folders, patterns or URLs")
    add_storage(parser)
    parser.add_argument(
        "--workers", metavar="N", help="files to check at a time: 4, threads:4 or processes:4"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    files = expand(args.path, storage(args))
    with watching("verify") as watcher:
        found = verify(files, workers=workers(args.workers), progress=watcher)
    if found.ok and not any(FORMATS[detect(file)].checksums for file in files):
        raise OptionError(
            f"{files[0]}: .npy files have no checksums, so there is nothing to verify; TFRecord "
            "and .npz files have them"
        )
    if args.json:
        print(json_text({"ok": found.ok, **vars(found)}))
        return 0 if found.ok else 1
    for line in str(found).split("\n"):
        print(printable(line))
    return 0 if found.ok else 1
