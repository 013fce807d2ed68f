"""recmap info: show format, size, rows and columns, or what else can be said of a file."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import painted, say, show, terminal_width, worded
from recmap.errors import (
    CorruptRecordError,
    DataError,
    LeftOut,
    LeftOutWarning,
    NotExampleError,
    RecmapError,
    UnknownFormatError,
)
from recmap.formats.detect import detect
from recmap.formats.registry import FORMATS
from recmap.local.local_path import located
from recmap.model.info import Info, size_fact
from recmap.model.json_text import json_text
from recmap.model.preview import preview, printable, quantity
from recmap.model.table import Column, Table
from recmap.tfrecord.framing import records

_EXAMPLES = """  recmap info train.tfrecord
  recmap info 'train-*.tfrecord'
  recmap info old.tfrecord --column data='float32[10]'
  recmap info numbers.bin --dtype float32 --shape -1,10
  recmap info train.npy --json
"""

# Groups below that many are shown as one name.
_DEEPEST = 20


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "info",
        run,
        help="show format, size, rows and columns",
        description=(
            "Shows format, size, rows and columns of files. It also lists what is not a column, "
            "and why; counts records that are not Examples; and shows what is left of damaged "
            "files, with exit code 1."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    damage: DataError | None = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            dataset = opened(args)
            info = dataset.info()
        except UnknownFormatError:
            raise
        except CorruptRecordError as e:
            damage = e
            try:
                dataset = opened(args, errors="skip")  # the records that are sound
                info = dataset.info()
            except RecmapError:
                return _describe(args, e)
            if not info.rows:
                return _describe(args, e)
        except DataError as e:
            return _describe(args, e)
    left_out: dict[str, LeftOut] = {}
    for each in told:
        if isinstance(each.message, LeftOutWarning) and each.message.left_out:
            left_out |= each.message.left_out
        elif damage is None:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if args.json:
        print(json_text({**vars(info), "skipped": dataset.skipped, "left_out": _plain(left_out)}))
        return 0 if damage is None else 1
    _show(info, left_out)
    for one in dataset.skipped:
        say(printable(f"  skipped  {one}"), "warning")
    if damage is not None:
        say("this file is damaged; recmap repair copies the sound records", "error")
    return 0 if damage is None else 1


def _show(info: Info, left_out: Mapping[str, LeftOut]) -> None:
    typed = replace(info, notes={name: worded(note) for name, note in info.notes.items()})
    if terminal_width() is None:
        say(str(typed))
        _show_left_out(left_out)
        return
    _show_facts(typed.title(), typed.facts())
    table = typed.fields()
    grouped = _in_groups(info.format, [*info.schema, *left_out])
    if grouped:
        table = _as_tree(table.rows, left_out)
    said = [column.title for column in table.columns if any(table.cells(column.title))]
    say("")
    show(table.pick(said))
    if not grouped:
        _show_left_out(left_out)


def _show_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    say(printable(title), "title")
    for word, what in facts:
        say(f"{painted(f'  {word:9}', 'aside')}{printable(what)}")


def _in_groups(format: str, names: Iterable[str]) -> bool:
    grouped = format in FORMATS and FORMATS[format].groups
    return grouped and any("/" in name for name in names)


# A column or a group: its type and notes, and what is inside it.
_Node: TypeAlias = "tuple[list[str], dict[str, _Node]]"


def _as_tree(fields: Iterable[Sequence[str]], left_out: Mapping[str, LeftOut]) -> Table:
    """Return a table of columns, and of what is not one, below the groups that they are in."""
    tree: dict[str, _Node] = {}
    absent = ([name, each.what, f"not a column: {each.why}"] for name, each in left_out.items())
    for name, *cells in (*fields, *absent):
        inside: dict[str, _Node] = tree
        *groups, last = name.strip("/").split("/", _DEEPEST)
        for group in groups:
            inside = inside.setdefault(group, (["", ""], {}))[1]
        inside.setdefault(last, (["", ""], {}))[0][:] = cells
    columns = [
        Column("column", cut="middle", least=16),
        Column("type", cut="end", least=16, meaning="type"),
        Column("notes", cut="end", least=20, meaning="aside"),
    ]
    return Table(columns, list(_tree_lines(tree)))


def _tree_lines(inside: Mapping[str, _Node], before: str = "") -> Iterator[list[str]]:
    """Yield what is inside a group, one below the other, as the cells of a table."""
    last = len(inside) - 1
    for number, (name, (cells, below)) in enumerate(inside.items()):
        here, under = ("└─ ", "   ") if number == last else ("├─ ", "│  ")
        yield [f"{before}{here}{name}{'/' if below else ''}", *cells]
        yield from _tree_lines(below, before + under)


def _show_left_out(left_out: Mapping[str, LeftOut]) -> None:
    if not left_out:
        return
    columns = [
        Column("left out", cut="middle", least=16),
        Column("type and shape", cut="end", least=16, meaning="type"),
        Column("why", cut="end", least=20, meaning="warning"),
    ]
    say("")
    show(Table(columns, [[name, each.what, each.why] for name, each in left_out.items()]))


def _plain(left_out: Mapping[str, LeftOut]) -> dict[str, dict[str, str]]:
    return {name: {"what": each.what, "why": each.why} for name, each in left_out.items()}


def _describe(args: argparse.Namespace, error: DataError) -> int:
    """Show what is known of a file that cannot be opened, and return the exit code."""
    if error.file is None:
        raise error
    try:
        format, size = detect(error.file), located(error.file).size_below()
    except (RecmapError, OSError):
        raise error from None
    facts = [("format", format), ("size", size_fact(size))]
    left_out = error.left_out or {}
    # Of several files, one without columns is an error.
    alone = args.path == [error.file]
    sound = alone and (error.left_out is not None or isinstance(error, NotExampleError))
    if isinstance(error, NotExampleError):
        facts += _record_facts(error.file)
    if args.json:
        shown = {"format": format, "files": [error.file], "size": size, "problem": str(error)}
        print(json_text({**shown, "left_out": _plain(left_out), **dict(facts[2:])}))
        return 0 if sound else 1
    _show_facts(error.file, facts)
    if not sound:
        raise error
    if left_out and terminal_width() is not None and _in_groups(format, left_out):
        say("")
        show(_as_tree([], left_out))
    elif left_out:
        _show_left_out(left_out)
    else:
        say(worded(error.wording, "info").removeprefix(f"{error.file}: "), "warning")
    return 0


def _record_facts(file: str) -> list[tuple[str, str]]:
    """Count the records of a file whose records are not Examples."""
    count = total = most = 0
    least: int | None = None
    first = b""
    for record in records(file, view=True):
        size = len(record)
        if not count:
            first = bytes(record[:256])
        count, total, most = count + 1, total + size, max(most, size)
        least = size if least is None else min(least, size)
    sizes = f"{least:,} to {most:,} bytes, mean {total / max(1, count):,.0f}"
    if least == most:
        sizes = f"{quantity(most, 'byte')} each"
    return [("records", f"{count:,} of {sizes}"), ("first", preview(first))]
