"""LitData: chunks of samples, downloaded to a local folder while they are read."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure

# Imported by name, because they have no types.
litdata: Any = importlib.import_module("litdata")
data: Any = importlib.import_module("torch.utils.data")
downloader: Any = importlib.import_module("litdata.streaming.downloader")

# It downloads with obstore, which refuses a server without TLS, and has no option for that.
downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True

__all__ = ["JOBS"]

_CHUNK = "64MB"


def make(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file to a folder of chunks."""
    values = np.load(source, mmap_mode="r")[:rows]
    writer = importlib.import_module("litdata.streaming.cache").Cache(path, chunk_bytes=_CHUNK)
    with Clock() as clock:
        for i, row in enumerate(values):
            writer[i] = np.array(row)
        writer.done()
        writer.merge()
    return Measure(clock.seconds, len(values))


def read(
    path: str, batch: int, storage: dict[str, Any], cache: str, shuffle: bool = False,
    check: bool = False,
) -> Measure:  # fmt: skip
    """Read all rows in batches, with an empty folder for chunks."""
    options = {
        "aws_access_key_id": storage["access_key_id"],
        "aws_secret_access_key": storage["secret_access_key"],
        "endpoint_url": storage["endpoint"],
        "region_name": storage["region"],
    }
    folder = tempfile.mkdtemp(dir=cache)
    dataset = litdata.StreamingDataset(
        path, cache_dir=folder, storage_options=options, shuffle=shuffle
    )
    rows, total = 0, 0.0
    with Clock() as clock:
        for values in data.DataLoader(dataset, batch, collate_fn=np.stack):
            rows += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    shutil.rmtree(folder, ignore_errors=True)
    return Measure(clock.seconds, rows, total if check else None)


JOBS = {"make": make, "read": read}
