"""recmap convert: convert files to another format."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

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
from recmap.conversion.cast import Casting
from recmap.conversion.options import SaveOptions
from recmap.dataset.dataset import Dataset
from recmap.errors import Message, Option, OptionError
from recmap.model.arguments import (
    as_mapping,
    as_names,
    as_slice,
    as_whole,
    check_flag,
    checked,
    choice,
    option,
)
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


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The options that choose and change rows, each by a verb of ``Dataset``."""

    rows: slice | None = option(None, as_slice, "write only these rows", metavar="A:B[:C]")
    columns: list[str] | None = option(
        None, as_names, "write only these columns, in this order", metavar="NAME,..."
    )
    rename: dict[str, str] | None = option(
        None,
        partial(as_mapping, example='{"old": "new"}'),
        "rename a column",
        metavar="OLD=NEW",
    )
    cast: dict[str, npt.DTypeLike] | None = option(
        None,
        partial(as_mapping, example='{"x": "float32"}'),
        "store a column as another type",
        metavar="NAME=DTYPE",
    )
    casting: Casting = choice(
        "same_value",
        ("same_value", "unsafe"),
        "refuse a cast that changes a value (same_value), or allow it (unsafe)",
    )
    shuffle: bool = option(False, check_flag, "write the rows in a random order")
    seed: int | None = option(None, as_whole, "seed of --shuffle", metavar="N")

    def __post_init__(self) -> None:
        if self.seed is not None and not self.shuffle:
            given, needed = Option("seed", self.seed), Option("shuffle", True)
            raise OptionError(Message(given, " is for a shuffle: give ", needed, ", too"))

    def applied(self, dataset: Dataset) -> Dataset:
        """Return the dataset with the verbs that the options stand for."""
        if self.columns is not None:
            dataset = dataset.select(self.columns)
        if self.rows is not None:
            dataset = dataset.select(self.rows)
        if self.rename:
            dataset = dataset.rename(self.rename)
        if self.cast:
            dataset = dataset.cast(self.cast, casting=self.casting)
        return dataset.shuffle(seed=self.seed) if self.shuffle else dataset


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "convert",
        run,
        help="convert files to another format",
        description=(
            "Writes the rows of any files into files of any format, in bounded memory. A file gets "
            "its name when it is complete and checked. If it is interrupted, run the same command "
            "again; it resumes with the files that are missing."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser, writes=True)
    parser.add_argument("dst", help="the new file, or a folder/ of TFRecord files")
    rows = add_options(parser, RowOptions, {"rows": "the rows"})
    add_where(rows["the rows"])
    groups = add_options(parser, SaveOptions, {"format": "the output", "memory": "the work"})
    groups["the output"].add_argument(
        "--no-durable", action="store_true", help="do not wait until the disk has the data"
    )
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
    off = {"durable": args.no_durable, "describe": args.no_describe}
    turned_off = {name: False for name, told in off.items() if told}
    if turned_off:
        chosen["options"] = {**chosen.get("options", {}), **turned_off}
    if args.ray is not None:
        chosen["engine"] = f"ray:{args.ray}" if args.ray else "ray"
    with watching("convert") as watcher:
        rows = checked(RowOptions, given(args, RowOptions))
        dataset = rows.applied(opened(args, progress=watcher))
        report = dataset.save(args.dst, progress=watcher, storage=storage(args), **chosen)
    if args.explain:
        print(worded(report.explanation, "convert"))
    print(printable(str(report)))
    return 0
