"""Objects that the disk cache has as a whole, mapped like files."""

from __future__ import annotations

from recmap.files.mapped import MappedFile


class CachedFile(MappedFile):
    """The copy of an object in the cache. All its blocks are sound, unless the file has changed.

    Whoever cleans up caches does not know who reads them. So views of it are never given away:
    what is read is copied, inside a guard. ``changed`` is when the copy was last changed, and
    ``origin`` is what to read once it is changed again.
    """

    def __init__(self, path: str, kept_at: str, origin: MappedFile, changed: int) -> None:
        super().__init__(path, kept_at)
        self._origin, self._changed = origin, changed

    @property
    def lends(self) -> bool:
        return False

    @property
    def intact(self) -> bool:
        """Whether the copy is still what it was. One that was removed stays as long as mapped."""
        return self._mapping.is_unchanged(self._changed)

    def current(self) -> MappedFile:
        """Return this file, or the object itself if the copy was changed."""
        return self if self.intact else self._origin
