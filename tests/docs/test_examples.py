"""The programs in examples/ and the pages that show them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pages import fill
from benchmarks.report import Row, Table
from tests.docs.example_scripts import BLOCK, EXAMPLES, PAGES

QUESTIONS = ["q0", "q1", "q2", "q3", "q4"]


@pytest.mark.slow
def test_programs_and_pages_run_without_an_error() -> None:
    os.mkdir("elsewhere")
    os.mkdir("temporary")
    runner = str(Path(__file__).parent / "example_scripts.py")
    # TensorFlow imports programs that it writes into the temporary folder.
    settings = {"TMPDIR": os.path.abspath("temporary"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, runner, *QUESTIONS], capture_output=True, text=True, check=False,
        cwd="elsewhere", env={**os.environ, **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    assert list(found) == QUESTIONS
    assert os.listdir("temporary") == []
    for question, printed in found.items():
        assert printed
        assert all(printed.values())
        for script, lines in shown(question):
            missing = set(lines) - set(printed[script].splitlines())
            assert not missing, f"{script} does not print {missing}, which its page shows"


def shown(question: str) -> list[tuple[str, list[str]]]:
    """Return the programs of a page, each with the output that the page shows."""
    (page,) = PAGES.glob(f"{question}-*.md")
    found, script = [], ""
    for name, kind, text in BLOCK.findall(page.read_text()):
        script = name or script
        if kind == "text":
            found.append((f"{script}.py", text.splitlines()))
    assert found
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_program_is_on_its_page(question: str) -> None:
    (page,) = PAGES.glob(f"{question}-*.md")
    for script in EXAMPLES.rglob(f"{question}_*.py"):
        assert f"(../../examples/{script.relative_to(EXAMPLES)})" in page.read_text()


def test_figures_are_written_into_the_pages_they_belong_to() -> None:
    page = "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n"
    for name in ("q0-a.md", "q1-b.md"):
        Path(name).write_text(page)
    rows = [Row(f"q{n} a case, {n} rows", "1 s, 2 MB", "loop", "9 s, 3 MB", 9.0) for n in (0, 1)]
    facts = dict.fromkeys(("date", "cores", "CPU", "memory", "Python", "tensorflow"), "?")
    facts["use by others"] = "none"
    for _ in range(2):
        assert len(fill(Path(), Table("", "", rows), facts)) == 2
    assert Path("q1-b.md").read_text() == (
        "before\n<!-- figures -->\n| | recmap | usual | |\n|---|---|---|---|\n"
        "| a case, 1 rows | 1 s, 2 MB | `loop.py`: 9 s, 3 MB | 9x |\n\n"
        "Measured ?: ? cores of ?, ?, Python ?, TensorFlow ?. "
        "CPU use by other programs before each run: none.\n<!-- end of figures -->\nafter\n"
    )


def test_a_page_without_figures_is_an_error() -> None:
    Path("q0-a.md").write_text("<!-- figures -->\n<!-- end of figures -->\n")
    with pytest.raises(ValueError, match="q0-a.md: no rows"):
        fill(Path(), Table("", ""), {})
