"""The examples of the pages run, and the reference pages are complete."""

from __future__ import annotations

import re
import tomllib

import pytest

import recmap as rm
from docs.make.command_line import PAGE, page
from tests.docs.pages import ROOT, run_page

DOCS = ROOT / "docs"


PAGES = [
    "convert",
    "index",
    "read",
    "repair",
    "rows",
    "stability",
    "tools",
    "tour",
    "train/imagenet",
    "train/jax",
    "train/pipelines",
    "train/pytorch",
    "train/ranks",
    "train/sampling",
    "train/tensorflow",
]


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run_from_top_to_bottom(name: str) -> None:
    run_page(DOCS / f"{name}.md")


def test_the_command_line_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make docs"


def test_the_api_page_has_every_public_name_once() -> None:
    shown = re.findall(r"^::: recmap\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(rm.__all__)


def test_the_install_page_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (DOCS / "install.md").read_text()
    shown = re.findall(r"^\| `recmap\[(\w+)\]`", text, re.MULTILINE)
    assert sorted(shown) == sorted(project["optional-dependencies"])
