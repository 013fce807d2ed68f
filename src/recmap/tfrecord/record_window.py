"""A stretch of records found in a buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recmap.model.source import Skipped
from recmap.native import _core

__all__ = ["Window"]


@dataclass(frozen=True)
class Window:
    """Records and where they lie in ``bytes``.

    ``record`` is the number of the first among all records of the file, bad ones
    included; None where it is not known. ``base`` is the place of ``bytes`` in
    the plain stream. ``skipped`` are the records behind these that were damaged.
    ``needed`` are the bytes of the record behind these if it is not whole here, and
    ``passed`` those of the file that have been looked at.
    """

    bytes: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint64]
    record: int | None
    base: int
    scan: _core.Scan
    skipped: list[Skipped]
    needed: int = 0
    passed: int = 0
