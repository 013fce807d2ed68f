"""``python -m benchmarks --cores`` and ``--gpu``, at small sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cores, gpu, machine_report
from benchmarks.__main__ import main
from benchmarks.bench import Bench
from benchmarks.machine import IdleWait
from benchmarks.plots import label_places
from benchmarks.report import Row, Table
from benchmarks.tasks import batch_hash
from benchmarks.workloads import MB

only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux limits a process to some CPUs"
)

FACTS = {"date": "today", "cores": "16", "CPU": "a CPU", "memory": "1 GiB", "numpy": "2"}
MEASURED = [
    {
        "case": "read",
        "row_bytes": 1000,
        "rows_per_second": {"1": 2e6, "4": 6e6, "16": 24e6},
        "target": {"value": 25, "unit": "GB/s"},
    },
    {
        "case": "pad",
        "row_bytes": 10,
        "rows_per_second": {"1": 2e6, "4": 7e6, "16": 20e6},
        "target": {"value": 10e6, "unit": "rows/s"},
    },
]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("benchmarks.timing._TURN_RUNS", 1)
    folder = tmp_path / "bench"
    folder.mkdir()
    with Bench(folder, quick=True, rounds=1, idle=IdleWait(0)) as made:
        yield made


@only_linux
@pytest.mark.slow
def test_every_case_is_measured(bench: Bench) -> None:
    found = cores.measure(bench, [2], size=2 * MB)
    assert [each["case"] for each in found] == [
        "read 40 B rows", "open and read 40 B rows", "read 4 KB rows", "open and read 4 KB rows",
        "verify 4 KB rows", "read sequences",
        "padded batches of 256", "shuffle 40 B rows, .npy", "shuffle 40 B rows, TFRecord",
        "shuffle 4 KB rows, .npy", "shuffle 4 KB rows, TFRecord", "images, 500x375 to 224x224",
    ]  # fmt: skip
    for each in found:
        assert list(each["rows_per_second"]) == ["2"]
        assert all(rate > 0 for rate in each["rows_per_second"].values())


@only_linux
def test_the_numbers_of_cpus_are_powers_of_two_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, counts in ((1, [1]), (2, [1, 2]), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, most=most: set(range(most)))
        assert cores.cpu_counts() == counts


@only_linux
@pytest.mark.slow
def test_batches_are_measured_on_the_way_to_a_device(bench: Bench) -> None:
    table = gpu.measure(bench, "cpu", size=4 * MB, batches=(1 * MB,))
    assert [(row.case, row.peer) for row in table.rows] == [
        (".npy, shuffled, batches of 1 MB", "pinned copy"),
        (".npy, shuffled, batches of 1 MB", "DataLoader"),
        (".npy, shuffled, batches of 1 MB", "recmap, without a device"),
        (".npy, shuffled, batches of 1 MB", "recmap, to_jax()"),
        ("TFRecord, checked, batches of 1 MB", "pinned copy"),
        ("TFRecord, checked, batches of 1 MB", "recmap, without a device"),
        ("TFRecord, checked, batches of 1 MB", "recmap, to_jax()"),
    ]


def test_the_hash_of_a_batch_depends_on_values_and_places() -> None:
    batch = np.random.default_rng(0).random((8, 16), np.float32)
    swapped, changed = batch.copy(), batch.copy()
    swapped[[0, 1]] = batch[[1, 0]]
    changed[3, 3] += np.float32(0.5)
    assert batch_hash(batch.copy()) == batch_hash(batch)
    assert batch_hash(swapped) != batch_hash(batch)
    assert batch_hash(changed) != batch_hash(batch)


def test_without_a_gpu_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "find_gpu", lambda: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--gpu", "--wait", "0", "--json", "a/b.json"])
    main()
    assert "sees no GPU" in capsys.readouterr().out
    assert json.loads(Path("a/b.json").read_text()).keys() == {"machine"}


def test_reports_are_shown_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("batches", "1 GB/s", "pinned copy", "2 GB/s", 0.5)]
    report: dict[str, Any] = {
        "machine": FACTS | {"GPU": "a GPU"},
        "cores": MEASURED,
        "gpu": asdict(Table("Batches to a GPU", "How.", rows)),
    }
    reports, docs = tmp_path / "reports", tmp_path / "docs"
    reports.mkdir()
    docs.mkdir()
    (reports / "large.json").write_text(json.dumps(report))
    page = docs / "benchmarks.md"
    page.write_text(f"before\n{machine_report.EMPTY}after\n")
    monkeypatch.setattr(machine_report, "REPORTS", reports)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--reports", "--docs", str(docs)])
    drawn: list[Path] = []
    # The tests run without matplotlib.
    monkeypatch.setattr(machine_report, "draw_cores", lambda *given: drawn.append(given[-1]))
    shown = ""
    for _ in range(2):
        main()
        shown = page.read_text()
        assert shown.startswith("before\n<!-- other machines -->\n")
        assert shown.endswith("<!-- end of other machines -->\nafter\n")
        assert shown.count("## More cores") == 1
        assert "16 CPUs of a CPU, a GPU, 1 GiB, numpy 2." in shown
    cells = [[cell.strip() for cell in line.split("|")] for line in shown.splitlines()]
    read = ["", "read", "2 M rows/s", "6 M rows/s", "24 M rows/s", "24", "12.0x"]
    assert [*read, "≥ 25 GB/s", "**missed**", ""] in cells
    pad = ["", "pad", "2 M rows/s", "7 M rows/s", "20 M rows/s", "0.2", "10.0x"]
    assert [*pad, "≥ 10 M rows/s", "met", ""] in cells
    assert ["", "batches", "1 GB/s", "pinned copy", "2 GB/s", "0.50x", "", "", "", ""] in cells
    assert "(images/large.svg)" in shown
    assert drawn == [docs / "images" / "large.svg"] * 2


def test_labels_of_a_plot_do_not_overlap() -> None:
    ends = [(at, "", "") for at in (1.0, 7.9, 8.0, 8.1, 15.9, 16.0)]
    places = label_places(ends, 1, 16)
    gaps = np.diff(places)
    assert (gaps > 0.07).all()
    assert places[0] == 0
    assert places[-1] == 1


def test_a_page_without_a_place_for_reports_is_an_error() -> None:
    page = Path("page.md")
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"page.md: no place"):
        machine_report.put_into_page(page, machine_report.EMPTY)
