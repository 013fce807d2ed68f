"""recmap diff: say where two datasets differ."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_source, add_verb, add_where, opened
from recmap.cli.output import say, watching
from recmap.dataset.diff import diff
from recmap.errors import OptionError
from recmap.model.json_text import json_text
from recmap.model.preview import printable

_EXAMPLES = """  recmap diff old.tfrecord new.tfrecord
  recmap diff 'train-*.tfrecord' train.h5
  recmap diff a.npz b.npz --column label
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "diff",
        run,
        help="show where two datasets differ",
        description=(
            "Compares two datasets of any formats: columns, types, number of rows, and all rows "
            "by number, in bounded memory. For each column that differs, it shows the first row "
            "with both values. NaN equals NaN, and a number or string of another type is equal "
            "if it has the same value; the type is reported. Exit codes: 0 no difference, 1 "
            "differences, 2 error."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    add_where(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if len(args.path) != 2:
        raise OptionError("give two datasets; several files as one in quotes, 'a-*.tfrecord'")
    one, other = (
        opened(argparse.Namespace(**{**vars(args), "path": [path]})) for path in args.path
    )
    with watching("diff") as watcher:
        found = diff(one, other, progress=watcher)
    if args.json:
        print(json_text({"same": found.same, **vars(found)}))
    else:
        for line in str(found).split("\n"):
            say(printable(line), "good" if found.same else "")
    return 0 if found.same else 1
