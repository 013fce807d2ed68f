"""The command line: one file per verb, which parses, calls and prints."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from recmap import __version__
from recmap.cli import index, info, verify
from recmap.errors import OptionError, PathNotFoundError, RecmapError

__all__ = ["main"]

_VERBS = (info, index, verify)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if all is well, 1 if the data is not, 2 if the call is not."""
    parser = argparse.ArgumentParser(
        prog="recmap", description="Index TFRecord files like NumPy arrays without loading them."
    )
    parser.add_argument("--version", action="version", version=f"recmap {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the trace of an error")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in _VERBS:
        verb.add(verbs)
    args = parser.parse_args(argv)
    warnings.showwarning = _show_warning
    try:
        return int(args.run(args))
    except RecmapError as e:
        if args.debug:
            raise
        print(f"recmap {args.verb}: {e}", file=sys.stderr)
        return 2 if isinstance(e, OptionError | PathNotFoundError) else 1
    except OSError as e:
        if args.debug:
            raise
        print(f"recmap {args.verb}: {e}", file=sys.stderr)
        return 1


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"recmap: {message}", file=sys.stderr)
