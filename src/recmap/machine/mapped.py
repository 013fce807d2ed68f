"""Files mapped into memory and read in place."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, DataError, PathNotFoundError
from recmap.native import _core

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Bytes of mapped pages that a sequential read keeps in memory: this part of the machine's, but not
# below and above these sizes. Mapping pages again takes longer than reading them.
_WINDOW_PART = 16
_SMALLEST_WINDOW, _LARGEST_WINDOW = 256 << 20, 8 << 30

_READY: AbstractContextManager[None] = nullcontext()

# Pages of a larger row are read faster with what is around them.
_LARGE_ROW = 64 << 10


class MappedFile:
    """A whole file as an array of bytes, without an open descriptor.

    Views stay valid after the object is gone, unless the file is truncated.
    """

    def __init__(self, path: str, kept_at: str | None = None) -> None:
        """Map a file, or the copy of it that is ``kept_at`` another place."""
        self.path = path
        try:
            # Make it absolute, because the process may change its working directory.
            place = os.fsencode(os.path.abspath(kept_at or path))
            self._mapping = _core.Mapping(place, os.fsencode(path))
        except FileNotFoundError:
            raise PathNotFoundError(f"{path}: no such file") from None
        # The span that sequential reads have mapped.
        self._window = (0, 0)
        self.bytes: npt.NDArray[np.uint8] = self._mapping.contents
        self.size = len(self.bytes)
        self._begin = _address(self.bytes)

    def check_size(self, expected: int | None = None) -> None:
        """Raise if the file is shorter than ``expected``, or than when it was mapped.

        Touching the missing part would kill the process. A new file of the same name does not
        matter.
        """
        size = self._mapping.current_size()
        expected = self.size if expected is None else expected
        if size < expected:
            raise _shrank(self.path, expected, size)

    @staticmethod
    def check_sizes(files: Sequence[MappedFile], *, by_page: bool = False) -> None:
        """Raise if one of several files is shorter than it was.

        ``by_page`` is faster, and sufficient where checksums are compared, because the missing
        end of a page reads as zeros.
        """
        shrunk = _core.first_shrunk([file._mapping for file in files], by_page)  # noqa: SLF001
        if shrunk is not None:
            files[shrunk].check_size()

    def will_read(self, begin: int, end: int, read: int | None = None) -> None:
        """Release the pages far before a span that is about to be read, and load those after it.

        A pass over a large file then keeps only a window of it in memory. The pages of a small
        file stay mapped, which makes the next pass faster. ``read`` says how many bytes of the span
        are read, if not all.
        """
        self.load_ahead(begin, end, read)
        low, high = self._window
        if not low <= begin <= high:  # not in order
            self.have_read(low, high)
            low = begin
        if end - low > _window_size():
            self.have_read(low, begin)
            low = begin
        self._window = (low, max(end, high) if low != begin else end)

    def load_ahead(self, begin: int, end: int, read: int | None = None) -> None:
        """Begin to load what follows a span that is about to be read, if reads are in order.

        If ``read``, the bytes that are read of the span, are few, so are those of what follows.
        """
        if read is None or read > (end - begin) // 2:
            self._mapping.load_ahead(begin, end)

    def have_read(self, begin: int, end: int) -> None:
        """Release the pages of a span, unless the file is small. The system keeps them cached."""
        if self.size > _window_size():
            self._mapping.release_pages(begin, end)

    def current(self) -> MappedFile:
        """Return the file to read from now on, which may be a copy of this one on disk."""
        return self

    @property
    def lends(self) -> bool:
        """Whether views of it may be given away, because only its owner would change it."""
        return True

    @property
    def whole(self) -> bool:
        """Whether all bytes can be read at any time, without ``hold``."""
        return True

    def hold(
        self, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike
    ) -> AbstractContextManager[None]:
        """Make the bytes of one or more spans available inside a context.

        Those of a local file always are. Those of an object are fetched, and may be gone
        afterwards.
        """
        del begins, ends
        return _READY

    def view(self, offset: int, shape: tuple[int, ...], dtype: Any, stride: int) -> Any:
        """Return an array with rows that begin at ``offset`` and are ``stride`` bytes apart."""
        inner = np.empty(shape[1:], dtype).strides
        return np.ndarray(shape, dtype, buffer=self.bytes, offset=offset, strides=(stride, *inner))

    def array(
        self, offset: int, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C"
    ) -> npt.NDArray[Any]:
        """Return the array that is stored in the file at ``offset``."""
        dtype = np.dtype(dtype)
        needed = offset + math.prod(shape) * dtype.itemsize
        if needed > self.size:
            row = math.prod(shape[1:]) * dtype.itemsize
            whole = ""
            if order == "C" and shape and row:
                rows = max(0, self.size - offset) // row
                whole = f", with {rows:,} whole row{'' if rows == 1 else 's'}"
            raise DataError(
                f"{self.path}: truncated: {shape} of {dtype} from byte {offset:,} need {needed:,} "
                f"bytes, but the file has {self.size:,}{whole}",
                file=self.path,
                byte=self.size,
            )
        if math.prod(shape) == 0 or dtype.itemsize == 0:
            return np.empty(shape, dtype, order)
        return np.ndarray(shape, dtype, buffer=self.bytes, offset=offset, order=order)

    def span(self, view: npt.NDArray[Any]) -> tuple[int, int]:
        """Return the span of the file that a view of it covers."""
        low, high = reach(view)
        begin = _address(view) - self._begin
        return begin + low, begin + high


class _ScatteredReads:
    """A context in which the system reads only the pages of these files that are touched."""

    __slots__ = ("_mappings",)

    def __init__(self, mappings: list[_core.Mapping]) -> None:
        self._mappings = mappings

    def __enter__(self) -> None:
        for mapping in self._mappings:
            mapping.begin_scattered_reads()

    def __exit__(self, *_: object) -> None:
        for mapping in self._mappings:
            mapping.end_scattered_reads()


def scattered_reads(
    files: Iterable[MappedFile], row_bytes: int, *, absent: bool
) -> AbstractContextManager[None]:
    """Return a context in which rows of this size are read that are far from each other.

    ``absent`` says whether some were not in memory, so that the system was asked for them. Where
    memory is short, it drops rows that it was asked for, or never loads them, and then reads
    around each, up to megabytes.
    """
    if not absent or row_bytes >= _LARGE_ROW:
        return _READY
    return _ScatteredReads([file._mapping for file in files if file.whole])  # noqa: SLF001


#: For a guard around calls that have their own: only what the thread itself runs into counts.
NO_FILES: tuple[str, ...] = ()

_enter, _leave = _core.enter_guard, _core.leave_guard


class _Here(threading.local):
    """What the guards of this thread read, and the last truncation that one has told."""

    reader: object = None
    told = 0


_here = _Here()


class Guard:
    """A context that turns the truncation of a file during a read into an error.

    The size of a file is checked before it is read, but another program may truncate it
    afterwards. Inside a guard, this thread then reads zeros instead of being killed, and
    leaving the guard raises the error. Discard what was read inside. Outside a guard, such as
    in an array that the user holds, touching the missing part still kills the process.

    ``reader`` says which files are read: it is a path, has ``files``, ``facts.files`` or a
    ``path``, or is a tuple of paths. Other files are ignored, even if they are truncated at the
    same moment. Without one, the files are those of the guard around this one; if there is none
    either, every truncation counts, because another thread may have run into it first.
    """

    __slots__ = ("_around", "_cuts", "_reader")

    def __init__(self, reader: object = None) -> None:
        self._reader = reader

    # Every read of a few rows enters and leaves some guards.
    def __enter__(self) -> None:
        if self._reader is not None:
            self._around, _here.reader = _here.reader, self._reader
        self._cuts = _enter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._reader is not None:
            _here.reader = self._around
        cuts = _leave()
        if cuts != self._cuts or error is not None:
            _check_cuts(self._cuts, cuts, self._reader, error)


def _check_cuts(before: int, after: int, reader: object, error: BaseException | None) -> None:
    """Raise if a file that was read inside a guard was truncated there, if any was."""
    bad_address = isinstance(error, OSError) and error.errno == errno.EFAULT
    if after == before and not bad_address:
        return
    cut = _cut(before, _here.reader if reader is None else reader, any_file=bad_address)
    if cut is not None:
        path, size, end = cut
        with contextlib.suppress(OSError):
            end = min(end, os.path.getsize(path))
        raise _shrank(path, size, end) from error


def _cut(since: int, reader: object, *, any_file: bool) -> tuple[str, int, int] | None:
    """Return path, size and end of a truncated file that was read, if there is one.

    With ``any_file``, the system could not read the memory passed to it.
    """
    found, files = _core.last_found(), _files_of(reader)
    cuts = sorted(_core.truncated_files(since), key=lambda cut: cut[3], reverse=True)
    known = [(os.fsdecode(name), size, end, number) for name, size, end, number in cuts]
    # What a guard inside of this one has told is no longer new.
    told, _here.told = _here.told, found
    own = [cut for cut in known if cut[3] > told and cut[3] == found]
    mine = [cut for cut in known if files is None or _is_among(cut[0], files)]
    for path, size, end, _ in [*own, *mine, *(known if any_file else ())]:
        return path, size, end
    return None


def _files_of(reader: object) -> Sequence[str] | None:
    """Return the files that something reads, None if that is not known."""
    if isinstance(reader, tuple):
        return reader
    if isinstance(reader, str):
        return [reader]
    files: Iterable[str] = getattr(getattr(reader, "facts", reader), "files", ())
    path = getattr(reader, "path", None)
    return [*files] or ([path] if isinstance(path, str) else None)


def _is_among(path: str, files: Sequence[str]) -> bool:
    """Return whether a path is one of several, or inside of one that is a folder."""
    for file in files:
        for one, other in ((path, file), (os.path.abspath(path), os.path.abspath(file))):
            if one == other or one.startswith(f"{other.rstrip('/')}/"):
                return True
    return False


def guarded(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a function so that it runs inside a guard. Its first argument says what it reads."""

    @wraps(function)
    def inside(*args: _P.args, **options: _P.kwargs) -> _R:
        # A Guard, written out: making and calling one takes as long as the rest.
        around = _here.reader
        reader = _here.reader = args[0] if args else around
        before = _enter()
        try:
            result = function(*args, **options)
        except BaseException as error:
            _here.reader = around
            _check_cuts(before, _leave(), reader, error)
            raise
        _here.reader = around
        after = _leave()
        if after != before:
            _check_cuts(before, after, reader, None)
        return result

    return inside


def guarded_here(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a function to run in another thread, inside a guard for the same files as here."""
    reader = _here.reader

    @wraps(function)
    def inside(*args: _P.args, **options: _P.kwargs) -> _R:
        with Guard(reader):
            return function(*args, **options)

    return inside


def _shrank(path: str, before: int, now: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}: the file shrank from {before:,} to {now:,} bytes while it was open; open it "
        "again",
        file=path,
        byte=now,
    )


def _address(array: npt.NDArray[Any]) -> int:
    """Return where an array begins in memory. Every read calls this, and ``ctypes`` is slower."""
    address: int = array.__array_interface__["data"][0]
    return address


def reach(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the span of bytes that an array covers, counted from its first element.

    It begins before that element if a stride is negative.
    """
    if array.flags.c_contiguous:
        return 0, array.nbytes
    if not array.size:
        return 0, 0
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + array.itemsize


@cache
def _window_size() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(memory // _WINDOW_PART, _SMALLEST_WINDOW), _LARGEST_WINDOW)
