"""Paths of files and folders on disk.

That of a file that was found also knows the state of the file at that moment. Whoever opens it
again, later or in another process, calls ``check_unchanged``, so that rows of two files are never
mixed.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FileChangedError,
    Message,
    Option,
    OutputExistsError,
    PathNotFoundError,
)
from recmap.local.atomic_write import make_folder, put_in_place, writing
from recmap.local.file_state import (
    DESCRIPTION,
    STORE_FILES,
    TEXT_INDEX,
    TFDS_FILE,
    TFDS_INFO,
    ZARR_FILES,
    FileState,
    is_indexed,
    is_store_of,
    mosaic_index,
)
from recmap.local.location import Location, OpenFile, Stat, Version
from recmap.local.output import DiskOutput, Output
from recmap.local.run_lock import RunLock
from recmap.local.temporary import (
    Process,
    clear_temporary,
    remove,
    remove_leftovers,
    temporary_path,
)
from recmap.local.whole_output import refuse_unfinished, warn_of_incomplete, warn_of_missing
from recmap.machine.mapped import MappedFile

# A smaller file is read rather than mapped.
_SMALL = 1 << 16


class LocalPath(Location):
    """The path of a file or folder on disk."""

    __slots__ = ("state",)

    #: What was there when it was found; None if that does not matter.
    state: FileState | None

    def __new__(cls, path: str, state: FileState | None = None) -> Self:
        made = super().__new__(cls, path)
        made.state = state
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalPath, (str(self), self.state)

    def child(self, name: str) -> LocalPath:
        return LocalPath(os.path.join(self, name))

    def sibling(self, name: str) -> LocalPath:
        return LocalPath(os.path.join(os.path.dirname(self), name))

    @property
    def folder(self) -> LocalPath:
        return LocalPath(os.path.dirname(self))

    @property
    def parent(self) -> LocalPath:
        return LocalPath(os.path.dirname(self.rstrip(os.sep)))

    def children(self) -> list[str]:
        return os.listdir(self or ".") if os.path.isdir(self or ".") else []

    def folders(self) -> list[str]:
        return [name for name in self.children() if os.path.isdir(os.path.join(self, name))]

    def below(self) -> list[tuple[str, Stat]]:
        found: list[tuple[str, Stat]] = []
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            try:
                with os.scandir(os.path.join(self, inside)) as entries:
                    every = [entry for entry in entries if not entry.name.startswith(".")]
                for entry in every:
                    if entry.is_dir():
                        if entry.is_symlink():
                            raise DataError(
                                f"{entry.path}: a link to a folder, which is not followed; open "
                                "that folder, or copy it here",
                                file=entry.path,
                            )
                        waiting.append(f"{inside}{entry.name}/")
                        continue
                    status = entry.stat()
                    if not stat.S_ISREG(status.st_mode):
                        raise DataError(f"{entry.path}: not a regular file", file=entry.path)
                    found.append((inside + entry.name, Stat(status.st_size, status.st_mtime_ns)))
            except FileNotFoundError as e:
                raise PathNotFoundError(f"{e.filename}: no such file or folder") from None
            except (NotADirectoryError, PermissionError) as e:
                raise DataError(f"{e.filename}: {e.strerror}", file=str(e.filename)) from e
        return sorted(found)

    def child_found(self, name: str, stat: Stat) -> LocalPath:
        del stat  # the state of a file takes more memory, and there may be millions
        return self.child(name)

    def expand(self) -> Sequence[LocalPath]:
        if self.state is not None:
            self.check_unchanged()
            return [self]
        if (data := _data(self)) is not None:
            return [data]
        if os.path.isdir(self):
            return self._data_inside()
        # A set, because "**/**" finds a file several times.
        every = set(glob.glob(self, recursive=True))
        matches = sorted(data for file in every if (data := _data(file)) is not None)
        if not matches:
            what = "no file matches" if glob.has_magic(self) else "no such file or folder"
            folder = working_folder() or "a folder that was removed"
            raise PathNotFoundError(f"{self}: {what} (looked in {folder})")
        warn_of_incomplete(matches, lambda file: os.listdir(os.path.dirname(file) or "."))
        return matches

    def _data_inside(self) -> list[LocalPath]:
        """Return the data files in this folder."""
        if self.rstrip(os.sep).endswith(".zarr"):
            # The arrays of half a store are not stores to be read one after the other.
            raise PathNotFoundError(f"{self}: {_no_files(self)}")
        names = os.listdir(self)
        added = refuse_unfinished(self, names, lambda name: self.child(name).content())
        known = set(names)
        if (index := mosaic_index(known)) is not None:
            return [self.child(index).found()]
        there = [
            name
            for name in names
            if name[0] not in "._" and name not in added and not is_indexed(name, known)
        ]
        found = [os.path.join(self, name) for name in there]
        # Folders of TFDS are not taken together: they are versions of the same data.
        files = sorted(data for file in found if (data := _data(file, ZARR_FILES)) is not None)
        if not files:
            raise PathNotFoundError(f"{self}: {_no_files(self)}")
        warn_of_missing(self, names, [file.name for file in files])
        return files

    def anew(self) -> LocalPath:
        return LocalPath(self)

    def found(self, status: os.stat_result | None = None) -> LocalPath:
        if self.state is not None:
            return self
        try:
            return LocalPath(self, FileState.of(self, status))
        except FileNotFoundError:
            raise PathNotFoundError(f"{self}: no such file") from None

    def public(self) -> str:
        return str(self)

    def absolute(self) -> LocalPath:
        return LocalPath(os.path.abspath(self), self.state)

    def stat(self) -> Stat:
        status = os.stat(self)
        return Stat(status.st_size, status.st_mtime_ns)

    def stats(self, paths: Sequence[Location]) -> list[Stat | None]:
        return [path.stat() if os.path.exists(path) else None for path in paths]

    def stat_below(self) -> Stat:
        # The modification time of a folder does not change when a file deep inside it does.
        walked = os.walk(self) if os.path.isdir(self) else [("", [], [str(self)])]
        files = [os.path.join(folder, name) for folder, _, names in walked for name in names]
        found = list(map(os.stat, files))
        latest = max((each.st_mtime_ns for each in found), default=0)
        return Stat(sum(each.st_size for each in found), latest)

    def identity(self) -> tuple[Any, ...]:
        try:
            status = os.stat(self)
        except FileNotFoundError:
            raise PathNotFoundError(f"{self}: no such file") from None
        self.check_unchanged(status)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def real_path(self) -> str:
        return os.path.realpath(self)

    def is_file(self) -> bool:
        return os.path.isfile(self)

    def is_folder(self) -> bool:
        return os.path.isdir(self)

    def is_link(self) -> bool:
        return os.path.islink(self)

    def is_tree(self) -> bool:
        return os.path.isdir(self) and not os.path.islink(self)

    def exists(self) -> bool:
        return os.path.exists(self)

    def last_change(self) -> int | None:
        try:
            return os.stat(self).st_ctime_ns
        except OSError:
            return None

    @property
    def pinned(self) -> bool:
        return self.state is not None and not self.is_folder()

    def check_unchanged(self, status: os.stat_result | None = None) -> None:
        if self.state is None:
            return
        try:
            why = self.state.difference(FileState.of(self, status))
        except FileNotFoundError:
            raise PathNotFoundError(
                f"{self}: no such file; it was removed after it was opened"
            ) from None
        if why:
            raise FileChangedError(
                f"{self}: {why} after it was opened, so rows of two versions would be mixed; "
                "open it again",
                file=str(self),
            )

    def open(self, *, in_order: bool = False) -> OpenFile:
        del in_order  # the system reads ahead
        return _OpenLocal(self)

    def seekable(self) -> IO[bytes]:
        file = open(self, "rb")  # noqa: SIM115 - the caller closes it
        try:
            self.check_unchanged(os.fstat(file.fileno()))
        except BaseException:
            file.close()
            raise
        return file

    def read_whole(self, most: int) -> tuple[bytes, Version] | None:
        try:
            with open(self, "rb") as file:
                # file.read(most) would allocate that much.
                size = os.fstat(file.fileno()).st_size
                return (file.read(size), Version(None)) if size <= most else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def load(self, most: int) -> npt.NDArray[np.uint8]:
        del most
        with open(self, "rb", buffering=0) as file:
            content = file.read(_SMALL)
        return np.frombuffer(content, np.uint8) if len(content) < _SMALL else MappedFile(self).bytes

    def map(self) -> MappedFile:
        file = MappedFile(self)
        self.check_unchanged()
        return file

    def create(self, *, seekable: bool = False, durable: bool = True) -> Output:
        del seekable  # every file on disk is
        return DiskOutput(self.rstrip(os.sep), durable)

    def write_whole(
        self, data: bytes, *, durable: bool = True, temporary: str | None = None
    ) -> None:
        make_folder(self)
        temporary = temporary or temporary_path(self)
        try:
            with writing(self):
                with open(temporary, "wb") as file:
                    file.write(data)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                os.replace(temporary, self)
        except BaseException:
            remove(temporary)
            raise

    def write_if(self, data: bytes, seen: Version | None) -> Version:
        self.write_whole(data)
        return seen or Version(None)

    def append(self, data: bytes, before: bytes) -> None:
        del before
        with open(self, "ab") as file:
            file.write(data)

    def copy(self, to: Location) -> None:
        copy = shutil.copytree if os.path.isdir(self) else shutil.copy2
        copy(self, to)

    def send(self, local: str) -> None:
        put_in_place(local, self)

    def update(self, change: Callable[[str | None], str]) -> None:
        make_folder(self)
        folder = os.open(os.path.dirname(self) or ".", os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            text = None
            with suppress(FileNotFoundError), open(self, encoding="utf-8") as file:
                text = file.read()
            self.write_whole(change(text).encode())
        finally:
            os.close(folder)

    def remove(self) -> None:
        remove(self)

    def remove_tree(self) -> None:
        # In one step: half a store would not be known as ours.
        aside = temporary_path(self, ".gone")
        os.rename(self, aside)
        remove(aside)

    def lock(self) -> RunLock:
        return RunLock(temporary_path(self, ".running"))

    def clear_temporary(self, wanted: set[str], owner: Process) -> None:
        clear_temporary(os.path.dirname(self), wanted, owner)

    def remove_leftovers(self, wanted: Callable[[str], object]) -> None:
        remove_leftovers(os.path.dirname(self), wanted)


class _OpenLocal(OpenFile):
    def __init__(self, path: LocalPath) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise PathNotFoundError(f"{path}: no such file") from None
        try:
            path.check_unchanged(os.fstat(self._fd))
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, count: int, at: int) -> bytes:
        return os.pread(self._fd, count, at)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def located(path: str) -> Location:
    """Return the location of a path. Text is a path on disk."""
    return path if isinstance(path, Location) else LocalPath(path)


def any_remote(paths: Sequence[str]) -> bool:
    """Return whether any of these paths is in a store."""
    return any(isinstance(path, Location) and path.remote for path in paths)


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise if something at ``path`` must not be overwritten."""
    if not overwrite and located(path).exists():
        raise OutputExistsError(
            Message(
                f"{path} already exists", hint=("use ", Option("overwrite", True), " to replace it")
            )
        )
    refuse_special(path)


