"""Import time."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table
from benchmarks.timing import Timing

__all__ = ["measure"]

_NOTE = (
    "`import` in a new interpreter, whose own start does not count; files are compiled already. "
    "`import recmap` loads most of the package on first use; the second case includes what "
    "`rm.open` loads, such as NumPy."
)
_OURS = {"recmap": "import recmap", "recmap.dataset.open": "import recmap, rm.open"}


def measure(bench: Bench) -> Table:
    modules = [*_OURS, "numpy"]
    if not bench.worker("tensorflow").missing:
        modules.append("tensorflow")
    cache = str(bench.folder / "compiled")
    entrants = [
        entrant
        for module in modules
        for entrant in bench.entrants("plain", module, "import_time", module=module, cache=cache)
    ]
    timings = bench.race("import", entrants, 0)
    ours = {case: timings.pop(module) for module, case in _OURS.items()}
    rows = [_row(case, mine, peer) for case, mine in ours.items() for peer in timings.values()]
    return Table("Import", _NOTE, rows)


def _row(case: str, ours: Timing, peer: Timing) -> Row:
    ratio = peer.best.seconds / ours.best.seconds
    return Row(case, _text(ours), peer.name, _text(peer), ratio)


def _text(timing: Timing) -> str:
    return f"{timing.best.seconds:.3f} s"
