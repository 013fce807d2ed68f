"""Temporary files, with names that say which process owns them.

An output is written under a hidden name next to its final one. The name contains the machine,
the number and the start of the process. So a later run can remove what a killed process left
behind, and never what a running process still needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from uuid import uuid4

from recmap.errors import OutputExistsError

_SUFFIX = ".tmp"
# Names written by recmap 0.1 lack the start of the process.
_OWNER = re.compile(
    r"(?P<machine>\w+)-(?P<number>\d{1,18})-"
    r"((?P<started>[0-9a-f]{8})-[0-9a-f]{8}|[0-9a-f]{12})"
)
# Suffixes that a caller may put between the file's name and the owner.
_PURPOSE = re.compile(r"\.(recmap|running|shuffle|member|gone|(write|gone)-[0-9a-f]{12})\Z")
# Longest name, in bytes, that leaves room for the owner within the usual limit of 255.
_MAX_NAME = 180
_ACTING_FOR: ContextVar[Process | None] = ContextVar("recmap process", default=None)


@dataclass(frozen=True)
class Process:
    """A process on one of the machines that share the storage.

    The system reuses process numbers, so ``started`` identifies when this process started. It
    is empty where the system does not report it.
    """

    machine: str
    number: int
    started: str = ""


def this_process() -> Process:
    """Return the current process."""
    return _identify(os.getpid(), socket.gethostname())


@lru_cache(maxsize=1)
def _identify(number: int, host: str) -> Process:
    # Use a readable beginning and a digest: hosts of a cluster may share the beginning.
    shown = re.sub(r"\W", "_", host, flags=re.ASCII)[:11]
    return Process(f"{shown}_{_digest(host)}", number, _start_of(number) or "")


def runs(process: Process) -> bool | None:
    """Return whether a process of this machine is still running.

    None means that a process with this number is running, but it may be a different one.
    """
    if process.number < 1:
        return False
    try:
        os.kill(process.number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    now = _start_of(process.number)
    if now is None:
        return False
    return now == process.started if now and process.started else None


def _start_of(number: int) -> str | None:
    """Return a short digest of the time a process started.

    It is empty if the system does not report it, and None if the process has ended.
    """
    moment = (
        _start_from_proc(number) if os.path.exists("/proc/self/stat") else _start_from_ps(number)
    )
    return _digest(moment)[:8] if moment else moment


def _start_from_proc(number: int) -> str | None:
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as stat:
            # The program's name, in brackets, may contain anything.
            state, *rest = stat.read().rpartition(")")[2].split()
        if state in "ZX":  # ended, but its parent has not collected it
            return None
        # The start is in ticks since boot, so that setting the clock does not change it.
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as boot:
            return f"{boot.read().strip()} {rest[18]}"
    except (OSError, ValueError, IndexError):
        return ""


def _start_from_ps(number: int) -> str:
    try:
        listed = subprocess.run(  # noqa: S603 - a number
            ["ps", "-o", "lstart=", "-p", str(number)],  # noqa: S607 - wherever it is
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
    except OSError:
        return ""
    return listed.stdout.strip()


@contextmanager
def acting_for(process: Process) -> Iterator[None]:
    """Make temporary names belong to another process, which then cleans up after this one."""
    token = _ACTING_FOR.set(process)
    try:
        yield
    finally:
        _ACTING_FOR.reset(token)


def temporary_path(path: str, purpose: str = "") -> str:
    """Make a unique hidden name next to a path. It identifies the owning process.

    >>> process_of(temporary_path("out/x.npy", purpose=".shuffle")) == this_process()
    True
    """
    folder, name = os.path.split(path)
    owner = _ACTING_FOR.get() or this_process()
    unique = uuid4().hex
    last = f"{owner.started}-{unique[:8]}" if owner.started else unique[:12]
    identity = f"{owner.machine}-{owner.number}-{last}"
    return os.path.join(folder, f".{short_name(name)}{purpose}.{identity}{_SUFFIX}")


def short_name(name: str) -> str:
    """Shorten a name to leave room for more: a long one becomes its beginning and a digest.

    >>> short_name("x.npy"), len(short_name("x" * 250))
    ('x.npy', 180)
    """
    encoded = os.fsencode(name)
    if len(encoded) <= _MAX_NAME:
        return name
    digest = _digest(name)
    # Some systems refuse half of a multi-byte character.
    return encoded[: _MAX_NAME - len(digest) - 1].decode(errors="ignore") + "~" + digest


def process_of(path: str) -> Process | None:
    """Return the process that owns a temporary name, or None for any other name."""
    name = os.path.basename(path)
    if not name.startswith(".") or not name.endswith(_SUFFIX):
        return None
    owner = _OWNER.fullmatch(name.removesuffix(_SUFFIX).rpartition(".")[2])
    if owner is None:
        return None
    return Process(owner["machine"], int(owner["number"]), owner["started"] or "")


def names_of(path: str) -> set[str]:
    """Return the short names of the files that a temporary name may stand for.

    >>> sorted(names_of(temporary_path("out/x.npy", purpose=".shuffle")))
    ['x.npy', 'x.npy.shuffle']
    """
    name = os.path.basename(path).removesuffix(_SUFFIX).rpartition(".")[0][1:]
    return {name, _PURPOSE.sub("", name)}


def alike(name: str) -> str:
    """Return what the names of all shards of an output have in common."""
    return re.sub(r"-\d{5,}-of-\d{5,}", "", name, count=1)


def remove_leftovers(folder: str, wanted: Callable[[str], object]) -> None:
    """Remove temporary files that killed processes of this machine left in a folder.

    ``wanted`` says which by the name of the file that was being written. Those of processes that
    run stay, except what this process could not delete (``.gone``).
    """
    for entry in _names_in(folder):
        process = process_of(entry)
        if process is None or process.machine != this_process().machine:
            continue
        failed = process == this_process() and any(n.endswith(".gone") for n in names_of(entry))
        if any(map(wanted, names_of(entry))) and (failed or runs(process) is False):
            remove(os.path.join(folder, entry))


def clear_temporary(folder: str, wanted: set[str], owner: Process) -> None:
    """Remove temporary files of outputs with these short names in a folder, on behalf of ``owner``.

    Raise if a running process, other than the owner, may still need one.
    """
    # Remove the run lock first: a conversion that is taken over must see that it lost the lock
    # before it misses its files.
    for entry in sorted(_names_in(folder), key=lambda entry: ".running." not in entry):
        process = process_of(entry)
        if process is None or wanted.isdisjoint(names_of(entry)):
            continue
        path = os.path.join(folder, entry)
        # A file with the owner's process number comes from a failed call, or from an earlier
        # process with the same number.
        same_number = (process.machine, process.number) == (owner.machine, owner.number)
        running = False if same_number else _is_running(process)
        if running is not False:
            raise _in_use(path, process.number, certain=running is True)
        remove(path)


def _is_running(process: Process) -> bool | None:
    if process.machine != this_process().machine:
        # We cannot check another machine, and a restarted container has a new name. If that
        # process is still running, it finds its run lock gone and gives up.
        return False
    return runs(process)


def _in_use(path: str, number: int, certain: bool) -> OutputExistsError:
    if certain:
        return OutputExistsError(
            f"{path} is being written by process {number}; wait for it, or stop it"
        )
    return OutputExistsError(
        f"{path} belongs to process {number}, which may still be writing it: a process with that "
        "number is running, but recmap cannot tell when it started. If it is a conversion to this "
        f"place, wait for it; otherwise remove {path} and try again"
    )


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder or ".") if os.path.isdir(folder or ".") else []


def remove(path: str) -> None:
    """Remove a file, link or folder on disk, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]
