"""What the command line prints: escaped text, messages, tables and progress."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from recmap.errors import InPython, Message, Option
from recmap.machine.memory import anonymous_memory
from recmap.model.arguments import size_text
from recmap.model.preview import printable
from recmap.model.progress import Progress, Watcher
from recmap.model.table import Column, Table

_BETWEEN = "  "
# Progress bars, and terminals wide enough to show the memory, too.
_SHORTEST_BAR, _LONGEST_BAR = 16, 60
_WIDE = 100
# What colours mean, as codes of a terminal.
_CODES = {"title": "1", "type": "36", "aside": "2", "warning": "33", "error": "31", "good": "32"}
# Characters to use where others cannot be encoded.
_PLAIN = {ord(c): p for c, p in zip("▁▂▃▄▅▆▇█…─│├└", ".:-=+*#@~-||`", strict=True)}


def on_terminal() -> bool:
    """Return whether the output goes to a terminal."""
    return sys.stdout.isatty()


def worded(text: str, verb: str = "") -> str:
    """Return a message as one line, with its options in command line syntax.

    ``verb`` is what was called; all verbs spell their options alike.

    >>> worded(Message("x.npy exists", hint=("use ", Option("overwrite", True), " to replace it")))
    'x.npy exists (use --overwrite to replace it)'
    """
    del verb
    if not isinstance(text, Message):
        return printable(text)
    parts = [part for part in text.parts if not isinstance(part, InPython)]
    words = [_typed(part) if isinstance(part, Option) else part for part in parts]
    for i in range(1, len(words) - 1):
        between = isinstance(parts[i - 1], Option) and isinstance(parts[i + 1], Option)
        if between and words[i] == ", ":
            words[i] = " "  # no comma between options that are given together
    return printable("".join(words))


def _typed(option: Option) -> str:
    """
    >>> _typed(Option("engine", "ray:10.0.0.1:6379")), _typed(Option("memory"))
    ('--ray 10.0.0.1:6379', '--memory')
    """
    name, value = option.name, option.value
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{name}"
    if name in ("columns", "fields"):
        return " ".join(_field(*field) for field in _fields(value))
    if name in ("cast", "encoding", "options", "rename") and isinstance(value, Mapping):
        flag = name.removesuffix("s")
        return " ".join(f"--{flag} {shlex.quote(f'{n}={to}')}" for n, to in value.items())
    if name == "engine" and isinstance(value, str):
        return value.replace("ray:", "--ray ", 1) if ":" in value else f"--{value}"
    side = "input-" if option.of_input else ""
    return f"--{side}{name.replace('_', '-')}{_value(value)}"


def _value(value: Any) -> str:
    if value is ...:
        return ""
    if isinstance(value, tuple):
        return f" {','.join(map(str, value))}"
    return f" {shlex.quote(str(value))}"


def _fields(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [("NAME" if name is ... else name, None) for name in value]


def _field(name: Any, kind: Any) -> str:
    """
    >>> _field("y", "int64 = 0"), _field("x", None), _field(..., None), _field("x", ...)
    ("--column y='int64 = 0'", '--column x', '--column ...', '--column x=TYPE')
    """
    shown = "..." if name is ... else shlex.quote(name)
    typed = "" if kind is None else "=TYPE" if kind is ... else f"={shlex.quote(str(kind))}"
    return f"--column {shown}{typed}"


def terminal_width() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere, and may be wide."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def painted(text: str, meaning: str) -> str:
    """Colour text by what it means, in a terminal; NO_COLOR turns that off."""
    code = _CODES.get(meaning)
    if code is None or not text.strip() or not on_terminal():
        return text
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def say(text: str, meaning: str = "") -> None:
    """Print a line, or several, in characters that the output can encode."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    print("\n".join(painted(line, meaning) for line in text.split("\n")))


def show(table: Table) -> None:
    """Print a table, fitted to the terminal; elsewhere, print all of it."""
    for i, cells in enumerate(table.lines(terminal_width())):
        shown = []
        for column, cell in zip(table.columns, cells, strict=True):
            text = cell.strip()
            quiet = column.meaning == "warning" and text in ("", "0")
            meaning = "" if quiet else column.meaning
            shown.append(cell.replace(text, painted(text, meaning if i else "title"), 1))
        say(_BETWEEN.join(shown).rstrip())


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table of plain columns. ``right`` lists the columns to align on the right."""
    columns = [Column(name, right=i in right, cut="middle") for i, name in enumerate(header)]
    show(Table(columns, rows))


@contextmanager
def watching(verb: str) -> Iterator[Watcher | None]:
    """Yield a function that draws progress, or None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    # The text takes about 60 columns, and 20 more with the memory.
    bar = BarColumn(bar_width=min(max(console.width - 60, _SHORTEST_BAR), _LONGEST_BAR))
    columns = (TextColumn("{task.description}"), bar, TextColumn("{task.fields[text]}"))
    with Bars(*columns, console=console, transient=True) as bars:
        # The bar pulses until the total is known.
        task = bars.add_task(verb, total=None, text="")

        def watch(now: Progress) -> None:
            total = None if now.fraction is None else 1.0
            memory = anonymous_memory() if console.width >= _WIDE else None
            text = f"{now}, {size_text(memory)} of memory" if memory else str(now)
            bars.update(task, completed=now.fraction or 0.0, total=total, text=text)

        yield watch
