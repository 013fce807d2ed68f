"""The server behind the page, on 127.0.0.1 only.

Who may ask: the first part of every path is a random token, the Host header must name this server,
so that no other site's name leads here, and the Origin header, if there is one, must be ours.
What is served: the static files by name, and rows by number. A path of the dataset's files is
never taken from a request.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qsl

from recmap.dataset.dataset import Dataset
from recmap.dataset.widget import Widget
from recmap.errors import RecmapError
from recmap.view.api import Api
from recmap.view.table import RowTable

_HOST = "127.0.0.1"
# Where notebooks run that may show the page in a frame.
_NOTEBOOKS = "http://127.0.0.1:* http://localhost:* https://127.0.0.1:* https://localhost:*"
_PAGE_TYPES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "logo.svg": ("logo.svg", "image/svg+xml"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    **{
        f"{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("app", "ask", "cells", "grid", "make", "pane", "tree")
    },
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors {framed}"
)
# A file of the dataset is shown inside the page only, and runs nothing.
_MEDIA_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_MEDIA_USES = ("image", "audio", "video", "empty")
_LONGEST_REQUEST = 1 << 16
_IDLE_SECONDS = 60


class Server:
    """Serves one page, in a thread, until it is closed."""

    def __init__(self, api: Api, *, port: int = 0, framed: bool = False) -> None:
        """Listen on a port, by default any free one. ``framed`` lets notebooks show the page."""
        self.token = secrets.token_urlsafe(24)
        framed_by = _NOTEBOOKS if framed else "'none'"
        given = {"api": api, "token": self.token, "framed": framed_by}
        self._server = _Listener((_HOST, port), type("Handler", (_Handler,), given))
        self._thread = Thread(target=self._server.serve_forever, name="recmap-view", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"http://{_HOST}:{self.port}/{self.token}/"

    def wait(self) -> None:
        """Wait until the server is closed or the user interrupts."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def show(dataset: Dataset, height: int, port: int) -> Widget:
    """Serve the page of a dataset, and return a frame of this height with it."""
    server = Server(Api(RowTable(dataset)), port=port, framed=True)
    return Widget(server.url, height, server.close)


@cache
def _page_file(name: str) -> bytes:
    return (files("recmap.view") / "page" / name).read_bytes()


class _Listener(ThreadingHTTPServer):
    """A server that does not mind if the browser goes away while it is answered."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. Everything but GET and POST is refused by the base class."""

    api: Api
    token: str
    framed: str
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    server_version, sys_version = "recmap", ""

    def do_GET(self) -> None:
        target = self._admitted()
        if target is None:
            return
        name, query = target
        if name in _PAGE_TYPES:
            file, kind = _PAGE_TYPES[name]
            self._send(200, kind, _page_file(file), _POLICY.format(framed=self.framed))
        elif name == "media":
            self._send_media(query)
        else:
            self._refuse(404, "there is no such page")

    def do_POST(self) -> None:
        target = self._admitted()
        if target is None:
            return
        name, _ = target
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > _LONGEST_REQUEST:
            self._refuse(413, "the request is too long, or does not state its length")
            return
        kind, body = self.headers.get_content_type(), self.rfile.read(int(length))
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            given = None
        if kind != "application/json" or not isinstance(given, dict):
            self._refuse(400, "the request is not a JSON object")
            return
        status, answer = self._answer(name, given)
        self._send_json(status, answer)

    def _answer(self, name: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            answer = self.api.call(name.removeprefix("api/"), given) if name[:4] == "api/" else None
        except RecmapError as e:
            return 400, {"error": str(e)}
        except Exception as e:  # the page shows it; the server goes on
            return 500, {"error": f"{type(e).__name__}: {e}"}
        return (404, {"error": "there is no such request"}) if answer is None else (200, answer)

    def _send_media(self, query: dict[str, str]) -> None:
        if self.headers.get("Sec-Fetch-Dest", "empty") not in _MEDIA_USES:
            self._refuse(403, "files of the dataset are shown inside the page only")
            return
        try:
            media = self.api.media(query)
        except RecmapError as e:
            self._refuse(400, str(e))
            return
        except Exception as e:
            self._refuse(500, f"{type(e).__name__}: {e}")
            return
        if media is None:
            self._refuse(404, "the value is neither an image nor a sound")
        else:
            self._send(200, media.type, media.data, _MEDIA_POLICY)

    def _admitted(self) -> tuple[str, dict[str, str]] | None:
        """Return the path below the token, and the query; or refuse the request."""
        address = self.connection.getsockname()
        hosts = [f"{host}:{address[1]}" for host in (_HOST, "localhost")]
        if self.headers.get("Host") not in hosts:
            self._refuse(403, "this server answers to 127.0.0.1 only")
            return None
        origin = self.headers.get("Origin")
        path, _, query = self.path.partition("?")
        token, slash, name = path.removeprefix("/").partition("/")
        # Another site may lead to the page, as a notebook's frame does, but not ask for rows.
        foreign = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if (origin is not None and origin not in [f"http://{host}" for host in hosts]) or (
            foreign and name
        ):
            self._refuse(403, "requests of other sites are refused")
            return None
        if not slash or not hmac.compare_digest(token.encode(), self.token.encode()):
            self._refuse(403, "open the address that recmap printed: it ends with a token")
            return None
        return name, dict(parse_qsl(query))

    def _refuse(self, status: int, message: str) -> None:
        self.close_connection = True  # the body was not read
        self._send_json(status, {"error": message})

    def _send_json(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer, allow_nan=False).encode()
        self._send(status, "application/json", data, "default-src 'none'")

    def _send(self, status: int, kind: str, data: bytes, policy: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **({"Connection": "close"} if self.close_connection else {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be parsed, or of another method, without repeating it."""
        del message, explain
        self.close_connection = True
        if self.request_version != "HTTP/0.9":
            self._send_json(int(code), {"error": "the request is not understood"})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the address holds the token."""
