"""Peak memory of conversions to a store: no more than ``memory=``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.buckets import S3Bucket
from tests.limited import peak_of

# The library that sends requests has threads and buffers of its own.
_LIBRARY = 24


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (100_000, 500))
    rows[:] = np.random.default_rng(0).normal(size=500)
    rows.flush()
    return path


@pytest.mark.parametrize(("suffix", "memory"), [(".tfrecord", 64), (".tfrecord", 120), (".h5", 64)])
def test_sending_stays_within_the_budget(
    bucket: S3Bucket, source: Path, suffix: str, memory: int
) -> None:
    size = peak_of(
        f"rm.convert({str(source)!r}, {bucket.url + '/d/x' + suffix!r}, shards=2, "
        f"memory={f'{memory}MB'!r}, storage={bucket.storage!r})"
    )
    assert size // 10**6 < memory + _LIBRARY
