"""Read row groups in order, while threads decode those that follow."""

from __future__ import annotations

import os
from collections import Counter as ValueCount
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.row_group_file import Cuts, GroupDecoding, Names, RowGroupFile
from recmap.machine.cpus import pool_size
from recmap.machine.memory import give_back
from recmap.machine.threads import Threads
from recmap.model.batch import join, pick
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.store.read_ahead import far_ahead

# Pieces that are decoded ahead, for each thread. Small ones take long to begin, not to decode.
_AHEAD = 4
# Pieces of a row group that wait to be decoded, one after another: the threads decode others.
_WAITING = 8
# A read with a limit that has so many bytes ends with its piece: more would have to be copied.
_ENOUGH = 1 << 20
#: Less than this is decoded by the thread that reads, unless it reads in order.
FEW_BYTES = 1 << 18
# Below this size of pieces, each thread returns what it has freed before it decodes the next one:
# pyarrow's allocator keeps it for every thread, and no other thread can return it.
_FRUGAL = 2 << 20
# Pieces may be this many times smaller than those that are asked for.
_SMALLER = 4


class _PiecePlace(NamedTuple):
    """A piece: its row group, its number there, its rows in the file, and its size in bytes."""

    group: int
    number: int
    rows: range
    size: int


class _DecodedPiece:
    """The rows at a place, once they are decoded: a batch for each bundle of columns."""

    def __init__(self, place: _PiecePlace, bundles: list[Future[Batch]]) -> None:
        self.place, self._bundles = place, bundles
        self._measured: int | None = None
        #: Whether a read waits for it, or has done so.
        self.is_read = False

    @property
    def size(self) -> int:
        """The bytes that it takes, or will take."""
        if self._measured is None:
            made = [bundle for bundle in self._bundles if bundle.done() and not bundle.cancelled()]
            if len(made) < len(self._bundles) or any(bundle.exception() for bundle in made):
                return self.place.size
            self._measured = sum(measure(bundle.result())[1] for bundle in made)
        return self._measured

    @property
    def is_decoded(self) -> bool:
        return all(bundle.done() for bundle in self._bundles)

    def batch(self) -> Batch:
        return {name: column for made in self._bundles for name, column in made.result().items()}

    def give_up(self) -> None:
        """Leave it undecoded, unless another thread is reading it."""
        if not self.is_read:
            for bundle in self._bundles:
                bundle.cancel()

    def wait(self) -> None:
        """Wait until no thread decodes it."""
        wait([bundle for bundle in self._bundles if bundle.running()])


class _PieceDecoder:
    """Decodes pieces of a row group, in the order in which they are wanted, in any thread."""

    def __init__(self, cursor: GroupDecoding, *, frugal: bool) -> None:
        self._cursor, self._frugal = cursor, frugal
        self._wanted: deque[tuple[int, Future[Batch]]] = deque()
        self._running = False
        self._lock = Lock()
        #: The number of the first piece that has not been wanted.
        self.next = 0

    def want(self, number: int) -> Future[Batch]:
        future: Future[Batch] = Future()
        with self._lock:
            self._wanted.append((number, future))
            self.next = number + 1
        return future

    @property
    def waits(self) -> bool:
        """Whether a thread is needed."""
        return bool(self._wanted) and not self._running

    def run(self) -> None:
        """Decode what is wanted, unless another thread does."""
        with self._lock:
            if self._running:
                return
            self._running = True
        while True:
            with self._lock:
                if not self._wanted:
                    self._running = False
                    return
                number, future = self._wanted.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            if self._frugal:
                give_back()
            try:
                future.set_result(self._cursor.piece(number))
            except BaseException as e:  # raised when the rows are read
                future.set_exception(e)


