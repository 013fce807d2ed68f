"""The options with which files are opened, the same for every verb."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from recmap.dataset.dataset import Dataset
from recmap.dataset.dataset import open as open_dataset
from recmap.errors import OptionError
from recmap.formats.registry import FORMATS
from recmap.model.arguments import as_dtype

__all__ = ["add_source", "call_text", "opened", "pairs"]


def add_source(parser: argparse.ArgumentParser) -> None:
    """The paths and the options of ``rm.open``."""
    parser.add_argument(
        "path",
        nargs="+",
        help="files, folders or patterns; NAME=PATH takes a column from each of several files",
    )
    group = parser.add_argument_group("how to open the files")
    group.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME[=TYPE]",
        help="read only these fields; a type such as float32[10] for raw bytes; "
        "--field ... adds all others",
    )
    group.add_argument(
        "--format", metavar="NAME", help=f"{', '.join(FORMATS)}; else it is seen from the file"
    )
    group.add_argument("--dtype", help="what a file without a header holds, such as float32")
    group.add_argument(
        "--shape", metavar="ROWS,...", help="its shape; -1,10 for as many rows of 10 as there are"
    )
    group.add_argument(
        "--offset", type=int, default=0, metavar="BYTES", help="where its numbers begin"
    )
    group.add_argument(
        "--errors",
        choices=("raise", "skip"),
        default="raise",
        help="stop at a bad record, or leave it out and say so",
    )
    group.add_argument(
        "--no-verify", action="store_true", help="do not check the CRCs of the data that is read"
    )


def opened(args: argparse.Namespace) -> Dataset:
    """The files as the options say."""
    return open_dataset(_paths(args.path), _fields(args), **_options(args))


def call_text(args: argparse.Namespace) -> str:
    """The call of ``rm.open`` that does the same."""
    paths, fields = _paths(args.path), _fields(args)
    given = {"errors": "raise", "verify": True, "offset": 0}
    options = {n: v for n, v in _options(args).items() if v is not None and v != given.get(n)}
    texts = [repr(paths[0] if isinstance(paths, list) and len(paths) == 1 else paths)]
    texts += [] if fields is None else [f"fields={fields!r}"]
    texts += [f"{name}={value!r}" for name, value in options.items()]
    return f"rm.open({', '.join(texts)})"


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """What a repeated option NAME=VALUE says."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"{option} {text}: write NAME=VALUE")
        found[name] = value
    return found


def _paths(given: list[str]) -> list[str] | dict[str, str]:
    named = [path for path in given if "=" in path and not os.path.exists(path)]
    if len(named) != len(given):
        return given
    return pairs(given, "")


def _fields(args: argparse.Namespace) -> dict[str | EllipsisType, str | None] | None:
    fields: dict[str | EllipsisType, str | None] = {}
    for text in args.field:
        name, _, kind = text.partition("=")
        fields[... if name == "..." else name] = kind or None
    return fields or None


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "format": args.format,
        "errors": args.errors,
        "verify": not args.no_verify,
        "dtype": _dtype(args.dtype),
        "shape": _shape(args.shape),
        "offset": args.offset,
    }


def _dtype(text: str | None) -> str | None:
    if text is not None:
        as_dtype("--dtype", text)
    return text


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        axes = tuple(int(axis) for axis in text.strip("()").split(",") if axis.strip())
    except ValueError:
        raise OptionError(f"--shape {text}: write numbers, such as -1,10") from None
    if len(axes) == 1 and axes[0] > 0:
        # Most mean the length of a row, and would get so many single values.
        raise OptionError(
            f"--shape {text}: give all axes, rows first, such as -1,{axes[0]}; -1 alone means "
            "rows of one value"
        )
    return axes
