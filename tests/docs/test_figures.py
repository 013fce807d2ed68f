"""What the prose says about speed and memory is what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.figures import Figure, Paragraph, Results, paragraphs
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
RESULTS = Results(DOCS / "benchmarks.md")
GENERATED = {"benchmarks.md", "cli.md"}
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
    if page.name not in GENERATED
]


def figures(paragraph: Paragraph) -> list[Figure]:
    found = list(paragraph.figures(sizes=paragraph.page.parent.name == "questions"))
    if paragraph.page.name == "misses.md":
        found += paragraph.measured_in_headings()
    return found


def stale(paragraph: Paragraph) -> list[str]:
    """Return the figures of a paragraph that are not those of the results it names."""
    numbers = [each for name in paragraph.comments.get("measured", ()) for each in numbers_of(name)]
    elsewhere = " ".join(paragraph.comments.get("profiled", ()))
    profiled = set(re.findall(r"\d[\d,]*(?:\.\d+)?", elsewhere))
    return [
        figure.text
        for figure in figures(paragraph)
        if figure.text.split()[0] not in profiled and not any(map(figure.agrees, numbers))
    ]


def numbers_of(name: str) -> list[float]:
    numbers = RESULTS.numbers(name)
    assert numbers, f"docs/benchmarks.md has no row {name!r}"
    return numbers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_figure_is_one_of_the_results_that_its_paragraph_names(page: Path) -> None:
    wrong = {
        paragraph.text.strip()[:80]: found
        for paragraph in paragraphs(page)
        if "example" not in paragraph.comments and (found := stale(paragraph))
    }
    assert not wrong, f"{page.name}: see tests/docs/figures.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_said_to_be_faster_or_slower_is(page: Path) -> None:
    for paragraph in paragraphs(page):
        named = [*paragraph.comments.get("faster", ()), *paragraph.comments.get("slower", ())]
        for name in paragraph.comments.get("faster", ()):
            assert min(RESULTS.ratios(name)) > 1, f"{page.name}: {name}"
        for name in paragraph.comments.get("slower", ()):
            assert max(RESULTS.ratios(name)) < 1, f"{page.name}: {name}"
        if page.name == "comparison.md" and re.search(r"\b(?:faster|slower)\b", paragraph.text):
            assert named, f"comparison.md: name the results behind {paragraph.text.strip()[:80]!r}"


def test_the_page_of_benchmarks_counts_its_targets() -> None:
    page = RESULTS.page.read_text("utf-8")
    tables = page.split("## This machine")[0]
    counts = re.findall(r"(\d+) met, (\d+) missed", page)
    met = len(re.findall(r"\| met +\|", tables))
    assert set(counts) == {(str(met), str(tables.count("**missed**")))}


def test_the_page_of_missed_targets_has_all_of_them() -> None:
    page = paragraphs(DOCS / "misses.md")
    named = [name for each in page for name in each.comments.get("measured", ())]
    explained = [row for name in named for row in RESULTS.rows(name)]
    assert RESULTS.missed
    assert [row for row in RESULTS.missed if row not in explained] == []


def test_a_stale_figure_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    row = "measured: Read | 40 B rows, float_list | TensorFlow, tuned"
    ratio = next(r for r in RESULTS.ratios("Read | 40 B rows, float_list | TensorFlow, tuned"))
    for text, expected in {
        f"It is {ratio:.0f}x as fast. <!-- {row} -->": [],
        f"It is {ratio + 7:.0f}x as fast. <!-- {row} -->": [f"{ratio + 7:.0f}"],
        "It reads 57,000 rows/s.": ["57,000"],
        "It reads 3 to 4 GB/s.": ["3", "4"],
        "It reads `57,000 rows/s`.": [],
        "It takes 31 ms. <!-- profiled: 31 ms -->": [],
        "```\n57 GB/s\n```": [],
    }.items():
        page.write_text(text)
        assert [figure for each in paragraphs(page) for figure in stale(each)] == expected, text
