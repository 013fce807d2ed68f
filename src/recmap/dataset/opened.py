"""Opened: the rows of a Dataset, and how to open the same rows elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from recmap.model.source import Source

__all__ = ["Opened", "option_texts"]

# The key of the verbs of a dataset in manifests. split() was the first verb.
_VERBS = "split"


@dataclass(frozen=True)
class Opened:
    """A source, and how it was opened.

    ``how`` has the options as text. Conversions and pipeline states compare it, because two
    datasets of the same files may have been opened with different options. ``lasting`` is
    False for rows in memory, which cannot be read again later. ``reopen`` opens the same rows
    in another process; it is None if there are no files.
    """

    source: Source
    how: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = True
    reopen: Callable[[], Source] | None = None

    @property
    def verbs(self) -> str | None:
        """The verbs that derived these rows from the files; None if there were none."""
        return self.how.get(_VERBS)

    def derive(self, verb: str, change: Callable[[Source], Source]) -> Opened:
        """Apply ``change`` to the source; ``verb`` is the call, as text."""
        before = "" if self.verbs is None else f"{self.verbs}."
        return Opened(
            change(self.source),
            {**self.how, _VERBS: before + verb},
            self.lasting,
            None if self.reopen is None else partial(_derive_again, self.reopen, change),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # The receiving process opens the files itself; they are not sent to it.
        reopen = self.reopen or partial(_same, self.source)
        return _open_again, (reopen, dict(self.how), self.lasting)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text, for comparison."""
    return {name: repr(value) for name, value in sorted(options.items())}


def _derive_again(reopen: Callable[[], Source], change: Callable[[Source], Source]) -> Source:
    return change(reopen())


def _open_again(reopen: Callable[[], Source], how: dict[str, str], lasting: bool) -> Opened:
    return Opened(reopen(), how, lasting, reopen)


def _same(source: Source) -> Source:
    return source
