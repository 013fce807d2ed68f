"""What the command line prints: escaped text, messages, tables, JSON and progress."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from recmap.errors import Message, Option
from recmap.files.memory import anonymous_memory
from recmap.model.arguments import size_text
from recmap.model.field import Field
from recmap.model.progress import Progress, Watcher
from recmap.model.ragged import Ragged

__all__ = [
    "cell",
    "json_text",
    "number",
    "on_terminal",
    "printable",
    "show_table",
    "table_width",
    "watching",
    "worded",
]

# Options that are flags on the command line.
_SWITCHES = {
    ("overwrite", True): "--overwrite",
    ("durable", False): "--no-durable",
    ("shuffle", True): "--shuffle",
}
# Input options that ``recmap convert`` takes with --source, because its own options of the same
# name are for the output.
_OF_INPUT = ("format", "compression")

# How tables are laid out, and how much of a value they show.
_BETWEEN = "  "
_VALUES = 4
_LETTERS = 32
_DIGITS = 8  # hexadecimal digits of a byte string

_IMAGES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)


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
    """
    >>> _typed(Option("engine", "ray:10.0.0.1:6379"), "convert"), _typed(Option("memory"), "")
    ('--ray 10.0.0.1:6379', '--memory')
    """
    name, value = option.name, option.value
    if isinstance(value, bool) and (name, value) in _SWITCHES:
        return _SWITCHES[name, value]
    if name == "fields":
        return " ".join(_field(*field) for field in _fields(value))
    if name == "encoding" and isinstance(value, Mapping):
        return " ".join(f"--encoding {shlex.quote(f'{n}={how}')}" for n, how in value.items())
    if name == "engine" and isinstance(value, str):
        return value.replace("ray:", "--ray ", 1) if ":" in value else f"--{value}"
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


def table_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the width of the table when drawn on the terminal, and of the terminal itself."""
    widths = _widths([header, *rows])
    return sum(widths) + 3 * len(widths) + 1, shutil.get_terminal_size().columns


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table. ``right`` lists the columns to align on the right."""
    clean = [[printable(cell) for cell in row] for row in [header, *rows]]
    if on_terminal():
        _draw(clean[0], clean[1:], right)
        return
    widths = _widths(clean)
    for row in clean:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(_BETWEEN.join(cells).rstrip())


def _draw(header: list[str], rows: list[list[str]], right: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold", show_header=any(header))
    for i, name in enumerate(header):
        # Text, because a plain str would have its brackets interpreted as markup.
        table.add_column(Text(name), justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def cell(value: Any) -> str:
    """Return a value as short text: shape and first values of an array, or a preview of a string.

    >>> cell(np.arange(100).reshape(10, 10)), cell(b"hello"), cell(bytes(40))
    ('[10,10] 0 1 2 3 ...', "'hello'", '0x00000000... 40 bytes')
    """
    if isinstance(value, bytes):
        return _string_cell(value)
    if isinstance(value, str):
        return _text_cell(value, f"{len(value):,} characters")
    if isinstance(value, Ragged):
        shown = [cell(item) for item in value[:_VALUES]]
        return _listed(f"[{len(value):,}]", shown, len(value), " " if value.is_bytes else "; ")
    array = np.asarray(value)
    if array.ndim == 0:
        return number(array[()])
    shape = f"[{','.join(map(str, array.shape))}]"
    return _listed(shape, [number(item) for item in array.flat[:_VALUES]], array.size, " ")


def number(value: Any) -> str:
    """Return a number as text, with at most six significant digits for floats.

    >>> number(1234567), number(0.1 + 0.2), number(None)
    ('1234567', '0.3', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return str(value)


def _listed(shape: str, shown: list[str], count: int, between: str) -> str:
    more = ["..."] if count > len(shown) else []
    return f"{shape} {between.join(shown + more)}".rstrip()


def _string_cell(value: bytes) -> str:
    size = f"{len(value):,} bytes"
    for magic, name in _IMAGES:
        if value.startswith(magic) and len(value) > len(magic):
            return f"{name}, {size}"
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return f"WebP, {size}"
    try:
        text = value[: 4 * _LETTERS].decode()
    except UnicodeDecodeError as e:
        # The slice may have split a character.
        whole = e.start >= 4 * _LETTERS - 4 and len(value) > 4 * _LETTERS
        text = value[: e.start].decode() if whole else "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return _text_cell(text, size)
    return f"0x{value[: _DIGITS // 2].hex()}... {size}"


def _text_cell(text: str, size: str) -> str:
    short = printable(text[:_LETTERS])
    return f"'{short}'" if len(text) <= _LETTERS else f"'{short}...' {size}"


def json_text(value: Any) -> str:
    """Return a value as one line of JSON.

    Byte strings become text if they are printable UTF-8, else ``{"base64": ...}``. NaN and the
    infinities become strings, because JSON has no such numbers. A complex number becomes a list
    of two.

    >>> json_text({"a": np.array([1.5, np.nan]), "b": b"text", "c": b"\\x00\\xff"})
    '{"a": [1.5, "NaN"], "b": "text", "c": {"base64": "AP8="}}'
    """
    return json.dumps(_json_plain(value), allow_nan=False)


def _json_plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _json_unusual(value)
        case complex():
            return [_json_plain(value.real), _json_plain(value.imag)]
        case bytes():
            return _json_string(value)
        case np.generic():
            return _json_scalar(value)
        case np.ndarray() if value.ndim == 0:
            return _json_scalar(value[()])
        case Field():
            return str(value)
        case Mapping():
            return {str(name): _json_plain(item) for name, item in value.items()}
        case list() | tuple() | np.ndarray() | Ragged():
            return [_json_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {f.name: _json_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _json_scalar(value: Any) -> Any:
    if value.dtype.kind in "mM":
        return str(value)
    # item() does not convert extension types such as bfloat16 to Python floats.
    return _json_plain(value.item() if value.dtype.kind in "biufc" else float(value))


def _json_unusual(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_string(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return text
    return {"base64": base64.b64encode(value).decode()}


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
            memory = anonymous_memory()
            text = f"{now}, {size_text(memory)} of memory" if memory else str(now)
            bars.update(task, completed=now.fraction or 0.0, total=total, text=text)

        yield watch
