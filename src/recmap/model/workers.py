"""The ``workers=`` option, which has the same meaning everywhere."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from recmap.errors import OptionError

__all__ = ["Workers", "parse_workers"]

# System libraries survive a fork only on Linux.
_START_METHOD = "fork" if sys.platform == "linux" else "spawn"


@dataclass(frozen=True)
class Workers:
    """The kind and number of workers.

    With ``serial``, the caller does all the work. ``method`` is how processes are started:
    "fork" or "spawn".
    """

    kind: Literal["serial", "threads", "processes"]
    count: int
    method: str | None = None


def parse_workers(workers: Any, number: Literal["threads", "processes"] = "processes") -> Workers:
    """Parse ``workers=``. ``number`` is the kind of worker that a plain number means.

    >>> parse_workers("threads:4")
    Workers(kind='threads', count=4, method=None)
    >>> parse_workers("spawn:2")
    Workers(kind='processes', count=2, method='spawn')
    >>> parse_workers(4, number="threads")
    Workers(kind='threads', count=4, method=None)
    >>> parse_workers(None)
    Workers(kind='serial', count=0, method=None)
    """
    if isinstance(workers, np.integer):
        workers = int(workers)
    if workers is None or (type(workers) is int and workers == 0):
        return Workers("serial", 0)
    text = f"{number}:{workers}" if type(workers) is int else str(workers)
    match = re.fullmatch(r"(threads|processes|fork|spawn):0*([1-9][0-9]{0,3})", text)
    if match is None:
        raise OptionError(
            f"workers={workers!r}: use a number of {number} (0 for none), or "
            '"threads:4", "processes:4", "fork:4" or "spawn:4"'
        )
    kind, count = match[1], int(match[2])
    if kind == "threads":
        return Workers("threads", count)
    return Workers("processes", count, _START_METHOD if kind == "processes" else kind)
