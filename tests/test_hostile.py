"""The hostile runner finds failures, keeps them, and runs them again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from hostile import case as cases
from hostile.areas.audio import are_near
from hostile.case import AREAS, NoReferenceError, run_case
from hostile.runner import run
from hostile.table import assert_same


@pytest.mark.parametrize("area", AREAS)
def test_a_case_of_every_area_passes(area: str, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "case"
    folder.mkdir(parents=True)
    for seed in range(20):
        try:
            found = run_case(area, seed, str(folder))
        except NoReferenceError:
            continue
        assert found.log
        return
    raise AssertionError("no case could be made")


def test_the_same_seed_makes_the_same_case(tmp_path: Path) -> None:
    logs = []
    for name in "ab":
        folder = tmp_path / name / "case"
        folder.mkdir(parents=True)
        os.chdir(folder)
        logs.append([step.replace(f"/{name}/", "/") for step in run_case("raw", 7, ".").log])
    assert logs[0] == logs[1]


def test_a_wrong_value_is_told_from_a_right_one() -> None:
    zeros = np.zeros(2, np.float32)
    assert_same([zeros], [zeros], "x")
    for wrong in (-zeros, zeros.astype(np.float64), zeros[:1], zeros.reshape(1, 2)):
        with pytest.raises(AssertionError):
            assert_same([wrong], [zeros], "x")
    with pytest.raises(AssertionError, match="1 rows, not 2"):
        assert_same([zeros], [zeros, zeros], "x")


def test_sound_is_compared_by_its_peak() -> None:
    loud = np.array([1324.0, 2.5, np.nan])
    assert are_near(loud + 1e-4, loud, "float64")  # as float32 sums differ
    assert not are_near(loud / 1324 + 1e-4, loud / 1324, "float64")
    assert not are_near(loud + 1, loud, "float64")
    assert are_near(np.empty(0), np.empty(0), "float32")


BROKEN = """
import os, signal, time
from hostile.case import Case

def case(case: Case) -> None:
    case.note("a step")
    {body}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise AssertionError('wrong values')", "wrong values"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", f"exited with code -{signal.SIGSEGV.value}"),
        ("time.sleep(600)", "Timeout"),
    ],
    ids=["wrong", "crash", "hang"],
)
def test_wrong_values_crashes_and_hangs_are_kept_as_failures(
    tmp_path: Path, body: str, expected: str
) -> None:
    package = tmp_path / "hostile" / "areas"
    package.mkdir(parents=True)
    source = Path(cases.__file__).parent
    for file in source.glob("*.py"):
        (tmp_path / "hostile" / file.name).write_text(file.read_text())
    (package / "__init__.py").write_text("")
    (package / "npy.py").write_text(BROKEN.format(body=body))
    report = run(["npy"], 0.001, 5, 2 if expected == "Timeout" else 120, 1, "kept")
    assert [failure.seed for failure in report.failures] == [5]
    kept = Path("kept/npy-5.txt").read_text()
    assert "a step" in kept
    assert expected in kept


def test_a_kept_failure_runs_first_and_is_deleted_when_it_passes() -> None:
    Path("kept").mkdir()
    Path("kept/raw-3.txt").write_text("it failed once")
    report = run(["raw"], 0.001, 100, 60, 1, "kept")
    assert sum(report.counts["raw"].values()) >= 1
    assert not report.failures
    assert not Path("kept/raw-3.txt").exists()
