"""The warning that columns of a file or a table are left out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from recmap.errors import LeftOut, LeftOutWarning, Message, Option, level_outside

__all__ = ["listed", "warn_of_left_out"]

_NAMED = 10


def listed(left: Sequence[str]) -> str:
    """Return what is left out in words; the first ten if there are more."""
    more = [f"{len(left) - _NAMED:,} more"] if len(left) > _NAMED else []
    return "; ".join([*left[:_NAMED], *more])


def warn_of_left_out(told: str, left_out: Mapping[str, LeftOut] | None = None) -> None:
    """Warn of columns that are left out because nobody chose any; ``left_out`` has the reasons."""
    text = Message(f"{told} (", Option("fields", [...]), " chooses columns)")
    warnings.warn(LeftOutWarning(text, left_out), stacklevel=level_outside())
