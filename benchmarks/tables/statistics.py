"""Statistics of channels, with quantiles and without."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare

__all__ = ["measure"]

_NOTE = (
    "The means and deviations of each channel of an .npy file of float32 values, 400 MB in all, "
    "from rm.open on, with the quantiles {shares} and without them."
)
_SHARES = [0.01, 0.5, 0.99]
# Of an image, of the states of a robot, and of a wide table.
_CHANNELS = (3, 14, 1000)


def measure(bench: Bench) -> Table:
    rows = [_quantiles(bench, channels) for channels in _CHANNELS]
    return Table("Statistics", _NOTE.format(shares=", ".join(map(str, _SHARES))), rows)


def _quantiles(bench: Bench, channels: int) -> Row:
    values = 1_000_000 if bench.quick else 100_000_000
    path = str(bench.folder / f"{channels}-channels.npy")
    bench.worker("verbs").call("make_channels", path=path, rows=values // channels, width=channels)
    entrants = bench.entrants(
        "verbs", "with quantiles", "statistics", path=path, quantiles=_SHARES
    ) + bench.entrants("verbs", "recmap, without quantiles", "statistics", path=path, quantiles=[])
    timings = bench.race(f"stats, {channels} channels", entrants, 4 * channels)
    ours, plain = timings.values()
    return compare(f"quantiles of {channels:,} channels", ours, plain, 0.5)
