"""The statistics of a dataset, as data and as a table; stats_collector.py computes them."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_stats import By, ChannelStats, check_by, scale_values
from recmap.dataset.field_stats import FieldStats, Histogram, Numbers, ValueCounts
from recmap.errors import DataError, OptionError
from recmap.local.location import Location
from recmap.model.field import Field
from recmap.model.json_text import json_text
from recmap.model.preview import number, preview, quantity
from recmap.model.ragged import Ragged
from recmap.model.table import Column, Table
from recmap.store.paths import PathLike, as_location
from recmap.store.storage import Storage

# Larger files are not statistics.
_MOST = 1 << 30
_UNUSUAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BARS = " ▁▂▃▄▅▆▇█"
# Most bars of a histogram.
_MOST_BARS = 32
# Integers above this are shown like floats.
_MOST_EXACT = 1 << 53
_DIGITS = 6
# Floats below this are shown without an exponent, even if they have more digits.
_MOST_PLAIN = 1e7

# Most channels of a field in the table.
_MOST_CHANNELS = 32

_COLUMNS = (
    Column("column", cut="middle"),
    Column("of", meaning="type"),
    Column("count", right=True),
    Column("nan", right=True, meaning="warning"),
    Column("min", right=True),
    Column("max", right=True),
    Column("mean", right=True),
    Column("std", right=True),
    Column("histogram"),
    Column("distinct", right=True),
    Column("most common", cut="end", least=16),
)


class Stats(dict[str, FieldStats]):
    """The statistics of each field, by name; it prints as a table.

    ``save`` writes it as JSON, and ``rm.Stats.load`` reads that, or what ``recmap stats --json``
    prints.

    >>> import numpy as np, recmap as rm
    >>> stats = rm.from_arrays({"x": np.arange(4.0)}).stats()
    >>> stats.save("stats.json")
    >>> rm.Stats.load("stats.json") == stats
    True
    """

    def to_json(self) -> str:
        """Return the statistics as one line of JSON. NaN and infinities are strings."""
        return json_text(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Stats:
        """Return the statistics that ``to_json`` wrote."""
        return cls(_read(text, "from_json"))

    def save(self, path: PathLike, *, storage: Mapping[str, Any] | None = None) -> None:
        """Write the statistics to a JSON file, or an object in a store; replace what is there."""
        _location(path, storage).write_whole(f"{self.to_json()}\n".encode())

    @classmethod
    def load(cls, path: PathLike, *, storage: Mapping[str, Any] | None = None) -> Stats:
        """Read the statistics that ``save`` wrote."""
        return cls(_load(_location(path, storage).anew()))

    def normalize(self, batch: Mapping[str, Any], *columns: str, by: By = "std") -> dict[str, Any]:
        """Normalize columns of a batch: those given, or all float columns that have statistics.

        Floats keep their type; integers become float32. The other columns stay as they are.
        """
        return self._scaled(batch, columns, by, inverse=False)

    def denormalize(
        self, batch: Mapping[str, Any], *columns: str, by: By = "std"
    ) -> dict[str, Any]:
        """Undo ``normalize``, such as for what a model returns."""
        return self._scaled(batch, columns, by, inverse=True)

    def _scaled(
        self, batch: Mapping[str, Any], columns: Sequence[str], by: By, *, inverse: bool
    ) -> dict[str, Any]:
        by = check_by(by)
        floats = [n for n, column in batch.items() if n in self and _holds_floats(column)]
        done = dict(batch)
        for name in dict.fromkeys(columns) or floats:
            for there, what in ((batch, "the batch"), (self, "the statistics")):
                if name not in there:
                    raise OptionError(f"there is no {name!r} in {what}, only {list(there)}")
            done[name] = scale_values(self[name].scaling(by, inverse=inverse), batch[name])
        return done

    def __repr__(self) -> str:
        return stats_table(self, bars=16).text()

    def _repr_html_(self) -> str:
        rows = next((stats.rows for stats in self.values()), 0)
        return stats_table(self, bars=16).html(quantity(rows, "row"))


def _holds_floats(column: Any) -> bool:
    dtype = column.dtype if isinstance(column, Ragged) else np.asarray(column).dtype
    return bool(dtype.kind == "f")


def _location(path: PathLike, storage: Mapping[str, Any] | None) -> Location:
    return as_location(path, "path", Storage(storage))


def stats_table(
    stats: Mapping[str, FieldStats], *, bars: int = _MOST_BARS, digits: int = _DIGITS
) -> Table:
    """Return a table with a row for the values, the lengths and the sizes of each field.

    ``bars`` is how many bars a histogram may have. Its first and last bar begin and end at the
    numbers beside it. ``digits`` is how many digits of a number are shown.
    """
    rows = [row for name, found in stats.items() for row in _rows(name, found, bars, digits)]
    # Align the histograms, which have the start of the first bar before them.
    ends = [row[8] for row in rows]
    before = max((len(end[0]) for end in ends), default=0)
    middle = max((len(end[1]) for end in ends), default=0)
    for row, (low, drawn, high) in zip(rows, ends, strict=True):
        row[8] = f"{low:>{before}} {drawn:{middle}} {high}".rstrip() if drawn else ""
    shares = sorted({share for found in stats.values() for share in _shares(found)})
    for row in rows:
        quantiles = row.pop()
        row.extend(_number(quantiles.get(share), digits) for share in shares)
    named = [Column(f"q{share:g}", right=True) for share in shares]
    return Table((*_COLUMNS, *named), rows)


def _shares(stats: FieldStats) -> list[float]:
    return [] if stats.channels is None else list(stats.channels.quantiles)


def _rows(name: str, stats: FieldStats, bars: int, digits: int) -> list[list[Any]]:
    """Return the rows of a field, with its quantiles by share at the end."""
    whole = stats.field.dtype.kind in "biu"
    distinct = _distinct(stats.counts)
    kind = f"{stats.field}, {stats.nulls:,} null" if stats.nulls else str(stats.field)
    channels = _channel_rows(name, stats.channels, digits)
    if stats.values is not None:
        numbers = _numbers(stats.values, bars, digits, whole)
        # A single channel has all values.
        quantiles = channels.pop()[-1] if len(channels) == 1 else {}
        rows = [[name, kind, *numbers, *distinct, quantiles]]
    else:
        count = 0 if stats.sizes is None else stats.sizes.count
        empty = [f"{count:,}", "", "", "", "", "", ("", "", "")]
        rows = [[name, kind, *empty, *distinct, {}]]
    rows += channels
    axes = ["row lengths", "step lengths"]
    for axis, lengths in zip(axes, stats.lengths, strict=False):
        rows.append([name, axis, *_numbers(lengths, bars, digits, True), "", "", {}])
    if stats.sizes is not None:
        rows.append([name, "bytes each", *_numbers(stats.sizes, bars, digits, True), "", "", {}])
    return rows


def _channel_rows(name: str, channels: ChannelStats | None, digits: int) -> list[list[Any]]:
    """Return a row for each of the first channels."""
    rows: list[list[Any]] = []
    if channels is None:
        return rows
    for index in itertools.islice(np.ndindex(channels.count.shape), _MOST_CHANNELS):
        label = f"channel {', '.join(map(str, index))}"
        found = [getattr(channels, each)[index].item() for each in ("min", "max", "mean", "std")]
        numbers = [_number(value, digits) for value in found]
        counts = [f"{channels.count[index]:,}", f"{channels.nan[index]:,}"]
        quantiles = {share: each[index].item() for share, each in channels.quantiles.items()}
        rows.append([name, label, *counts, *numbers, ("", "", ""), "", "", quantiles])
    return rows


def _numbers(found: Numbers, bars: int, digits: int, whole: bool) -> list[Any]:
    numbers = [found.min, found.max, found.mean, found.std]
    return [
        f"{found.count:,}",
        f"{found.nan:,}" if found.nan else "0",
        *(_number(value, digits) for value in numbers),
        ("", "", "") if found.histogram is None else _drawn(found.histogram, bars, whole),
    ]


def _number(value: Any, digits: int) -> str:
    if isinstance(value, float) and 10**digits <= abs(value) < _MOST_PLAIN:
        return f"{value:.0f}"
    text = number(value, digits)
    wide = isinstance(value, int) and len(text) > digits + 4
    return number(float(value), digits) if wide and digits < _DIGITS else text


def _drawn(histogram: Histogram, bars: int, whole: bool) -> tuple[str, str, str]:
    """Return where the first bar begins, the bars, and where the last one ends.

    The last bar of integers ends with the greatest integer in it.
    """
    shown = histogram.merged(bars)
    low, high = shown.edges[0], shown.edges[-1]
    most = max(shown.counts)
    steps = len(_BARS) - 1
    # Round up, so that a bin with a single value is visible.
    drawn = "".join(_BARS[-(-count * steps // most)] for count in shown.counts)
    if whole and max(abs(low), abs(high)) < _MOST_EXACT:
        return str(int(low)), drawn, str(int(high) - 1)
    return number(low), drawn, number(high)


def _distinct(counts: ValueCounts | None) -> tuple[str, str]:
    if counts is None or not counts.top:
        return "", ""
    distinct = f"{counts.distinct:,}" if counts.complete else f">{counts.distinct - 1:,}"
    sample = "" if counts.complete else f"in the first {counts.counted:,}: "
    if counts.top[0][1] == 1 and counts.distinct > 1:
        return distinct, f"{sample}all different"
    # Which values occur once says little if others occur more often.
    top = [pair for pair in counts.top if pair[1] > 1] or counts.top
    shown = [f"{preview(value)} ({count:,})" for value, count in top]
    more = ["..."] if counts.distinct > len(top) else []
    return distinct, sample + ", ".join(shown + more)


def _load(location: Location) -> dict[str, FieldStats]:
    """Read statistics from a file."""
    try:
        text = location.text(_MOST)
    except ValueError as e:
        raise _not_stats(location.public(), e) from None
    return _read(text, location.public())


def _read(text: str | bytes, name: str) -> dict[str, FieldStats]:
    """Return the statistics in a text, which errors call ``name``."""
    try:
        return {field: _read_field_stats(told) for field, told in json.loads(text).items()}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        raise _not_stats(name, e) from None


def _not_stats(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: not the statistics of a dataset, as stats.save and recmap stats --json write "
        f"them: {type(error).__name__}: {error}"
    )


def _read_field_stats(told: Mapping[str, Any]) -> FieldStats:
    field = Field.parse(told["field"])
    counts, channels = told["counts"], told.get("channels")
    return FieldStats(
        field=field,
        rows=int(told["rows"]),
        values=_read_numbers(told["values"], dates=field.dtype.kind in "mM"),
        lengths=tuple(each for each in map(_read_numbers, told["lengths"]) if each is not None),
        sizes=_read_numbers(told["sizes"]),
        counts=None if counts is None else _read_counts(counts, field),
        nulls=int(told["nulls"]),
        channels=None if channels is None else _read_channels(channels),
    )


def _read_numbers(told: Mapping[str, Any] | None, *, dates: bool = False) -> Numbers | None:
    if told is None:
        return None
    found = told["histogram"]
    histogram = None if found is None else Histogram(
        float(found["start"]), float(found["width"]), [int(count) for count in found["counts"]]
    )  # fmt: skip
    low, high = (told[name] if dates else _read_number(told[name]) for name in ("min", "max"))
    mean, std = _read_number(told["mean"]), _read_number(told["std"])
    return Numbers(int(told["count"]), int(told["nan"]), low, high, mean, std, histogram)


def _read_number(told: Any) -> Any:
    """Return a number, or None; JSON has no NaN, which is a string."""
    if isinstance(told, str):
        return _UNUSUAL[told]
    if told is not None and not isinstance(told, int | float):
        raise ValueError(f"{told!r} is not a number")
    return told


def _read_counts(told: Mapping[str, Any], field: Field) -> ValueCounts:
    top = [(_read_value(value, field), int(count)) for value, count in told["top"]]
    return ValueCounts(int(told["distinct"]), bool(told["complete"]), int(told["counted"]), top)


def _read_value(told: Any, field: Field) -> Any:
    if field.is_text or not isinstance(told, str | dict):
        return told
    return told.encode() if isinstance(told, str) else base64.b64decode(told["base64"])


def _read_channels(told: Mapping[str, Any]) -> ChannelStats:
    count = np.array(told["count"], np.int64)
    shape = count.shape
    return ChannelStats(
        axis=tuple(int(axis) for axis in told["axis"]),
        count=count,
        nan=np.array(told["nan"], np.int64).reshape(shape),
        inf=np.array(told["inf"], np.int64).reshape(shape),
        min=_read_array(told["min"], shape),
        max=_read_array(told["max"], shape),
        mean=_read_array(told["mean"], shape).astype(np.float64),
        std=_read_array(told["std"], shape).astype(np.float64),
        quantiles={
            float(share): _read_array(values, shape).astype(np.float64)
            for share, values in told["quantiles"].items()
        },
        rank_error=float(told["rank_error"]),
    )


def _read_array(told: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    flat = [_read_number(each) for each in np.array(told, object).reshape(-1)]
    return np.array(flat).reshape(shape) if flat else np.empty(shape)
