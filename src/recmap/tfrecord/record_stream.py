"""The records of a compressed file, in windows of the inflated data.

``ByteStream`` holds as many of the plain bytes as needed at a time. ``record_windows`` finds the
records in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import CompressionError, Message, Option
from recmap.local.inflate import Inflated, inflate
from recmap.machine.cpus import thread_count
from recmap.machine.threads import read_ahead
from recmap.model.facts import Skipped
from recmap.native import _core
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.record_file import Window
from recmap.tfrecord.stream_index import IndexBuilder

_WINDOW_SIZE = 1 << 20
_CUT = {_core.FaultCode.header_cut, _core.FaultCode.data_cut}
# Bytes held while searching for the next sound record. Larger records are not found.
_SEARCH_SIZE = 16 << 20
# Size of a stream's first allocation.
_FIRST_SIZE = 1 << 20
# Blocks of bytes to inflate ahead while records are decoded: of at most 256 KB, or of many members
# together.
_BLOCKS_AHEAD, _RUNS_AHEAD = 8, 1


@dataclass(frozen=True)
class Entry:
    """A member where reading can start, and the number of plain bytes before it."""

    position: int = 0
    base: int = 0


@dataclass(frozen=True)
class PassStart:
    """Where a pass can start: a row, its place in the plain bytes, and the entry before it."""

    row: int
    base: int
    entry: Entry


START = PassStart(0, 0, Entry())


class ByteStream:
    """A moving window over the plain bytes: ``held`` begins at ``base``.

    A damaged stream ends at the damage, or continues after it with ``skip``. ``failures`` lists
    what is wrong, and where in the plain bytes.
    """

    def __init__(
        self,
        path: str,
        compression: Literal["gzip", "zlib"],
        skip: bool,
        entry: Entry,
        blocks: Iterator[Inflated] | None = None,
        builder: IndexBuilder | None = None,
    ) -> None:
        self.base = entry.base
        # Compressed bytes of the file that have been inflated.
        self.passed = entry.position
        self.ended = False
        self.failures: list[tuple[int, CompressionError]] = []
        # Never written to again, so it stays valid when the stream moves on.
        self.held: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        # What is left of the last block, and the memory that ends with it.
        self._rest = memoryview(b"")
        self._memory: npt.NDArray[np.uint8] | None = None
        self._in_runs = False
        self._entries: list[Entry] = []
        self._begun = self._ahead = False
        self._builder = builder
        if blocks is None:
            blocks = inflate(
                path, compression, entry.position, salvage=skip, points=builder is not None
            )
        else:
            self._entries.append(entry)
            self._ahead = True  # by whoever makes them
        self._blocks = blocks

    def fill(self, size: int) -> bool:
        """Inflate until ``size`` bytes are held or the stream ends.

        Return False if nothing is held.
        """
        if len(self.held) < size and not self.ended:
            if self._begun and not self._ahead:
                # Start the thread only on the second call: often only the first bytes are read.
                depth = _RUNS_AHEAD if self._in_runs else _BLOCKS_AHEAD
                self._blocks, self._ahead = read_ahead(self._blocks, depth), True
            self._begun = True
        while len(self.held) < size and (self._rest or self._next_block(len(self.held))):
            if not self._prepend():
                # A damaged record may claim any size, so memory grows step by step.
                self._extend(min(size, max(2 * len(self.held), _FIRST_SIZE)))
        return len(self.held) > 0

    def _prepend(self) -> bool:
        """Put what is held before the rest of the block, if there is room for it."""
        if self._memory is None:
            return False
        begin = len(self._memory) - len(self._rest) - len(self.held)
        if begin < 0:
            return False
        held = self._memory[begin:]
        held[: len(self.held)] = self.held
        self._hold(held)
        self._rest, self._memory = memoryview(b""), None
        return True

    def _extend(self, size: int) -> None:
        buffer, at = np.empty(size, np.uint8), len(self.held)
        buffer[:at] = self.held
        while at < size and (self._rest or self._next_block(at)):
            count = min(len(self._rest), size - at)
            buffer[at : at + count] = np.frombuffer(self._rest, np.uint8, count)
            self._rest = self._rest[count:]
            at += count
        self._hold(buffer[:at])

    def _hold(self, held: npt.NDArray[np.uint8]) -> None:
        self.held = held
        self.held.flags.writeable = False

    def _next_block(self, at: int) -> bool:
        """Take the next block, which begins ``at`` bytes after ``base``; False at the end."""
        block = next(self._blocks, None)
        while block is not None and block.failure is not None:
            self.failures.append((self.base + at, block.failure))
            self.passed = block.end
            block = next(self._blocks, None)
        self.ended = block is None
        self._memory = None
        if block is None:
            return False
        if self._builder is not None:
            self._builder.add(block)
        self._entries += (Entry(begin, self.base + at + place) for begin, place in block.begins)
        self._rest, self.passed = memoryview(block.plain), block.end
        self._memory = block.memory
        self._in_runs = block.memory is not None
        return True

    def drop(self, size: int) -> None:
        """Move on by ``size`` bytes."""
        self.held = self.held[size:].copy()  # a view would keep all of it alive
        self.base += size
        while len(self._entries) > 1 and self._entries[1].base <= self.base:
            del self._entries[0]

    @property
    def entry(self) -> Entry:
        """The nearest entry at or before ``base``, once something is held."""
        return self._entries[0]

    def end_of_record(self, offset: int) -> int | None:
        """Return where the record at an offset ends. All of it must be held.

        Return None if its length cannot be trusted, because neither a record nor the end of
        the stream follows.
        """
        length = int.from_bytes(self.held[offset : offset + 8], "little")
        after = offset + _core.FRAME_SIZE + length
        self.fill(after + _core.HEADER_SIZE)
        if self.ended and after == len(self.held):
            return after
        fault = _core.scan(self.held, _core.ScanRequest(after, limit=1)).fault
        return after if fault is None or fault.code == _core.FaultCode.data_cut else None

    def seek_record(self) -> bool:
        """Move to the next sound record; return False if the held bytes contain none."""
        size = len(self.held)
        at = _core.find_record(self.held, 0, size)
        if at < size or self.ended:
            self.drop(at)
            return at < size
        # A record may begin near the end of the held bytes.
        self.drop(max(0, size - _SEARCH_SIZE))
        self.fill(len(self.held) + _SEARCH_SIZE)
        return False


def record_windows(
    path: str,
    compression: Literal["gzip", "zlib"],
    verify: bool,
    skip: bool,
    start: PassStart = START,
    blocks: Iterator[Inflated] | None = None,
    builder: IndexBuilder | None = None,
) -> Iterator[tuple[Entry, Window]]:
    """Yield all records from ``start`` to the end, each window with the entry before it.

    ``blocks`` are the plain bytes from the entry of ``start`` on, if they are inflated with an
    index. ``builder`` is told of all bytes.

    With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
    after the records that precede it. Which records are rows is up to the caller.
    """
    stream = ByteStream(path, compression, skip, start.entry, blocks, builder)
    stream.fill(start.base - stream.base)
    stream.drop(start.base - stream.base)
    record, searching, needed = start.row, False, 0
    while stream.fill(max(_WINDOW_SIZE, needed)):
        if searching and not stream.seek_record():
            continue
        searching, needed = False, 0
        data, base, entry = stream.held, stream.base, stream.entry
        request = _core.ScanRequest(anchor_every=1, verify=verify, threads=thread_count())
        found = _core.scan(data, request)
        first, used, fault, lost = record, found.end, found.fault, list[Skipped]()
        record += found.records
        damage: Exception | None = None
        if fault is not None and _may_continue(fault) and not stream.ended:
            needed = fault.expected
        elif fault is not None and not skip:
            damage = fault_error(fault, path, record, base=base)
            if stream.failures:
                damage = _broken(path, stream, record)
        elif fault is not None:
            reason = fault_text(fault)
            lost.append(Skipped(path, record, base + fault.offset, reason, inflated=True))
            record += 1
            crc_only = fault.code == _core.FaultCode.data_crc
            after = stream.end_of_record(used) if crc_only else None
            used, searching = (used + 1, True) if after is None else (after, False)
        stream.drop(used)
        if skip:
            lost += _take_failures(path, stream, record, stream.base)
        if found.records or lost or needed > _WINDOW_SIZE:
            offsets, passed = found.anchor_offsets, stream.passed
            yield entry, Window(data, offsets, first, base, found, lost, needed, passed)
        if damage is not None:
            raise damage
        del data, found  # free them before the next ones are inflated
    if stream.failures and not skip:
        raise _broken(path, stream, record)
    if stream.failures:
        yield start.entry, _last_window(path, stream, record)


def _last_window(path: str, stream: ByteStream, record: int) -> Window:
    """Make an empty window that lists the failures at the end of the stream."""
    nothing = np.empty(0, np.uint8)
    scan = _core.scan(nothing, _core.ScanRequest())
    lost = _take_failures(path, stream, record, None)
    return Window(
        nothing, scan.anchor_offsets, record, stream.base, scan, lost, passed=stream.passed
    )


def _broken(path: str, stream: ByteStream, record: int) -> CompressionError:
    """Make the error for a damaged stream with sound records up to this one."""
    failure = stream.failures[0][1]
    return CompressionError(
        Message(
            f"{failure}; the first record that is lost is {record:,}",
            hint=("use ", Option("errors", "skip"), " to read what is sound, or recmap repair"),
        ),
        file=path,
        record=record,
        byte=failure.byte,
    )


def _take_failures(path: str, stream: ByteStream, record: int, upto: int | None) -> list[Skipped]:
    """Remove and return the stream's failures up to a place, or all of them."""
    passed = [f for f in stream.failures if upto is None or f[0] <= upto]
    del stream.failures[: len(passed)]
    return [Skipped(path, record, at, str(failure), inflated=True) for at, failure in passed]


def _may_continue(fault: _core.Fault) -> bool:
    """Return whether a record is cut short, but could be complete with more of the stream."""
    return fault.code in _CUT and 0 <= fault.expected <= _core.MAX_MESSAGE_SIZE
