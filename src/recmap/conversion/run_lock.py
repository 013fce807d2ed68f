"""The mark of a conversion that runs: a file beside its output."""

from __future__ import annotations

import os

from recmap.errors import OutputExistsError
from recmap.files.atomic_write import writing
from recmap.files.temporary import remove

__all__ = ["Mark"]


class Mark:
    """A file that is there for as long as a conversion runs. Tasks elsewhere see by it that
    they are to end, and the conversion itself that another has taken over its place.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._held = False
        self._lost = False

    def hold(self) -> None:
        """Sets it."""
        folder = os.path.dirname(self.path) or "."
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
            with open(self.path, "w", encoding="utf-8"):
                self._held = True

    def release(self) -> None:
        """Removes it; whether it had been lost before is still known then."""
        self._lost = self.lost
        self._held = False
        remove(self.path)

    @property
    def there(self) -> bool:
        """Whether the conversion goes on, here or on another machine."""
        return os.path.exists(self.path)

    @property
    def lost(self) -> bool:
        """Whether somebody else has removed it."""
        return self._lost or (self._held and not self.there)

    def taken_over(self, what: str) -> OutputExistsError:
        """The error of a conversion that has lost it."""
        return OutputExistsError(
            f"{what} was not finished: another conversion to the same place has taken over, and "
            f"removed {self.path}; wait for that one, or stop it and call again"
        )
