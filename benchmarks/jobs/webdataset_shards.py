"""WebDataset: samples in tar files."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks import resized
from benchmarks.timing import Clock, Measure

# Imported by name, because it has no types.
wds: Any = importlib.import_module("webdataset")

__all__ = ["JOBS"]

_SHUFFLE = 10_000
_SHARDS = 4
_WORKERS = 2


def make(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file to a tar file, each as an .npy file of its own."""
    values = np.load(source, mmap_mode="r")[:rows]
    with Clock() as clock, wds.TarWriter(path) as writer:
        for i, row in enumerate(values):
            file = io.BytesIO()
            np.save(file, row)
            writer.write({"__key__": f"{i:08}", "npy": file.getvalue()})
    return Measure(clock.seconds, len(values))


def read(path: str, batch: int, check: bool = False) -> Measure:
    """Open a tar file and read all of it in batches."""
    with Clock() as clock:
        dataset = wds.WebDataset(path, shardshuffle=False).decode().to_tuple("npy")
        rows, total = _consume(_first(dataset.batched(batch)), check)
    return Measure(clock.seconds, rows, total if check else None)


def train(path: str, batch: int, check: bool = False) -> Measure:
    """Run an epoch of batches from a shuffle buffer."""
    dataset = _shuffled(path, batch)
    with Clock() as clock:
        rows, total = _consume(_first(dataset), check)
    return Measure(clock.seconds, rows, total if check else None)


@functools.cache
def _shuffled(path: str, batch: int) -> Any:
    samples = wds.WebDataset(path, shardshuffle=False).shuffle(_SHUFFLE)
    return samples.decode().to_tuple("npy").batched(batch)


def make_images(folder: str, path: str) -> Measure:
    """Write JPEG files to tar files in a folder."""
    files = sorted(Path(folder).glob("*.jpg"))
    Path(path).mkdir()
    with Clock() as clock:
        for shard in range(_SHARDS):
            with wds.TarWriter(f"{path}/{shard}.tar") as writer:
                for file in files[shard::_SHARDS]:
                    writer.write({"__key__": file.stem, "jpg": file.read_bytes()})
    return Measure(clock.seconds, len(files))


def images(path: str, batch: int, size: int, check: bool = False) -> Measure:
    """Decode and resize in the workers of a loader, which are started before the clock."""
    loader = _loader(path, batch, size)
    with Clock() as clock:
        rows, total = _consume((found.numpy() for found in _first(loader)), check)
    return Measure(clock.seconds, rows, total if check else None)


@functools.cache
def _loader(path: str, batch: int, size: int) -> Any:
    def decoded(sample: tuple[Any]) -> tuple[Any]:
        return (resized(sample[0], size),)

    shards = sorted(str(shard) for shard in Path(path).glob("*.tar"))
    dataset = wds.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg").map(decoded)
    return wds.WebLoader(
        dataset.batched(batch), batch_size=None, num_workers=_WORKERS, persistent_workers=True
    )


def _first(batches: Iterable[Any]) -> Iterator[Any]:
    return (values for (values,) in batches)


def _consume(batches: Iterable[Any], check: bool) -> tuple[int, float]:
    rows, total = 0, 0.0
    for values in batches:
        rows += len(values)
        if check:
            total += float(values.sum(dtype=np.float64))
    return rows, total


JOBS = {
    "images": images,
    "make": make,
    "make_images": make_images,
    "read": read,
    "train": train,
}
