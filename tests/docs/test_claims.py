"""What pages say that recmap reads, and does not read, is what it reads."""

from __future__ import annotations

import re

from recmap.formats.registry import FORMATS
from recmap.store.storage import SCHEMES
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
REFUSED = (
    r"(?:is|are) (?:refused|not (?:read|supported))|does not (?:read|open)|cannot (?:read|open)"
)


def sentences() -> list[str]:
    text = "\n\n".join(page.read_text("utf-8") for page in PAGES)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(each.split()) for each in re.split(r"(?<=[.;:])\s+|\n\n", prose)]


def test_nothing_that_recmap_reads_is_said_not_to_be_read() -> None:
    stores = [f"{scheme}://" for scheme in SCHEMES] + ["object store", "bucket"]
    formats = [rf"\b{name} files" for name in FORMATS] + ["HDF5 files", "Zarr stores"]
    read = "|".join([*map(re.escape, stores), *formats])
    # The others that are refused: what the sentence adds to the files or the URLs.
    limited = r"in Fortran order|with a query|version 1|second|lock|Row groups of"
    wrong = [
        each
        for each in sentences()
        if re.search(
            rf"(?:{read})[^.;]*?(?:{REFUSED})|(?:{REFUSED}) (?:{read})", each, re.IGNORECASE
        )
        and not re.search(limited, each)
    ]
    assert wrong == []


def test_the_page_of_formats_has_every_format_and_scheme() -> None:
    formats = (DOCS / "formats.md").read_text("utf-8")
    table = "".join(line for line in formats.splitlines(keepends=True) if line[0:1] == "|")
    for name, format in FORMATS.items():
        assert re.search(rf"^\| {name} \|", table, re.MULTILINE | re.IGNORECASE), name
        assert not format.suffixes or format.suffixes[0] in table
    opening = (DOCS / "stores.md").read_text("utf-8")
    assert [scheme for scheme in SCHEMES if f"{scheme}://" not in opening] == []


def test_a_title_has_each_of_the_words_that_people_search_for() -> None:
    words = (
        "filter, class imbalance, DDP, FSDP, checkpoint, Lightning, time series, tokenize, "
        "normalize, channels first, missing values, S3, Accelerate, Hugging Face, Ray"
    )
    titles = "\n".join(page.read_text("utf-8").partition("\n")[0] for page in PAGES).lower()
    assert [word for word in words.lower().split(", ") if word not in titles] == []


def test_no_page_and_no_name_is_in_the_menu_twice() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").split("nav:")[1].split("exclude_docs")[0]
    entries = re.findall(r"^ +- (.+?):(?: (.+\.md))?$", menu, re.MULTILINE)
    names, pages = zip(*entries, strict=True)
    assert len(set(names)) == len(names)
    assert sorted(page for page in pages if page) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    )
