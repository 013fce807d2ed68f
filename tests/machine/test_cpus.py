"""How many CPUs a process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recmap.machine import cpus
from recmap.machine.cpus import thread_count


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a system's control groups; this process is in ``/jobs/mine``."""
    (tmp_path / "own").write_text("0::/jobs/mine\n")
    (tmp_path / "all/jobs/mine").mkdir(parents=True)
    monkeypatch.setattr(cpus, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(cpus, "_CGROUPS", tmp_path / "all")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.delenv("RECMAP_THREADS", raising=False)
    cpus._quota.cache_clear()
    yield tmp_path / "all"
    cpus._quota.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000", 12),
        ("400000 100000", 4),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("9900000 100000", 12),
        ("", 12),
        ("nonsense", 12),
        ("100000 0", 12),
    ],
)
def test_a_quota_of_cpu_time_counts(groups: Path, text: str, expected: int) -> None:
    (groups / "jobs/mine/cpu.max").write_text(text)
    assert thread_count() == expected


def test_the_quota_of_a_group_around_this_one_counts(groups: Path) -> None:
    (groups / "jobs/cpu.max").write_text("200000 100000")
    (groups / "jobs/mine/cpu.max").write_text("600000 100000")
    assert thread_count() == 2


def test_a_container_that_sees_itself_as_the_root_has_a_quota(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/\n")
    (groups / "cpu.max").write_text("300000 100000")
    assert thread_count() == 3


def test_quotas_of_version_1_count(groups: Path) -> None:
    (groups.parent / "own").write_text("5:memory:/jobs\n4:cpu,cpuacct:/jobs\n")
    (groups / "cpu,cpuacct/jobs").mkdir(parents=True)
    (groups / "cpu,cpuacct/jobs/cpu.cfs_quota_us").write_text("500000\n")
    (groups / "cpu,cpuacct/jobs/cpu.cfs_period_us").write_text("100000\n")
    assert thread_count() == 5
    (groups / "cpu,cpuacct/jobs/cpu.cfs_quota_us").write_text("-1\n")
    cpus._quota.cache_clear()
    assert thread_count() == 12


def test_other_orders_and_names_of_groups_are_found(groups: Path) -> None:
    (groups.parent / "own").write_bytes(b"7:\n\xff\n4:cpuacct,cpu:/j\xe9\n")
    (groups / "cpu").mkdir()
    (groups / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (groups / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert thread_count() in (2, 12)  # nothing behind a line that makes no sense
    (groups.parent / "own").write_bytes(b"4:cpuacct,cpu:/j\xe9\n")
    cpus._quota.cache_clear()
    assert thread_count() == 2


def test_a_system_without_control_groups_has_no_quota(groups: Path) -> None:
    (groups.parent / "own").unlink()
    assert thread_count() == 12


def test_the_number_that_the_user_gives_counts_alone(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (groups / "jobs/mine/cpu.max").write_text("200000 100000")
    monkeypatch.setenv("RECMAP_THREADS", "7")
    assert thread_count() == 7
