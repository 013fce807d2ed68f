"""Writes docs/cli.md from the parser of the command line.

The output of ``--help`` is not used, because it differs between versions of Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from recmap.cli import parser

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parent.parent / "cli.md"

# Options that many verbs share are listed once.
_SHARED = "how to open the files"
_OF_ALL = ("--help", "--debug")
# The names that argparse gives to groups without a title.
_PLAIN = ("positional arguments", "options")

_BEGIN = """# The command line

`recmap VERB ...`, or `python -m recmap VERB ...`. In a terminal it prints tables and shows
progress; in a pipe it prints plain lines, or JSON with `--json`. `recmap VERB --help` prints what
this page says.

Exit codes: 0 success, 1 bad data, 2 usage error, 130 interrupted. An error is one line; `--debug`,
before or after the verb, shows its traceback. `recmap --version` prints the version.
"""


def page() -> str:
    """Return the whole page."""
    verbs = _verbs()
    rows = [f"| [{name}](#{name}) | {summary} |" for name, (summary, _) in verbs.items()]
    parts = [_BEGIN, "\n".join(["| verb | what it does |", "|---|---|", *rows]) + "\n"]
    parts += [_section(name, verb) for name, (_, verb) in verbs.items()]
    shared = next(verb for _, verb in verbs.values() if _group(verb, _SHARED))
    parts.append(f"## {_SHARED.capitalize()}\n\n{_table(_group(shared, _SHARED))}\n")
    return "\n".join(parts)


def _verbs() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Return each verb by name, with its line of help."""
    actions = parser()._actions
    verbs = next(a for a in actions if isinstance(a, argparse._SubParsersAction))
    return {a.dest: (a.help or "", verbs.choices[a.dest]) for a in verbs._choices_actions}


def _section(name: str, verb: argparse.ArgumentParser) -> str:
    parts = [f"## {name}", " ".join((verb.description or "").split())]
    examples = (verb.epilog or "").removeprefix("examples:\n").rstrip()
    lines = [line.removeprefix("  ") for line in examples.split("\n")]
    parts.append("\n".join(["```", *lines, "```"]))
    parts.append(_table([action for title in _PLAIN for action in _group(verb, title)]))
    for group in verb._action_groups:
        title = group.title or ""
        if title == _SHARED:
            anchor = _SHARED.replace(" ", "-")
            parts.append(f"It also takes the options under [{_SHARED.capitalize()}](#{anchor}).")
        elif title not in _PLAIN:
            parts.append(f"{title.capitalize()}:\n\n{_table(group._group_actions)}")
    return "\n\n".join(parts) + "\n"


def _group(verb: argparse.ArgumentParser, title: str) -> list[argparse.Action]:
    return [
        a for group in verb._action_groups if group.title == title for a in group._group_actions
    ]


def _table(actions: list[argparse.Action]) -> str:
    of_verb = [action for action in actions if not set(action.option_strings) & set(_OF_ALL)]
    # Earlier names still work, but are not shown.
    shown = [action for action in of_verb if action.help != argparse.SUPPRESS]
    rows = [f"| {', '.join(_names(action))} | {_meaning(action)} |" for action in shown]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows])


def _meaning(action: argparse.Action) -> str:
    return action.help or " or ".join(map(str, action.choices or ()))


def _names(action: argparse.Action) -> Iterator[str]:
    """Yield each way to write an argument, with the value it takes."""
    if not action.option_strings:
        yield f"`{action.dest} ...`" if action.nargs in ("+", "*") else f"`{action.dest}`"
        return
    takes = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices:
        takes = "{" + ",".join(map(str, action.choices)) + "}"
    if action.nargs == "?":
        takes = f"[{takes}]"
    for name in action.option_strings:
        yield f"`{name}`" if action.nargs == 0 else f"`{name} {takes}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
