"""Patterns that list names: ``x-{0000..0099}.tar``, ``{train,val}.npy``."""

from __future__ import annotations

import re

from recmap.errors import OptionError

_NUMBERS = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")
_BRACES = re.compile(r"\{(\d{1,18}\.\.\d{1,18}|[^{},]*(?:,[^{},]*)+)\}")
_MOST = 1_000_000


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern lists, in order; others are returned as they are.

    >>> expand_braces("x-{08..10}.tar")
    ['x-08.tar', 'x-09.tar', 'x-10.tar']
    >>> expand_braces("{a,b}/x.npy"), expand_braces("x{}.npy")
    (['a/x.npy', 'b/x.npy'], ['x{}.npy'])
    """
    found = [""]
    end = 0
    for group in _BRACES.finditer(pattern):
        before = pattern[end : group.start()]
        choices = _choices(group[0])
        if len(found) * len(choices) > _MOST:
            raise OptionError(f"{pattern}: a pattern of more than {_MOST:,} names")
        found = [f"{name}{before}{choice}" for name in found for choice in choices]
        end = group.end()
    return [name + pattern[end:] for name in found]


def _choices(group: str) -> list[str]:
    numbers = _NUMBERS.fullmatch(group)
    if numbers is None:
        return group[1:-1].split(",")
    first, last = numbers[1], numbers[2]
    low, high = int(first), int(last)
    if abs(high - low) >= _MOST:
        raise OptionError(f"{group}: a pattern of more than {_MOST:,} names")
    # A zero at the beginning says that all names have one length.
    padded = any(len(text) > 1 and text[0] == "0" for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if low <= high else -1
    return [f"{number:0{width}d}" for number in range(low, high + step, step)]
