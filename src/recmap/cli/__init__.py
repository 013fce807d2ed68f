"""The command line. The file of a verb parses its arguments and prints results."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn

from recmap import __version__
from recmap.cli import bench, cache, convert, diff, head, info, records, schema, stats, view
from recmap.cli.arguments import add_verb
from recmap.cli.output import worded
from recmap.errors import (
    FieldNotFoundError,
    MissingPackageError,
    OptionError,
    OutputExistsError,
    PathNotFoundError,
    RecmapError,
    UnknownFormatError,
    without_secrets,
)

__all__ = ["main", "parser"]

_USAGE = (
    FieldNotFoundError,
    MissingPackageError,
    OptionError,
    OutputExistsError,
    PathNotFoundError,
    UnknownFormatError,
)
# Values of these may begin with a minus sign, which argparse would take for an option.
_SIGNED = ("--shape", "--rows")
# Options of earlier versions, and how they are written now.
_RENAMED = {
    "--to": "--format FORMAT",
    "--rows-per-shard": "--shards 'N rows'",
    "--shard-size": "--shards SIZE",
    "--no-fsync": "--no-durable",
}
_COMPLETION_EXAMPLES = """  recmap completion bash >> ~/.bash_completion
  recmap completion zsh > ~/.zfunc/_recmap     # in a folder of $fpath
  recmap completion fish > ~/.config/fish/completions/recmap.fish
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code.

    The code is 0 for success, 1 for bad data, 2 for a usage error, and 130 if interrupted.
    """
    _prepare_streams()
    code: int | SystemExit
    try:
        code = _called(sys.argv[1:] if argv is None else argv)
    except SystemExit as e:
        code = e
    except BrokenPipeError:
        code = 0  # the reader of the output has seen enough
    return _finished(code)


def _prepare_streams() -> None:
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names may contain characters that the terminal cannot show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _finished(code: int | SystemExit) -> int:
    """Write out what was printed, so that nothing fails when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
        except OSError as e:
            _discard(stream)
            if stream is sys.stdout:
                print(f"recmap: the output cannot be written: {e.strerror}", file=sys.stderr)
                code = code or 1
    if isinstance(code, SystemExit):
        raise code
    return code


def _discard(stream: Any) -> None:
    """Discard what is left in a stream, now and when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _called(argv: Sequence[str]) -> int:
    words = _joined(argv)
    command = parser()
    if not words:
        command.print_help()
        return 0
    for word in words:
        renamed = _RENAMED.get(word.partition("=")[0])
        if renamed is not None:
            command.error(f"{word.partition('=')[0]} is now written {renamed}")
    _check_verb(command, words)
    args, unknown = command.parse_known_args(words)
    if unknown:
        if any("=" not in text for text in getattr(args, "storage", [])):
            # What is left over is its value, which may be a secret.
            args.verb_parser.error("--storage: write NAME=VALUE")
        args.verb_parser.error(_unknown(unknown[0], args.verb_parser))
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return _run(args)


def parser() -> argparse.ArgumentParser:
    """Return the parser, with every verb and its options."""
    command = _Parser(
        prog="recmap",
        description="Look at, check and convert datasets: TFRecord, .npy, HDF5, Zarr, Parquet, "
        "CSV, JSON Lines, WebDataset and more.",
        epilog="recmap VERB --help shows the options of a verb, with examples. "
        "Exit codes: 0 success, 1 bad data, 2 usage error, 130 interrupted.",
    )
    command.add_argument("--version", action="version", version=f"recmap {__version__}")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = command.add_subparsers(dest="verb", required=True, metavar="VERB")
    for add in (
        info.add,
        head.add,
        stats.add,
        diff.add,
        view.add,
        schema.add,
        convert.add,
        records.add_index,
        records.add_verify,
        records.add_repair,
        bench.add_bench,
        bench.add_tune,
        cache.add,
        _add_completion,
    ):
        add(verbs)
    command.set_defaults(parser=command)
    return command


class _Parser(argparse.ArgumentParser):
    """Shows no secrets, such as those after ``--storage=``."""

    def error(self, message: str) -> NoReturn:
        super().error(without_secrets(re.sub(r"(--[a-z-]+)=\S+", r"\1=...", message)))


def _verbs(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs. argparse shows them nowhere else."""
    actions = command._actions  # noqa: SLF001
    return next(dict(a.choices) for a in actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001


def _check_verb(command: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse an unknown verb, and suggest the nearest."""
    verbs = list(_verbs(command))
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb is not None and verb not in verbs:
        near = _nearest(verb, verbs)
        command.error(f"unknown verb {verb!r}; {near or 'there are: ' + ', '.join(verbs)}")


def _unknown(word: str, verb: argparse.ArgumentParser) -> str:
    options = [name for action in verb._actions for name in action.option_strings]  # noqa: SLF001
    near = _nearest(word.partition("=")[0], options) if word.startswith("-") else ""
    return f"unknown option {word!r}; {near}" if near else f"unrecognized argument: {word}"


def _nearest(word: str, words: Sequence[str]) -> str:
    near = get_close_matches(word, words, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else ""


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as e:
        if args.debug:
            raise
        _complain(args.verb, str(e) or "interrupted")
        return 130
    except (RecmapError, OSError) as e:
        if args.debug:
            raise
        _complain(args.verb, e.wording if isinstance(e, RecmapError) else str(e))
        # As for diff(1), 1 means that there are differences.
        return 2 if isinstance(e, _USAGE) or args.verb == "diff" else 1


def _joined(argv: Sequence[str]) -> list[str]:
    joined: list[str] = []
    for text in argv:
        if joined and joined[-1] in _SIGNED and re.match(r"-[\d:]", text):
            joined[-1] += f"={text}"
        else:
            joined.append(text)
    return joined


def _complain(verb: str, message: str) -> None:
    print(f"recmap {verb}: {without_secrets(worded(message, verb))}", file=sys.stderr)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    text = message.args[0] if isinstance(message, Warning) and message.args else message
    shown = without_secrets(worded(text if isinstance(text, str) else str(text)))
    print(f"recmap: {shown}", file=sys.stderr)


def _add_completion(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "completion",
        _print_completion,
        help="print a completion script for your shell",
        description="Prints a script that completes verbs, options and paths in a shell.",
        examples=_COMPLETION_EXAMPLES,
    )
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        help="the shell the script is for: bash, zsh or fish",
    )


def _print_completion(args: argparse.Namespace) -> int:
    import shtab  # only this verb needs it

    for verb in _verbs(args.parser).values():
        for action in verb._actions:  # noqa: SLF001
            if action.dest in ("path", "src", "dst"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
    print(shtab.complete(args.parser, args.shell))
    return 0
