"""Open TFRecord files, and read and write raw records, whatever they contain."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Literal, Self, overload

import numpy as np

from recmap.errors import (
    ColumnError,
    CompressionError,
    Message,
    Option,
    OptionError,
    UnknownFormatError,
)
from recmap.local.inflate import CompressionOption, begins_stream
from recmap.local.local_path import located, refuse_existing
from recmap.local.output import Compression, choose_compression
from recmap.model.arguments import check_choice, check_flag, check_iterable
from recmap.model.habits import helpful
from recmap.model.iteration import BlockIteration
from recmap.model.progress import Counter, ProgressOption
from recmap.native import _core
from recmap.recognise.file_kinds import is_record
from recmap.recognise.sniff import holds_records, named_tfrecord, sniff, unknown_format
from recmap.store.paths import PathLike, PathsLike, as_location, expand, for_each_file
from recmap.store.storage import Storage
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.file_group import in_turn
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile, Window

# Bytes of records framed at once.
_FRAME_AT_ONCE = 1 << 20


def open_record_file(
    path: str, verify: bool, compression: CompressionOption = "auto"
) -> RecordFile:
    """Open one file without an index.

    Raise an UnknownFormatError if it is not a TFRecord file.
    """
    _check_content(path)
    found = check_compression(path, compression)
    if found is None:
        return PlainFile(path, verify)
    return CompressedFile(path, found, verify, None)


def _check_content(path: str) -> None:
    found = sniff(path)
    if located(path).stat().size == 0 or (found is not None and found.format == "tfrecord"):
        return
    if found is not None and found.format is not None:
        raise UnknownFormatError(
            f"{path} is {found.format}, not TFRecord: rm.open reads it", file=path
        )
    packed = found is not None and found.packed in ("gzip", "zlib")
    if named_tfrecord(path) and (found is None or packed):
        return
    if found is not None or not holds_records(path):
        raise unknown_format(path, found, records=True)


def check_compression(path: str, asked: CompressionOption) -> Compression:
    """Return how a file is compressed; raise if that is not what was asked for."""
    if asked not in ("auto", "gzip", "zlib", None):
        raise OptionError(f'compression={asked!r}: use "auto", "gzip", "zlib" or None')
    with located(path).open() as file:
        head = file.pread(_core.FRAME_SIZE, 0)
    found = _detect_compression(head)
    if asked in ("auto", found) or not head:
        return found
    raise CompressionError(
        Message(
            f"{path}: compression={asked!r} was asked for, but the content is "
            f"{found or 'not compressed'} (use ",
            Option("compression", "auto", of_input=True),
            ")",
        ),
        file=path,
    )


def check_compressions(
    files: Sequence[str], option: CompressionOption, examined: Collection[int]
) -> list[Compression]:
    """Return how each file is compressed.

    Of many objects, only some are looked at. If these agree, the others are taken to be like
    them; reading one that is not fails.
    """
    if len(examined) < len(files) and located(files[0]).remote:
        some = [files[i] for i in sorted(examined)]
        found = set(for_each_file(lambda file: check_compression(file, option), some))
        if len(found) == 1:
            return [*found] * len(files)
    return for_each_file(lambda file: check_compression(file, option), files)


def _detect_compression(head: bytes) -> Compression:
    """Detect how a file is compressed from its first bytes.

    A plain file begins with the length of a record, which may look like gzip's magic number.
    The CRC that follows tells them apart.
    """
    if is_record(head):
        return None
    if begins_stream(head, "gzip"):
        return "gzip"
    return "zlib" if begins_stream(head, "zlib") else None


@overload
def records(
    path: PathsLike,
    *,
    view: Literal[False] = False,
    errors: Literal["raise", "skip"] = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    storage: Mapping[str, Any] | None = None,
) -> Iterator[bytes]: ...
@overload
def records(
    path: PathsLike,
    *,
    view: Literal[True],
    errors: Literal["raise", "skip"] = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    storage: Mapping[str, Any] | None = None,
) -> Iterator[memoryview]: ...
@helpful
def records(
    path: PathsLike,
    *,
    view: bool = False,
    errors: Literal["raise", "skip"] = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    storage: Mapping[str, Any] | None = None,
) -> Iterator[bytes] | Iterator[memoryview]:
    """Iterate over the raw records of files, for records that are not Examples.

    With ``view``, each record is a memoryview of the mapped file. It stays valid as long as
    you hold it. ``storage`` has the options for URLs, as in ``rm.open``. The iterator is for one
    thread; make one for each.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("raw.tfrecord", [b"one", b"two"])
    2
    >>> list(rm.tfrecord.records("raw.tfrecord"))
    [b'one', b'two']
    """
    check_choice("errors", errors, ("raise", "skip"))
    check_choice("compression", compression, ("auto", "gzip", "zlib", None))
    view, verify = check_flag("view", view), check_flag("verify", verify)
    files = expand(path, storage)
    opened = for_each_file(lambda file: open_record_file(file, verify, compression), files)
    windows = (
        (window, located(each.path).remote)
        for each in in_turn(opened)
        for window in each.windows(errors == "skip")
    )
    if not view:
        return _RecordIteration((window.bytes.data, _spans(window)) for window, _ in windows)
    return BlockIteration(_views(window, remote) for window, remote in windows)


def _views(window: Window, remote: bool) -> Iterator[memoryview]:
    views = map(window.bytes.data.__getitem__, starmap(slice, _spans(window)))
    # What is read of an object is gone when the next window is read.
    return map(memoryview, map(bytes, views)) if remote else views


class _RecordIteration(BlockIteration[bytes]):
    """Iterates over copies of records."""

    __slots__ = ()

    def __init__(self, blocks: Generator[Any, None, None]) -> None:
        super().__init__(blocks)
        self._block = (b"", iter(()))

    def __next__(self) -> bytes:
        while True:
            block = self._block
            data, spans = block
            for begin, end in spans:
                return bytes(data[begin:end])
            self._advance(block)


def _spans(window: Window) -> Iterator[tuple[int, int]]:
    # Records are stored end to end: a header of 12 bytes, the data, and a CRC of 4 bytes.
    begins, ends = window.offsets + 12, window.offsets[1:] - 4
    return zip(begins.tolist(), [*ends.tolist(), window.scan.end - 4], strict=False)


@helpful
def write_records(
    path: PathLike,
    records: Iterable[bytes | bytearray | memoryview],
    *,
    compression: Compression = None,
    overwrite: bool = False,
    storage: Mapping[str, Any] | None = None,
) -> int:
    """Write raw records to a file, and return their number.

    The file appears once all records are written. It is compressed if ``compression`` says so,
    or if its name ends with ``.gz`` or ``.zlib``. ``path`` may be a URL in a store, with its
    options in ``storage``.
    """
    target = as_location(path, storage=Storage(storage))
    located(target).refuse_unwritable()
    refuse_existing(target, check_flag("overwrite", overwrite))
    check_iterable("records", records, '[b"a", b"bc"]')
    target.remove_leftovers(target.name.__eq__)
    count = size = 0
    held: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    with target.create() as output:
        stream = output.stream(choose_compression(target, compression))
        for record in records:
            try:
                held.append(np.frombuffer(record, np.uint8))
            except (TypeError, ValueError):
                kind = type(record).__name__
                raise ColumnError(f"record {count:,}: give bytes, not {kind}") from None
            size += len(held[-1])
            count += 1
            if size >= _FRAME_AT_ONCE:
                stream.write(_core.frame(held))
                held, size = [], 0
        stream.write(_core.frame(held))
    return count


class ScanProgress:
    """Yields the windows of files to one or more threads, and reports the bytes read.

    Use it as a context manager: leaving it stops the scans of all threads and ends the line
    of a progress bar.
    """

    def __init__(self, files: Sequence[str], progress: ProgressOption) -> None:
        total = sum(located(file).stat().size for file in files)
        self._counter = Counter(None, progress, total_bytes=total, every=0.0)
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True  # after an error, the other threads can stop
        if kind is None:
            self._counter.finish()
        self._counter.close()

    def windows(self, file: str, *, offsets: bool = True) -> Iterator[Window]:
        """Yield all records of a file with matching CRCs, and the damage between them."""
        return self.of(open_record_file(file, verify=True), skip=True, offsets=offsets)

    def of(
        self, file: RecordFile, skip: bool, *, offsets: bool = True
    ) -> Generator[Window, None, None]:
        """Yield the windows of an open file."""
        counted = 0
        try:
            for window in file.windows(skip, offsets=offsets):
                if self._stopped:
                    return
                yield window
                self._counter.add(0, window.passed - counted)
                counted = window.passed
        except GeneratorExit:
            self._counter.add(0, -counted)  # the file is scanned again, or not at all
            raise
        self._counter.add(0, located(file.path).stat().size - counted)
