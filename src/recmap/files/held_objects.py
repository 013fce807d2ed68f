"""Find what is held of an object, so that nothing is fetched twice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recmap.files.object_address import ObjectAddress
from recmap.files.object_store import ObjectInfo

__all__ = ["HeldObject", "held_object", "note_object"]


class HeldObject(Protocol):
    """An object in memory, of which some spans are held."""

    bytes: npt.NDArray[np.uint8]

    def holds(self, begin: int, end: int) -> bool: ...

    def hold(
        self, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike
    ) -> AbstractContextManager[None]: ...


# The last one that was made of each version of an object, as long as it lives.
_objects: WeakValueDictionary[tuple[str, ObjectInfo], Any] = WeakValueDictionary()


def note_object(path: ObjectAddress, file: HeldObject) -> None:
    """Note an object in memory, so that others find what is held of it."""
    if path.info.pinned:
        _objects[path.store.place, path.info] = file


def held_object(path: ObjectAddress, spans: list[tuple[int, int]]) -> HeldObject | None:
    """Return an object of which all these spans are held, or on their way; else None."""
    file: HeldObject | None = _objects.get((path.store.place, path.info))
    return file if file is not None and all(file.holds(*span) for span in spans) else None
