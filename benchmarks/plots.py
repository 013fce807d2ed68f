"""Plots of a run, for the documentation."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw", "draw_cores", "draw_ratios", "label_places"]

# Colours that show on white and on black.
_OURS, _OTHERS, _TEXT = "#12a594", ("#8d8d8d", "#b58a5a", "#a06cd5", "#5a8fd5"), "#808080"
_MORE = ("#c4677b", "#6f9a3c", "#c9a227", "#4fa3b5", "#9a6b4f")
# The height of a label, as a fraction of the plot.
_LABEL_HEIGHT = 0.075
# Larger ratios are shown without decimals.
_WHOLE = 100
# Those that read TFRecord files, and the limit.
_READERS = ("recmap", "memmap copy", "TensorFlow, tuned", "tfrecord package")
_SIZES = ("40 B rows", "4 KB rows", "256 KB rows")


def draw(races: Sequence[dict[str, Any]], facts: dict[str, str], folder: Path) -> list[Path]:
    """Write the plots for which there are figures; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    where = f"{facts['cores']} cores of {facts['CPU']}, {facts['date']}"
    made = []
    reads = {size: _rates(races, f"read {size}, float_list") for size in _SIZES}
    if all(reads.values()):
        path = folder / "throughput.svg"
        _throughput(reads, where, path)
        made.append(path)
    passes = [race for race in races if race["case"].startswith("memory 4 KB") and race["memory"]]
    if passes:
        path = folder / "memory.svg"
        _memory(passes, where, path)
        made.append(path)
    return made


