"""Sizes in bytes: parse them from text, and format them for people."""

from __future__ import annotations

import re

import numpy as np

from recmap.errors import OptionError

__all__ = ["parse_size", "size_text"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(size: int | str) -> int:
    """Return a size in bytes, given a number or text such as ``"512MB"`` or ``"2GiB"``.

    >>> parse_size("512MB"), parse_size("2 GiB"), parse_size(1000)
    (512000000, 2147483648, 1000)
    """
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        return int(size)
    if not isinstance(size, str):
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", size.upper())
    if match is None:
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    number, unit, binary = match.groups()
    return int(float(number) * (_BINARY if binary else _UNITS)[unit])


def size_text(size: float) -> str:
    """Format a size in bytes for people.

    >>> size_text(1536), size_text(2.5e9)
    ('1.54 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
