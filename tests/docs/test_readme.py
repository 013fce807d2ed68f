"""The example in the README runs."""

from __future__ import annotations

from tests.pages import ROOT, blocks, run_python


def test_the_first_example_runs() -> None:
    page = ROOT / "README.md"
    first = next(block for block in blocks(page) if block.language == "python")
    assert run_python(first, page, {}).splitlines() == [
        "100000 Schema(data: float32[10], label: int64) 7 (3, 10)",
        "True True",
    ]
