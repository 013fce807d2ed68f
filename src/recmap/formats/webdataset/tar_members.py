"""The members of a tar file: ustar, pax, GNU and the old format, without trusting a byte of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from recmap.errors import DataError
from recmap.formats.inflated_file import InflatedFile
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.machine.mapped import MappedFile

BLOCK = 512
#: The keyword of a pax header with the description of the columns.
DESCRIPTION = "RECMAP.schema"
# Long names and pax headers are read whole. No real one is larger.
_MOST_TEXT = 1 << 20
# Bytes of an object to fetch at once, and of the end of a file to look at.
_WINDOW = 1 << 20
# How files of gzip, bzip2, xz and zstd begin.
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd")
_ADLER = 65521
_FILES, _LINKS, _DEVICES = (b"0", b"\0", b"7"), (b"1", b"2"), (b"3", b"4", b"6")
_FOLDER = b"5"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_ALL, _SPARSE, _LABEL = b"L", b"K", b"xX", b"g", b"S", b"V"

Read = Callable[[int, int], bytes]


class TarMember(NamedTuple):
    """A file in a tar file: its name, where its header and its content begin, and its size."""

    name: bytes
    header: int
    start: int
    size: int


class TarMembers:
    """The files in a tar file, in order. Iterate once; then ``description`` is known."""

    def __init__(self, path: str, file: MappedFile) -> None:
        self._path, self._file, self._size = path, file, file.size
        #: Returns bytes of the file, near the member that was found last; fewer at its end.
        self.read: Read
        #: What a pax header for the whole file says of the columns, as text.
        self.description: str | None = None
        # What the headers before a member say of it.
        self._name: bytes | None = None
        self._length: int | None = None

    def __iter__(self) -> Iterator[TarMember]:
        if self._file.whole:
            content = self._file.bytes.data
            self.read = lambda at, count: content[at : at + count].tobytes()
            yield from self._members(self.read)
            return
        with self._opened() as file:
            window = (0, b"")

            def read(at: int, count: int) -> bytes:
                nonlocal window
                begin, held = window
                if not (begin <= at and at + count <= begin + len(held)):
                    window = begin, held = at, file.pread(max(count, _WINDOW), at)
                return held[at - begin : at - begin + count]

            self.read = read
            yield from self._members(read)

    def _opened(self) -> OpenFile:
        if isinstance(self._file, InflatedFile):
            return self._file.opened()
        return located(self._path).open(in_order=True)

    def _members(self, read: Read) -> Iterator[TarMember]:
        at, last = 0, b""
        while True:
            header = read(at, BLOCK)
            if at == 0 and header[:4].startswith(_PACKED):
                self._fail(
                    "a compressed tar file; recmap reads only gzip, in files named .tar.gz; "
                    "decompress it first",
                    0,
                )
            if len(header) < BLOCK or not header[0]:
                self._end(read, at, header, last)
                return
            if not _is_sound(header):
                self._fail(
                    "no member begins there, because the checksum of the header is wrong"
                    f"{_after(last)}",
                    at,
                )
            kind = header[156:157]
            size = self._length if self._length is not None else self._number(header, at)
            start = at + BLOCK
            following = start + size + -size % BLOCK
            if kind in _FILES and not (name := self._name or _name(header)).endswith(b"/"):
                if start + size > self._size:
                    self._fail(
                        f"member {_shown(name)} is cut: it has {size:,} bytes from byte {start:,} "
                        f"on, and the file has {self._size:,}; write or download it again",
                        at,
                    )
                self._name = self._length = None
                last = name
                yield TarMember(name, at, start, size)
            elif kind in (_LONG_NAME, _LONG_LINK) or kind in _PAX or kind == _PAX_ALL:
                self._apply(kind, self._text(read, start, size, at), at)
            else:
                self._skip(kind, self._name or _name(header), at)
                if kind == _FOLDER:  # its size says nothing
                    following = start
                self._name = self._length = None
            at = following

    def _end(self, read: Read, at: int, header: bytes, last: bytes) -> None:
        """Check that the file ends here, with blocks of zeros and nothing else."""
        if self._size == 0 or len(header) < BLOCK:
            self._fail(
                f"the archive is cut{_after(last)}: a tar file ends with blocks of zeros; write "
                "or download it again",
                min(at, self._size),
            )
        while at < self._size:
            block = np.frombuffer(read(at, min(_WINDOW, self._size - at)), np.uint8)
            if block.any():
                self._fail(
                    f"the archive ends{_after(last)}, but more data follows; if tar files were "
                    "joined, join them with tar --concatenate, or open them one by one",
                    at + int(np.argmax(block != 0)),
                )
            at += len(block)

    def _skip(self, kind: bytes, name: bytes, at: int) -> None:
        """Pass over a folder or a label; refuse what would be a file for other programs."""
        if kind == _SPARSE:
            self._fail(f"member {_shown(name)} is sparse; write it without tar --sparse", at)
        if kind in _LINKS:
            self._fail(
                f"member {_shown(name)} is a link; write it with tar --dereference "
                "--hard-dereference",
                at,
            )
        if kind in _DEVICES or kind in _FILES or kind in (_FOLDER, _LABEL):
            return
        self._fail(f"member {_shown(name)} is of type {kind!r}, which is not known", at)

    def _text(self, read: Read, start: int, size: int, at: int) -> bytes:
        if size > _MOST_TEXT or start + size > self._size:
            self._fail(f"a name or header of {size:,} bytes, which is too long", at)
        return read(start, size)

    def _apply(self, kind: bytes, text: bytes, at: int) -> None:
        """Remember what a header says of the member after it, or of all."""
        if kind == _LONG_NAME:
            self._name = text.partition(b"\0")[0]
            return
        if kind == _LONG_LINK:
            return
        for key, value in self._records(text, at):
            if key.startswith(b"GNU.sparse"):
                self._fail("a sparse member; write it without tar --sparse", at)
            if kind == _PAX_ALL:
                if key in (b"path", b"size"):
                    self._fail(f"one {key.decode()} for all members", at)
                if key == DESCRIPTION.encode():
                    self.description = value.decode("utf-8", "replace")
            elif key == b"path":
                self._name = value
            elif key == b"size":
                if not value.isdigit() or len(value) > 19:
                    self._fail(f"a size of {value[:40]!r}", at)
                self._length = int(value)

    def _records(self, text: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of a pax header: ``LENGTH KEY=VALUE`` and a line break."""
        while text.strip(b"\0"):
            length, space, _ = text[:24].partition(b" ")
            end = int(length) if length.isdigit() and space else 0
            key, equals, value = text[len(length) + 1 : max(end - 1, 0)].partition(b"=")
            if not equals or end > len(text) or text[end - 1 : end] != b"\n":
                self._fail("a damaged pax header", at)
            yield key, value
            text = text[end:]

    def _number(self, header: bytes, at: int) -> int:
        """Return the size in a header: octal, or in 11 bytes if it is large."""
        field = header[124:136]
        if field[0] & 0x80:
            if field[0] != 0x80:
                self._fail("a negative size", at)
            return int.from_bytes(field[1:], "big")
        digits = field.partition(b"\0")[0].strip()
        if not digits:
            return 0
        if not digits.isdigit() or b"8" in digits or b"9" in digits:
            self._fail(f"a size of {digits!r}, which is not octal", at)
        return int(digits, 8)

    def _fail(self, why: str, at: int) -> NoReturn:
        raise DataError(f"{self._path}: byte {at:,}: {why}", file=self._path, byte=at)


def _after(last: bytes) -> str:
    return f" after member {_shown(last)}" if last else ""


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace")[:200])


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    # GNU tar has times where ustar has the beginning of the name.
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _is_sound(header: bytes) -> bool:
    """Compare the checksum of a header: the sum of its bytes, with spaces in its own place."""
    digits = header[148:156].strip(b" \0")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        return False
    told = int(digits, 8)
    plain = told - 8 * 32 + sum(header[148:156])
    # adler32 has the sum of all bytes in its lower half, and is much faster than sum().
    if zlib.adler32(header) & 0xFFFF == (plain + 1) % _ADLER:
        return True
    # Some old programs added up signed bytes.
    return plain == sum(byte - 256 * (byte > 127) for byte in header)
