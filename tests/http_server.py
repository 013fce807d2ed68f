"""What the HTTP servers of tests share."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Handler", "parse_range", "serve"]


class Handler(BaseHTTPRequestHandler):
    """Answers requests quickly and silently."""

    protocol_version = "HTTP/1.1"
    # Headers and body in one packet: otherwise each answer waits for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        return

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, code: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_with_part(self, data: bytes, headers: dict[str, str]) -> None:
        """Send the range of the data that is asked for, or all of it."""
        span = parse_range(self.headers.get("Range"), len(data))
        if span is None:
            self.reply(200, data, headers)
        elif span[0] >= len(data):
            self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            place = f"bytes {span[0]}-{span[1] - 1}/{len(data)}"
            self.reply(206, data[slice(*span)], {**headers, "Content-Range": place})


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return begin and end of a range, or None for everything."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


@contextmanager
def serve(handler: type[Handler]) -> Iterator[str]:
    """Serve on a free port, and yield the URL."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            return  # the client went away, as tests of time-outs make it

    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
