"""The examples in the README run."""

from __future__ import annotations

from tests.docs.pages import ROOT, run_page


def test_the_examples_of_the_readme_run_from_top_to_bottom() -> None:
    run_page(ROOT / "README.md")