class Scan:
    """The pieces around a read, and those after it that are decoded ahead.

    ``cuts`` divides a row group into pieces of at most about ``size`` bytes.
    """

    def __init__(
        self,
        file: RowGroupFile,
        bundles: Sequence[Names],
        size: int,
        cuts: Callable[[int, int], Cuts],
    ) -> None:
        self._file, self._bundles, self._size = file, bundles, size
        self._cut, self._cuts = cuts, dict[int, Cuts]()
        self._starts: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(file.group_rows)])
        self._decoders: dict[tuple[int, Names], _PieceDecoder] = {}
        self._pieces: dict[tuple[int, int], _DecodedPiece] = {}
        self._lock = Lock()
        # The rows that have been read in order, and where the last read began and ended.
        self._passed, self._last = 0, range(0)
        self._process = os.getpid()

    def continues(self, start: int, size: int) -> bool:
        """Return whether a read from ``start`` in pieces of ``size`` bytes belongs to this."""
        if self._process != os.getpid():  # threads do not survive a fork
            return False
        if not size // _SMALLER <= self._size <= size:
            return False
        if start == self._last.stop:
            return True
        with self._lock:
            return any(start in piece.place.rows for piece in self._pieces.values())

    def read(
        self,
        start: int,
        stop: int,
        row_bytes: int,
        limit: int | None,
        room: int,
        threads: Threads | None,
    ) -> Batch:
        """Read rows, or some of them if there is a ``limit`` in bytes.

        ``room`` is how many bytes of pieces may be held. Without threads, nothing is decoded
        ahead.
        """
        with self._lock:
            self._pass(start, 0 if limit is not None else stop - start)
            places = self._places(start)
            pieces: list[_DecodedPiece] = []
            if limit is not None:
                stop = min(stop, self._enough(start, max(1, _ENOUGH // row_bytes), limit))
            for place in places:
                pieces.append(self._want(place))
                pieces[-1].is_read = True
                if place.rows.stop >= stop:
                    break
            in_order = self._last.start < start <= self._last.stop
            if not in_order and (stop - start) * row_bytes < FEW_BYTES:
                threads = None
            self._passed = stop - start + (self._passed if in_order else 0)
            self._last = range(start, stop)
            if in_order and threads is not None and not self._file.in_place:
                self._want_ahead(places, room, row_bytes)
            work = [decoder.run for decoder in self._decoders.values() if decoder.waits]
        for run in work:
            run() if threads is None else threads.submit(run)
        parts: list[Batch] = []
        for piece in pieces:
            try:
                parts.append(_part(piece, start, stop))
            except DataError:
                if limit is None or not parts:
                    raise
                break  # the rows before it are intact; the next read raises it
        return join(parts)

    def _enough(self, start: int, rows: int, limit: int) -> int:
        """Return where a read ends that has so many rows, or all that is left of a piece.

        Rows of further pieces have at most ``limit`` bytes together with those before them.
        """
        stop = start
        for place in self._places(start):
            first = max(start, place.rows.start)
            left = place.rows.stop - first
            size = place.size * left // max(1, len(place.rows))  # a batch may have no rows
            fit = left if size <= limit or stop == start else left * limit // size
            some = left if stop == start else min(fit, start + rows - stop)
            stop, limit = first + some, max(0, limit - size)
            if some < left or stop - start >= rows:
                break
        return stop

    def held(self) -> int:
        """Return about how many bytes the pieces take."""
        with self._lock:
            return self._held()

    def close(self) -> None:
        """Give up the pieces, and wait for those that are being decoded."""
        with self._lock:
            pieces = list(self._pieces.values())
            self._pieces.clear()
            self._decoders.clear()
        for piece in pieces:
            piece.give_up()
        for piece in pieces:
            piece.wait()

    def _places(self, row: int) -> Iterator[_PiecePlace]:
        """Yield the place of a row, and those that follow."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        for group in range(group, len(self._starts) - 1):  # noqa: B020
            first, (starts, sizes) = int(self._starts[group]), self._cuts_of(group)
            number = max(0, int(np.searchsorted(starts, row - first, side="right")) - 1)
            for i in range(number, len(sizes)):
                rows = range(first + int(starts[i]), first + int(starts[i + 1]))
                yield _PiecePlace(group, i, rows, int(sizes[i]))

    def _cuts_of(self, group: int) -> Cuts:
        if group not in self._cuts:
            self._cuts[group] = self._cut(group, self._size)
        return self._cuts[group]

    def _pass(self, start: int, behind: int) -> None:
        """Drop what is before a read. Threads that read in turns may be ``behind`` rows late."""
        for key, piece in list(self._pieces.items()):
            if piece.place.rows.stop <= start - behind:
                piece.give_up()
                del self._pieces[key]
        for group, names in list(self._decoders):
            if int(self._starts[group + 1]) <= start - behind:
                del self._decoders[group, names]
        for group in list(self._cuts):
            if int(self._starts[group + 1]) <= start - behind:
                del self._cuts[group]

    def _want(self, place: _PiecePlace) -> _DecodedPiece:
        key = place.group, place.number
        if key not in self._pieces:
            made = [self._decoder(place, names).want(place.number) for names in self._bundles]
            self._pieces[key] = _DecodedPiece(place, made)
        return self._pieces[key]

    def _decoder(self, place: _PiecePlace, names: Names) -> _PieceDecoder:
        decoder = self._decoders.get((place.group, names))
        if decoder is None or decoder.next > place.number:
            cursor = GroupDecoding(self._file, place.group, self._cuts_of(place.group), names)
            decoder = _PieceDecoder(cursor, frugal=self._file.packed and self._size < _FRUGAL)
            self._decoders[place.group, names] = decoder
        return decoder

    def _want_ahead(self, places: Iterator[_PiecePlace], room: int, row_bytes: int) -> None:
        held, rows, waiting = self._held(row_bytes), 0, ValueCount[int]()
        for place in self._next_places(places):
            known = self._pieces.get((place.group, place.number))
            waiting[place.group] += known is None or not known.is_decoded
            if waiting[place.group] > _WAITING:
                continue
            rows += len(place.rows)
            if known is not None:
                continue
            # A row group is decoded piece by piece, so only the first one takes more than its rows.
            held += place.size if waiting[place.group] == 1 else len(place.rows) * row_bytes
            if held > room or rows > far_ahead(self._passed, least=len(place.rows)):
                return
            self._want(place)

    def _next_places(self, places: Iterator[_PiecePlace]) -> Iterator[_PiecePlace]:
        """Yield so many places ahead, and those in so many row groups as there are threads."""
        first = None
        for number, place in enumerate(places):
            first = place.group if first is None else first
            if number >= _AHEAD * pool_size() and place.group >= first + pool_size():
                return
            yield place

    def _held(self, row_bytes: int | None = None) -> int:
        """Return the bytes of the pieces. With ``row_bytes``, those that wait take only these."""
        held, decoding = 0, set[int]()
        for piece in self._pieces.values():
            group, rows = piece.place.group, len(piece.place.rows)
            waits = row_bytes is not None and group in decoding and not piece.is_decoded
            held += rows * (row_bytes or 0) if waits else piece.size
            if not piece.is_decoded:
                decoding.add(group)
        return held


def _part(piece: _DecodedPiece, start: int, stop: int) -> Batch:
    """Return the rows of a piece between two rows of the file."""
    rows = piece.place.rows
    some = range(max(start, rows.start) - rows.start, min(stop, rows.stop) - rows.start)
    batch = piece.batch()
    return batch if len(some) == len(rows) else pick(batch, slice(some.start, some.stop))


class Scans:
    """The reads of a file that may go on, each of them in order."""

    def __init__(self) -> None:
        self._scans: list[Scan] = []
        self._lock = Lock()

    def find(self, start: int, size: int, begin: Callable[[], Scan], most: int) -> Scan:
        """Return the scan that a read from ``start`` continues, or a new one.

        Older ones are given up if all of them hold more than ``most`` bytes.
        """
        with self._lock:
            found = next((scan for scan in self._scans if scan.continues(start, size)), None)
            if found is None:
                found = begin()
            else:
                self._scans.remove(found)
            self._scans.append(found)
            held, old = 0, 0
            for number, scan in enumerate(reversed(self._scans)):
                held += scan.held()
                if held > most and number:
                    old = len(self._scans) - number
                    break
            given_up, self._scans = self._scans[:old], self._scans[old:]
        for scan in given_up:
            scan.close()
        return found

    def end(self, scan: Scan) -> None:
        """Give up a scan that failed."""
        with self._lock:
            if scan in self._scans:
                self._scans.remove(scan)
        scan.close()
