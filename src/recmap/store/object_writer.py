"""Write objects: whole, under a condition, or in parts while their bytes are made.

An object appears when it is complete, or not at all. An upload that fails or is given up is
aborted, so that no parts stay behind; only a killed process leaves some.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Condition, Thread
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    ObjectChangedError,
    OptionError,
    OutputError,
    OutputExistsError,
    PathNotFoundError,
)
from recmap.local.location import Version
from recmap.local.output import Output, OutputStream, Spooler
from recmap.machine.threads import start_thread
from recmap.store.object_address import ObjectAddress
from recmap.store.patience import SILENCE

_Bytes = npt.NDArray[np.uint8]

# Stores take at most this many parts, of at least 5 MiB (S3), and objects up to 5 TB.
_MOST_PARTS = 10_000
_LEAST_PART = 5 << 20
# Smaller parts cost a server more requests than bytes; with larger ones, fewer are in flight.
_USUAL_PART = 8 << 20
# Parts in flight at a time; more did not make a server faster.
_REQUESTS = 4
# Parts of an object whose size is not known in advance, so that it may have 335 GB.
_UNKNOWN_PART = 32 << 20
# S3 copies no larger object in one request.
_MOST_COPIED = 5_000_000_000
# Seconds to wait at exit until open uploads are aborted.
_GRACE = 10.0
# More bytes than any manifest or lock has.
_MOST_READ = 256 << 20
# Bytes of a file to read at once.
_READ_SIZE = 4 << 20


@dataclass(frozen=True)
class UploadParts:
    """The size of the parts of an upload, and how many are sent at a time."""

    size: int = _USUAL_PART
    requests: int = _REQUESTS

    @property
    def memory(self) -> int:
        """The bytes that an upload holds at most: parts in flight, one being filled, and what
        waits.
        """
        return (self.requests + 3) * self.size


def choose_parts(expected: int | None, memory: int | None = None) -> UploadParts:
    """Choose parts for an object of about ``expected`` bytes, to fit into ``memory`` if given.

    The object may become half as large again. If the memory is too small for parts of which 10,000
    are enough, they are larger than that.
    """
    size, least = _UNKNOWN_PART, _LEAST_PART
    if expected is not None:
        least = max(_LEAST_PART, -(-3 * expected // (2 * _MOST_PARTS)))
        size = max(_USUAL_PART, least)
    if memory is None:
        return UploadParts(size, _REQUESTS if size <= _USUAL_PART else 2)
    size = max(least, min(size, memory // 5))
    return UploadParts(size, max(1, min(_REQUESTS, memory // size - 3)))


_PARTS: ContextVar[UploadParts | None] = ContextVar("recmap parts", default=None)


@contextmanager
def sending(parts: UploadParts | None) -> Iterator[None]:
    """Let the uploads that begin here have these parts."""
    token = _PARTS.set(parts)
    try:
        yield
    finally:
        _PARTS.reset(token)


def parts_to_send() -> UploadParts:
    """Return the parts of an upload that begins here."""
    return _PARTS.get() or choose_parts(None)


def refuse_unwritable(path: ObjectAddress) -> None:
    """Raise if recmap does not write there: to an HTTP server, or to an ambiguous name."""
    if "\\" in path.key:
        raise OptionError(
            f"{path}: some stores treat a backslash in a name as a slash, so the data would not "
            "be found again; use a name without one, and / between folders"
        )
    if path.store.url.scheme in ("http", "https", "hf"):
        raise OptionError(
            f"{path}: recmap reads from HTTP servers and the Hub, but does not write to them; give "
            "a path, or a URL that begins with s3, gs or az"
        )


def put_object(path: ObjectAddress, data: bytes | _Bytes) -> Version:
    """Write an object, replacing any other."""
    return _put(path, data, "overwrite")


def put_if(path: ObjectAddress, data: bytes, seen: Version | None) -> Version | None:
    """Write an object if it is still the one ``seen``, or there still is none; else return None."""
    try:
        return _put(path, data, "create" if seen is None else seen.condition)
    except (OutputExistsError, ObjectChangedError, PathNotFoundError):
        pass
    # A request that was repeated because its answer was lost refuses itself.
    found = read_object(path)
    return found[1] if found is not None and found[0] == data else None


def _put(path: ObjectAddress, data: bytes | _Bytes, mode: Any) -> Version:
    def put(obstore: Any, store: Any) -> Any:
        try:
            return obstore.put(store, path.key, data, mode=mode, use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            pass
        raise OutputExistsError(f"{path} already exists")

    refuse_unwritable(path)
    return _version(path.store.request(path.key, put))


def read_object(path: ObjectAddress) -> tuple[bytes, Version] | None:
    """Read a small object, whatever it is now; return None if there is none."""

    def get(obstore: Any, store: Any) -> tuple[bytes, Version]:
        answer = obstore.get(store, path.key)
        if answer.meta["size"] > _MOST_READ:
            size = answer.meta["size"]
            raise OutputError(f"{path}: an object of {size:,} bytes, which recmap did not write")
        return bytes(answer.bytes()), _version(answer.meta)

    try:
        return path.store.request(path.key, get)
    except PathNotFoundError:
        return None


def delete_object(path: ObjectAddress) -> None:
    """Delete an object, if it exists."""
    refuse_unwritable(path)
    try:
        path.store.request(path.key, lambda obstore, store: obstore.delete(store, path.key))
    except PathNotFoundError:
        return


def copy_object(src: ObjectAddress, dst: ObjectAddress) -> None:
    """Copy an object within its store, which does that by itself unless the object is too large."""
    if src.store.url.scheme == "s3" and src.info.size > _MOST_COPIED:
        _send_again(src, dst)
        return

    def copy(obstore: Any, store: Any) -> None:
        obstore.copy(store, src.key, dst.key)

    refuse_unwritable(dst)
    src.store.request(src.key, copy)


def _send_again(src: ObjectAddress, dst: ObjectAddress) -> None:
    """Copy an object by reading and writing it."""
    info = src.info
    upload = Upload(dst, choose_parts(info.size))
    try:
        for at in range(0, info.size, _USUAL_PART):
            upload.write(src.store.read(info, at, min(at + _USUAL_PART, info.size)))
        upload.complete()
    except BaseException:
        upload.abort()
        raise


def put_file(path: ObjectAddress, file: str, parts: UploadParts) -> Version:
    """Write an object with the content of a local file, in these parts, or larger ones."""
    least = -(-os.path.getsize(file) // _MOST_PARTS)
    upload = Upload(path, replace(parts, size=max(parts.size, least)))
    try:
        with open(file, "rb", buffering=0) as source:
            while data := source.read(_READ_SIZE):
                upload.write(np.frombuffer(data, np.uint8))
        return upload.complete()
    except BaseException:
        upload.abort()
        raise


class Upload:
    """An object that is sent while it is being written.

    A small one is sent in a single request, by ``complete``. If it grows, a thread sends its
    parts. ``write`` waits while more than a part waits to be sent.
    """

    def __init__(self, path: ObjectAddress, parts: UploadParts) -> None:
        refuse_unwritable(path)
        self._path, self._parts = path, parts
        #: The bytes that were written.
        self.size = 0
        self._changed = Condition()
        # What the thread has not taken yet.
        self._waiting: deque[_Bytes] = deque()
        self._held = 0
        self._complete = self._given_up = self._told = False
        self._thread: Thread | None = None
        self._result: Future[Version] = Future()

    def write(self, data: _Bytes) -> None:
        """Append bytes, which must not change from here on. Raise if the upload has failed."""
        if self.size + len(data) > _MOST_PARTS * self._parts.size:
            raise OutputError(
                f"{self._path}: more than {_MOST_PARTS:,} parts of {self._parts.size >> 20} MiB, "
                "which no store accepts; write several files (shards)"
            )
        with self._changed:
            while self._thread is not None and self._held >= self._parts.size:
                self._raise()
                if not self._changed.wait(SILENCE):
                    self._tell_trouble()
            self._raise()
            self._waiting.append(data)
            self._held += len(data)
            self.size += len(data)
            self._changed.notify_all()
        if self._thread is None and self.size > self._parts.size:
            self._start()

    def complete(self) -> Version:
        """Send the rest and make the object appear; it is an error to write more."""
        with self._changed:
            self._complete = True
            self._changed.notify_all()
        if self._thread is None:
            whole = np.concatenate([*self._waiting, np.empty(0, np.uint8)])
            self._waiting.clear()
            return put_object(self._path, whole)
        while True:
            try:
                return self._result.result(SILENCE)
            except TimeoutError:
                if self._result.done():
                    raise
            self._tell_trouble()

    def _tell_trouble(self) -> None:
        """Warn once if the store is unavailable. obstore repeats the parts silently."""
        if not self._told:
            self._told = True
            start_thread(self._path.store.tell_trouble, self._path.key, name="recmap-tell")

    def abort(self, seconds: float | None = None) -> None:
        """Give the upload up, unless it is complete.

        Wait until its parts are deleted, at most so many seconds.
        """
        self.abandon()
        if self._thread is not None:
            self._thread.join(seconds)

    def abandon(self) -> None:
        """Give the upload up without waiting."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._result.done():
            self._result.result()
            raise RuntimeError("the upload is complete")

    def _start(self) -> None:
        self._thread = start_thread(self._send, name="recmap-upload")
        if self._thread is None:
            raise OutputError(f"{self._path}: cannot start a thread to send its parts")
        _open.add(self)

    def _send(self) -> None:
        size, requests = self._parts.size, self._parts.requests

        def put(obstore: Any, store: Any) -> Any:
            return obstore.put(
                store,
                self._path.key,
                self._pieces(),
                use_multipart=True,
                chunk_size=size,
                max_concurrency=requests,
            )

        try:
            version = _version(self._path.store.stream(self._path.key, put))
        except BaseException as e:  # raised in the writer's thread
            self._result.set_exception(e)
        else:
            self._result.set_result(version)
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
        _open.discard(self)

    def _pieces(self) -> Iterator[Any]:
        """Yield the bytes in pieces. An error raised here makes obstore abort the upload."""
        while True:
            with self._changed:
                while not (self._waiting or self._complete or self._given_up):
                    self._changed.wait()
                if self._given_up:
                    raise CancelledError
                if not self._waiting:
                    return
                data = self._waiting.popleft()
                self._held -= len(data)
                self._changed.notify_all()
            yield data.data
            del data


