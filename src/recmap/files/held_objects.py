"""Find what was fetched ahead of an object, so that nothing is fetched twice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recmap.files.object_address import ObjectAddress
from recmap.files.object_store import ObjectInfo


class HeldObject(Protocol):
    """An object in memory, of which some spans are held."""

    bytes: npt.NDArray[np.uint8]

    def holds(self, begin: int, end: int) -> bool: ...

    def hold(
        self, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike
    ) -> AbstractContextManager[None]: ...


# The last one that was fetched ahead of each version of an object.
_objects: WeakValueDictionary[tuple[str, ObjectInfo], Any] = WeakValueDictionary()


class HeldNote:
    """Lets others find what is held of an object, until it is closed and the beginning is gone."""

    def __init__(self, path: ObjectAddress, file: HeldObject) -> None:
        self._key, self._file = (path.store.place, path.info), file
        if path.info.pinned:
            _objects[self._key] = file

    def close(self) -> None:
        """Forget the object, unless its beginning is still held."""
        if not self._file.holds(0, 1) and _objects.get(self._key) is self._file:
            _objects.pop(self._key, None)


def held_object(path: ObjectAddress, spans: list[tuple[int, int]]) -> HeldObject | None:
    """Return an object of which all these spans are held, or on their way; else None."""
    file: HeldObject | None = _objects.get((path.store.place, path.info))
    return file if file is not None and all(file.holds(*span) for span in spans) else None
