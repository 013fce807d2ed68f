"""The machine and the versions of a run."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.metadata
import os
import platform
import subprocess

__all__ = ["describe"]

_PACKAGES = (
    "recmap",
    "numpy",
    "pillow",
    "tensorflow",
    "torch",
    "grain",
    "ray",
    "array_record",
    "tfrecord",
    "protobuf",
)


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
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
