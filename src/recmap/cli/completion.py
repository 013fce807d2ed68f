"""recmap completion: print a shell completion script for verbs, options and paths."""

from __future__ import annotations

import argparse
from typing import Any

from recmap.cli.arguments import add_verb

_SHELLS = ("bash", "zsh", "fish")
_PATHS = ("path", "src", "dst")
_EXAMPLES = """  recmap completion bash >> ~/.bash_completion
  recmap completion zsh > ~/.zfunc/_recmap     # in a folder of $fpath
  recmap completion fish > ~/.config/fish/completions/recmap.fish
"""


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "completion",
        run,
        help="print the script for completion in a shell",
        description="Prints a script that completes verbs, options and paths in a shell.",
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "shell", choices=_SHELLS, help="the shell the script is for: bash, zsh or fish"
    )


def run(args: argparse.Namespace) -> int:
    import shtab  # only this verb needs it

    _mark_files(args.parser, shtab.FILE)
    print(shtab.complete(args.parser, args.shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Mark the arguments that shells should complete as paths."""
    for action in parser._actions:  # noqa: SLF001  # argparse shows them nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for verb in action.choices.values():
                _mark_files(verb, files)
        elif action.dest in _PATHS:
            action.complete = files  # type: ignore[attr-defined]  # where shtab looks
