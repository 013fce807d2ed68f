"""The commands that messages, docstrings and pages tell people to run exist."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

from recmap.cli import parser
from tests.docs.pages import ROOT, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
# A command in backticks, or with an option, or on a line of a block.
COMMAND = re.compile(r"`(recmap [a-z][^`]*)`|\b(recmap [a-z]+ --[a-z][a-z-]*)")
LINE = re.compile(r"^(?:\$ )?(recmap [a-z].*)$", re.MULTILINE)
EXTRAS = (r"recmap\[([\w,]+)\]", r'"\.\[([\w,]+)\]"', r'\bextra="(\w+)"')


def texts() -> list[tuple[Path, str]]:
    return [(path, path.read_text("utf-8")) for path in (*PAGES, *SOURCES)]


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb."""
    actions = parser()._actions
    (found,) = [each for each in actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found.choices)


def test_every_verb_and_option_of_the_command_line_that_is_named_exists() -> None:
    known, seen, wrong = verbs(), 0, []
    for path, text in texts():
        commands = [quoted or inline for quoted, inline in COMMAND.findall(text)]
        shell = [block.code for block in blocks(path) if block.language in {"", "sh"}]
        for command in commands + LINE.findall("".join(shell)):
            verb, *words = command.replace("\n", " ").split("#")[0].split()[1:]
            options = {word.split("=")[0].strip(",.;)") for word in words if word[:2] == "--"}
            accepted = known[verb]._option_string_actions if verb in known else {}
            if verb not in known or not options <= accepted.keys():
                wrong.append(f"{path.name}: {command}")
            seen += 1
    assert wrong == []
    assert seen > 50


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target
        for _, text in texts()
        for target in re.findall(r"`make ([a-z-]+)|^make ([a-z-]+) ", text, re.MULTILINE)
    }
    assert {first or second for first, second in named} <= targets


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {
        extra
        for _, text in texts()
        for form in EXTRAS
        for extras in re.findall(form, text)
        for extra in extras.split(",")
    }
    assert named == set(project["optional-dependencies"])
