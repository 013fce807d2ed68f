"""Who may ask the server of recmap view, and for what."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import recmap as rm
from recmap.view.api import Api
from recmap.view.server import Server
from recmap.view.table import RowTable

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    rows = {"x": np.arange(5), "svg": rm.Ragged.from_bytes([SVG] * 5)}
    with Server(Api(RowTable(rm.from_arrays(rows), "five"))) as server:
        yield server


def request(
    server: Server, path: str, method: str = "GET", body: Any = None, **headers: str
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    sent = {
        "Host": f"127.0.0.1:{server.port}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None:
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data)), **sent}
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders(data)
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer


def test_the_page_and_rows_are_served_to_who_knows_the_token(server: Server) -> None:
    page = request(server, f"/{server.token}/")
    assert page.status == 200
    assert b'<script type="module" src="app.js">' in page.body
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    asked = {"start": 1, "stop": 3, "columns": [0]}
    rows = request(server, f"/{server.token}/api/rows", "POST", asked)
    assert [row["cells"][0]["text"] for row in json.loads(rows.body)["rows"]] == ["1", "2"]


@pytest.mark.parametrize(
    "path", ["/", "/{wrong}/", "/{token}", "//", "/api/info", "/%C3%A9/", "//[/", "/?{token}"]
)
def test_requests_without_the_token_are_refused(server: Server, path: str) -> None:
    path = path.format(token=server.token, wrong="x" * len(server.token))
    answer = request(server, path)
    assert answer.status == 403
    assert server.token.encode() not in answer.body
    assert request(server, path, "POST", {}).status == 403


def test_requests_of_other_sites_are_refused(server: Server) -> None:
    info = f"/{server.token}/api/info"
    ours = f"http://127.0.0.1:{server.port}"
    assert request(server, info, "POST", {}, Origin=ours).status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"{ours}.evil.example"):
        assert request(server, info, "POST", {}, Origin=origin).status == 403
    assert request(server, info, "POST", {}, Sec_Fetch_Site="cross-site").status == 403
    media = f"/{server.token}/media?row=0&column=1"
    assert request(server, media, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="image").status == 403


def test_another_host_name_is_refused(server: Server) -> None:
    page = f"/{server.token}/"
    assert request(server, page, Host=f"localhost:{server.port}").status == 200
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", ""):
        assert request(server, page, Host=host).status == 403


def test_nothing_but_the_fixed_files_and_rows_is_served(server: Server) -> None:
    paths = "../server.py ..%2fserver.py /etc/passwd page/app.js server.py media/../x api/info"
    for name in paths.split():
        assert request(server, f"/{server.token}/{name}").status == 404
    for name in ("api/", "api/__init__", "api/../info", "info", "app.js"):
        assert request(server, f"/{server.token}/{name}", "POST", {}).status == 404


def test_other_methods_are_refused(server: Server) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT"):
        assert request(server, f"/{server.token}/", method).status == 501


def test_an_svg_is_an_image_and_never_a_document(server: Server) -> None:
    media = f"/{server.token}/media?row=0&column=1"
    image = request(server, media, Sec_Fetch_Site="same-origin", Sec_Fetch_Dest="image")
    assert (image.status, image.headers["Content-Type"]) == (200, "image/svg+xml")
    assert "sandbox" in image.headers["Content-Security-Policy"]
    for use in ("document", "iframe", "object", "embed", "script"):
        assert request(server, media, Sec_Fetch_Dest=use).status == 403


def test_bad_requests_are_answered_with_the_reason(server: Server) -> None:
    def error(name: str, given: Any, **headers: str) -> tuple[int, str]:
        answer = request(server, f"/{server.token}/api/{name}", "POST", given, **headers)
        return answer.status, json.loads(answer.body)["error"]

    assert error("rows", {"start": -1, "stop": 2})[0] == 400
    assert error("rows", {"numbers": list(range(999))}) == (
        400,
        "numbers must be a list of up to 256",
    )
    assert error("rows", {"start": 0, "stop": 1, "columns": [7]}) == (400, "there is no column 7")
    assert error("value", {"row": 5, "column": 0}) == (400, "there is no row 5")
    assert error("search", {"column": 0, "operator": "=", "text": "a", "start": 0})[0] == 400
    assert error("info", b"{")[0] == error("info", [])[0] == 400
    assert error("info", b"[" * 60_000)[0] == error("info", b'{"a":' * 12_000)[0] == 400
    assert error("info", {}, Content_Type="text/plain")[0] == 400
    assert error("info", b"{}", Content_Length="70000")[0] == 413
    assert error("info", b"{}", Content_Length="²")[0] == 413
    assert request(server, f"/{server.token}/media?row=0&column=0").status == 404


@pytest.mark.slow
def test_a_browser_that_goes_away_leaves_no_traceback(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            # Closing with a linger of 0 resets the connection.
            reset = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            host = f"Host: 127.0.0.1:{server.port}"
            connection.sendall(f"GET /{server.token}/ HTTP/1.1\r\n{host}\r\n\r\n".encode())
    assert request(server, f"/{server.token}/").status == 200
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_closing_frees_the_port() -> None:
    server = Server(Api(RowTable(rm.from_arrays({"x": np.arange(2)}), "two")))
    port = server.port
    server.close()
    with Server(Api(RowTable(rm.from_arrays({"x": np.arange(2)}), "two")), port=port) as again:
        assert request(again, f"/{again.token}/").status == 200
