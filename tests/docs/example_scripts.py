"""Runs the programs of questions and the code of their pages, and prints their output as JSON.

They share one process, because importing TensorFlow takes long.

    python example_scripts.py q0 q1
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path

__all__ = ["BLOCK", "EXAMPLES", "PAGES"]

ROOT = Path(__file__).parents[2]
EXAMPLES, PAGES = ROOT / "examples", ROOT / "docs" / "questions"

# A program that a page names, or a block of code or output after it.
BLOCK = re.compile(
    r"\(\.\./\.\./examples/([\w/]+)\.py\)|^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def run_script(script: Path) -> str:
    """Run a script and return what it prints."""
    printed = io.StringIO()
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


def run_page(page: Path) -> None:
    """Run the code blocks of a page, each on the data of the program named before it."""
    import numpy as np

    import recmap as rm

    sys.path[0] = str(EXAMPLES)
    # The first block comes before the program it belongs to.
    script = next(found[1] for found in BLOCK.finditer(page.read_text()) if found[1])
    for name, kind, code in BLOCK.findall(page.read_text()):
        script = name or script
        if kind != "python":
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            importlib.import_module(script).make(".", 100)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, {"np": np, "rm": rm})


def run_question(question: str) -> dict[str, str]:
    """Run all programs and the page of a question; return what each program prints."""
    scripts = sorted(EXAMPLES.glob(f"{question}_*.py")) + sorted(
        (EXAMPLES / "usual").glob(f"{question}_*.py")
    )
    printed = {str(script.relative_to(EXAMPLES)): run_script(script) for script in scripts}
    for page in PAGES.glob(f"{question}-*.md"):
        run_page(page)
    assert not os.listdir("."), f"{question} leaves files"
    return printed


def main() -> None:
    json.dump({question: run_question(question) for question in sys.argv[1:]}, sys.stdout)


if __name__ == "__main__":
    main()
