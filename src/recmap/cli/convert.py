"""recmap convert: convert files to another format."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import (
    add_options,
    add_source,
    add_verb,
    add_where,
    given,
    opened,
    storage,
)
from recmap.cli.output import watching, worded
from recmap.conversion.options import SaveOptions
from recmap.dataset.convert import convert
from recmap.model.preview import printable

_EXAMPLES = """  recmap convert train.npy train.tfrecord
  recmap convert 'train-*.tfrecord' train.npy
  recmap convert numbers.bin out/ --dtype float32 --shape -1,10 --shards 16
  recmap convert image=images.npy label=labels.npy train.tfrecord --align 64
  recmap convert train.tfrecord some.npy --columns label --rows 0:1000 --cast label=int32
  recmap convert train.tfrecord cats.tfrecord --where 'label == 3'
  recmap convert train.tfrecord mixed/ --shuffle --seed 1 --shards 256MB --verify full
  recmap convert train.npy s3://bucket/train/ --shards 256MB --storage region=eu-west-1
  recmap convert /nfs/train.tfrecord /nfs/out/ --shards 400 --ray 10.0.0.1:6379
"""


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
    groups = add_options(
        parser,
        SaveOptions,
        {"format": "the output", "rows": "the rows", "memory": "the work"},
    )
    add_where(groups["the rows"])
    groups["the output"].add_argument(
        "--no-describe",
        action="store_true",
        help="write TFRecord files byte-identical to TensorFlow's, without column types",
    )
    groups["the work"].add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="write each file in a task of a Ray cluster (default: the one on this machine)",
    )
    groups["the work"].add_argument(
        "--explain", action="store_true", help="print what was chosen, and why"
    )


def run(args: argparse.Namespace) -> int:
    chosen = given(args, SaveOptions)
    if args.no_describe:
        chosen["options"] = {**chosen.get("options", {}), "describe": False}
    if args.ray is not None:
        chosen["engine"] = f"ray:{args.ray}" if args.ray else "ray"
    with watching("convert") as watcher:
        dataset = opened(args, progress=watcher)
        report = convert(dataset, args.dst, progress=watcher, storage=storage(args), **chosen)
    if args.explain:
        print(worded(report.explanation, "convert"))
    print(printable(str(report)))
    return 0
