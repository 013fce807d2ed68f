"""Import time."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table
from benchmarks.timing import Timing

__all__ = ["measure"]

_NOTE = "`import` in a new interpreter, whose own start does not count; files are compiled already."


def measure(bench: Bench) -> Table:
    modules = ["recmap", "numpy"]
    if not bench.worker("tensorflow").missing:
        modules.append("tensorflow")
    cache = str(bench.folder / "compiled")
    entrants = [
        entrant
        for module in modules
        for entrant in bench.entrants("plain", module, "import_time", module=module, cache=cache)
    ]
    timings = bench.race("import", entrants, 0)
    ours = timings.pop("recmap")
    return Table("Import", _NOTE, [_row(ours, peer) for peer in timings.values()])


def _row(ours: Timing, peer: Timing) -> Row:
    ratio = peer.best.seconds / ours.best.seconds
    return Row("import", _text(ours), peer.name, _text(peer), ratio)


def _text(timing: Timing) -> str:
    return f"{timing.best.seconds:.3f} s"