class SentObject(Output):
    """An object that is sent while it is written. It can be neither read nor changed before."""

    path = ""

    def __init__(self, target: ObjectAddress) -> None:
        super().__init__(target, durable=True)
        self._object, self._upload = target, Upload(target, parts_to_send())

    def append(self, data: _Bytes) -> None:
        self._upload.write(data)

    def file(self) -> IO[bytes]:
        raise RuntimeError("what was sent can be neither read nor changed")

    def scratch(self, spooler: Spooler) -> OutputStream:
        raise RuntimeError("an object that is sent has no folder on disk")

    def discard(self) -> None:
        self._upload.abort()

    def abandon(self) -> None:
        self._upload.abandon()

    def _open(self) -> None:
        """Do nothing: the first part is sent when it is full."""

    def _close(self) -> None:
        """Do nothing: the last part is sent on commit."""

    def appear(self) -> None:
        self._upload.complete()
        self.appeared = True
        for _, save in self._companions:
            save(self._object.anew(), self.target)


def _version(answer: Any) -> Version:
    return Version(answer["e_tag"], answer["version"])


# Uploads with a thread. Those that are open at exit are aborted: their threads end with the
# process, and their parts would stay.
_open: WeakSet[Upload] = WeakSet()


def _end_uploads() -> None:
    uploads = list(_open)
    for upload in uploads:
        upload.abandon()
    deadline = time.monotonic() + _GRACE
    for upload in uploads:
        upload.abort(max(0.0, deadline - time.monotonic()))


atexit.register(_end_uploads)
# A forked process has none of these threads.
os.register_at_fork(after_in_child=_open.clear)
