"""One Ray cluster for all tests of this folder: starting one takes longer than most of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Bytes of the object store of a node.
_STORE = 80_000_000


class Cluster:
    """A head node without CPUs, which runs no tasks, and nodes of one CPU that share nothing.

    ``homes`` maps each of them to a folder of its own, for its home, cache and temporary files.
    """

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self._tmp_path_factory = tmp_path_factory
        self.homes: dict[Any, Path] = {}
        head = {
            "num_cpus": 0,
            "object_store_memory": _STORE,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,  # which would add and remove nodes
            # Ray notices quickly that a node is gone.
            "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 2},
        }
        self._ray = RayCluster(initialize_head=True, head_node_args=head)
        self.address: str = self._ray.address

    def start_node(self) -> None:
        home = self._tmp_path_factory.mktemp("node")
        (home / "tmp").mkdir()
        own = {
            "HOME": str(home),
            "RECMAP_CACHE": str(home / "cache"),
            "TMPDIR": str(home / "tmp"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        node = self._ray.add_node(num_cpus=1, object_store_memory=_STORE, env_vars=own)
        self.homes[node] = home

    def kill_node(self, node: Any) -> None:
        del self.homes[node]
        self._ray.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._ray.shutdown()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start two nodes that work, and connect to them."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        # Ray would report usage over the network.
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in list(os.environ):
            if name.startswith(("AWS_", "RECMAP_")) or name.upper().endswith("_PROXY"):
                patch.delenv(name)
        made = Cluster(tmp_path_factory)
        try:
            for _ in range(2):
                made.start_node()
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            with warnings.catch_warnings():
                # Ray reads settings that it has deprecated itself.
                warnings.simplefilter("ignore", DeprecationWarning)
                context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            context.execution_options.preserve_order = True
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture(scope="package")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 3 MB of numbers."""
    path = tmp_path_factory.mktemp("source") / "x.npy"
    np.save(path, np.random.default_rng(0).random((12_000, 64), dtype=np.float32))
    return path
