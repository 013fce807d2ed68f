"""Output files, which get their final name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import IO, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    Message,
    Option,
    OptionError,
    OutputExistsError,
)
from recmap.files.atomic_write import writing
from recmap.files.gzip import Deflater
from recmap.files.local_path import located
from recmap.files.threads import start_thread

Buffer = bytes | npt.NDArray[np.uint8]
Compression: TypeAlias = Literal["gzip", "zlib"] | None

# Smaller writes are joined before they go to the spooler.
_WRITE_SIZE = 1 << 20
# The most writes that wait for the thread.
_WAITING = 2


def choose_compression(path: str, asked: Compression) -> Compression:
    """Choose how to compress a file: as asked, or else by its suffix."""
    by_name: dict[str, Compression] = {".gz": "gzip", ".zlib": "zlib"}
    return asked or by_name.get(os.path.splitext(path)[1].lower())


class Spooler:
    """Writes in a background thread, so that encoding and writing overlap.

    Only a few writes wait at a time. An error is raised in the caller's thread, on its next
    call.
    """

    def __init__(self) -> None:
        # Unlike Queue, SimpleQueue is safe to use from the garbage collector.
        self._queue: SimpleQueue[tuple[OutputFile, Buffer] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(_WAITING):
            self._room.put(None)
        self._error: BaseException | None = None
        self._abandoned: Sequence[OutputFile] = ()
        self._thread = start_thread(self._run, name="recmap-writer")
        # If no thread could be started, the caller writes.
        self._stopped = self._thread is None

    def put(self, file: OutputFile, data: Buffer) -> None:
        self._raise()
        if self._thread is None:
            file.write_now(data)
            return
        self._room.get()
        self._queue.put((file, data))

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

    def abandon(self, files: Sequence[OutputFile]) -> None:
        """Remove all of these files without waiting.

        The garbage collector calls this, perhaps in a thread that holds a lock, or in the
        spooler's own thread.
        """
        for file in files:
            if self._stopped:
                file.abort()
            else:  # the thread may still write to it, and closes it later
                file.abandon()
        self._abandoned = files
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
        for file in self._abandoned:
            file.abort()

    def _write(self, file: OutputFile, data: Buffer) -> None:
        try:
            file.write_now(data)
        except BaseException as e:  # raised in the caller's thread
            self._error = e


class OutputFile:
    """A file with a temporary name until commit() gives it the final one.

    An object is sent while it is written, and appears on commit(). It has no temporary name, and
    can be neither read nor changed before.
    """

    def __init__(
        self, path: str, compression: Compression, spooler: Spooler, *, unnamed: bool = False
    ) -> None:
        """Create the file. An ``unnamed`` one is gone when it is closed or the process ends."""
        if compression not in ("gzip", "zlib", None):
            raise OptionError(f'compression={compression!r}: use "gzip", "zlib" or None')
        self.path = path
        self._target = located(path).create(unnamed=unnamed)
        self._deflater = Deflater(compression) if compression is not None else None
        self._spooler = spooler
        self._small: list[Buffer] = []
        self._held = 0
        #: The bytes in the file.
        self.written = 0
        #: Called with what is written, before it is compressed.
        self.watcher: Callable[[npt.NDArray[np.uint8]], None] | None = None

    @property
    def temporary(self) -> str:
        """The temporary name; "" for an object, which has none."""
        return self._target.temporary

    def write(self, data: Buffer) -> None:
        """Append bytes. Small writes are joined first."""
        if len(data) >= _WRITE_SIZE:
            self.flush()
            self._spooler.put(self, data)
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
            self._spooler.put(self, gathered)

    def write_now(self, data: Buffer) -> None:
        """Compress and write, in the spooler's thread."""
        if self.watcher is not None:
            self.watcher(np.frombuffer(data, np.uint8))
        if self._deflater is None:
            self._write_all(data)
        else:
            for packed in self._deflater.compress(data):
                self._write_all(packed)

    def _write_all(self, data: Buffer) -> None:
        with writing(self.path):
            self._target.write(np.frombuffer(data, np.uint8), self.written)
        self.written += len(data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite bytes. Close the spooler first."""
        with writing(self.path):
            rest = memoryview(data)
            while rest:
                written = os.pwrite(self.reader().fileno(), rest, offset)
                rest, offset = rest[written:], offset + written

    def reader(self) -> IO[bytes]:
        """Return the file, ready to be read from the beginning. Close the spooler first."""
        file = self._target.file()
        file.seek(0)
        return file

    def finish(self, durable: bool) -> None:
        """Write the end of the stream and close the file. Close the spooler first."""
        if self._deflater is not None:
            for packed in self._deflater.finish():
                self._write_all(packed)
        with writing(self.path):
            self._target.finish(durable)

    def commit(self, durable: bool) -> None:
        """Give the finished file its final name."""
        with writing(self.path):
            self._target.commit(durable)

    def abandon(self) -> None:
        """Remove the file without waiting; a thread may still write to it, and aborts it later."""
        self._target.abandon()

    def abort(self) -> None:
        """Close and remove the file."""
        self._target.abort()


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise if something at ``path`` must not be overwritten."""
    if not overwrite and located(path).exists():
        raise OutputExistsError(
            Message(
                f"{path} exists already", hint=("use ", Option("overwrite", True), " to replace it")
            )
        )
    refuse_special(path)


def refuse_special(path: str) -> None:
    """Raise if ``path`` is a pipe or a device such as /dev/null, which a file would replace."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OutputExistsError(f"{path} is a pipe or a device, not a file; give another name")
