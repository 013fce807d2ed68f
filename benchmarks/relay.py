"""A relay in front of a server that delays requests, and counts them and the bytes of answers."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Relay"]

_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
# Bytes moved at a time.
_CHUNK = 1 << 20


class Relay:
    """Forwards connections to ``target``, and holds back what clients send for ``delay`` seconds.

    So an answer begins that much later, and from then on takes no longer than without: the kernel
    moves its bytes from socket to socket. A new connection waits, too, as for its handshake.
    """

    def __init__(self, target: str, delay: float = 0.0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._delay = delay
        self._lock = threading.Lock()
        self.requests = 0
        self.received = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def counts(self) -> tuple[int, int]:
        """Return the number of requests, and the bytes of their answers."""
        with self._lock:
            return self.requests, self.received

    def close(self) -> None:
        """Accept no more connections."""
        # Closing it would not wake up the thread that waits for it.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        time.sleep(self._delay)
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        ways = ((self._read, client, waiting), (self._send, server, waiting))
        threads = [threading.Thread(target=work, args=rest, daemon=True) for work, *rest in ways]
        with client, server:
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for thread in threads:
                thread.start()
            with suppress(OSError):
                self._answer(server, client)
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()

    def _read(self, client: socket.socket, waiting: SimpleQueue[tuple[float, bytes]]) -> None:
        """Queue what a client sends, with the time at which to send it on."""
        data = b"-"
        while data:
            try:
                data = client.recv(_CHUNK)
            except OSError:
                data = b""
            if data.startswith(_METHODS):
                with self._lock:
                    self.requests += 1
            waiting.put((time.monotonic() + self._delay, data))

    def _send(self, server: socket.socket, waiting: SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(due - time.monotonic(), 0))
            try:
                if not data:
                    server.shutdown(socket.SHUT_WR)
                    return
                server.sendall(data)
            except OSError:
                return

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Move answers through a pipe, without copying them to this process."""
        out, into = os.pipe()
        try:
            while count := os.splice(server.fileno(), into, _CHUNK):
                with self._lock:
                    self.received += count
                while count:
                    count -= os.splice(out, client.fileno(), count)
        finally:
            os.close(out)
            os.close(into)
