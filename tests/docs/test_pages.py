"""The examples of the pages run, and the reference pages are complete."""

from __future__ import annotations

import re
import tomllib
import warnings

import pytest

import recmap as rm
from docs.make.command_line import PAGE, page
from tests.docs.pages import ROOT, blocks, run_page

DOCS = ROOT / "docs"


# Pages with programs that need a cluster, a store or a file of the reader.
NOT_RUN = {"distribute", "format", "ray-data", "stores"}
NOT_RUN |= {"train/change-one-line"}  # test_change_one_line.py runs it
PAGES = sorted(
    name
    for page in DOCS.rglob("*.md")
    if (name := page.relative_to(DOCS).with_suffix("").as_posix()) not in NOT_RUN
    if not name.startswith("questions/")  # test_examples.py runs those
    if any(block.language in {"python", "sh"} for block in blocks(page))
)


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run_from_top_to_bottom(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "train/lightning":
        pytest.importorskip("lightning")
        warnings.simplefilter("ignore")  # it warns of its own code
    # As torchrun sets them for one process.
    one = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    for variable, value in {**one, "MASTER_PORT": 0}.items():
        monkeypatch.setenv(variable, str(value))
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
