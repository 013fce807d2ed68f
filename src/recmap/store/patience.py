"""How long requests to a store are repeated, and what is said meanwhile.

A store may be away for a minute, and a run of days must not end because of it. But nobody should
wonder why nothing happens, so a warning says what is being waited for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from recmap.errors import OptionError, StoreError, StoreWaitWarning
from recmap.model.arguments import as_whole
from recmap.store.storage import Storage
from recmap.warn import warn

_T = TypeVar("_T")

# Seconds for which a request is repeated, unless ``retry_timeout`` says otherwise.
_SECONDS = 180.0
# obstore repeats a request this often by itself, within a second.
_QUICK = 3
# Pauses in seconds, which double. The last one is how late a store that is back may be noticed.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
#: Seconds of waiting that are not worth a word.
SILENCE = 4.0
#: What happened if there was no answer, or only a part of one.
UNREACHABLE = "cannot reach the server, or the connection was dropped"
# Larger than any number of retries that fits into the time.
_UNLIMITED = 1_000_000


@dataclass(frozen=True)
class Patience:
    """Repeat requests at most ``retries`` times (None: any number), for at most ``seconds``."""

    retries: int | None = None
    seconds: float = _SECONDS

    @staticmethod
    def of(storage: Storage) -> Patience:
        """Take what the options say. ``max_retries`` is another name for ``retries``."""
        if "retries" in storage and "max_retries" in storage:
            raise OptionError("storage: retries and max_retries are the same; give one of them")
        retries: int | None = None
        for name in ("retries", "max_retries"):
            if name in storage:
                retries = as_whole(f"storage: {name}", storage[name])
        seconds = storage.get("retry_timeout", _SECONDS)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise OptionError("storage: retry_timeout: give a number of seconds")
        return Patience(retries, min(float(seconds), 1e9))

    @property
    def _all(self) -> int:
        return _UNLIMITED if self.retries is None else self.retries

    @property
    def _quick(self) -> int:
        """How often obstore repeats a request by itself, before ``pauses`` counts it as failed."""
        return min(_QUICK, self._all)

    def of_obstore(self, *, alone: bool) -> dict[str, Any]:
        """Return obstore's settings; ``alone`` if nobody else repeats the request."""
        longest = timedelta(seconds=_LONGEST_PAUSE if alone else _FIRST_PAUSE)
        return {
            "max_retries": self._all if alone else self._quick,
            "retry_timeout": timedelta(seconds=self.seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": longest,
                "base": 2,
            },
        }

    def pauses(self, place: str, *, alone: bool = False) -> Callable[[StoreError], float | None]:
        """Begin to count the attempts of one request to ``place``, a bucket or server.

        Return a function that takes an error and returns the seconds to wait before the next
        attempt, or None if there is to be no other. ``alone`` says that obstore repeats none
        itself.
        """
        quick = 0 if alone else self._quick
        repeats = (self._all - quick) // (quick + 1)
        began, longest, told = time.monotonic(), _FIRST_PAUSE, False

        def pause_after(error: StoreError) -> float | None:
            nonlocal repeats, longest, told
            waited = time.monotonic() - began
            if not error.transient or not repeats or waited + longest > self.seconds:
                return None
            if waited > SILENCE and not told:
                told = True
                tell(place, error, self.seconds)
            repeats -= 1
            pause = longest * random.uniform(0.5, 1)  # noqa: S311
            longest = min(2 * longest, _LONGEST_PAUSE)
            return pause

        return pause_after

    def repeat(self, place: str, request: Callable[[], _T], *, alone: bool = False) -> _T:
        """Make a request, and repeat it while the store is unavailable, see ``pauses``."""
        pause_after = self.pauses(place, alone=alone)
        while True:
            try:
                return request()
            except StoreError as e:
                if (pause := pause_after(e)) is None:
                    raise
            time.sleep(pause)


def tell(place: str, error: StoreError, seconds: float) -> None:
    """Warn that requests to a store are being repeated, and why."""
    why = str(error).rpartition(": ")[2].removesuffix(", after several attempts")
    text = (
        f"{place}: {why}; recmap tries again for up to {seconds:g} s "
        '(storage={"retry_timeout": ...} changes that)'
    )
    warn(text, StoreWaitWarning)
