"""Ray, which may not be installed. No other file imports it."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from recmap.errors import MissingPackageError, OptionError

__all__ = ["Connection", "connect", "load_ray"]

# Seconds within which a cluster answers.
_PATIENCE = 10.0


def load_ray() -> Any:
    """The package."""
    try:
        import ray
    except ImportError as e:
        raise MissingPackageError("this needs Ray: pip install recmap[ray]") from e
    return ray


@dataclass(frozen=True)
class Connection:
    """A connection to a cluster; ``opened`` says that it was made here, and that close()
    ends it. Nobody else's is ended.
    """

    ray: Any
    opened: bool

    def close(self) -> None:
        if self.opened:
            self.ray.shutdown()

    def __enter__(self) -> Any:
        return self.ray

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(address: str | None) -> Connection:
    """The cluster this program is connected to, else the one at ``address``. None means
    what it means to ``ray.init``: the one that runs here, else a new one on this machine.
    """
    ray = load_ray()
    if ray.is_initialized():
        _check_same(ray, address)
        return Connection(ray, opened=False)
    try:
        _check_reachable(address)
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as e:
        raise OptionError(
            f"ray:{address}: no Ray cluster could be reached there ({e}); "
            "`ray start --head` on its first machine begins one and prints its address"
        ) from e
    return Connection(ray, opened=True)


def _check_reachable(address: str | None) -> None:
    """Whether anybody listens there: Ray would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()


def _check_same(ray: Any, address: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", connected):
        raise OptionError(
            f"ray:{address}: this program is connected to {connected} already; leave the "
            "address out, or call ray.shutdown() first"
        )
