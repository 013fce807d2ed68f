"""What a Dataset holds: rows, and how to open the same ones elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from recmap.model.source import Source

__all__ = ["Opened", "option_texts"]

# The key under which manifests keep the verbs of a dataset: split() was the first of them.
_VERBS = "split"


@dataclass(frozen=True)
class Opened:
    """A source, and how it was opened.

    ``how`` has the options as texts: conversions and states of pipelines are compared with
    it, because two datasets of the same files may differ in that. ``lasting`` is False for
    rows in memory, which nobody can read another time. ``reopen`` opens the same rows in
    another process; it is None if there are no files.
    """

    source: Source
    how: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = True
    reopen: Callable[[], Source] | None = None

    @property
    def verbs(self) -> str | None:
        """The verbs that derived these rows from those of the files; None for no verbs."""
        return self.how.get(_VERBS)

    def derive(self, verb: str, change: Callable[[Source], Source]) -> Opened:
        """Return what ``change`` makes of the source; ``verb`` is the call, as text."""
        before = "" if self.verbs is None else f"{self.verbs}."
        return Opened(
            change(self.source),
            {**self.how, _VERBS: before + verb},
            self.lasting,
            None if self.reopen is None else partial(_derive_again, self.reopen, change),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Files are opened by the process that gets this, not sent to it.
        reopen = self.reopen or partial(_same, self.source)
        return _open_again, (reopen, dict(self.how), self.lasting)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as the texts that are compared."""
    return {name: repr(value) for name, value in sorted(options.items())}


def _derive_again(reopen: Callable[[], Source], change: Callable[[Source], Source]) -> Source:
    return change(reopen())


def _open_again(reopen: Callable[[], Source], how: dict[str, str], lasting: bool) -> Opened:
    return Opened(reopen(), how, lasting, reopen)


def _same(source: Source) -> Source:
    return source
