"""Outputs: what is being written, and appears on commit, all of it or nothing.

``Location.create`` begins one. On disk it has a hidden temporary name until it is complete, and is
then renamed (``DiskOutput``). An object is sent while it is written (``object_writer.SentObject``),
or, if it must be read or changed before it is complete, made in local space and sent then
(``staging.StagedObject``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, OutputError
from recmap.local.atomic_write import make_folder, put_in_place, sync, sync_tree, writing
from recmap.local.temporary import remove, temporary_path
from recmap.machine.threads import start_thread
from recmap.native import _core

Buffer = bytes | npt.NDArray[np.uint8]
Compression: TypeAlias = Literal["gzip", "zlib"] | None

# Smaller writes are joined before they go to the spooler.
_WRITE_SIZE = 1 << 20
# The most writes that wait for the thread.
_WAITING = 2
# Disk space is reserved this far ahead, for files that are not small.
_RESERVE, _LEAST_RESERVED = 64 << 20, 1 << 20


def choose_compression(path: str, asked: Compression) -> Compression:
    """Choose how to compress a file: as asked, or else by its suffix."""
    by_name: dict[str, Compression] = {".gz": "gzip", ".zlib": "zlib"}
    return asked or by_name.get(os.path.splitext(path)[1].lower())


class Output(ABC):
    """A file or folder that is being written, and appears when it is committed.

    ``target`` is its final name. Leaving its context commits it, or aborts it after an error.
    """

    #: Where it is until then, to be read and changed; "" for an object that is sent meanwhile.
    path: str

    def __init__(self, target: str, durable: bool) -> None:
        self.target, self.durable = target, durable
        self.finished = self.appeared = False
        self._stream: OutputStream | None = None
        # The paths of the descriptions of a file, and what writes them.
        self._companions: list[tuple[Callable[[str], str], Callable[[str, str], None]]] = []

    def stream(
        self, compression: Compression = None, spooler: Spooler | None = None
    ) -> OutputStream:
        """Begin to append bytes, in its own thread unless ``spooler`` has one."""
        if compression not in ("gzip", "zlib", None):
            raise OptionError(f'compression={compression!r}: use "gzip", "zlib" or None')
        self._open()
        self._stream = OutputStream(self, compression, spooler or Spooler())
        return self._stream

    def accompany(self, named: Callable[[str], str], save: Callable[[str, str], None]) -> None:
        """Let ``save`` write what describes this file when it is committed.

        ``named`` returns the path of the description of a file. ``save`` gets where the bytes are
        then, and the path to describe. On disk that is before the file gets its name. In a store it
        is after the object has appeared, because what describes it must not be older.
        """
        self._companions.append((named, save))

    def finish(self) -> None:
        """Write the end; if ``durable``, wait until all of it is on disk."""
        if self.finished:
            return
        if self._stream is not None:
            self._stream.finish()
        with writing(self.target):
            self._close()
        self.finished = True

    def commit(self) -> None:
        """Let it appear, finished."""
        self.finish()
        self.commit_all([self])

    def commit_all(self, outputs: Sequence[Output]) -> None:
        """Let several finished outputs of this kind appear, this one among them."""
        for output in outputs:
            with writing(output.target):
                output.appear()

    def state(self) -> list[int | str] | None:
        """Return the size and version that a finished file has once it has appeared.

        Return None if that is known only then, as in a store.
        """
        return None

    def abort(self) -> None:
        """Remove what was written."""
        if self._stream is not None:
            self._stream.spooler.stop()
        self.discard()

    @abstractmethod
    def append(self, data: npt.NDArray[np.uint8]) -> None:
        """Append bytes."""

    @abstractmethod
    def file(self) -> IO[bytes]:
        """Return the file that the stream appends to, to be read or changed."""

    @abstractmethod
    def scratch(self, spooler: Spooler) -> OutputStream:
        """Begin an unnamed file in the same folder, which is gone when this one is finished."""

    @abstractmethod
    def discard(self) -> None:
        """Close and remove what was written. No thread writes to it now."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove it without waiting: a thread may still write to it, and discards it later."""

    @abstractmethod
    def _open(self) -> None:
        """Prepare to append."""

    @abstractmethod
    def _close(self) -> None:
        """Write the end."""

    @abstractmethod
    def appear(self) -> None:
        """Let it appear, with what describes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.commit()
        except BaseException:
            self.abort()
            raise
        if kind is not None:
            self.abort()


class DiskOutput(Output):
    """A file or a folder on disk. It has a temporary name until it is committed.

    Whoever does not append to a stream makes the file, or the folder, at ``path``.
    """

    def __init__(self, target: str, durable: bool, path: str | None = None) -> None:
        """``path`` defaults to a hidden name next to the target."""
        super().__init__(target, durable)
        # Unnamed files lie there, too.
        self._near = path or target
        if path is None:
            make_folder(target)
        self.path = path or temporary_path(target)
        self._file: IO[bytes] | None = None
        self._scratch: list[DiskOutput] = []
        self._size = 0
        # Where the reserved disk space ends; None if the file system cannot reserve space.
        self._reserved: int | None = 0

    def _open(self) -> None:
        if os.path.isdir(self.target):
            raise OutputError(f"{self.target} is a folder: give the name of a file")
        with writing(self.target):
            self._file = open(self.path, "x+b", buffering=0)  # noqa: SIM115 - see _close

    def append(self, data: npt.NDArray[np.uint8]) -> None:
        self._reserve(len(data))
        view = data.data
        while view:
            view = view[self.file().write(view) :]
        self._size += len(data)

    def _reserve(self, size: int) -> None:
        end = self._size + size
        if self._reserved is None or end < max(self._reserved, _LEAST_RESERVED):
            return
        fits = _core.reserve(self.file().fileno(), self._size, size + _RESERVE)
        self._reserved = end + _RESERVE if fits else None

    def file(self) -> IO[bytes]:
        assert self._file is not None
        return self._file

    def scratch(self, spooler: Spooler) -> OutputStream:
        made = DiskOutput(self._near, False, temporary_path(self._near, ".member"))
        stream = made.stream(spooler=spooler)
        os.unlink(made.path)
        self._scratch.append(made)
        return stream

    def _close(self) -> None:
        for each in self._scratch:
            each.discard()
        if self._file is None:
            if self.durable:
                sync_tree(self.path)
            return
        if self._reserved:  # release the unused space
            os.ftruncate(self._file.fileno(), os.fstat(self._file.fileno()).st_size)
        if self.durable:
            os.fsync(self._file.fileno())
        self._file.close()

    def appear(self) -> None:
        made = []
        try:
            for named, save in self._companions:
                save(self.path, self.target)
                made.append(named(self.target))
            put_in_place(self.path, self.target)
        except BaseException:
            if not os.path.lexists(self.target):
                for path in made:
                    remove(path)
            raise
        self.appeared = True
        if self.durable:
            sync(os.path.dirname(self.target))

    def state(self) -> list[int | str] | None:
        status = os.stat(self.path)
        return [status.st_size, status.st_mtime_ns]

    def abort(self) -> None:
        for each in self._scratch:
            each.abort()
        super().abort()

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
        remove(self.path)

    def abandon(self) -> None:
        remove(self.path)


class OutputStream:
    """Appends bytes to an output, in the thread of its spooler."""

    def __init__(self, output: Output, compression: Compression, spooler: Spooler) -> None:
        self.output, self.spooler = output, spooler
        self._deflater = None
        if compression is not None:
            from recmap.local.gzip import Deflater

            self._deflater = Deflater(compression)
        self._small: list[Buffer] = []
        self._held = 0
        #: The bytes that the output has.
        self.written = 0
        #: Called with what is written, before it is compressed.
        self.watcher: Callable[[npt.NDArray[np.uint8]], None] | None = None

    def write(self, data: Buffer) -> None:
        """Append bytes. Small writes are joined first."""
        if len(data) >= _WRITE_SIZE:
            self.flush()
            self.spooler.put(self, data)
            return
        self._small.append(data)
        self._held += len(data)
        if self._held >= _WRITE_SIZE:
            self.flush()

    def flush(self) -> None:
        """Pass the collected bytes to the spooler."""
        small, self._small, self._held = self._small, [], 0
        if small:
            gathered = np.concatenate([np.frombuffer(data, np.uint8) for data in small])
            self.spooler.put(self, gathered)

    def finish(self) -> None:
        """Wait until everything is written; it can be read or overwritten then."""
        self.flush()
        self.spooler.close()
        deflater, self._deflater = self._deflater, None
        for packed in deflater.finish() if deflater is not None else ():
            self._append(packed)

    def write_now(self, data: Buffer) -> None:
        """Compress and write, in the spooler's thread."""
        if self.watcher is not None:
            self.watcher(np.frombuffer(data, np.uint8))
        if self._deflater is None:
            self._append(data)
        else:
            for packed in self._deflater.compress(data):
                self._append(packed)

    def _append(self, data: Buffer) -> None:
        with writing(self.output.target):
            self.output.append(np.frombuffer(data, np.uint8))
        self.written += len(data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite bytes of a finished stream."""
        with writing(self.output.target):
            rest = memoryview(data)
            while rest:
                written = os.pwrite(self.output.file().fileno(), rest, offset)
                rest, offset = rest[written:], offset + written

    def reader(self) -> IO[bytes]:
        """Return the file of a finished stream, ready to be read from the beginning."""
        file = self.output.file()
        file.seek(0)
        return file


class Spooler:
    """Writes in a background thread, so that encoding and writing overlap.

    Only a few writes wait at a time. An error is raised in the caller's thread, on its next
    call.
    """

    def __init__(self) -> None:
        # Unlike Queue, SimpleQueue is safe to use from the garbage collector.
        self._queue: SimpleQueue[tuple[OutputStream, Buffer] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(_WAITING):
            self._room.put(None)
        self._error: BaseException | None = None
        self._abandoned: Sequence[Output] = ()
        self._thread = start_thread(self._run, name="recmap-writer")
        # If no thread could be started, the caller writes.
        self._stopped = self._thread is None

    def put(self, stream: OutputStream, data: Buffer) -> None:
        self._raise()
        if self._stopped:
            stream.write_now(data)
            return
        self._room.get()
        self._queue.put((stream, data))

    def close(self) -> None:
        """Wait until everything is written."""
        self.stop()
        self._raise()

    def stop(self) -> None:
        """Wait until the thread has ended. Ignore errors."""
        if self._thread is not None and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._stopped = True

    def abandon(self, outputs: Sequence[Output]) -> None:
        """Remove all of these outputs without waiting.

        The garbage collector calls this, perhaps in a thread that holds a lock, or in the
        spooler's own thread.
        """
        for output in outputs:
            if self._stopped:
                output.discard()
            else:  # the thread may still write to it, and discards it later
                output.abandon()
        self._abandoned = outputs
        self._queue.put(None)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._room.put(None)
            # After an error, keep emptying the queue, so that no caller waits for room.
            if self._error is None and not self._abandoned:
                self._write(*item)
            del item  # free it before waiting for the next
        for output in self._abandoned:
            output.discard()

    def _write(self, stream: OutputStream, data: Buffer) -> None:
        try:
            stream.write_now(data)
        except BaseException as e:  # raised in the caller's thread
            self._error = e
