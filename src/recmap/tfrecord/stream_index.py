"""Where a compressed stream can be read from: the first pass notes it, and saves it in a file.

The file is hidden next to the data, and docs/format.md specifies it. Like the index of records, it
is used only if it was made from exactly this data. Every chunk, from one entry to the next, has a
checksum; where it does not match, the stream is read from its beginning, as without an index.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import StaleIndexWarning
from recmap.local.deflate import SPACING, Bytes, can_resume, open_window
from recmap.local.gzip import ROOM, header_size
from recmap.local.inflate import Inflated, inflate
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.local.temporary import temporary_path
from recmap.machine.cpus import thread_count
from recmap.machine.memory import empty_bytes
from recmap.machine.threads import read_ahead
from recmap.native import _core
from recmap.tfrecord.embedded_schema import checksum
from recmap.tfrecord.sidecar import STREAM_MAGIC, Fingerprint, stream_index_path
from recmap.warn import warn

_VERSION = 1
_HEAD = struct.Struct("<8sIII")  # magic, version, size of the JSON, CRC of all that follows
#: The largest chunk, and the most bytes of windows that a pass keeps.
_MOST_CHUNK, _MOST_WINDOWS = 16 << 20, 16 << 20
_MOST_ENTRIES, _MOST_SAVED = 1 << 18, 64 << 20
# The fewest bytes of a chunk on average that are worth an index.
_LEAST_CHUNK = 1 << 17
# The fewest and the most plain bytes that are inflated at once.
_LEAST_RUN, _MOST_RUN = 4 << 20, 16 << 20
# Far more than any gzip header takes.
_HEADER_SIZE = 1 << 17
# A stream that was flushed after every byte grows by almost as much.
_MOST_GROWTH = 12


# An entry: where to inflate from, and the first record that begins there or later. The CRC is
# that of all plain bytes before it, and ``window`` the packed size of its window; 0 at a member.
_TABLE = np.dtype(
    [
        ("position", "<u8"),
        ("base", "<u8"),
        ("row", "<u8"),
        ("offset", "<u8"),
        ("crc", "<u4"),
        ("window", "<u4"),
        ("bits", "<u8"),
    ]
)


@dataclass
class _Noted:
    """An entry that a pass came to; its row is known later."""

    position: int
    bits: int
    base: int
    crc: int
    window: bytes
    row: int = -1
    offset: int = -1


class StreamIndex:
    """The entries of one stream, in order. Rows are numbered from 0 to ``count``."""

    def __init__(
        self, table: npt.NDArray[Any], windows: Bytes, count: int, size: int, crc: int
    ) -> None:
        self._table, self._windows, self.count = table, windows, count
        # Plain copies, with the end of the stream as a last entry.
        self._bases = np.append(table["base"], np.uint64(size)).astype(np.int64)
        self._crcs = [*table["crc"].tolist(), crc]
        self._rows = table["row"].astype(np.int64)
        self._ends = np.cumsum(table["window"], dtype=np.int64)
        #: Whether it turned out not to fit the data.
        self.distrusted = False
        self.check()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def size(self) -> int:
        """The number of plain bytes."""
        return int(self._bases[-1])

    @property
    def bases(self) -> npt.NDArray[np.int64]:
        """Where each chunk begins in the plain bytes, and where the last one ends."""
        return self._bases

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk, on average."""
        return max(1, self.count // max(len(self), 1))

    def chunks_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the last entry before each row."""
        return np.searchsorted(self._rows, rows, "right") - 1

    def start(self, chunk: int) -> tuple[int, int, int, int]:
        """Return the first row after an entry, where it begins, and the place of the entry."""
        entry = self._table[chunk]
        return int(entry["row"]), int(entry["offset"]), int(entry["position"]), int(entry["base"])

    def inflate(
        self, path: str, compression: Literal["gzip", "zlib"], base: int, *, ahead: bool
    ) -> Iterator[Inflated]:
        """Yield the plain bytes from the entry at ``base`` on, a chunk at a time.

        With ``ahead``, several are inflated at once, ahead of the caller once it asks for the
        second.
        """
        done = int(np.searchsorted(self._bases, base))
        runs = self._runs(path, compression, done, ahead)
        if ahead:
            runs = chain(islice(runs, 1), read_ahead(runs, 1))
        for memory, end, place in runs:
            yield Inflated.within(memory, (), place)
            done = end
            del memory
        if done == len(self):
            return
        self.distrusted = True
        warn(
            f"{stream_index_path(path)} was not used: it was made from other data, or the data is "
            "damaged",
            StaleIndexWarning,
        )
        yield from _inflate_after(path, compression, int(self._bases[done]))

    def _runs(
        self, path: str, compression: Literal["gzip", "zlib"], chunk: int, ahead: bool
    ) -> Iterator[tuple[Bytes, int, int]]:
        """Yield the plain bytes of chunks, after ``ROOM`` free ones, up to an unsound chunk.

        With them come the number of the next chunk, and where it begins in the file.
        """
        run = min(max(_LEAST_RUN, SPACING * thread_count()), _MOST_RUN) if ahead else 0
        most = 0
        with located(path).open(in_order=True) as file:
            while chunk < len(self):
                stop = int(np.searchsorted(self._bases, self._bases[chunk] + most, "right")) - 1
                stop = min(max(stop, chunk + 1), len(self))
                memory, sound = self.chunks(file, compression, chunk, stop, room=ROOM)
                end = chunk + sound
                size = int(self._bases[end] - self._bases[chunk])
                if sound:
                    yield memory[: ROOM + size], end, self._end(end - 1, file.size)
                if end < stop:
                    return
                del memory
                chunk, most = stop, min(max(2 * most, SPACING), run)

    def _end(self, chunk: int, size: int) -> int:
        return int(self._table["position"][chunk + 1]) if chunk + 1 < len(self) else size

    def chunks(
        self,
        file: OpenFile,
        compression: Literal["gzip", "zlib"],
        first: int,
        stop: int,
        *,
        room: int = 0,
    ) -> tuple[Bytes, int]:
        """Inflate some chunks at once; return their plain bytes after ``room`` free ones.

        Return, too, how many there are before the first that is not what was there before.
        """
        bases, parts = self._bases[first : stop + 1] - self._bases[first], []
        memory = empty_bytes(room + int(bases[-1]))
        for chunk, (begin, end) in enumerate(pairwise(bases.tolist()), first):
            stored = self._stored(file, compression, chunk, end - begin)
            window = self._window(chunk)
            if stored is None or window is None:
                break
            bits, out = int(self._table["bits"][chunk]), memory[room + begin : room + end]
            parts.append((stored, bits, window, out, self._crcs[chunk], self._crcs[chunk + 1]))
        return memory, _core.inflate_parts(parts, thread_count())

    def _stored(
        self, file: OpenFile, compression: Literal["gzip", "zlib"], chunk: int, size: int
    ) -> Bytes | None:
        """Return the deflated bytes of a chunk of this plain size, or None if they are not."""
        position, bits = int(self._table["position"][chunk]), int(self._table["bits"][chunk])
        begin = position - (bits > 0)
        # What is longer is not what was inflated before.
        stored = min(self._end(chunk, file.size) - begin, _MOST_GROWTH * size + _HEADER_SIZE)
        if stored <= 0:
            return None
        data = file.pread(stored, begin)
        skipped: int | None = 0
        if not self._table["window"][chunk]:
            skipped = header_size(data[:_HEADER_SIZE], compression)
        if skipped is None or len(data) <= bits // 8:
            return None
        return np.frombuffer(data, np.uint8)[skipped:]

    def _window(self, chunk: int) -> bytes | None:
        """Return the window of an entry, no bytes at a member, and None if it is damaged."""
        size, end = int(self._table["window"][chunk]), int(self._ends[chunk])
        try:
            return open_window(self._windows[end - size : end].tobytes()) if size else b""
        except ValueError:
            return None

    def check(self) -> None:
        """Raise a ValueError if numbers cannot be right, whatever the data."""
        table, bases = self._table, self._bases
        first = table[0] if len(table) else np.ones(1, _TABLE)[0]
        if any(int(first[name]) for name in ("base", "row", "offset", "bits", "crc")):
            raise ValueError("no entry at the beginning")
        sizes = np.diff(bases)
        in_order = all(
            bool((np.diff(table[name].astype(np.int64)) >= 0).all()) for name in _ORDERED
        )
        if not in_order or bool((sizes <= 0).any() | (sizes > _MOST_CHUNK).any()):
            raise ValueError("entries out of order")
        rows, offsets = self._rows, table["offset"].astype(np.int64)
        if bool((rows > self.count).any() | (offsets < bases[:-1]).any()):
            raise ValueError("rows of entries")
        if bool((offsets > bases[-1]).any() | (table["bits"] > 7).any()):
            raise ValueError("places of entries")
        if int(self._ends[-1]) != len(self._windows):
            raise ValueError("windows")

    def encoded(self, fingerprint: Fingerprint) -> bytes:
        """Return the content of the file."""
        info = {
            "file": {"size": fingerprint.size, "crc": fingerprint.crc},
            "entries": len(self),
            "records": self.count,
            "size": int(self._bases[-1]),
            "crc": self._crcs[-1],
        }
        text = json.dumps(info).encode()
        text += b" " * (-(_HEAD.size + len(text)) % 8)
        rest = text + self._table.tobytes() + self._windows.tobytes()
        return _HEAD.pack(STREAM_MAGIC, _VERSION, len(text), checksum(rest)) + rest


_ORDERED = ("position", "row", "offset")
# What decoding an untrusted index may raise.
_WRONG = (
    KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, struct.error
)  # fmt: skip


def _inflate_after(
    path: str, compression: Literal["gzip", "zlib"], base: int
) -> Iterator[Inflated]:
    """Yield the plain bytes of a stream from a place on, inflated from the beginning."""
    passed = 0
    for block in inflate(path, compression):
        rest = block.plain[max(0, base - passed) :]
        passed += len(block.plain)
        if len(rest) or block.failure is not None:
            yield Inflated(rest, (), block.end, block.failure)


class IndexBuilder:
    """Notes entries during a pass over a whole stream."""

    def __init__(self) -> None:
        self._noted: list[_Noted] = []
        self._size = self._crc = self._kept = self._rowless = 0
        self._spacing = SPACING
        self._given_up = False

    def add(self, block: Inflated) -> None:
        """Note the next plain bytes of the stream."""
        if self._given_up:
            return
        last = self._noted[-1].base if self._noted else 0
        plain, at = np.frombuffer(block.plain, np.uint8), 0
        if block.point is not None and self._size - last >= self._spacing:
            position, bits, window = block.point
            self._note(_Noted(position, bits, self._size, self._crc, window))
        for begin, place in block.begins:
            self._pass(plain[at:place])
            self._note(_Noted(begin, 0, self._size, self._crc, b""))
            at = place
        self._pass(plain[at:])

    def _pass(self, plain: Bytes) -> None:
        self._crc = _core.crc32c(plain, self._crc)
        self._size += len(plain)

    def _note(self, entry: _Noted) -> None:
        self._drop_empty()
        self._noted.append(entry)
        self._kept += len(entry.window)
        if self._kept > _MOST_WINDOWS:
            self._thin()
        self._given_up |= len(self._noted) > _MOST_ENTRIES or self._spacing > _MOST_CHUNK // 2

    def _drop_empty(self) -> None:
        """Leave out the last entry if no bytes follow it: its member is empty."""
        if self._noted and self._noted[-1].base == self._size:
            self._kept -= len(self._noted.pop().window)

    def _thin(self) -> None:
        """Leave out points, so that there is room for twice as many."""
        self._spacing *= 2
        kept: list[_Noted] = []
        for entry in self._noted:
            if not entry.window or entry.base - kept[-1].base >= self._spacing:
                kept.append(entry)
        self._noted = kept
        self._rowless = sum(entry.row >= 0 for entry in kept)
        self._kept = sum(len(entry.window) for entry in kept)

    def add_records(self, row: int, offsets: npt.NDArray[np.int64]) -> None:
        """Note where the next records begin, of which the first has this number."""
        for entry in self._noted[self._rowless :]:
            first = int(np.searchsorted(offsets, entry.base))
            if first == len(offsets):
                return
            entry.row, entry.offset = row + first, int(offsets[first])
            self._rowless += 1

    def finished(self, count: int, *, alone: bool = False) -> StreamIndex | None:
        """Return the index of a stream that was read to its end, if it is worth one.

        If it ``alone`` can tell where rows are, it always is, unless it gets too large.
        """
        self._drop_empty()
        noted = self._noted
        windows = sum(1 for entry in noted if entry.window)
        few = not windows or self._size < _LEAST_CHUNK * len(noted)
        if self._given_up or not noted or (few and not alone):
            return None
        for entry in noted[self._rowless :]:
            entry.row, entry.offset = count, self._size
        table = np.array(
            [(e.position, e.base, e.row, e.offset, e.crc, len(e.window), e.bits) for e in noted],
            _TABLE,
        )
        packed = np.frombuffer(b"".join(entry.window for entry in noted), np.uint8)
        try:
            return StreamIndex(table, packed, count, self._size, self._crc)
        except ValueError:
            return None  # a chunk is too large


def save_stream_index(path: str, index: StreamIndex, changed: int | None) -> None:
    """Save the index of a file that has not changed since that time, if its folder allows."""
    if located(path).remote or changed is None:
        return
    with suppress(OSError):
        content = index.encoded(Fingerprint.of(path))
        if located(path).last_change() == changed and len(content) <= _MOST_SAVED:
            temporary = temporary_path(path, ".recmap-gz")
            stream_index_path(path).write_whole(content, durable=False, temporary=temporary)


def load_stream_index(path: str) -> StreamIndex | None:
    """Load the index next to a file; return None if there is none that matches it."""
    if located(path).remote or not can_resume():
        return None
    try:
        content = stream_index_path(path).load(_MOST_SAVED)
        return _parsed(path, content)
    except OSError:
        return None
    except _WRONG:
        return None  # the next pass over the file makes another


def _parsed(path: str, content: Bytes) -> StreamIndex | None:
    magic, version, size, crc = _HEAD.unpack(content[: _HEAD.size].tobytes())
    rest = content[_HEAD.size :]
    if magic != STREAM_MAGIC or version != _VERSION or _core.crc32c(rest) != crc:
        return None
    info = json.loads(rest[:size].tobytes())
    for number in (info["entries"], info["records"], info["size"], info["crc"]):
        if type(number) is not int or not 0 <= number < 1 << 62:
            return None
    if not Fingerprint(info["file"]["size"], info["file"]["crc"]).fits(path):
        return None
    end = size + info["entries"] * _TABLE.itemsize
    table = rest[size:end].view(_TABLE)
    if len(table) != info["entries"]:
        return None
    return StreamIndex(table, rest[end:], info["records"], info["size"], info["crc"])
