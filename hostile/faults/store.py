"""An S3 bucket behind a proxy, one request of which can be disturbed."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.buckets import S3Bucket, s3_client
from tests.faulty_proxy import Drop, FaultyProxy, Forever, Hold, Lose, Status
from tests.store_servers import seaweedfs

__all__ = ["GIVEN_UP", "READS", "REPEATED", "Store", "running_server"]

#: Faults that a request survives, because it is repeated, and those for which it is given up.
REPEATED = ("dropped", "answer lost")
GIVEN_UP = ("refused", "503 from here on")
#: Requests that change nothing.
READS = ("GET", "HEAD", "list")


class Store:
    """A bucket. The process to be killed is told with ``started``."""

    def __init__(self, server: str) -> None:
        self._proxy = FaultyProxy(server)
        self._bucket = S3Bucket(s3_client(server), self._proxy)
        self._victim = 0
        self._known = threading.Event()

    @property
    def url(self) -> str:
        return self._bucket.url

    def storage(self, retries: int) -> dict[str, Any]:
        return {**self._bucket.storage, "retries": retries}

    def close(self) -> None:
        self._proxy.close()

    def objects(self) -> dict[str, bytes]:
        return {key: self._bucket.get(key) for key in self._bucket.keys()}  # noqa: SIM118

    def uploads(self) -> list[str]:
        return self._bucket.uploads()

    def restore(self, objects: Mapping[str, bytes]) -> None:
        """Make the bucket hold these objects only, and abort what is being uploaded."""
        for key in set(self._bucket.keys()) - set(objects):
            self._bucket.delete(key)
        for key, data in objects.items():
            self._bucket.put(key, data)
        self._bucket.abort_uploads()

    def disturb(self, number: int, kind: str) -> None:
        """Make the request with this number, from 1, meet a fault; none if it is 0."""
        self._known.clear()
        self._proxy.reset()
        faults: dict[str, Any] = {
            "dropped": Drop(),
            "answer lost": Lose(),
            "refused": Status(403),
            "503 from here on": Forever(Status(503)),
            "killed before": Hold(self._kill, Drop()),
            "killed after": Lose(self._kill),
        }
        self._proxy.faults = deque([*[None] * (number - 1), faults[kind]] if number else ())

    def calm(self) -> None:
        """Disturb nothing from here on."""
        self._proxy.faults.clear()

    def started(self, process: int) -> None:
        self._victim = process
        self._known.set()

    def _kill(self) -> None:
        self._known.wait()
        os.kill(self._victim, signal.SIGKILL)

    def requests(self) -> list[str]:
        """Return the kind and the key of each request."""
        return [_kind(method, path) for method, path, _ in self._proxy.requests]


def _kind(method: str, path: str) -> str:
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    key = parts.path.strip("/").partition("/")[2]
    if "uploads" in query and method == "GET":
        return "list uploads"
    if "uploads" in query or "uploadId" in query:
        return f"multipart {method} {key}"
    if not key:
        return f"list {query.get('prefix', [''])[0]}" if method == "GET" else "delete"
    return f"{method} {key}"


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Run an S3 server, and yield its URL."""
    folder.mkdir()
    with seaweedfs(folder) as url:
        yield url
