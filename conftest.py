"""Fixtures for all tests and doctests."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# A busy machine is not a failure. Every run draws other examples, and make hostile tries thousands.
hypothesis.settings.register_profile("recmap", deadline=None, max_examples=50)
hypothesis.settings.register_profile("core", deadline=None, max_examples=20)
hypothesis.settings.load_profile("recmap")


def _no_wait(file: object) -> None:
    pass


# What the fork server of multiprocessing imports: it takes longer than most tests that need it in
# another process. The last one keeps all that out of garbage collections.
_PRELOADED = [
    "h5py",
    "numpy.random",
    "pytest",
    "recmap.cli",
    "recmap.formats.hdf5.sink",
    "recmap.formats.npz.sink",
    "recmap.pipeline.executor",
    "recmap.ray",
    "rich.console",
    "zarr",
    "tests.preloaded",
]

# Tests start many processes that import recmap: compile it once, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test has to outlive a power cut, and every call waits for the disk.
os.fsync = _no_wait

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


# A test of the core needs no framework, no server, no browser, and no package outside its group.
_FRAMEWORKS = (
    "array_record",
    "datasets",
    "jax",
    "keras",
    "lightning",
    "ray",
    "tensorflow",
    "tensorflow_datasets",
    "torch",
)
_NEEDS_MORE = re.compile(
    rf"^\s*(import|from) ({'|'.join(_FRAMEWORKS)}|selenium|torchdata"
    r"|tests\.(frameworks|video_files))\b"
    r"|\.to_(jax|keras|tf|torch)\(|\brm\.ray\.|engine=\"ray",
    re.MULTILINE,
)
_SERVERS = {"any_bucket", "any_store", "azure_server", "moto_server", "s3_server"}
_LEFT_OUT = (
    *("adapters", "benchmarks", "docs", "formats/tfds", "ray"),
    *("test_faults.py", "test_hostile.py"),
)
_TESTS = Path(__file__).parent / "tests"
_CORE_HAS = 4000  # tests, or more


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="run what make test-core runs")


def pytest_configure(config: pytest.Config) -> None:
    core = config.getoption("core")
    if core:
        hypothesis.settings.load_profile("core")
    # A process with PyTorch takes three times as long to fork.
    multiprocessing.set_forkserver_preload([*([] if core else ["torch.utils.data"]), *_PRELOADED])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the modules that the core leaves out."""
    if not config.getoption("core"):
        return None
    if any(collection_path == _TESTS / name for name in _LEFT_OUT):
        return True
    is_test = collection_path.match("test_*.py")
    return True if is_test and _NEEDS_MORE.search(collection_path.read_text()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: a fifth of the time, and everything stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only where there are some, so that every process imports less."""
    found = yield
    tests = [each for each in found if type(each) is pytest.Module]
    if _TESTS in file_path.parents or (len(tests) < len(found) and not _has_examples(file_path)):
        return tests
    return found


def _has_examples(path: Path) -> bool:
    return ">>> " in path.read_text(encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = _slow_first(items)
    if config.getoption("core"):
        core = [item for item in items if _is_core(item)]
        config.hook.pytest_deselected(items=[item for item in items if not _is_core(item)])
        items[:] = core
        loaded = [name for name in _FRAMEWORKS if name in sys.modules]
        if loaded:
            raise pytest.UsageError(f"the core imports {loaded}")
        if config.args == ["tests"] and len(core) < _CORE_HAS:
            raise pytest.UsageError(f"the core has only {len(core)} tests")


def _slow_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Let every process of pytest-xdist begin with slow tests, so that none is started last.

    Each gets an equal part of the list, and takes from the end of another's when it is done. Tests
    that share something slow to start are together at the beginning of a part.
    """
    groups: dict[str, list[pytest.Item]] = {name: [] for name in _SHARED}
    quick: list[pytest.Item] = []
    for item in items:
        name = _group(item)
        (quick if name is None else groups.setdefault(name, [])).append(item)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    every = list(groups.values())
    shared, slow = every[: len(_SHARED)], every[len(_SHARED) :]
    parts = [list(itertools.chain(*shared[n::processes])) for n in range(processes)]
    free = parts[min(_LONGEST, processes - 1) :]
    for number, tests in enumerate(slow):
        free[number % len(free)].extend(tests)
    rest, left = iter(quick), len(items)
    for number, part in enumerate(parts):
        size = left // (processes - number)
        part.extend(itertools.islice(rest, max(0, size - len(part))))
        left -= len(part)
    return [*itertools.chain(*parts), *rest]


# What takes seconds to start. The processes of the longest, the first two, get no other slow tests.
_SHARED = ("ray", "frameworks", "azure", "browser", "moto")
_LONGEST = 2


def _group(item: pytest.Item) -> str | None:
    fixtures = set(getattr(item, "fixturenames", ()))
    if "cluster" in fixtures:
        return "ray"
    slow = item.get_closest_marker("slow") is not None
    if _imports_frameworks(item.path) or (item.path.parent.name in {"docs", "tfds"} and not slow):
        return "frameworks"
    if "azure_container" in item.name or "azure_server" in fixtures:
        return "azure"
    if "browser" in fixtures:
        return "browser"
    if "moto_server" in fixtures:
        return "moto"
    return str(item.path) if slow else None


_IMPORTS = re.compile(
    r"^from tests\.frameworks|^(from|import) jax|\.to_(jax|keras|tf)\(", re.MULTILINE
)


@functools.cache
def _imports_frameworks(path: Path) -> bool:
    """Tell whether tests of a module, or its doctests, import TensorFlow or JAX."""
    if _TESTS not in path.parents:
        return path.name == "tf.py"
    return _IMPORTS.search(path.read_text(encoding="utf-8")) is not None


def _is_core(item: pytest.Item) -> bool:
    if _group(item) is not None or "spawn" in item.name or "torch" in item.name:
        return False
    return not _SERVERS.intersection(getattr(item, "fixturenames", ()))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the tests of Ray go first: they are all in one process, and would be the last to end."""
    if "cluster" not in getattr(item, "fixturenames", ()):
        _let_others_go_first()


@functools.cache
def _let_others_go_first() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(5)


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


@pytest.fixture(autouse=True)
def tmp_path(_folders: Iterator[Path], request: pytest.FixtureRequest) -> Iterator[Path]:
    """Run each test and doctest in a new folder, so that it can write files anywhere.

    It is deleted if the test passes: all of them together take 16 GB. That of pytest looks through
    the folders of all tests before it. Every fixture that every test needs costs a whole second in
    all, so this one also gives each test a cache of its own. The workers of a cluster of Ray live
    in the folder of the first test that needs it, which stays.
    """
    folder = next(_folders)
    folder.mkdir()
    cache = os.environ["RECMAP_CACHE"] = f"{folder}-cache"
    before = os.getcwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)
    shutil.rmtree(cache, ignore_errors=True)
    if request.node.stash.get(_PASSED, False) and "cluster" not in request.fixturenames:
        shutil.rmtree(folder, ignore_errors=True)


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
