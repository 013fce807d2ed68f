"""A conversion that is taken over by another machine that shares the storage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm

# It waits at its first slab, before any file is finished.
OTHER = """
import socket, sys
socket.gethostname = lambda: "elsewhere"
import recmap as rm

def watch(progress):
    print(flush=True)
    sys.stdin.read()

rm.convert("x.npy", "out/", shards=2, workers=1, progress=watch)
"""


class Other:
    """A second conversion to the same place, which takes over when this object is called."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.left: set[str] = set()

    def __call__(self, _: object) -> None:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self.process.stdout is not None
            self.process.stdout.readline()  # it has begun
            self.left = set(os.listdir("out"))

    def finish(self) -> None:
        assert self.process is not None
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.mark.slow
def test_the_files_of_a_conversion_that_took_over_are_kept() -> None:
    values = np.arange(40_000.0).reshape(-1, 4)
    np.save("x.npy", values)
    other = Other()
    with pytest.raises(rm.OutputExistsError, match="out/ .* taken over"):
        rm.convert("x.npy", "out/", shards=2, workers=1, progress=other)
    assert "_manifest.json" in other.left
    assert other.left <= set(os.listdir("out"))
    other.finish()
    assert np.array_equal(rm.open("out/")["data"][:], values)
    assert not list(Path("out").glob(".*.tmp"))


@pytest.mark.slow
def test_an_interrupt_after_a_takeover_stays_an_interrupt_and_removes_nothing() -> None:
    np.save("x.npy", np.arange(40_000.0).reshape(-1, 4))
    other = Other()

    def watch(progress: object) -> None:
        other(progress)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.convert("x.npy", "out/", shards=2, workers=1, progress=watch)
    assert other.left <= set(os.listdir("out"))
    other.finish()
