"""Where bytes are: a file or a folder on disk, or an object in a store.

A path is text everywhere. A ``Location`` is a path that also reaches what is there, so that nobody
else asks where that is: ``LocalPath`` on disk, and ``ObjectPath`` in a store. ``paths.as_location``
makes one of what a user gives, and ``local_path.located`` of any path.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import AccessDeniedError, StoreError
from recmap.local.output import Output
from recmap.local.run_lock import RunLock
from recmap.local.temporary import Process
from recmap.machine.mapped import MappedFile


class Stat(NamedTuple):
    """The size of a file, and what tells it from another version of it.

    That is its time on disk, and in a store its ETag, or its time if it has none.
    """

    size: int
    version: int | str
    etag: str | None = None
    #: When it was written, by the clock of the store; None on disk.
    modified: datetime | None = None


@dataclass(frozen=True)
class Version:
    """What identifies the content of an object, for a conditional write."""

    etag: str | None
    # The generation of an object of GCS, or the version in a bucket with versions.
    number: str | None = None

    @property
    def condition(self) -> dict[str, str]:
        """What obstore takes as the mode of a put."""
        given = {"e_tag": self.etag, "version": self.number}
        return {name: value for name, value in given.items() if value is not None}


class OpenFile(ABC):
    """A file to read parts of: headers, footers and small files. Leave its context to close it."""

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def pread(self, count: int, at: int) -> bytes:
        """Return the bytes from ``at``; fewer than ``count`` if the file ends before."""

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several parts, each given as in ``pread``."""
        return [self.pread(count, at) for count, at in parts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Location(str):
    """The path of a file, a folder or an object, which may exist or not.

    Libraries take it for text, so it must not have ``read`` or ``write``, which would make it an
    open file to them. It is not an ABC, with which ``isinstance`` would take longer than the rest
    of ``located``; the type checker finds methods that are missing.
    """

    __slots__ = ()

    #: Whether each look at it is a request to a server.
    remote: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.rstrip(os.sep))

    @abstractmethod
    def child(self, name: str) -> Location:
        """Return the path of something in this folder."""

    @abstractmethod
    def sibling(self, name: str) -> Location:
        """Return the path of something else in the same folder."""

    @property
    def key(self) -> str:
        """The name of an object in its store; "" on disk."""
        return ""

    @property
    @abstractmethod
    def folder(self) -> Location:
        """The folder that it is in."""

    @property
    @abstractmethod
    def parent(self) -> Location:
        """The folder that this folder is in."""

    @abstractmethod
    def children(self) -> list[str]:
        """Return the names of all files and folders in this one; none if it cannot be listed."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of all folders in this one; none if it cannot be listed."""

    @abstractmethod
    def below(self) -> list[tuple[str, Stat]]:
        """Return the paths and the ``stat`` of all files in this folder and below it, sorted.

        Hidden files and folders are left out. A link to a folder is an error.
        """

    @abstractmethod
    def child_found(self, name: str, stat: Stat) -> Location:
        """Return the path of a file below this folder, which ``below`` has found."""

    @abstractmethod
    def expand(self) -> Sequence[Location]:
        """Return the data files that this path, pattern or folder stands for, sorted by name.

        A path that exists is used literally, even if it looks like a pattern. One that was found
        before stays what it was then. Hidden files, and those beside the data, are left out.
        """

    @abstractmethod
    def anew(self) -> Location:
        """Return the same path, to be looked up again."""

    def found(self, status: os.stat_result | None = None) -> Location:
        """Return a path that remembers what is there now; one that does already stays the same.

        ``status`` is what ``os.stat`` returned, if it was called already.
        """
        del status
        return self

    def public(self) -> str:
        """Return the path for a user, who need not see what it remembers."""
        return self

    def absolute(self) -> Location:
        """Return the path for a process in another folder."""
        return self

    def alone(self) -> Location:
        """Return the path to be sent to another process by itself.

        That of an object leaves behind what is known about the others in its folder.
        """
        return self.absolute()

    @abstractmethod
    def stat(self) -> Stat:
        """Return size and version of a file; raise if there is none."""

    @abstractmethod
    def stats(self, paths: Sequence[Location]) -> list[Stat | None]:
        """Return ``stat`` of several paths like this one, as they are now; None if there is none.

        A Zarr store on disk has the time of its folder. In a store it is all of its objects.
        """

    @abstractmethod
    def stat_below(self) -> Stat:
        """Return ``stat`` of a file, or of all files in a folder together."""

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """Return what tells files, and versions of a file, apart, whatever their names."""

    @abstractmethod
    def real_path(self) -> str:
        """Return the one name of a file that may have several."""

    def size_below(self) -> int:
        """Return the size of a file, or of all files in a folder; 0 if that cannot be listed."""
        return self.stat_below().size

    @abstractmethod
    def is_file(self) -> bool:
        """Return whether there is such a file, as far as one may know."""

    @abstractmethod
    def is_folder(self) -> bool:
        """Return whether it is the path of a folder. Objects that were found are not."""

    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return False

    @abstractmethod
    def is_tree(self) -> bool:
        """Return whether an output there is a folder. In a store, the name tells: a Zarr store."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether anything is there now, and raise if nobody can tell."""

    def last_change(self) -> int | None:
        """Return the time of the last change of a file on disk, in ns; None if there is none.

        This is the time that programs cannot set. It changes with the content, and if another file
        takes the name.
        """
        return None

    @property
    @abstractmethod
    def pinned(self) -> bool:
        """Whether reading it raises if the file has changed, or looking at it is enough."""

    def check_unchanged(self, status: os.stat_result | None = None) -> None:
        """Raise if a file that was found before has been replaced, changed or removed since.

        Call it after the file was opened: what is then at the path is what was opened, unless it
        changes back and forth. ``status`` is that of the open file. Objects are checked by their
        store.
        """
        return

    @abstractmethod
    def open(self, *, in_order: bool = False) -> OpenFile:
        """Open a file to read parts of it. ``in_order``, what follows in an object is fetched."""

    def content(self) -> bytes | None:
        """Return all of a small file as it is now; None if it cannot be read."""
        try:
            with self.anew().open() as file:
                return file.pread(file.size, 0)
        except OSError as e:
            if isinstance(e, StoreError) and not isinstance(e, AccessDeniedError):
                raise
            return None

    def text(self, most: int) -> str:
        """Read a text file; raise a ValueError if it is over ``most`` bytes or not UTF-8.

        This allocates memory for the size of the file; ``file.read(most)`` would for ``most``.
        """
        with self.open() as file:
            if file.size > most:
                raise ValueError(f"{file.size:,} bytes are too many")
            return file.pread(file.size, 0).decode()

    @abstractmethod
    def read_whole(self, most: int) -> tuple[bytes, Version] | None:
        """Return all of a small file as it is now, and its version for ``write_if``.

        Return None if there is none, or if it has more than ``most`` bytes.
        """

    @abstractmethod
    def load(self, most: int) -> npt.NDArray[np.uint8]:
        """Return all bytes of a file. No descriptor stays open.

        A large file is mapped, and a larger object than ``most`` bytes raises a ValueError.
        """

    @abstractmethod
    def seekable(self) -> IO[bytes]:
        """Open a file for a library that seeks and reads: of an object, a ``SeekableObject``.

        At the end of its context, a failed request is raised, whatever the library made of it.
        """

    @abstractmethod
    def map(self) -> MappedFile:
        """Map a file. The bytes of an object are fetched when they are held."""

    def refuse_unwritable(self) -> None:
        """Raise if recmap does not write there: to an HTTP server, or to an ambiguous name."""
        return

    @abstractmethod
    def create(self, *, seekable: bool = False, durable: bool = True) -> Output:
        """Begin to write a file, or a folder such as a Zarr store.

        If it is ``seekable``, it is on disk until it is committed, even if it goes to a store. If
        it is ``durable``, it is on disk for good once it has appeared.
        """

    @abstractmethod
    def write_whole(
        self, data: bytes, *, durable: bool = True, temporary: str | None = None
    ) -> None:
        """Write a small file, all of it or nothing.

        On disk it is written to ``temporary`` first, by default a hidden name next to it.
        """

    @abstractmethod
    def write_if(self, data: bytes, seen: Version | None) -> Version | None:
        """Write a small file if it is still the one ``seen``, or there still is none.

        Return its new version, and None if another was faster. On disk nobody looks.
        """

    @abstractmethod
    def append(self, data: bytes, before: bytes) -> None:
        """Add to a small file that only this process writes, and that has ``before`` already."""

    @abstractmethod
    def copy(self, to: Location) -> None:
        """Copy a file or a Zarr store to another path like this one."""

    @abstractmethod
    def send(self, local: str) -> None:
        """Let a finished local file, or a folder such as a Zarr store, appear here."""

    def keep(self, name: str, content: bytes) -> None:
        """Keep a small file with an object in the disk cache, if there is one."""
        return

    def kept(self, name: str, most: int) -> bytes | None:
        """Return what was kept with this version of an object, if it is there."""
        del name, most
        return None

    @abstractmethod
    def update(self, change: Callable[[str | None], str]) -> None:
        """Replace a text file by what ``change`` makes of it; None means that there is none yet.

        Of several that do this at once, each sees what the one before it wrote. In a store,
        ``change`` is called again if another was faster.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove a file, link, folder or object, if it exists."""

    @abstractmethod
    def remove_tree(self) -> None:
        """Remove a folder, such as a Zarr store, and all that is in it."""

    def abort_uploads(self, paths: Sequence[Location], since: datetime | None = None) -> None:
        """Abort uploads to these paths like this one, or below them, that killed processes left.

        ``since`` is when the first one began that is not theirs.
        """
        return

    @abstractmethod
    def lock(self) -> RunLock:
        """Return the lock that marks whoever writes here."""

    def clear_temporary(self, wanted: set[str], owner: Process) -> None:
        """Remove temporary files beside this one, of outputs with these short names.

        Raise if a running process other than ``owner`` may need them. A store has none.
        """
        return

    def remove_leftovers(self, wanted: Callable[[str], object]) -> None:
        """Remove temporary files that killed processes left beside this one.

        ``wanted`` says which by the name of the file that was being written. A store has none.
        """
        return
