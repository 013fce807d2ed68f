"""What the verbs share: adding a parser, and the options of ``rm.open``."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

from recmap.dataset.dataset import Dataset
from recmap.dataset.open import open as open_dataset
from recmap.errors import OptionError
from recmap.files.urls import is_url
from recmap.formats.registry import FORMATS
from recmap.model.arguments import as_dtype

__all__ = [
    "add_source",
    "add_storage",
    "add_verb",
    "call_text",
    "is_named",
    "opened",
    "pairs",
    "storage",
    "values",
    "workers",
]

# Options of a store that are numbers, or true or false.
_PLAIN = {
    "anonymous",
    "connect_timeout",
    "read_timeout",
    "retries",
    "retry_timeout",
    "timeout",
    "unpinned",
}


def add_verb(
    verbs: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """Add a verb, with examples below its help. ``run`` returns the exit code."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=help,
        description=textwrap.fill(description, 78),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # --debug may also come before the verb, so this must not reset it.
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    parser.set_defaults(run=run, verb_parser=parser)
    return parser


def add_source(
    parser: argparse.ArgumentParser, *, writes: bool = False, optional: bool = False
) -> None:
    """Add the paths, which may be ``optional``, and the options of ``rm.open``.

    For a verb that ``writes``, ``--format`` is the format of the output, and ``--source`` gives
    that of the input.
    """
    parser.add_argument(
        "path",
        nargs="*" if optional else "+",
        help="files, folders or patterns; NAME=PATH takes one column from each file",
    )
    group = parser.add_argument_group("the input" if writes else "how to open the files")
    group.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME[=TYPE]",
        help="read only these fields, with a type such as float32[10] for raw bytes; "
        "--field ... adds all others",
    )
    if writes:
        group.add_argument(
            "--source",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="format or compression of the input, if recmap cannot tell: --source format=raw",
        )
    else:
        group.add_argument(
            "--format", metavar="NAME", help=f"{', '.join(FORMATS)} (default: look at the file)"
        )
    group.add_argument(
        "--split",
        metavar="NAME",
        help="split of a TFDS folder: train, train[10:20], train+test, all",
    )
    group.add_argument(
        "--unit",
        choices=("episodes", "steps"),
        help="of a TFDS folder of episodes (RLDS): a row for each episode, or for each step",
    )
    group.add_argument("--dtype", help="type of the numbers in a file without a header: float32")
    group.add_argument(
        "--shape", metavar="ROWS,...", help="shape of a file without a header; -1,10: rows of 10"
    )
    group.add_argument(
        "--offset", type=int, default=0, metavar="BYTES", help="bytes before the first number"
    )
    group.add_argument(
        "--errors",
        choices=("raise", "skip"),
        default="raise",
        help="stop at a bad record (raise), or leave it out and warn (skip)",
    )
    group.add_argument(
        "--nulls",
        choices=("error", "fill", "mask"),
        default="error",
        help="stop at a missing value of a table (error), fill it (fill), or also add a column "
        "NAME/is_null (mask)",
    )
    group.add_argument("--no-verify", action="store_true", help="do not check the CRCs of the data")
    add_storage(group)


def add_storage(parser: Any) -> None:
    """Add ``--storage``."""
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the store of a URL: region=eu-west-1, anonymous=true (give keys in "
        "variables such as AWS_SECRET_ACCESS_KEY instead: other users see this command line)",
    )


def opened(args: argparse.Namespace) -> Dataset:
    """Open the files that the arguments name."""
    return open_dataset(_paths(args.path), _fields(args), **_options(args))


def call_text(args: argparse.Namespace) -> str:
    """Return the equivalent ``rm.open`` call as text."""
    paths, fields = _paths(args.path), _fields(args)
    given = {"errors": "raise", "verify": True, "offset": 0, "nulls": "error"}
    options = {n: v for n, v in _options(args).items() if v is not None and v != given.get(n)}
    store = options.pop("storage", None)
    texts = [repr(paths[0] if isinstance(paths, list) and len(paths) == 1 else paths)]
    texts += [] if fields is None else [f"fields={fields!r}"]
    texts += [f"{name}={value!r}" for name, value in options.items()]
    texts += [] if store is None else ["storage={...}"]  # it may hold secrets
    return f"rm.open({', '.join(texts)})"


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse a repeated option NAME=VALUE."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            # The value of --storage may be a secret.
            told = f"{option} {text}: " if option != "--storage" else "--storage: "
            raise OptionError(f"{told}write NAME=VALUE")
        found[name] = value
    return found


def values(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Parse a repeated option NAME=VALUE, where VALUE is JSON or plain text."""
    return {name: _value(text) for name, text in pairs(texts, option).items()}


def storage(args: argparse.Namespace) -> dict[str, Any] | None:
    """Parse ``--storage``. Only our own options have values that are not text."""
    given = pairs(args.storage, "--storage")
    found = {name: _value(text) if name in _PLAIN else text for name, text in given.items()}
    return found or None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def workers(text: str | None) -> int | str | None:
    """Parse ``--workers``: a number, or text such as threads:4."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


def _paths(given: list[str]) -> list[str] | dict[str, str]:
    named = [path for path in given if is_named(path)]
    if len(named) != len(given):
        return given
    return pairs(given, "")


def is_named(path: str) -> bool:
    """Return whether this is NAME=PATH. A path may hold an equals sign, too: year=2026/x.npy."""
    name, equals, _ = path.partition("=")
    signed = "?" in name  # a URL without its scheme
    return bool(equals) and not signed and not is_url(name) and not os.path.exists(path)


def _fields(args: argparse.Namespace) -> dict[str | EllipsisType, str | None] | None:
    fields: dict[str | EllipsisType, str | None] = {}
    for text in args.field:
        name, _, kind = text.partition("=")
        fields[... if name == "..." else name] = kind or None
    return fields or None


def _options(args: argparse.Namespace) -> dict[str, Any]:
    given = values(args.source, "--source") if hasattr(args, "source") else {"format": args.format}
    for name in given:
        if name not in ("format", "compression"):
            raise OptionError(f"--source {name}: give format or compression")
    return {
        **given,
        "errors": args.errors,
        "verify": not args.no_verify,
        "dtype": _dtype(args.dtype),
        "shape": _shape(args.shape),
        "offset": args.offset,
        "nulls": args.nulls,
        "split": args.split,
        "unit": args.unit,
        "storage": storage(args),
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
        # Most people mean the row length here.
        raise OptionError(
            f"--shape {text}: give all axes, rows first, such as -1,{axes[0]}; -1 alone means "
            "rows of one value"
        )
    return axes
