"""Times of netCDF: numbers of units since a moment, as NumPy's dates.

Only the calendars that NumPy has are decoded. Before October 15, 1582, the standard calendar is
the Julian one, so numbers since an earlier moment remain numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_UNITS = re.compile(
    r"""\s*(?P<unit>[a-z]+)\s+since\s+(?P<date>\d{1,4}-\d{1,2}-\d{1,2})
        ([t\s]+(?P<hour>[01]?\d|2[0-4])
           (:(?P<minute>[0-5]?\d)(:(?P<second>[0-5]?\d|60)(\.(?P<part>\d*))?)?)?)?
        \s*(z|utc|gmt|(?P<sign>[+-])(?P<east>\d{1,2})(:?(?P<south>\d{2}))?)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_MICROSECONDS = {
    **dict.fromkeys(("microsecond", "microseconds", "microsec", "microsecs"), 1),
    **dict.fromkeys(("millisecond", "milliseconds", "millisec", "millisecs", "msec", "ms"), 10**3),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), 10**6),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), 60 * 10**6),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), 3600 * 10**6),
    **dict.fromkeys(("day", "days", "d"), 86400 * 10**6),
}
_STANDARD = ("", "standard", "gregorian")
_GREGORIAN = np.datetime64("1582-10-15", "us")
_FAR = 1 << 62


@dataclass(frozen=True)
class TimeUnit:
    """What numbers of a variable count, and since when.

    ``step`` is the length of the unit in that of ``since``. No date may be before ``first``.
    """

    since: np.datetime64
    step: int
    first: np.datetime64 | None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.since.dtype

    @classmethod
    def parsed(cls, units: str, calendar: str) -> TimeUnit | None:
        """Return what the attributes say; None if it is not a time that NumPy has."""
        found, calendar = _UNITS.fullmatch(units), calendar.lower()
        if found is None or calendar not in (*_STANDARD, "proleptic_gregorian"):
            return None
        unit = found["unit"].lower()
        nano = unit in ("nanosecond", "nanoseconds")
        if not nano and unit not in _MICROSECONDS:
            return None
        year, month, day = found["date"].split("-")
        try:
            date = np.datetime64(f"{int(year):04}-{int(month):02}-{int(day):02}", "us")
        except ValueError:
            return None
        minutes = 60 * int(found["hour"] or 0) + int(found["minute"] or 0)
        east = 60 * int(found["east"] or 0) + int(found["south"] or 0)
        minutes += east if found["sign"] == "-" else -east
        part = int(f"{found['part'] or '':0<6}"[:6])
        seconds = int(found["second"] or 0)
        since = date + np.timedelta64(60 * 10**6 * minutes + 10**6 * seconds + part, "us")
        if calendar in _STANDARD and since < _GREGORIAN:
            return None
        first = _GREGORIAN if calendar in _STANDARD else None
        if not nano:
            return cls(since, _MICROSECONDS[unit], first)
        exact = since.astype("M8[ns]")
        return cls(exact, 1, None) if exact == since else None

    def decode(self, numbers: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Return dates, NaT for what is missing. Raise ValueError if one is too far away."""
        if numbers.dtype.kind == "f":
            missing = missing | np.isnan(numbers)
        known = np.where(missing, np.zeros((), numbers.dtype), numbers)
        limit = _FAR // self.step
        if bool(((known > limit) | (known < -limit)).any()):
            raise ValueError("a time is too far away for a date of NumPy")
        if known.dtype.kind == "f":
            wide = known.astype(np.float64)
            whole = np.floor(wide)
            steps = whole.astype(np.int64) * self.step
            steps += np.rint((wide - whole) * self.step).astype(np.int64)
        else:
            steps = known.astype(np.int64) * self.step
        dates: npt.NDArray[Any] = self.since + steps.view(f"m8[{np.datetime_data(self.dtype)[0]}]")
        dates[missing] = np.datetime64("NaT")
        if self.first is not None and bool((dates < self.first).any()):
            raise ValueError(
                "a time before October 15, 1582, of the standard calendar is not a date of NumPy"
            )
        return dates
