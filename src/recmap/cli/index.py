"""recmap index: write index files next to the data."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_storage, add_verb, storage
from recmap.cli.output import watching
from recmap.errors import CorruptRecordError, Message, OptionError
from recmap.files.paths import expand
from recmap.formats.detect import detect
from recmap.formats.registry import FORMATS
from recmap.model.preview import printable
from recmap.tfrecord.make_index import index

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
            "Checks every record and writes an index beside each file, so that the next open takes "
            "milliseconds."
        ),
        examples=_EXAMPLES,
    )
    parser.add_argument("path", nargs="+", help="files, folders, patterns or URLs")
    add_storage(parser)
    parser.add_argument(
        "--text",
        action="store_true",
        help="write FILE.idx, with a line of offset and size for each record",
    )


def run(args: argparse.Namespace) -> int:
    files = expand(args.path, storage(args))
    for file in files:
        format = FORMATS[detect(file)]
        if not format.records:
            raise OptionError(
                f"{file} is {format.name}, which needs no index: only TFRecord files do; recmap "
                "info shows what is in it"
            )
    try:
        with watching("index") as watcher:
            names = index(files, text=args.text, progress=watcher)
    except CorruptRecordError as e:
        # Replace the hint to skip bad records: an index cannot leave any out.
        text = e.wording.text if isinstance(e.wording, Message) else str(e)
        hint = ("recmap repair copies the sound records to a new file",)
        raise CorruptRecordError(
            Message(text, hint=hint), file=e.file, record=e.record, byte=e.byte
        ) from e
    for name in names:
        print(printable(name))
    return 0
