"""The tables of the benchmarks, and the check that entrants read the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.machine import IdleWait
from benchmarks.measured import Measured
from benchmarks.memory_limit import MemoryLimit
from benchmarks.pages import page
from benchmarks.report import Goal, Row, Table, reach
from benchmarks.tasks import for_some_time
from benchmarks.timing import DifferentDataError, Entrant, Measure, Timing, race


@dataclass
class Reader:
    """Reads 10 rows of a given sum."""

    total: float

    def call(self, job: str, **options: Any) -> Measure:
        return Measure(0.5, 10, self.total if options.get("check") else None)


def entrants(*totals: float) -> list[Entrant]:
    return [Entrant(str(total), Reader(total), "read", {}, checked=True) for total in totals]


def test_a_goal_is_met_in_rows_or_in_bytes() -> None:
    timing = Timing("recmap", 1000, [Measure(1.0, 2_000_000, cpu=1.5), Measure(1.2, 2_000_000)])
    rows = [reach("read", timing, Goal(*goal)) for goal in ((2e6, "rows/s"), (2.5, "GB/s"))]
    assert [(row.target, row.met) for row in rows] == [
        ("≥ 2 M rows/s", True),
        ("≥ 2.5 GB/s", False),
    ]
    assert rows[0].cells() == [
        "read", "2 M rows/s, 2 GB/s", "", "", "", "0.38 s/GB", "≥ 2 M rows/s", "met",
    ]  # fmt: skip


def test_entrants_must_read_the_same_values() -> None:
    timings = race(entrants(100.0, 100.00001), 1, 1, IdleWait(0))
    assert [timing.rows_per_second for timing in timings.values()] == [20, 20]
    with pytest.raises(DifferentDataError, match="sum 101.0"):
        race(entrants(100.0, 101.0), 1, 1, IdleWait(0))


def test_decoded_images_may_differ_by_the_tolerance() -> None:
    race(entrants(100.0, 101.0), 1, 1, IdleWait(0), tolerance=0.02)
    with pytest.raises(DifferentDataError):
        race(entrants(100.0, 103.0), 1, 1, IdleWait(0), tolerance=0.02)


def test_a_page_begins_each_section_with_its_figures_and_folds_the_table() -> None:
    rows = [
        Row("a file", "2 s", "cp", "1 s", 0.5, "≥ 0.40x", met=True),
        Row("a file", "2 s", "dd", "4 s", 2.0, "≥ 3.00x", met=False),
    ]
    facts = {"date": "today", "cores": "2", "CPU": "a CPU", "memory": "1 GiB", "targets": "1 met"}
    text = page([Table("Copies", "How.", rows, "today")], facts, [])
    assert "2 cores of a CPU, 1 GiB, today, page cache warm" in text
    story, table = text.split('<details markdown="1">')[:2]
    assert story.endswith("## Copies\n\n- a file: 2 s; **0.50x** cp (1 s)\n\n")
    assert (
        "all 2 comparisons; 1 of 2 targets met</summary>\n\nHow. Measured today.\n\n| case "
        in table
    )


def test_a_page_leaves_out_what_could_not_be_measured() -> None:
    table = Table("Larger than memory", "How. Not measured: this needs root on Linux.")
    facts = {"date": "today", "cores": "2", "CPU": "a CPU", "memory": "1 GiB", "targets": "1 met"}
    text = page([table], facts, [])
    assert "## Larger than memory\n\n\n\n<details" in text
    assert "all 0 comparisons" in text


def test_a_run_of_one_table_replaces_that_table_alone(tmp_path: Path) -> None:
    file, facts = tmp_path / "raw.json", {"CPU": "a CPU", "numpy": "2"}
    row = Row("a file", "2 s", "cp", "1 s", 0.5, "≥ 0.40x", met=True)
    slow = replace(row, ratio=0.3, met=False)
    first = Measured.kept_in(file, facts | {"date": "Monday"})
    first.put("read", Table("Read", "How.", [row]), [{"case": "read"}], file)
    first.put("write", Table("Write", "How.", [slow]), [], file)
    again = Measured.kept_in(file, facts | {"date": "Friday"})
    again.put("write", Table("Write", "How.", [row, row]), [], file)
    kept = Measured.kept_in(file, facts | {"date": "later"})
    assert kept.tables == {
        "read": Table("Read", "How.", [row], "Monday"),
        "write": Table("Write", "How.", [row, row], "Friday"),
    }
    assert kept.races == {"read": [{"case": "read"}], "write": []}
    assert again.facts["targets"] == "3 met, 0 missed"
    with pytest.raises(SystemExit, match="another machine"):
        Measured.kept_in(file, facts | {"numpy": "3"})


@pytest.mark.parametrize(
    ("folder", "file"), [("memory", "memory.limit_in_bytes"), (".", "memory.max")]
)
def test_processes_are_put_into_a_group_with_a_limit(
    folder: str, file: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    limit = MemoryLimit(1 << 30, tmp_path)
    limit.add(17)
    (group,) = (tmp_path / folder).glob("recmap-bench-*")
    assert {each.name: each.read_text() for each in group.iterdir()} == {
        file: "1073741824",
        "cgroup.procs": "17",
    }


def test_a_timed_run_counts_its_rows_and_refuses_those_that_come_twice() -> None:
    rows = np.arange(40.0).reshape(10, 4)
    assert for_some_time(iter([rows, rows + 1]), 0).rows == 10
    with pytest.raises(ValueError, match="twice"):
        for_some_time(iter([rows] * 1_000_000), 0.001)
    with pytest.raises(ValueError, match="too small"):
        for_some_time(iter([rows]), 60)
