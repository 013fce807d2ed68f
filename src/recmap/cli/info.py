"""recmap info: show format, size, rows and fields."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import json_text, painted, say, show, terminal_width, worded
from recmap.model.preview import printable
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
    if terminal_width() is not None:
        say(printable(typed.title()), "title")
        for word, what in typed.facts():
            say(f"{painted(f'  {word:9}', 'aside')}{printable(what)}")
        table = typed.fields()
        said = [column.title for column in table.columns if any(table.cells(column.title))]
        say("")
        show(table.pick(said))
    else:
        say(str(typed))
    for one in skipped:
        say(printable(f"  skipped  {one}"), "warning")
