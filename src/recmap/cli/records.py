"""recmap index, recmap verify and recmap repair: the records of whole files."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_storage, add_verb, storage, workers
from recmap.cli.output import watching
from recmap.errors import CorruptRecordError, Message, OptionError
from recmap.formats.detect import detect
from recmap.formats.index_files import index
from recmap.formats.registry import FORMATS
from recmap.formats.verify import verify
from recmap.local.atomic_write import writing
from recmap.local.local_path import refuse_existing
from recmap.model.json_text import json_text
from recmap.model.preview import printable
from recmap.store.paths import as_path, expand
from recmap.tfrecord.repair import repair

_INDEX_EXAMPLES = """  recmap index train.tfrecord
  recmap index 'train-*.tfrecord'
  recmap index --text train.tfrecord     # train.tfrecord.idx, for DALI and others
"""
_VERIFY_EXAMPLES = """  recmap verify train.tfrecord
  recmap verify out/
  recmap verify out/ --json | jq '.damage[].file'
"""
_REPAIR_EXAMPLES = """  recmap repair damaged.tfrecord sound.tfrecord
  recmap repair damaged.tfrecord.gz sound.tfrecord.gz --report lost.jsonl
"""


def add_index(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "index",
        _run_index,
        help="write an index next to each TFRecord, tar, CSV or JSON Lines file",
        description=(
            "Checks every record and writes an index next to each file, so that the next open "
            "takes milliseconds."
        ),
        examples=_INDEX_EXAMPLES,
    )
    parser.add_argument("path", nargs="+", help="files, folders, patterns or URLs")
    add_storage(parser)
    parser.add_argument(
        "--text",
        action="store_true",
        help="write FILE.idx, with a line of offset and size for each record",
    )


def _run_index(args: argparse.Namespace) -> int:
    files = expand(args.path, storage(args))
    for file in files:
        format = FORMATS[detect(file)]
        if not (format.records or format.indexes):
            raise OptionError(
                f"{file} is {format.name}, which needs no index: only TFRecord, tar, CSV and "
                "JSON Lines files do; recmap info shows what is in it"
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


def add_verify(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "verify",
        _run_verify,
        help="check the checksums of whole files",
        description=(
            "Checks the CRCs of every TFRecord record and every member of .npz files, and lists "
            "the damage by file, record and byte. HDF5, Zarr, Parquet, Arrow, CSV and JSON Lines "
            "are read from beginning to end, with the checksums they have; .npy files have none. "
            "The exit code is 1 if there is any damage."
        ),
        examples=_VERIFY_EXAMPLES,
    )
    parser.add_argument("path", nargs="+", help="files, folders, patterns or URLs")
    add_storage(parser)
    parser.add_argument(
        "--workers", metavar="N", help="files to check at a time: 4, threads:4 or processes:4"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _run_verify(args: argparse.Namespace) -> int:
    files = expand(args.path, storage(args))
    with watching("verify") as watcher:
        found = verify(files, workers=workers(args.workers), progress=watcher)
    formats = [FORMATS[detect(file)] for file in files]
    if found.ok and not any(each.checksums or each.verified_by_reading for each in formats):
        raise OptionError(
            f"{files[0]}: {formats[0].name} files have no checksums, so there is nothing to check; "
            "TFRecord and .npz files have them"
        )
    if args.json:
        print(json_text({"ok": found.ok, **vars(found)}))
        return 0 if found.ok else 1
    for line in str(found).split("\n"):
        print(printable(line))
    return 0 if found.ok else 1


def add_repair(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "repair",
        _run_repair,
        help="write the sound records of a TFRecord file to a new one",
        description=(
            "Copies the records whose CRCs match to a new file, byte for byte, and lists the "
            "others by record and byte."
        ),
        examples=_REPAIR_EXAMPLES,
    )
    parser.add_argument("src", help="the damaged file or URL, plain, gzip or zlib")
    parser.add_argument("dst", help="the new file; compressed if it ends with .gz or .zlib")
    parser.add_argument("--report", metavar="FILE", help="also write what was lost, as JSON lines")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    add_storage(parser)


def _run_repair(args: argparse.Namespace) -> int:
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
