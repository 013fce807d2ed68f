"""Conversions that a Ray cluster cannot run are refused before anything is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import command

pytestmark = pytest.mark.usefixtures("in_time")


@pytest.fixture
def own_folder() -> Iterator[str]:
    """Yield a name of this folder that no other process understands."""
    number = 900
    folder = os.open(".", os.O_RDONLY)
    os.dup2(folder, number)
    os.close(folder)
    yield f"/proc/self/fd/{number}"
    os.close(number)


@pytest.mark.usefixtures("cluster")
def test_a_source_that_a_node_does_not_see_is_refused(source: Path, own_folder: str) -> None:
    os.symlink(source, "x.npy")
    with pytest.raises(rm.PathNotFoundError, match=r"/900/x.npy: node .+ \([\d.]+\) does not see"):
        rm.convert(f"{own_folder}/x.npy", "new/out/", shards=2, engine="ray")
    assert os.listdir() == ["x.npy"]


@pytest.mark.usefixtures("cluster")
def test_an_output_that_a_node_does_not_see_is_refused(source: Path, own_folder: str) -> None:
    os.mkdir("there")
    with pytest.raises(rm.PathNotFoundError, match=r"/900/there: node .+ does not see it"):
        rm.convert(source, f"{own_folder}/there/", shards=2, engine="ray")
    assert os.listdir("there") == []


@pytest.mark.usefixtures("cluster")
def test_memory_that_no_node_has_is_refused(source: Path) -> None:
    with pytest.raises(rm.OptionError, match="for each task, but no node .* more than"):
        rm.convert(source, "out/", engine="ray", memory="100TB")


@pytest.mark.usefixtures("cluster")
def test_rows_that_can_be_read_only_once_are_refused() -> None:
    ds = rm.from_batches([{"x": np.arange(3)}])
    with pytest.raises(rm.OptionError, match="save them to a file first"):
        ds.save("x.npy", engine="ray")


def test_wrong_options_are_refused(cluster: Any, source: Path) -> None:
    with pytest.raises(rm.OptionError, match='engine=\'spark\': use "local", "ray" or'):
        rm.convert(source, "x.npy", engine="spark")
    with pytest.raises(rm.OptionError, match=f"engine='ray:{cluster.address}'"):
        rm.convert(source, "x.npy", address=cluster.address)
    with pytest.raises(rm.OptionError, match="connected to .* already"):
        rm.convert(source, "x.npy", engine="ray:192.0.2.77:1")
    with pytest.raises(rm.OptionError, match="workers=0: .*1 or more"):
        rm.convert(source, "x.npy", engine="ray", workers=0)


@pytest.mark.parametrize(
    "wrong", [{"fields": ["y"]}, {"shards": 0}, {"options": {"level": 9, "nothing": 1}}], ids=str
)
@pytest.mark.usefixtures("cluster")
def test_a_refused_conversion_leaves_no_folder(source: Path, wrong: dict[str, Any]) -> None:
    Path("there").mkdir()
    with pytest.raises(rm.RecmapError):
        rm.convert(source, "there/new/x.h5", engine="ray", **wrong)
    assert list(Path().rglob("*")) == [Path("there")]


def test_without_ray_its_install_command_is_named(source: Path) -> None:
    program = f"""
import sys
sys.modules["ray"] = None  # as if it were not installed
import recmap as rm
rm.convert({str(source)!r}, "out/", engine="ray")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert 'MissingPackageError: this needs Ray: pip install "ray[data]>=2.44"' in done.stderr
    assert os.listdir() == []


def test_an_address_without_a_cluster_is_refused_quickly(source: Path) -> None:
    done = command.run("convert", str(source), "out/", "--ray", "127.0.0.1:9")
    assert done.returncode == 2
    assert "--ray 127.0.0.1:9: no Ray cluster could be reached" in done.stderr
    assert os.listdir() == []
