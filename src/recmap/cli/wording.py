"""Text for people at a terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

__all__ = ["in_options", "printable"]


def _dtype_and_shape(found: re.Match[str]) -> str:
    return f"--dtype {shlex.quote(found[1])} --shape {found[2].replace(' ', '').rstrip(',')}"


# How the library names an option, and how the command line does. Paths and names of columns may
# contain such words too: image/format, /data/format=raw.
_OPTIONS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r'dtype="([^"]+)", shape=\(([-\d, ]+)\)', _dtype_and_shape),
    (r"fields=\[\.\.\.\]", "--field NAME"),
    (r"fields=\[('[^\]]*)\]", lambda found: _field_names(found[1])),
    (r'fields=\{("[^"]*"|\.\.\.): (.*?)\}(?=[,;:) ]|$)', lambda found: _field_options(found[0])),
    (r'encoding=\{"([^"]*)": "(\w+)"\}', r"--encoding \1=\2"),
    (r'options=\{"compression": "(\w+)"\}', r"--compression \1"),
    (r"overwrite=True", "--overwrite"),
    (r'(errors|casting|format|memory|to)=["\']?([\w.]+)["\']?(?![\w/-])', r"--\1 \2"),
    (r"to=", "--to"),
    (r"offset=([\d,]+)", r"--offset \1"),
    (r"the same call\b", "the same command"),
)
_PATTERNS = [(re.compile(rf"(?<![\w./-]){pattern}"), option) for pattern, option in _OPTIONS]


def _field_options(given: str) -> str:
    """The options for a value of ``fields=`` that is a dict.

    >>> _field_options('fields={"y": "int64 = 0", ...: None}')
    "--field y='int64 = 0' --field ..."
    """
    texts = []
    for name, field in re.findall(r'("[^"]*"|\.\.\.): ("[^"]*"|None|\.\.\.)', given):
        typed = {"None": "", "...": "=TYPE"}.get(field, "='" + field.strip('"') + "'")
        texts.append(f"--field {name.strip(chr(34))}{typed}")
    return " ".join(texts)


def _field_names(listed: str) -> str:
    """The options for a value of ``fields=`` that is a list.

    >>> _field_names("'x', 'a b'")
    "--field x --field 'a b'"
    """
    return " ".join(f"--field {shlex.quote(name)}" for name in re.findall(r"'([^']*)'", listed))


def in_options(message: str) -> str:
    """A message of the library on one line, with the options of the command line.

    >>> in_options('out.npy exists already (use overwrite=True to replace it)')
    'out.npy exists already (use --overwrite to replace it)'
    """
    written, at = "", 0
    while True:
        found = [(m, option) for p, option in _PATTERNS if (m := p.search(message, at))]
        if not found:
            return printable(written + message[at:])
        # What was rewritten is not searched again.
        match, option = min(found, key=lambda one: one[0].start())
        said = match.expand(option) if isinstance(option, str) else option(match)
        written += message[at : match.start()] + said
        at = match.end()


def printable(text: str) -> str:
    """Text without characters that would steer a terminal: names and strings come from
    files.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
