"""Terminal output: escaped text, options in command line syntax, and progress."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from recmap.errors import Message, Option
from recmap.model.arguments import size_text
from recmap.model.progress import Progress, Watcher

__all__ = ["on_terminal", "printable", "watching", "worded"]

# Options that are flags on the command line.
_SWITCHES = {("overwrite", True): "--overwrite", ("durable", False): "--no-durable"}
# Input options that ``recmap convert`` takes with --source, because its own options of the same
# name are for the output.
_OF_INPUT = ("format", "compression")


def on_terminal() -> bool:
    """Return whether the output goes to a terminal."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """Escape control characters. Names and strings come from files, so they are not trusted.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def worded(text: str, verb: str = "") -> str:
    """Return a message as one line, with its options in command line syntax.

    >>> worded(Message("x.npy exists", hint=("use ", Option("overwrite", True), " to replace it")))
    'x.npy exists (use --overwrite to replace it)'
    """
    if not isinstance(text, Message):
        return printable(text)
    words = [_typed(part, verb) if isinstance(part, Option) else part for part in text.parts]
    for i in range(1, len(words) - 1):
        between = isinstance(text.parts[i - 1], Option) and isinstance(text.parts[i + 1], Option)
        if between and words[i] == ", ":
            words[i] = " "  # no comma between options that are given together
    return printable("".join(words))


def _typed(option: Option, verb: str) -> str:
    name, value = option.name, option.value
    if isinstance(value, bool) and (name, value) in _SWITCHES:
        return _SWITCHES[name, value]
    if name == "fields":
        return " ".join(_field(*field) for field in _fields(value))
    if name == "encoding" and isinstance(value, Mapping):
        return " ".join(f"--encoding {shlex.quote(f'{n}={how}')}" for n, how in value.items())
    if option.of_input and verb == "convert" and name in _OF_INPUT:
        return f"--source {name}={value}"
    return f"--{name.replace('_', '-')}{_value(value)}"


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
    ("--field y='int64 = 0'", '--field x', '--field ...', '--field x=TYPE')
    """
    shown = "..." if name is ... else shlex.quote(name)
    typed = "" if kind is None else "=TYPE" if kind is ... else f"={shlex.quote(str(kind))}"
    return f"--field {shown}{typed}"


@contextmanager
def watching(verb: str) -> Iterator[Watcher | None]:
    """Yield a function that draws progress, or None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        # The bar pulses until the total is known.
        task = bars.add_task(verb, total=None, text="")

        def watch(now: Progress) -> None:
            total = None if now.fraction is None else 1.0
            memory = _own_memory()
            text = f"{now}, {size_text(memory)} of memory" if memory else str(now)
            bars.update(task, completed=now.fraction or 0.0, total=total, text=text)

        yield watch


def _own_memory() -> int | None:
    """Return the anonymous memory of this process in bytes, or None if it is unknown."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) << 10
    except OSError:
        return None
    return None
