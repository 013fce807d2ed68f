"""Every test and doctest runs in a folder of its own."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A machine that is busy is no failure.
hypothesis.settings.register_profile("recmap", deadline=None)
hypothesis.settings.load_profile("recmap")

# TensorFlow talks much when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctests and tests write files without caring where."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_time() -> Iterator[None]:
    """For tests that could hang."""
    from tests import jobs

    with jobs.deadline():
        yield


@pytest.fixture(scope="module")
def frozen() -> Iterator[None]:
    """For tests of which others fork this process: what tests before have left over, such as
    datasets of TensorFlow, must not be collected in a child, which has not its threads.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
