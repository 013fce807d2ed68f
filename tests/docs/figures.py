"""Finds the figures in the prose of the pages, and what they are said to come from.

A paragraph that states how fast something is, or how much memory it takes, ends with a comment
that readers do not see. It names the rows of docs/benchmarks.md that the figures come from:

    Reading is 119x as fast, at 75.5 M rows/s.
    <!-- measured: Read | 40 B rows, float_list | TensorFlow, tuned -->

Several rows are separated by semicolons. Below a table or a list, the comment is a paragraph of its
own. ``faster:`` and ``slower:`` name rows whose ratio is above
or below 1, for prose that compares without a figure. ``profiled:`` lists figures that come from
elsewhere, and ``example`` marks calculations with made-up figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["Figure", "Paragraph", "Results", "paragraphs"]

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_SCALED = rf"{_NUMBER}(?: [KM]\b)?"
_SPEED = (
    r"x(?!\w)| ?(?:GB/s|MB/s|rows/s|a second|times (?:as|the rate)|ns\b|ms\b|microseconds|s of CPU)"
)
_SIZE = r" ?(?:MB\b|GB\b)"
_AND = r"(?:,| and| to| or|;| in batches of \d+ MB)+"
_SKIPPED = re.compile(
    r"^```.*?^```$|<!-- figures -->.*?<!-- end of figures -->|`[^`\n]+`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- (measured|faster|slower|profiled|example):?(.*?)-->", re.DOTALL)
_SCALE = {"": 1, " K": 1e3, " M": 1e6}


@dataclass(frozen=True)
class Figure:
    """A number as it is written, such as ``75.5 M``."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text.split()[0].replace(",", "")) * self._scale

    @property
    def _scale(self) -> float:
        return _SCALE[self.text[-2:] if self.text[-1] in "KM" else ""]

    def agrees(self, other: float) -> bool:
        """Whether another number is written like this when it is rounded to as many digits."""
        decimals = len(self.text.split()[0].partition(".")[2])
        return abs(self.value - other) <= 0.5001 * 10.0**-decimals * self._scale


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, list or table of a page."""

    page: Path
    text: str
    comments: dict[str, list[str]] = field(default_factory=dict)

    def figures(self, *, sizes: bool) -> Iterator[Figure]:
        """Yield the numbers that have a unit of speed and, if asked for, of size."""
        units = rf"{_SPEED}|{_SIZE}" if sizes else _SPEED
        found = rf"(?<![\w./])({_SCALED}(?:{_AND} {_SCALED})*)(?:{units})"
        for group in re.finditer(found, self.text):
            yield from map(Figure, re.findall(_SCALED, group[1]))

    def measured_in_headings(self) -> Iterator[Figure]:
        """Yield the numbers in brackets in bold, without those of a size or a percentage."""
        for heading in re.findall(r"\*\*(.*?)\*\*", self.text, re.DOTALL):
            for bracket in re.findall(r"\((.*?)\)", heading, re.DOTALL):
                plain = re.sub(rf"{_NUMBER}(?:%| KB| MB| B\b)", "", bracket)
                yield from map(Figure, re.findall(rf"(?<![\w.]){_SCALED}", plain))


def paragraphs(page: Path) -> Iterator[Paragraph]:
    """Yield the paragraphs of a page, without code and what is generated."""
    prose = _SKIPPED.sub("", page.read_text("utf-8"))
    # A comment below a table is apart from it.
    for text in re.split(r"\n\s*\n(?!<!-- )", prose):
        comments: dict[str, list[str]] = {}
        for kind, content in _COMMENT.findall(text):
            parts = " ".join(content.split()).split(";")
            comments.setdefault(kind, []).extend(part.strip() for part in parts)
        yield Paragraph(page, _COMMENT.sub("", text), comments)


@dataclass(frozen=True)
class Results:
    """The tables of docs/benchmarks.md."""

    page: Path

    @cached_property
    def _rows(self) -> list[tuple[str, list[str]]]:
        """The rows, each with the title of its section."""
        found, section = [], ""
        for line in self.page.read_text("utf-8").splitlines():
            if line.startswith("## "):
                section = line[3:]
            elif line.startswith("| "):
                found.append((section, [cell.strip() for cell in line.strip("|").split(" | ")]))
        return found

    def rows(self, name: str) -> list[list[str]]:
        """Return the rows that a name such as ``Read | 4 KB rows | TensorFlow`` means."""
        section, *cells = [part.strip() for part in name.split("|")]
        return [row for title, row in self._rows if title == section and set(cells) <= set(row)]

    @property
    def missed(self) -> list[list[str]]:
        """The rows whose target was missed."""
        return [row for _, row in self._rows if "**missed**" in row]

    def numbers(self, name: str) -> list[float]:
        """Return the numbers in the other cells of these rows."""
        names = {part.strip() for part in name.split("|")}
        cells = [cell for row in self.rows(name) for cell in row if cell not in names]
        return [Figure(text).value for cell in cells for text in re.findall(_SCALED, cell)]

    def ratios(self, name: str) -> list[float]:
        """Return the ratios of these rows."""
        cells = [cell for row in self.rows(name) for cell in row]
        return [Figure(cell[:-1]).value for cell in cells if re.fullmatch(rf"{_NUMBER}x", cell)]
