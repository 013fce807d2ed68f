"""A proxy in front of a store that delays, refuses, cuts and drops what a test asks it to."""

from __future__ import annotations

import http.client
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from tests.http_server import Handler, serve

__all__ = ["Cut", "Drop", "FaultyProxy", "Forever", "Hold", "Lose", "Stall", "Status"]


@dataclass(frozen=True)
class Status:
    """Answer with this status instead of asking the store."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Cut:
    """Close the connection after this many bytes of the body, and call ``then`` before that."""

    after: int
    then: Callable[[], object] | None = None


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer."""


@dataclass(frozen=True)
class Lose:
    """Forward the request, call ``then``, and close the connection without the answer."""

    then: Callable[[], object] | None = None


@dataclass(frozen=True)
class Forever:
    """Apply a fault to this request and all that follow."""

    fault: Any


@dataclass(frozen=True)
class Hold:
    """Call ``until`` before anything else, to wait there, and then apply another fault, if any."""

    until: Callable[[], object]
    then: Any = None


@dataclass(frozen=True)
class Stall:
    """Send this many bytes of the body, and then nothing until the proxy is closed."""

    after: int = 0


class FaultyProxy:
    """Forwards to ``target``, and applies ``faults`` to the next requests, one to each.

    A fault of None lets a request pass. ``delay`` is added to all, in seconds, but ends as soon as
    ``enough_at_once`` requests, if it is given, have been under way at the same time.
    ``most_at_once`` is the most there have been. ``requests`` are the method, the path and the
    range of each; ``body_bytes`` is what was sent in answers, and ``uploaded_bytes`` what came in
    requests.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._lock = threading.Condition()
        self.delay = 0.0
        self.enough_at_once: int | None = None
        self.faults: deque[Any] = deque()
        self.requests: list[tuple[str, str, str | None]] = []
        self.body_bytes = self.uploaded_bytes = 0
        self.most_at_once = self._at_once = 0
        self.closed = threading.Event()
        proxy = self

        class ProxyHandler(Handler):
            def _answer(self) -> None:
                with proxy._counted():
                    proxy._answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        self._served = ExitStack()
        self.url = self._served.enter_context(serve(ProxyHandler))

    def reset(self) -> None:
        """Count from zero."""
        with self._lock:
            self.requests.clear()
            self.body_bytes = self.uploaded_bytes = 0
            self.most_at_once = self._at_once

    def count(self, *methods: str) -> int:
        """Return how many requests there were, of these methods or of all."""
        with self._lock:
            return sum(not methods or each[0] in methods for each in self.requests)

    def close(self) -> None:
        self.closed.set()
        with self._lock:
            self._lock.notify_all()
        self._served.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._lock.notify_all()
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def _delayed_enough(self) -> bool:
        enough = self.enough_at_once
        return self.closed.is_set() or (enough is not None and self.most_at_once >= enough)

    def _answer(self, request: Handler) -> None:
        sent = request.body()
        with self._lock:
            self.requests.append((request.command, request.path, request.headers.get("Range")))
            self.uploaded_bytes += len(sent)
            fault = self.faults.popleft() if self.faults else None
            if isinstance(fault, Forever):
                self.faults.appendleft(fault)
                fault = fault.fault
        with self._lock:
            seen = -1
            while seen < self._at_once and not self._delayed_enough():
                # Whoever arrives meanwhile may not be the last.
                seen = self._at_once if self.enough_at_once is not None else sys.maxsize
                self._lock.wait_for(self._delayed_enough, self.delay)
        if isinstance(fault, Hold):
            fault.until()
            fault = fault.then
        if isinstance(fault, Drop):
            request.close_connection = True
            return
        if isinstance(fault, Status):
            self._send(request, fault.code, list(fault.headers.items()), fault.body, None)
            return
        connection = http.client.HTTPConnection(*self._target, timeout=120)
        try:
            connection.request(request.command, request.path, sent, dict(request.headers.items()))
            answer = connection.getresponse()
            body = answer.read()
            headers = answer.getheaders()
        finally:
            connection.close()
        if isinstance(fault, Lose):
            if fault.then is not None:
                fault.then()
            request.close_connection = True
            return
        self._send(request, answer.status, headers, body, fault)

    def _send(
        self,
        request: Handler,
        code: int,
        headers: list[tuple[str, str]],
        body: bytes,
        fault: Cut | Stall | None,
    ) -> None:
        request.send_response_only(code)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                request.send_header(name, value)
        if "content-length" not in names:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        part = body if fault is None else body[: fault.after]
        if request.command != "HEAD":
            with self._lock:  # before the client can have it
                self.body_bytes += len(part)
            request.wfile.write(part)
        request.wfile.flush()
        if isinstance(fault, Cut) and fault.then is not None:
            fault.then()
        if isinstance(fault, Stall):
            self.closed.wait()
        if fault is not None:
            request.close_connection = True
