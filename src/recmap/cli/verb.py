"""What every verb of the command line has."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import Any

__all__ = ["add_verb"]


def add_verb(
    verbs: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """A verb, with its examples below its help; ``run`` returns the exit code."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=help,
        description=textwrap.fill(description, 78),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # May stand before the verb as well, where it must not be set back.
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    parser.set_defaults(run=run)
    return parser
