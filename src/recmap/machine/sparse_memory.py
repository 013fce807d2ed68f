"""Memory as large as a file, of which only the parts in use take space."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from recmap.machine.mapped import MappedFile
from recmap.machine.spans import Places, spans_of

#: The unit of memory.
PAGE = max(1 << 12, mmap.PAGESIZE)
# With large pages, the system has less to do. It takes them if they begin at such an address.
_LARGE_PAGE = 2 << 20
# Names that Python lacks, as of 3.11. No swap space is reserved for what is never touched.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_POPULATE_WRITE = getattr(mmap, "MADV_POPULATE_WRITE", 23)


class SparseMemory:
    """Memory that can be addressed as a whole, but takes space only where it is used.

    A part is used from when it is prepared, or written, until it is freed. Use the memory from any
    thread, but not the same part from two at a time.
    """

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        self._map = mmap.mmap(-1, size + _LARGE_PAGE, flags=flags)
        whole: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        address: int = whole.__array_interface__["data"][0]
        self._begin = -address % _LARGE_PAGE
        #: The bytes, which may be written.
        self.bytes = whole[self._begin : self._begin + size]
        # Where these are the default, a row of a few bytes would take a large page.
        self._advise("MADV_NOHUGEPAGE", 0, size)

    def prepare(self, begin: int, end: int) -> None:
        """Prepare the pages of a part before it is written."""
        first, stop = _within_large_pages(begin, end)
        self._advise("MADV_HUGEPAGE", first, stop)
        # Faster than one page at a time. Where it fails, the pages are made when they are written.
        with suppress(OSError):
            self._map.madvise(_POPULATE_WRITE, *self._place(begin, end))

    def free(self, begin: int, end: int) -> None:
        """Free the pages of a part, which begins and ends with a page, or at the end of all."""
        self._map.madvise(mmap.MADV_DONTNEED, *self._place(begin, end))
        # Those that reach beyond the part, too: each of several parts may free only a piece of one.
        first, stop = begin // _LARGE_PAGE * _LARGE_PAGE, -(-end // _LARGE_PAGE) * _LARGE_PAGE
        self._advise("MADV_NOHUGEPAGE", first, min(stop, self.bytes.size))

    def _place(self, begin: int, end: int) -> tuple[int, int]:
        """Return where a part begins in the map, and its size."""
        return self._begin + begin // PAGE * PAGE, end - begin // PAGE * PAGE

    def _advise(self, name: str, begin: int, end: int) -> None:
        """Advise the system about a part, if it takes this advice."""
        if begin < end and hasattr(mmap, name):
            with suppress(OSError):
                self._map.madvise(getattr(mmap, name), *self._place(begin, end))


class SparseFile(MappedFile):
    """A file of which only the spans that are held are in memory, and can be read."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self._memory = SparseMemory(size)
        self.bytes = self._memory.bytes.view()
        self.bytes.flags.writeable = False
        self._begin: int = self.bytes.__array_interface__["data"][0]
        # How many holds each page belongs to.
        self._users = np.zeros(-(-size // PAGE), np.uint16)

    @property
    def whole(self) -> bool:
        return False

    @property
    def lends(self) -> bool:
        return False

    def check_size(self, expected: int | None = None) -> None:
        """Do nothing: a hold fails if the file has changed."""
        del expected

    def will_read(self, begin: int, end: int, read: int | None = None) -> None:
        """Do nothing: ``hold`` knows what is read."""
        del begin, end, read

    def load_ahead(self, begin: int, end: int, read: int | None = None) -> None:
        """Do nothing, for the same reason."""
        del begin, end, read

    def have_read(self, begin: int, end: int) -> None:
        """Do nothing: what is no longer held is gone."""
        del begin, end

    def _absent(self, pages: Places) -> tuple[Places, Places]:
        """Return those of some pages that nobody holds, as spans of bytes."""
        begins, ends = spans_of(pages[self._users[pages] == 0])
        return begins * PAGE, np.minimum(ends * PAGE, self.size)

    def _free(self, pages: Places) -> None:
        """Free those of some pages that nobody holds."""
        begins, ends = self._absent(pages)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            self._memory.free(begin, end)


def _within_large_pages(begin: int, end: int) -> tuple[int, int]:
    """Return the large pages that lie within a part.

    >>> _within_large_pages(1, 5 << 20)
    (2097152, 4194304)
    """
    return -(-begin // _LARGE_PAGE) * _LARGE_PAGE, end // _LARGE_PAGE * _LARGE_PAGE
