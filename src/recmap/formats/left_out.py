"""The warnings that columns of a file are left out, or that a note of them is ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recmap.errors import (
    LeftOut,
    LeftOutWarning,
    Message,
    Option,
    StaleIndexWarning,
)
from recmap.model.field import Field
from recmap.warn import warn

_NAMED = 10


def listed(left: Sequence[str]) -> str:
    """Return what is left out in words; the first ten if there are more."""
    more = [f"{len(left) - _NAMED:,} more"] if len(left) > _NAMED else []
    return "; ".join([*left[:_NAMED], *more])


def warn_of_left_out(told: str, left_out: Mapping[str, LeftOut] | None = None) -> None:
    """Warn of columns that are left out because nobody chose any; ``left_out`` has the reasons."""
    text = Message(f"{told} (", Option("fields", [...]), " chooses columns)")
    warn(LeftOutWarning(text, left_out))


def misfit(name: str, noted: Field, found: object) -> str:
    """Say that a column is not what the file notes of it."""
    return f"{name!r} is {noted}, but it holds {found}"


def warn_of_notes(path: str, misfits: Sequence[str]) -> None:
    """Warn that what a file notes of its columns does not fit them, and is ignored."""
    if misfits:
        warn(
            f"{path}: the note of its columns says {listed(misfits)}: another program has changed "
            "the file, and the note is ignored",
            StaleIndexWarning,
        )
