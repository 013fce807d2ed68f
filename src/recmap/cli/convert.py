"""recmap convert: any files into files of any format."""

from __future__ import annotations

import argparse
import json
from typing import Any

from recmap.cli.progress import watching
from recmap.cli.source_options import add_source, opened, pairs
from recmap.cli.verb import add_verb
from recmap.cli.wording import printable
from recmap.dataset.convert import convert
from recmap.errors import OptionError
from recmap.formats.registry import FORMATS

__all__ = ["add"]

_EXAMPLES = """  recmap convert train.npy train.tfrecord
  recmap convert 'train-*.tfrecord' train.npy
  recmap convert numbers.bin out/ --dtype float32 --shape -1,10 --shards 16
  recmap convert image=images.npy label=labels.npy train.tfrecord --align 64
  recmap convert train.tfrecord some.npy --columns label --rows 0:1000 --cast label=int32
  recmap convert train.tfrecord mixed/ --shuffle --seed 1 --shard-size 256MB --verify full
  recmap convert /nfs/train.tfrecord /nfs/out/ --shards 400 --ray 10.0.0.1:6379
"""

_VERIFY: dict[str, Any] = {"none": False, "counts": True, "full": "full"}


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "convert",
        run,
        help="write any files as another format",
        description=(
            "Writes the rows of any files into files of any format, in bounded memory. A file gets "
            "its name when it is complete and checked. If it is interrupted, run the same command "
            "again; it resumes with the files that are missing."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("dst", help="the new file, or a folder/ of TFRecord files")
    _add_output(parser)
    _add_work(parser)
    _add_changes(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to write")
    group.add_argument(
        "--to", metavar="FORMAT", help=f"{', '.join(FORMATS)}; else the end of DST tells"
    )
    group.add_argument("--shards", type=int, metavar="N", help="this many files")
    group.add_argument("--rows-per-shard", type=int, metavar="N", help="files of so many rows")
    group.add_argument("--shard-size", metavar="SIZE", help="files of about this size, as 256MB")
    group.add_argument("--compression", metavar="NAME", help="such as gzip or zlib for TFRecord")
    group.add_argument("--align", type=int, metavar="N", help="pad records, as 64, to map columns")
    group.add_argument(
        "--encoding",
        action="append",
        default=[],
        metavar="NAME=HOW",
        help="store a field as float_list, int64_list, bytes_list, raw or feature_list",
    )
    group.add_argument(
        "--no-describe",
        action="store_true",
        help="write TFRecord files as TensorFlow does, without the types of their columns",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of the format that is written",
    )
    group.add_argument("--overwrite", action="store_true", help="replace files that exist")


def _add_work(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to work")
    group.add_argument("--memory", default="512MB", metavar="SIZE", help="hold no more (512MB)")
    group.add_argument("--workers", type=int, metavar="N", help="files written at a time")
    group.add_argument(
        "--no-resume", action="store_true", help="do not resume an interrupted conversion"
    )
    group.add_argument(
        "--verify",
        choices=list(_VERIFY),
        default="counts",
        help="check rows and CRCs of what was written (counts), or every value (full)",
    )
    group.add_argument("--no-fsync", action="store_true", help="do not wait for the disk")
    group.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="let a Ray cluster work, a task for each file; without ADDRESS the one that runs here",
    )
    group.add_argument("--explain", action="store_true", help="say what was chosen, and why")


def _add_changes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to change on the way")
    group.add_argument("--rows", metavar="A:B[:C]", help="only these rows")
    group.add_argument(
        "--columns", action="append", metavar="NAME,...", help="only these columns, in this order"
    )
    group.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="call a column otherwise"
    )
    group.add_argument(
        "--cast", action="append", default=[], metavar="NAME=DTYPE", help="store it as another type"
    )
    group.add_argument(
        "--casting",
        choices=("same_value", "unsafe"),
        default="same_value",
        help="unsafe lets a cast lose values",
    )
    group.add_argument("--shuffle", action="store_true", help="a random order of all rows")
    group.add_argument("--seed", type=int, metavar="N", help="the order of --shuffle (any)")


def run(args: argparse.Namespace) -> int:
    with watching("convert") as watcher:
        report = convert(
            opened(args),
            args.dst,
            to=args.to,
            memory=args.memory,
            workers=args.workers,
            shards=args.shards,
            rows_per_shard=args.rows_per_shard,
            shard_size=args.shard_size,
            resume=not args.no_resume,
            overwrite=args.overwrite,
            verify=_VERIFY[args.verify],
            durable=not args.no_fsync,
            progress=watcher,
            rows=_slice(args.rows),
            columns=_names(args.columns),
            rename=pairs(args.rename, "--rename"),
            cast=pairs(args.cast, "--cast"),
            casting=args.casting,
            shuffle=args.shuffle,
            seed=args.seed,
            options=_options(args),
            engine="local" if args.ray is None else "ray",
            address=args.ray or None,
        )
    if args.explain:
        print(report.explanation)
    print(printable(str(report)))
    return 0


def _names(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [name for text in texts for name in text.split(",")]


def _slice(text: str | None) -> slice | None:
    if text is None:
        return None
    try:
        bounds = [int(bound) if bound else None for bound in text.split(":")]
    except ValueError:
        bounds = []
    if not 2 <= len(bounds) <= 3 or bounds[2:] == [0]:
        raise OptionError(f"--rows {text}: write it like 0:1000, :-1 or ::10")
    return slice(*bounds)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What is said to the format, and only what was said."""
    options: dict[str, Any] = {
        name: _value(text) for name, text in pairs(args.option, "--option").items()
    }
    options["compression"] = args.compression
    options["align"] = args.align
    options["describe"] = False if args.no_describe else None
    options["encoding"] = pairs(args.encoding, "--encoding") or None
    return {name: value for name, value in options.items() if value is not None}


def _value(text: str) -> Any:
    """A number, true or false, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
