"""The tables of one or several runs, and the file that keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.report import Row, Table

__all__ = ["Measured"]

# What differs from run to run on one machine.
_OF_A_RUN = {"date", "targets", "use by others", "took"}


@dataclass
class Measured:
    """Tables by name, and the raw numbers behind them, all of one machine."""

    facts: dict[str, str]
    tables: dict[str, Table] = field(default_factory=dict)
    races: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def kept_in(cls, file: Path | None, facts: dict[str, str]) -> Self:
        """Return what an earlier run left in a file; a run of some tables replaces those alone."""
        made = cls(facts)
        if file is None or not file.exists():
            return made
        kept = json.loads(file.read_text())
        if _lasting(kept["facts"]) != _lasting(facts):
            raise SystemExit(
                f"{file} has figures of other sizes, another machine or other versions: "
                "name another file"
            )
        for name, table in kept["tables"].items():
            rows = [Row(**row) for row in table.pop("rows")]
            made.tables[name] = Table(**table, rows=rows)
        made.races = kept["races"]
        return made

    def put(self, name: str, table: Table, races: list[dict[str, Any]], file: Path | None) -> None:
        """Add a table, or replace it, and write everything to the file."""
        table.date = self.facts["date"]
        self.tables[name] = table
        self.races[name] = races
        verdicts = [row.met for each in self.tables.values() for row in each.rows]
        self.facts["targets"] = f"{verdicts.count(True)} met, {verdicts.count(False)} missed"
        if file is not None:
            file.write_text(json.dumps(asdict(self), indent=1) + "\n")


def _lasting(facts: dict[str, str]) -> dict[str, str]:
    return {name: fact for name, fact in facts.items() if name not in _OF_A_RUN}
