"""recmap schema: print the fields as code or JSON."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_source, add_verb, call_text, opened
from recmap.cli.output import json_text
from recmap.cli.schema_code import tf_code, torch_code
from recmap.dataset.dataset import opened_rows
from recmap.errors import OptionError
from recmap.formats.tfrecord_partitions import RecordSource

_EXAMPLES = """  recmap schema train.tfrecord --as tf > features.py
  recmap schema train.npy --as torch
  recmap schema train.tfrecord           # JSON: {"label": "int64", ...}
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "schema",
        run,
        help="print the fields as code for TensorFlow or PyTorch, or as JSON",
        description=(
            "Prints code that reads the same files: the features of tf.io.parse_example with a "
            "function that decodes them, or a torch Dataset; or the types of the fields as JSON."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument(
        "--as",
        dest="form",
        choices=("tf", "torch", "json"),
        default="json",
        help="code for TensorFlow or PyTorch, or JSON (the default)",
    )


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    if args.form == "json":
        print(json_text(dataset.schema))
    elif args.form == "torch":
        print(torch_code(dataset.schema, call_text(args)), end="")
    else:
        source = opened_rows(dataset).source
        if not isinstance(source, RecordSource):
            raise OptionError(
                f"--as tf reads TFRecord files, and {args.path[0]} is not one (recmap "
                "convert makes them, and --as torch reads any format)"
            )
        print(tf_code(source), end="")
    return 0
