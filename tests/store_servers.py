"""Servers that tests start on free ports of 127.0.0.1."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zlib import crc32

from benchmarks.seaweedfs import (
    ACCESS_KEY,
    GUEST_KEY,
    SECRET_KEY,
    free_ports,
    running_server,
    seaweedfs,
)
from tests.http_server import Handler, serve

__all__ = [
    "ACCESS_KEY",
    "AZURE_ACCOUNT",
    "AZURE_KEY",
    "GUEST_KEY",
    "SECRET_KEY",
    "FileServer",
    "azurite",
    "file_server",
    "moto",
    "seaweedfs",
]

# The account that Azurite has, as its documentation gives it.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_AZURITE = Path(__file__).parent.parent / "build/azurite/node_modules/.bin/azurite-blob"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Run Azurite, and yield the URL of its account."""
    assert _AZURITE.exists(), "Azurite is not installed: run make azurite"
    [port] = free_ports(1)
    # make azurite installs Node.js next to Python if the system has none.
    node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
    command = [
        node,
        str(_AZURITE),
        "--silent",
        "--disableTelemetry",
        "--skipApiVersionCheck",
        "--inMemoryPersistence",
        "--blobHost=127.0.0.1",
        f"--blobPort={port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with running_server(command, url, folder):
        yield f"{url}/{AZURE_ACCOUNT}"


@contextmanager
def moto() -> Iterator[str]:
    """Run moto in this process, and yield the URL of its S3 endpoint.

    It has the error codes of AWS, and checks credentials once it is told to.
    """
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class FileServer:
    """An HTTP server with ranges: ``files`` by path, decoded.

    ``etag``, with the checksum of the file in place of {}, ``dated`` and ``ranges`` are what the
    server can do.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etag: str | None = '"{}"'
        self.dated = self.ranges = True
        self.modified = "Wed, 21 Oct 2020 07:28:00 GMT"
        self.url = ""


@contextmanager
def file_server() -> Iterator[FileServer]:
    state = FileServer()

    class FileHandler(Handler):
        def _answer(self) -> None:
            data = state.files.get(unquote(urlsplit(self.path).path))
            if data is None:
                self.reply(404)
                return
            etag = None if state.etag is None else state.etag.format(crc32(data))
            headers = {} if etag is None else {"ETag": etag}
            if state.dated:
                headers["Last-Modified"] = state.modified
            wanted = self.headers.get("If-Match")
            if wanted is not None and wanted != etag:
                self.reply(412, b"", headers)
            elif state.ranges:
                self.reply_with_part(data, headers)
            else:
                self.reply(200, data, headers)

        do_GET = do_HEAD = _answer  # noqa: N815

    with serve(FileHandler) as state.url:
        yield state
