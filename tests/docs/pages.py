"""Runs the examples of a documentation page from top to bottom, as a reader would."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recmap.errors import SkippedRecordsWarning

__all__ = ["ROOT", "Block", "blocks", "run_page", "run_python"]

ROOT = Path(__file__).parents[2]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The command may not be installed where the tests run.
_SHELL = f'set -eu; recmap() {{ "{sys.executable}" -m recmap "$@"; }}\n'


@dataclass(frozen=True)
class Block:
    """A code block of a page, its first line, and its output if the page shows it."""

    language: str
    code: str
    line: int
    output: str | None


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page. A ``text`` block is the output of the one before it."""
    text = page.read_text(encoding="utf-8")
    found = list(_FENCED.finditer(text))
    for block, after in itertools.zip_longest(found, found[1:]):
        output = after[2] if after is not None and after[1] == "text" else None
        yield Block(block[1], block[2], text.count("\n", 0, block.start()) + 2, output)


def run_page(page: Path) -> None:
    """Run the Python and shell blocks in order, in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            printed = run_python(block, page, names)
        elif block.language == "sh":
            printed = _run_shell(block)
        else:
            continue
        if block.output not in (None, printed):
            raise AssertionError(f"{page.name}, line {block.line}, prints:\n{printed}")


def run_python(block: Block, page: Path, names: dict[str, Any]) -> str:
    """Run a block and return what it prints. A traceback names the page and the line."""
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        # Pages skip records on purpose.
        warnings.simplefilter("ignore", SkippedRecordsWarning)
        exec(code, names)
    return out.getvalue()


def _run_shell(block: Block) -> str:
    done = subprocess.run(
        ["bash", "-c", _SHELL + block.code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"line {block.line}:\n{done.stdout}")
    return done.stdout
