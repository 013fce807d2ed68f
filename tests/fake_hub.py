"""A server that answers as the Hub does, and another one that has the files, as its CDN."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

__all__ = ["FakeHub"]

_PAGE = 2


class FakeHub:
    """One dataset, ``owner/name``, whose revisions are dicts from paths to bytes."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.revisions: dict[str, str] = {}
        self.token: str | None = None
        #: Paths with headers, in the order of the requests to the Hub and to the CDN.
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.fetched: list[tuple[str, dict[str, str]]] = []
        #: The statuses of the next answers.
        self.failures: list[int] = []
        #: Where the API redirects to, if anywhere.
        self.moved = ""

    def push(self, files: dict[str, bytes], revision: str = "main") -> str:
        """Make a commit the head of a revision."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit] = files
        self.revisions[revision] = commit
        return commit

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Answer requests, and yield the address."""
        cdn = _serve(self, _Cdn)
        hub = _serve(self, _Hub)
        self.cdn = f"http://127.0.0.1:{cdn.server_port}"
        try:
            yield f"http://127.0.0.1:{hub.server_port}"
        finally:
            for server in (hub, cdn):
                server.shutdown()
                server.server_close()


def _serve(hub: FakeHub, handler: type[_Handler]) -> ThreadingHTTPServer:
    made = type(handler.__name__, (handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[FakeHub]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Hub(_Handler):
    def do_GET(self) -> None:
        hub = self.hub
        hub.asked.append((self.path, dict(self.headers)))
        if hub.failures:
            self.answer(hub.failures.pop(0))
            return
        if hub.moved:
            self.answer(307, location=hub.moved)
            return
        if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
            self.answer(401, x_error_code="RepoNotFound")
            return
        url = urlsplit(self.path)
        revision = re.fullmatch("/api/datasets/owner/name/revision/([^/]+)", url.path)
        tree = re.fullmatch("/api/datasets/owner/name/tree/([0-9a-f]{40})(?:/(.*))?", url.path)
        file = re.fullmatch("/datasets/owner/name/resolve/([0-9a-f]{40})/(.*)", url.path)
        if revision and unquote(revision[1]) in hub.revisions:
            commit = hub.revisions[unquote(revision[1])]
            self.answer(200, json.dumps({"id": "owner/name", "sha": commit}).encode())
        elif tree and tree[1] in hub.commits:
            self._tree(tree[1], unquote(tree[2] or ""), parse_qs(url.query))
        elif file and unquote(file[2]) in hub.commits.get(file[1], {}):
            self.answer(302, location=f"{hub.cdn}/{file[1]}/{file[2]}?signature=secret")
        else:
            self.answer(404, x_error_code="EntryNotFound")

    def _tree(self, commit: str, folder: str, query: dict[str, list[str]]) -> None:
        inside = f"{folder}/" if folder else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, content in sorted(self.hub.commits[commit].items()):
            if path.startswith(inside):
                name, slash, _ = path.removeprefix(inside).partition("/")
                kind = "directory" if slash else "file"
                oid = hashlib.sha1(content).hexdigest()
                size = 0 if slash else len(content)
                entry = {"type": kind, "path": inside + name, "size": size, "oid": oid}
                if len(content) > 1000 and not slash:
                    entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": size}
                entries[inside + name] = entry
        if not entries:
            self.answer(404, x_error_code="EntryNotFound")
            return
        start = int(query.get("cursor", ["0"])[0])
        page = list(entries.values())[start : start + _PAGE]
        more = {}
        if start + _PAGE < len(entries):
            here = f"http://{self.headers['host']}/api/datasets/owner/name/tree/{commit}"
            here += f"/{quote(folder)}" if folder else ""
            more["link"] = f'<{here}?cursor={start + _PAGE}>; rel="next"'
        self.answer(200, json.dumps(page).encode(), **more)


class _Cdn(_Handler):
    def do_GET(self) -> None:
        self.hub.fetched.append((self.path, dict(self.headers)))
        commit, _, path = unquote(urlsplit(self.path).path[1:]).partition("/")
        content = self.hub.commits[commit][path]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if asked is None:
            self.answer(200, content, etag='"of the CDN"')
            return
        begin, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        told = f"bytes {begin}-{end - 1}/{len(content)}"
        self.answer(206, content[begin:end], content_range=told, etag='"of the CDN"')
