"""What files and folders have in common: names until they are whole, size, removal."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from uuid import uuid4

from recmap.errors import OutputError, RecmapError

__all__ = [
    "Process",
    "acting_for",
    "make_folder",
    "names_of",
    "process_of",
    "put_in_place",
    "remove",
    "runs",
    "short_name",
    "size_on_disk",
    "sync",
    "temporary_path",
    "this_process",
    "writing",
]

_END = ".tmp"
# The names of recmap 0.1 do not say when the process started.
_OWNER = re.compile(
    r"(?P<machine>\w+)-(?P<number>\d{1,18})-"
    r"((?P<started>[0-9a-f]{8})-[0-9a-f]{8}|[0-9a-f]{12})"
)
# What may stand behind the name of a file, for what is made beside it.
_MARK = re.compile(r"\.(recmap|running|shuffle|member|(write|gone)-[0-9a-f]{12})\Z")
# Bytes of a name that leave room, of the 255 there are, for all that is put around it.
_ROOM = 180
_ACTING_FOR: ContextVar[Process | None] = ContextVar("recmap process", default=None)


@dataclass(frozen=True)
class Process:
    """A process of a machine: storage may be shared by several, which count alike.

    Numbers are given again, to other processes: ``started`` stands for the moment at
    which this one started, and is empty if nobody knows it.
    """

    machine: str
    number: int
    started: str = ""


def this_process() -> Process:
    """The one that runs here."""
    return _known_process(os.getpid(), socket.gethostname())


@lru_cache(maxsize=1)
def _known_process(number: int, host: str) -> Process:
    # Names of files are short, and a dot ends the part that is read again. The first letters
    # are for people: those of a cluster's machines may all be the same.
    shown = re.sub(r"\W", "_", host, flags=re.ASCII)[:11]
    return Process(f"{shown}_{_digest(host)}", number, _start_of(number) or "")


def runs(process: Process) -> bool | None:
    """Whether a process of this machine still runs; None if it cannot be told from
    another one that has its number.
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
    """The moment at which a process started, as a short name that no other process with
    its number has; empty if nobody tells, None if it has ended.
    """
    moment = _moment_in_proc(number) if os.path.exists("/proc/self/stat") else _moment_by_ps(number)
    return _digest(moment)[:8] if moment else moment


def _moment_in_proc(number: int) -> str | None:
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as stat:
            # The name of the program, in brackets, may hold anything.
            state, *rest = stat.read().rpartition(")")[2].split()
        if state in "ZX":  # it has ended, and its parent has not asked how
            return None
        # Ticks since the machine was booted, so that setting the clock changes nothing.
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as boot:
            return f"{boot.read().strip()} {rest[18]}"
    except (OSError, ValueError, IndexError):
        return ""


def _moment_by_ps(number: int) -> str:
    try:
        told = subprocess.run(  # noqa: S603 - a number
            ["ps", "-o", "lstart=", "-p", str(number)],  # noqa: S607 - wherever it is
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
    except OSError:
        return ""
    return told.stdout.strip()


@contextmanager
def acting_for(process: Process) -> Iterator[None]:
    """Has temporary names of this thread be those of another process, which clears them
    if this one dies.
    """
    token = _ACTING_FOR.set(process)
    try:
        yield
    finally:
        _ACTING_FOR.reset(token)


def temporary_path(path: str, mark: str = "") -> str:
    """A hidden name beside a path that nobody else has, with the process it belongs to.

    >>> process_of(temporary_path("out/x.npy", mark=".shuffle")) == this_process()
    True
    """
    folder, name = os.path.split(path)
    owner = _ACTING_FOR.get() or this_process()
    chance = uuid4().hex
    last = f"{owner.started}-{chance[:8]}" if owner.started else chance[:12]
    unique = f"{owner.machine}-{owner.number}-{last}"
    return os.path.join(folder, f".{short_name(name)}{mark}.{unique}{_END}")


def short_name(name: str) -> str:
    """A name itself; of one that leaves no room for more, its beginning and a digest.

    >>> short_name("x.npy"), len(short_name("x" * 250))
    ('x.npy', 180)
    """
    whole = os.fsencode(name)
    if len(whole) <= _ROOM:
        return name
    digest = _digest(name)
    # A letter of several bytes is not cut: some systems refuse that.
    return whole[: _ROOM - len(digest) - 1].decode(errors="ignore") + "~" + digest


def process_of(path: str) -> Process | None:
    """The process a temporary name belongs to; None if it is none."""
    name = os.path.basename(path)
    if not name.startswith(".") or not name.endswith(_END):
        return None
    owner = _OWNER.fullmatch(name.removesuffix(_END).rpartition(".")[2])
    if owner is None:
        return None
    return Process(owner["machine"], int(owner["number"]), owner["started"] or "")


def names_of(path: str) -> set[str]:
    """The short names of files that a temporary name can be for: that before the process,
    with and without a mark.

    >>> sorted(names_of(temporary_path("out/x.npy", mark=".shuffle")))
    ['x.npy', 'x.npy.shuffle']
    """
    name = os.path.basename(path).removesuffix(_END).rpartition(".")[0][1:]
    return {name, _MARK.sub("", name)}


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the operating system into one that names the output."""
    try:
        yield
    except RecmapError:
        raise
    except OSError as e:
        reason = e.strerror or str(e)
        if e.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "a part of its path is a file, not a folder"
        failed = OutputError(f"{path} cannot be written: {reason}")
        failed.errno, failed.strerror = e.errno, e.strerror
        raise failed from e


def make_folder(path: str) -> None:
    """Make the folder of an output, and refuse a name that no file can have."""
    with writing(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with suppress(FileNotFoundError):
            os.lstat(path)


def put_in_place(temporary: str, path: str) -> None:
    """Give a file its name. One that is there already hands down its permissions, and a
    link stays a link: what it leads to is replaced.
    """
    target = os.path.realpath(path) if os.path.islink(path) else path
    if os.path.isfile(target):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
    try:
        os.replace(temporary, target)
    except OSError as e:
        if e.errno != errno.EXDEV:
            remove(temporary)
            raise
        # A link to another file system: only there can it be replaced at once.
        near = temporary_path(target)
        try:
            shutil.copy2(temporary, near)
            os.replace(near, target)
        finally:
            remove(near)
        os.unlink(temporary)


def size_on_disk(path: str) -> int:
    """Bytes of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(map(os.path.getsize, inside))


def remove(path: str) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
