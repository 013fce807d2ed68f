"""recmap info: show format, size, rows and fields."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import json_text, on_terminal, printable, show_table, worded
from recmap.model.source import Info, Skipped

__all__ = ["add"]

_EXAMPLES = """  recmap info train.tfrecord
  recmap info 'train-*.tfrecord'
  recmap info old.tfrecord --field data='float32[10]'
  recmap info numbers.bin --dtype float32 --shape -1,10
  recmap info train.npy --json
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "info",
        run,
        help="show format, size, rows and fields",
        description="Shows format, size, rows and fields of files.",
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    info = dataset.info()
    if args.json:
        print(json_text({**vars(info), "skipped": dataset.skipped}))
        return 0
    _show(info, dataset.skipped)
    return 0


def _show(info: Info, skipped: list[Skipped]) -> None:
    typed = replace(info, notes={name: worded(note) for name, note in info.notes.items()})
    lines = str(typed).split("\n")
    if on_terminal():
        # The fields come last, one per line; the table below shows them instead.
        lines = lines[: len(lines) - len(info.schema)]
    for line in lines:
        print(printable(line))
    if on_terminal():
        header = ["field", "type", "mapped", "notes"]
        rows = [
            [name, str(field), "yes" if name in info.mapped else "", typed.notes.get(name, "")]
            for name, field in info.schema.items()
        ]
        said = [i for i in range(len(header)) if i < 2 or any(row[i] for row in rows)]
        show_table([header[i] for i in said], [[row[i] for i in said] for row in rows])
    for one in skipped:
        print(printable(f"  skipped  {one}"))
