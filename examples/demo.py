"""Convert a memmap several times larger than the memory budget to TFRecord shards; verify, read
and shuffle them, train on them, and convert them back.

Run it with `make demo`. It needs only recmap.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Self

import numpy as np

import recmap as rm

ROWS, WIDTH, SHARDS = 8_000_000, 10, 4
MEMORY = "64MB"


def anonymous_memory() -> int:
    """Return the memory of this process, in bytes, without mapped files."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


class Peak:
    """Measures how much the memory of this process grows during a ``with`` block."""

    def __enter__(self) -> Self:
        self.before = self.most = anonymous_memory()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.most = max(self.most, anonymous_memory())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        return self.most - self.before


def step(name: str, size: int, work: Callable[[], int]) -> None:
    with Peak() as peak:
        start = time.perf_counter()
        rows = work()
        seconds = time.perf_counter() - start
    print(
        f"  {name:<24} {rows:>11,} {seconds:>8.2f} s {rows / seconds / 1e6:>8.1f} M/s "
        f"{size / seconds / 1e9:>6.2f} GB/s {peak.grown / 1e6:>7.0f} MB"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = np.memmap(f"{folder}/x.dat", np.float32, "w+", shape=(ROWS, WIDTH))
        rng = np.random.default_rng(0)
        for start in range(0, ROWS, 100_000):
            source[start : start + 100_000] = rng.integers(0, 256, (100_000, WIDTH))
        source.flush()
        shards = f"{folder}/out/"

        def write() -> int:
            report = rm.convert(
                f"{folder}/x.dat", shards, dtype="float32", shape=(-1, WIDTH),
                shards=SHARDS, memory=MEMORY,
            )  # fmt: skip
            return report.rows

        def back() -> int:
            report = rm.convert(shards, f"{folder}/y.npy", memory=MEMORY)
            made = np.load(f"{folder}/y.npy", mmap_mode="r")
            for start in range(0, ROWS, 100_000):
                assert np.array_equal(made[start:][:100_000], source[start:][:100_000])
            return report.rows

        def verify() -> int:
            found = rm.verify(shards)
            assert found.ok, found.damage
            return found.records

        def read() -> int:
            total, rows = 0.0, 0
            for batch in rm.open(shards).batches(4096):
                total += float(batch["data"][:, 0].sum(dtype=np.float64))
                rows += len(batch["data"])
            expected = float(source[:, 0].sum(dtype=np.float64))
            assert total == expected, (total, expected)
            return rows

        def shuffle() -> int:
            total, rows = 0.0, 0
            for batch in rm.open(shards).shuffle(seed=1).batch(4096):
                total += float(batch["data"].sum(dtype=np.float64))
                rows += len(batch["data"])
            # The values are whole numbers, so sums in any order are equal.
            assert total == float(source.sum(dtype=np.float64))
            return rows

        def train() -> int:
            wanted, weights, losses = np.arange(WIDTH) / WIDTH, np.zeros(WIDTH), []
            batches = rm.open(shards).shuffle(seed=1).batch(256).take(2000)
            for batch in batches:
                x = batch["data"] / 255 - 0.5
                error = x @ (weights - wanted)
                losses.append(float((error**2).mean()))
                weights -= x.T @ error / len(x)
            print(f"    loss {losses[0]:.4f} to {losses[-1]:.1e} in {len(losses):,} steps")
            assert losses[-1] < losses[0] / 1000
            return len(losses) * 256

        def gather() -> int:
            picked = np.random.default_rng(0).integers(0, ROWS, 500_000)
            assert np.array_equal(rm.open(shards)[picked]["data"], source[picked])
            return len(picked)

        row = WIDTH * 4
        print(f"A memmap of {ROWS:,} rows of float32[{WIDTH}], {ROWS * row / 1e6:,.0f} MB.")
        print(f"Conversions may use {MEMORY} of memory.")
        print(f"  {'step':<24} {'rows':>11} {'time':>10} {'rate':>12} {'data':>11} {'memory':>10}")
        step(f"convert to {SHARDS} TFRecords", ROWS * row, write)
        step("verify every CRC", ROWS * row, verify)
        step("read in batches of 4096", ROWS * row, read)
        step("gather rows at random", 500_000 * row, gather)
        step("shuffle all rows", ROWS * row, shuffle)
        step("train on 2,000 batches", 2000 * 256 * row, train)
        step("convert to .npy", ROWS * row, back)
        size = sum(entry.stat().st_size for entry in os.scandir(f"{folder}/out"))
        print(f"The shards take {size / 1e6:,.0f} MB. All values were compared with the memmap.")
        print("Memory is how much the process grew in each step, without mapped files.")


if __name__ == "__main__":
    main()