def refuse_special(path: str) -> None:
    """Raise if ``path`` is a pipe or a device such as /dev/null, which a file would replace."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OutputExistsError(f"{path} is a pipe or a device, not a file; give another name")


def check_all_unchanged(paths: Sequence[str]) -> None:
    """Raise if one of these files has been replaced or changed since it was found."""
    for path in paths:
        located(path).check_unchanged()


def is_store(path: str, names: Sequence[str] = STORE_FILES) -> bool:
    """Return whether a folder is opened as a whole, as ``is_store_of`` tells."""
    if any(os.path.exists(os.path.join(path, name)) for name in names):
        return True
    # Listing a folder may take long, so look for the file that old versions of TFDS wrote first.
    old = TFDS_FILE in names and os.path.exists(os.path.join(path, TFDS_INFO))
    return old and is_store_of(os.listdir(path), names)


def _data(path: str, names: Sequence[str] = STORE_FILES) -> LocalPath | None:
    """Return the path of a data file, which remembers the file; None if it is something else."""
    try:
        status = os.stat(path)  # only once: there may be many files on a slow disk
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return LocalPath(path).found(status) if is_store(path, names) else None
    indexed = path.removesuffix(TEXT_INDEX)
    beside = path.endswith(DESCRIPTION) or (indexed != path and os.path.exists(indexed))
    data = stat.S_ISREG(status.st_mode) and not beside
    return LocalPath(path).found(status) if data else None


def _no_files(path: str) -> str:
    """Explain why a folder has no data."""
    inside = sorted(name for name in os.listdir(path) if name[0] not in "._")
    folders = [name for name in inside if os.path.isdir(os.path.join(path, name))]
    if path.rstrip("/").endswith(".zarr"):
        return (
            f"not a Zarr store: this folder has none of {', '.join(ZARR_FILES)}; if a program is "
            "writing it, wait; if that was killed, run it again"
        )
    if folders:
        named = ", ".join(folders[:5]) + (", ..." if len(folders) > 5 else "")
        return f"only folders in this folder: {named}; open one of them, or a pattern such as " + (
            repr(os.path.join(path, "**", "*.parquet" if "=" in folders[0] else "*.tfrecord"))
        )
    return "an empty folder" if not os.listdir(path) else "no data files in this folder"


def working_folder() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
