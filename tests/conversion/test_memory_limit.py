"""Bounded memory, enforced by the operating system in a separate process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.limited import LIMIT, MB, run_limited

pytestmark = pytest.mark.slow

# Batches of 51 MB in a file that is at least twice as large as the limit. Rows have 4 KB: smaller
# ones take longer and no more memory.
BATCH, WIDTH = 12_500, 1024
BATCHES = -(-2 * LIMIT // (BATCH * WIDTH * 4))
ROWS = BATCHES * BATCH


KINDS = ["uniform", "mixed", "gzip"]


def _write(path: Path, kind: str) -> None:
    """Write a file at least twice as large as the limit."""
    x = np.zeros((BATCH, WIDTH), np.float32)
    x[:, 0] = np.arange(BATCH)
    with rm.TFRecordWriter(
        path, compression="gzip" if kind == "gzip" else None, index=False, durable=False
    ) as w:
        for i in range(BATCHES):
            batch: dict[str, object] = {"x": x}
            if kind == "mixed":
                batch["n"] = np.arange(BATCH) + i * BATCH
            w.write(batch)


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("big")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=KINDS)
def big(request: pytest.FixtureRequest, _written: Path) -> Iterator[Path]:
    """A file at least twice as large as the limit, written once for all tests, without an index."""
    path = _written / f"{request.param}.tfrecord"
    if not path.exists():
        _write(path, request.param)
    yield path
    for index in _written.iterdir():
        if index.suffix != ".tfrecord":
            index.unlink()


def test_a_pass_in_batches_stays_below_the_limit(big: Path) -> None:
    body = f"print(sum(len(b['x']) for b in rm.open({str(big)!r}).batches(1000)))"
    assert run_limited(body) == str(ROWS)


def test_counting_and_random_rows_stay_below_the_limit(big: Path) -> None:
    body = f"""
ds = rm.open({str(big)!r})
print(len(ds), ds[[{ROWS - 1}, 0, {BATCH + 1}]]["x"][:, 0].tolist())
"""
    assert run_limited(body) == f"{ROWS} [{BATCH - 1}.0, 0.0, 1.0]"


def test_verifying_and_indexing_stay_below_the_limit(big: Path) -> None:
    body = f"""
assert rm.verify({str(big)!r}).ok
rm.index({str(big)!r})
print(rm.open({str(big)!r}).info().rows)
"""
    assert run_limited(body) == str(ROWS)


def test_reading_records_stays_below_the_limit(big: Path) -> None:
    body = f"print(sum(1 for _ in rm.tfrecord.records({str(big)!r})))"
    assert run_limited(body) == str(ROWS)


def test_mapping_a_large_column_stays_below_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "mapped.tfrecord"
    with rm.TFRecordWriter(path, index=False, durable=False, align=64) as w:
        for _ in range(4):
            w.write({"x": np.ones((100_000, 256), np.float32)})
    body = f"print(rm.open({str(path)!r})['x'][::1000].sum())"
    assert run_limited(body) == str(np.float32(400 * 256))


def test_writing_in_batches_stays_below_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "out.tfrecord"
    body = f"""
x = np.memmap({str(tmp_path / "x.dat")!r}, np.float32, "w+", shape=({ROWS}, {WIDTH}))
with rm.TFRecordWriter({str(path)!r}, shards=4, rows=len(x), durable=False) as w:
    w.write({{"x": x}})
print("done")
"""
    assert run_limited(body) == "done"


# Two files at a time take ten threads, whose stacks count even if mostly unused.
CONVERSION_LIMIT = 60 * MB + 10 * 8 * MB


# Every kind is read into one format, and every format is written from one kind.
@pytest.mark.parametrize(
    ("big", "name"),
    [
        *((kind, "y.npy") for kind in KINDS),
        *(("mixed", name) for name in ("y.bin", "y.npz", "y.h5", "y.zarr")),
        *(("uniform", name) for name in ("y.tfrecord", "y.tfrecord.gz")),
    ],
    indirect=["big"],
)
def test_a_conversion_stays_below_the_limit(big: Path, name: str) -> None:
    body = f"""
ds = rm.open({str(big)!r}).select("x")
report = ds.save({name!r}, memory="60MB", shards=2, options={{"durable": False}})
print(report.rows)
"""
    # Zarr starts its own threads.
    limit = CONVERSION_LIMIT + (8 * 8 * MB if name == "y.zarr" else 0)
    assert run_limited(body, limit) == str(ROWS)


@pytest.mark.parametrize("big", ["mixed", "gzip"], indirect=True)
def test_a_shuffle_stays_below_the_limit(big: Path) -> None:
    body = f"""
ds = rm.open({str(big)!r}).shuffle(seed=1)
report = ds.save("y.tfrecord", memory="60MB", options={{"durable": False}})
print(report.rows)
"""
    assert run_limited(body, CONVERSION_LIMIT) == str(ROWS)
