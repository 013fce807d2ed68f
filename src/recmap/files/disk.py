"""What files and folders have in common: names until they are whole, size, removal."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import uuid4

__all__ = [
    "Process",
    "acting_for",
    "names_of",
    "process_of",
    "put_in_place",
    "remove",
    "short_name",
    "size_on_disk",
    "sync",
    "temporary_path",
    "this_process",
]

_END = ".tmp"
_OWNER = re.compile(r"(?P<machine>\w+)-(?P<number>\d+)-[0-9a-f]{12}")
# What may stand behind the name of a file, for what is made beside it.
_MARK = re.compile(r"\.(recmap|running|shuffle|member|(write|gone)-[0-9a-f]{12})\Z")
# Bytes of a name that leave room, of the 255 there are, for all that is put around it.
_ROOM = 180
_ACTING_FOR: ContextVar[Process | None] = ContextVar("recmap process", default=None)


@dataclass(frozen=True)
class Process:
    """A process of a machine: storage may be shared by several, which count alike."""

    machine: str
    number: int


def this_process() -> Process:
    """The one that runs here."""
    # Names of files are short, and a dot ends the part that is read again. The first letters
    # are for people: those of a cluster's machines may all be the same.
    host = socket.gethostname()
    shown = re.sub(r"\W", "_", host, flags=re.ASCII)[:11]
    return Process(f"{shown}_{_digest(host)}", os.getpid())


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
    unique = f"{owner.machine}-{owner.number}-{uuid4().hex[:12]}"
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
    return Process(owner["machine"], int(owner["number"])) if owner else None


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
            raise
        # A link to another file system: only there can it be replaced at once.
        near = temporary_path(target)
        shutil.copy2(temporary, near)
        os.replace(near, target)
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
