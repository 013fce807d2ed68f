"""recmap convert: convert files to another format."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened, pairs, storage, values, workers
from recmap.cli.output import watching, worded
from recmap.dataset.convert import convert
from recmap.errors import OptionError
from recmap.formats.registry import FORMATS
from recmap.model.preview import printable

__all__ = ["add"]

_EXAMPLES = """  recmap convert train.npy train.tfrecord
  recmap convert 'train-*.tfrecord' train.npy
  recmap convert numbers.bin out/ --dtype float32 --shape -1,10 --shards 16
  recmap convert image=images.npy label=labels.npy train.tfrecord --align 64
  recmap convert train.tfrecord some.npy --columns label --rows 0:1000 --cast label=int32
  recmap convert train.tfrecord mixed/ --shuffle --seed 1 --shards 256MB --verify full
  recmap convert train.npy s3://bucket/train/ --shards 256MB --storage region=eu-west-1
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
    add_source(parser, writes=True)
    parser.add_argument("dst", help="the new file, or a folder/ of TFRecord files")
    _add_output(parser)
    _add_rows(parser)
    _add_work(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the output")
    group.add_argument(
        "--format", metavar="NAME", help=f"{', '.join(FORMATS)} (default: the end of DST)"
    )
    group.add_argument(
        "--shards",
        metavar="N",
        help="write several files: 16 of them, 256MB each, or '10000 rows' each",
    )
    group.add_argument("--compression", metavar="NAME", help="gzip, zlib, zstd, ... or none")
    group.add_argument(
        "--encoding",
        action="append",
        default=[],
        metavar="NAME=HOW",
        help="store a field as float_list, int64_list, bytes_list, raw or feature_list",
    )
    group.add_argument(
        "--align", type=int, metavar="N", help="pad TFRecord records to N bytes, to map columns"
    )
    group.add_argument(
        "--no-describe",
        action="store_true",
        help="write TFRecord files byte-identical to TensorFlow's, without column types",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option that only this format has: level=9, chunk_rows=1000",
    )
    group.add_argument("--overwrite", action="store_true", help="replace existing files")
    group.add_argument(
        "--no-durable", action="store_true", help="do not wait until the disk has the data"
    )


def _add_rows(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the rows")
    group.add_argument("--rows", metavar="A:B[:C]", help="write only these rows")
    group.add_argument(
        "--columns",
        action="append",
        metavar="NAME,...",
        help="write only these columns, in this order",
    )
    group.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="rename a column"
    )
    group.add_argument(
        "--cast",
        action="append",
        default=[],
        metavar="NAME=DTYPE",
        help="store a column as another type",
    )
    group.add_argument(
        "--casting",
        choices=("same_value", "unsafe"),
        default="same_value",
        help="refuse a cast that changes a value (same_value), or allow it (unsafe)",
    )
    group.add_argument("--shuffle", action="store_true", help="write the rows in a random order")
    group.add_argument("--seed", type=int, metavar="N", help="the order of --shuffle")


def _add_work(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the work")
    group.add_argument(
        "--memory", default="512MB", metavar="SIZE", help="memory to use at most (512MB)"
    )
    group.add_argument(
        "--workers", metavar="N", help="files to write at a time: 4, threads:4 or processes:4"
    )
    group.add_argument(
        "--no-resume", action="store_true", help="do not resume an interrupted conversion"
    )
    group.add_argument(
        "--verify",
        choices=list(_VERIFY),
        default="counts",
        help="check rows and CRCs of what was written (counts), or every value (full)",
    )
    group.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="write each file in a task of a Ray cluster (default: the one on this machine)",
    )
    group.add_argument("--explain", action="store_true", help="print what was chosen, and why")


def run(args: argparse.Namespace) -> int:
    more = {"describe": False} if args.no_describe else {}
    with watching("convert") as watcher:
        report = convert(
            opened(args),
            args.dst,
            format=args.format,
            compression=args.compression,
            encoding=pairs(args.encoding, "--encoding") or None,
            align=args.align,
            durable=not args.no_durable,
            options={**values(args.option, "--option"), **more},
            shards=args.shards,
            rows=_slice(args.rows),
            columns=_names(args.columns),
            rename=pairs(args.rename, "--rename"),
            cast=pairs(args.cast, "--cast"),
            casting=args.casting,
            shuffle=args.shuffle,
            seed=args.seed,
            memory=args.memory,
            workers=workers(args.workers),
            verify=_VERIFY[args.verify],
            resume=not args.no_resume,
            overwrite=args.overwrite,
            progress=watcher,
            engine=_engine(args.ray),
            storage=storage(args),
        )
    if args.explain:
        print(worded(report.explanation, "convert"))
    print(printable(str(report)))
    return 0


def _engine(ray: str | None) -> str:
    if ray is None:
        return "local"
    return f"ray:{ray}" if ray else "ray"


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