def draw_cores(measured: Sequence[dict[str, Any]], facts: dict[str, str], path: Path) -> None:
    """Draw rows a second, relative to one CPU, against the number of CPUs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = _figure(f"{facts['CPU']}, {facts['date']}")
    counts = [int(n) for n in measured[0]["rows_per_second"]]
    axes.plot(counts, counts, color=_TEXT, linewidth=1, linestyle=":")
    ends: list[tuple[float, str, str]] = [(counts[-1], "ideal", _TEXT)]
    colors = itertools.cycle((_OURS, *_OTHERS, *_MORE))
    for each, color in zip(measured, colors, strict=False):
        rates = list(each["rows_per_second"].values())
        speedups = [rate / rates[0] for rate in rates]
        axes.plot(counts, speedups, color=color, linewidth=1.4, marker="o", markersize=3)
        ends.append((speedups[-1], f"{each['case']}  {speedups[-1]:.1f}x", color))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.set_xlabel("CPUs", color=_TEXT)
    axes.set_ylabel("times the rate of one CPU", color=_TEXT)
    axes.set_title("The same work on more CPUs", color=_TEXT, fontsize=11)
    low, high = axes.get_ylim()
    for (at, name, color), place in zip(
        sorted(ends), label_places(sorted(ends), low, high), strict=True
    ):
        axes.annotate(
            name, (counts[-1], at), (1.04, place), xycoords="data", textcoords="axes fraction",
            color=color, fontsize=8, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.5, "relpos": (0, 0.5)},
        )  # fmt: skip
    _save(figure, path)


def draw_ratios(rows: Sequence[tuple[str, float]], facts: dict[str, str], path: Path) -> None:
    """Draw a bar for each case, as long as recmap is faster than the peer, or slower."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = _figure(f"{facts['cores']} cores of {facts['CPU']}, {facts['date']}")
    places = range(len(rows))
    ratios = [ratio for _, ratio in rows]
    colors = [_OURS if ratio >= 1 else _OTHERS[1] for ratio in ratios]
    axes.barh(places, [ratio - 1 for ratio in ratios], 0.7, left=1, color=colors)
    axes.set_xscale("log")
    axes.axvline(1, color=_TEXT, linewidth=1)
    # Large enough to be read where a page is narrow.
    for place, ratio, color in zip(places, ratios, colors, strict=True):
        text = f"{ratio:.3g}x" if ratio < _WHOLE else f"{ratio:,.0f}x"
        axes.annotate(
            text, (max(ratio, 1), place), (5, 0), textcoords="offset points",
            color=color, fontsize=13, fontweight="bold", va="center",
        )  # fmt: skip
    axes.set_yticks(places, [name for name, _ in rows])
    axes.tick_params(labelsize=11)
    axes.tick_params(which="minor", bottom=False)
    axes.invert_yaxis()
    axes.set_xlim(min(0.5, *ratios) / 1.2, max(ratios) * 3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_title("Times as fast, log scale", color=_TEXT, fontsize=13)
    _save(figure, path)


def label_places(ends: Sequence[tuple[float, str, str]], low: float, high: float) -> list[float]:
    """Return heights for the labels of lines, as fractions of the axis, so that none overlap."""
    places: list[float] = []
    for at, *_ in ends:
        wanted = math.log(at / low) / math.log(high / low)
        places.append(max(wanted, places[-1] + _LABEL_HEIGHT) if places else wanted)
    over = max(places[-1] - 1, 0)
    # Move the topmost down into the axes, and those below out of their way.
    moved = [places[-1] - over]
    for place in reversed(places[:-1]):
        moved.append(min(place, moved[-1] - _LABEL_HEIGHT))
    return moved[::-1]


def _rates(races: Sequence[dict[str, Any]], case: str) -> dict[str, float]:
    """Return the bytes per second of each entrant of a race, in its best run."""
    for race in races:
        if race["case"] == case:
            return {
                entrant["name"]: max(
                    run["rows"] * entrant["row_bytes"] / run["seconds"] for run in entrant["runs"]
                )
                for entrant in race["entrants"]
            }
    return {}


def _throughput(reads: dict[str, dict[str, float]], where: str, path: Path) -> None:
    figure, axes = _figure(where)
    names = [name for name in _READERS if any(name in rates for rates in reads.values())]
    colors = dict(zip(_READERS, (_OURS, *_OTHERS), strict=False))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        places = [j + (i - (len(names) - 1) / 2) * width for j in range(len(reads))]
        values = [rates.get(name, 0) / 1e9 for rates in reads.values()]
        bars = axes.bar(places, values, width * 0.92, color=colors[name], label=name)
        axes.bar_label(bars, [f"{v:.2g}" for v in values], color=_TEXT, fontsize=8, padding=2)
    axes.set_yscale("log")
    axes.set_ylabel("GB/s, log scale", color=_TEXT)
    axes.set_xticks(range(len(reads)), list(reads))
    axes.set_ylim(top=axes.get_ylim()[1] * 4)
    title = "TFRecord to NumPy batches; recmap and TensorFlow check every CRC"
    axes.set_title(title, color=_TEXT, fontsize=11)
    axes.legend(frameon=False, labelcolor=_TEXT, fontsize=8, loc="upper center", ncols=len(names))
    _save(figure, path)


def _memory(passes: Sequence[dict[str, Any]], where: str, path: Path) -> None:
    figure, axes = _figure(where)
    for color, run in zip((_OTHERS[0], _OTHERS[3], _OURS), passes, strict=False):
        seconds = [at / run["seconds"] * 100 for at, _ in run["memory"]]
        held = [size / 1e6 for _, size in run["memory"]]
        name = run["case"].split(", ", 1)[1]
        axes.plot(seconds, held, color=color, label=name, linewidth=1.4)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 120)
    axes.set_xlabel("how much of the pass is done, %", color=_TEXT)
    axes.set_ylabel("memory held, MB", color=_TEXT)
    axes.set_title("Memory of a pass over 4 KB rows", color=_TEXT, fontsize=11)
    axes.legend(frameon=False, labelcolor=_TEXT, fontsize=8)
    _save(figure, path)


def _figure(where: str) -> tuple[Any, Any]:
    # Not pyplot, which needs a display.
    figure = importlib.import_module("matplotlib.figure").Figure((7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(_TEXT)
    axes.tick_params(colors=_TEXT, labelsize=9)
    axes.annotate(where, (1, -0.21), xycoords="axes fraction", ha="right", color=_TEXT, fontsize=7)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    # The same figures make the same file: no date, no random ids.
    matplotlib = importlib.import_module("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": "recmap", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
