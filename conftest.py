"""Fixtures for all tests and doctests."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# A busy machine is not a failure.
hypothesis.settings.register_profile("recmap", deadline=None)
hypothesis.settings.load_profile("recmap")

# Importing these takes longer than most tests that need them in another process.
multiprocessing.set_forkserver_preload(
    ["h5py", "pytest", "recmap", "recmap.ray", "torch.utils.data", "zarr"]
)

# Tests start many processes that import recmap: compile it once, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell makes programs that it starts in the background ignore Ctrl-C, and they pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of OpenMP that wait would keep a CPU busy, and there are more processes than CPUs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# TensorFlow logs a lot when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("tests")
    return (base / str(number) for number in itertools.count())


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passes."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture
def tmp_path(_folders: Iterator[Path], request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new folder, deleted if the test passes: all of them together take 16 GB.

    That of pytest looks through the folders of all tests before it.
    """
    folder = next(_folders)
    folder.mkdir()
    yield folder
    if request.node.stash.get(_PASSED, False):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test and doctest in its own folder, so that it can write files anywhere."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fail a test that hangs."""
    from tests import jobs

    with jobs.deadline():
        yield


@pytest.fixture(scope="module", autouse=True)
def _without_what_is_loaded() -> None:
    """Keep what earlier tests and imports have left out of garbage collections.

    Frameworks make half a million objects, and looking through them takes a third of a second. In a
    forked child, a TensorFlow dataset must not be collected: it needs threads that do not exist
    there.
    """
    gc.collect()
    gc.freeze()
