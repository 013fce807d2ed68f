"""What the verbs share: adding a parser, and the options of ``rm.open``."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from functools import partial
from types import EllipsisType
from typing import Any

from recmap.dataset.dataset import Dataset
from recmap.dataset.open import open as open_dataset
from recmap.errors import OptionError
from recmap.formats.open_spec import OpenOptions
from recmap.model.arguments import as_dtype
from recmap.model.progress import ProgressOption
from recmap.store.storage import is_url

# Input options whose names say so, because the output may have options of the same name.
_INPUT_NAMES = {
    "format": "--input-format",
    "compression": "--input-compression",
    "verify": "--no-crc",
}
_VERIFY = "OpenOptions.verify"
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

    ``--format`` is the format of an output, and ``--verify`` checks one. For a verb that does not
    write, the earlier names of ``--input-format`` and ``--no-crc`` still work.
    """
    parser.add_argument(
        "path",
        nargs="*" if optional else "+",
        help="files, folders or patterns; NAME=PATH takes one column from each file",
    )
    group = parser.add_argument_group("the input" if writes else "how to open the files")
    told = (
        "read only these columns, with a type such as float32[10] for raw bytes; a name may be a "
        "pattern, 'train/*'; --column ... adds all others"
    )
    for name, help in (("--column", told), ("--field", argparse.SUPPRESS)):
        group.add_argument(
            name, action="append", default=[], dest="field", metavar="NAME[=TYPE]", help=help
        )
    for each in _shown(OpenOptions):
        _add_option(group, OpenOptions, each)
    _add_earlier_names(group, writes)
    add_storage(group)


def _add_earlier_names(group: Any, writes: bool) -> None:
    """Add options under the names that they had, where these have only one meaning."""
    if writes:
        group.add_argument("--source", action="append", default=[], help=argparse.SUPPRESS)
        group.add_argument("--no-verify", action=_NoVerify, nargs=0, help=argparse.SUPPRESS)
        return
    formats = next(each for each in _shown(OpenOptions) if each.name == "format")
    group.add_argument("--format", dest=_dest(OpenOptions, formats), help=argparse.SUPPRESS)
    group.add_argument(
        "--no-verify", action="store_false", dest=_VERIFY, default=None, help=argparse.SUPPRESS
    )


class _NoVerify(argparse.Action):
    """Asks which check is meant: that of the input, or that of the output."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(
            "--no-verify: write --no-crc to skip the CRCs of the input, or --verify none to skip "
            "the check of the output"
        )


def add_where(parser: Any) -> None:
    """Add ``--where``."""
    parser.add_argument(
        "--where",
        action="append",
        metavar="CONDITION",
        help="only rows for which this holds: 'label == 3 and size > 10', "
        "'kind in [\"a\", \"b\"]', '`image/label` is not null'; if it is given several "
        "times, all must hold",
    )


def add_options(
    parser: argparse.ArgumentParser, kind: type, titles: Mapping[str, str]
) -> dict[str, Any]:
    """Add an option for each field that has help, in groups.

    ``titles`` are those of the groups, by the first field of each. Return the groups by title.
    """
    groups = {title: parser.add_argument_group(title) for title in titles.values()}
    title = ""
    for each in _shown(kind):
        title = titles.get(each.name, title)
        _add_option(groups[title], kind, each)
    return groups


def _shown(kind: type) -> list[Field[Any]]:
    return [each for each in fields(kind) if each.metadata["help"]]


def _add_option(group: Any, kind: type, each: Field[Any]) -> None:
    """Add the option of a field. A field that is True by default is turned off by --no-NAME."""
    told, how = each.metadata, dict[str, Any]()
    if isinstance(each.default, bool) and not told["words"]:
        how = {"action": "store_false" if each.default else "store_true"}
    elif told["words"]:
        how = {"choices": list(told["words"])}
    else:
        how = {"metavar": told["metavar"]}
        if str(each.type).startswith(("dict", "list")):
            how["action"] = "append"
        elif each.type in ("int", "int | None"):
            how["type"] = int
    if each.default is True:
        how["default"] = None  # not given
    group.add_argument(_spelled(each, kind), dest=_dest(kind, each), help=told["help"], **how)


def _spelled(each: Field[Any], kind: type = object) -> str:
    if kind is OpenOptions and each.name in _INPUT_NAMES:
        return _INPUT_NAMES[each.name]
    off = "no-" if each.default is True and not each.metadata["words"] else ""
    return f"--{off}{'option' if each.name == 'options' else each.name}"


def _dest(kind: type, each: Field[Any]) -> str:
    # The input and the output may have options of the same name.
    return f"{kind.__name__}.{each.name}"


def given(args: argparse.Namespace, kind: type) -> dict[str, Any]:
    """Return the options of this kind that were given, as the functions of recmap take them."""
    found = {}
    for each in _shown(kind):
        value = getattr(args, _dest(kind, each), None)
        if value is not None:
            found[each.name] = _parsed(each, value)
    return found


def _parsed(each: Field[Any], value: Any) -> Any:
    if each.metadata["words"]:
        return each.metadata["words"][value]
    parse = _PARSERS.get(each.name)
    if parse is not None:
        return parse(value)
    return pairs(value, _spelled(each)) if isinstance(value, list) else value


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


def opened(args: argparse.Namespace, *, progress: ProgressOption = None, **changed: Any) -> Dataset:
    """Open the files that the arguments name, with some options changed.

    Filter their rows by ``--where``, and show the ``progress`` of that.
    """
    dataset = open_dataset(_paths(args.path), _fields(args), **{**_options(args), **changed})
    for condition in getattr(args, "where", None) or []:
        dataset = dataset.where(condition, progress=progress)
    return dataset


def call_text(args: argparse.Namespace) -> str:
    """Return the equivalent ``rm.open`` call as text."""
    paths, fields = _paths(args.path), _fields(args)
    usual = vars(OpenOptions())
    options = {n: v for n, v in _options(args).items() if v is not None and v != usual.get(n)}
    store = options.pop("storage", None)
    texts = [repr(paths[0] if isinstance(paths, list) and len(paths) == 1 else paths)]
    texts += [] if fields is None else [f"columns={fields!r}"]
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
    source = values(getattr(args, "source", ()), "--source")
    for name in source:
        if name not in ("format", "compression"):
            raise OptionError(f"--source {name}: write --{name} instead")
    return {**source, **given(args, OpenOptions), "storage": storage(args)}


def _dtype(text: str) -> str:
    as_dtype("--dtype", text)
    return text


def _shape(text: str) -> tuple[int, ...]:
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


def _names(texts: list[str]) -> list[str]:
    return [name for text in texts for name in text.split(",")]


def _slice(text: str) -> slice:
    try:
        bounds = [int(bound) if bound else None for bound in text.split(":")]
    except ValueError:
        bounds = []
    if not 2 <= len(bounds) <= 3 or bounds[2:] == [0]:
        raise OptionError(f"--rows {text}: write it like 0:1000, :-1 or ::10")
    return slice(*bounds)


# How the text of an option is read; others are passed on as they are.
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "columns": _names,
    "dtype": _dtype,
    "options": partial(values, option="--option"),
    "rows": _slice,
    "shape": _shape,
    "workers": workers,
}
