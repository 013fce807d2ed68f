"""WebDataset: samples in tar files."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks import resized
from benchmarks.timing import Clock, Measure, fastest

# Imported by name, because it has no types.
wds: Any = importlib.import_module("webdataset")

__all__ = ["JOBS"]

_SHUFFLE = 10_000
_SHARDS = 4
# Worker processes of a loader; a trial finds the faster.
_WORKERS = (0, 2)


def make(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file to tar files in a folder, each as an .npy file."""
    values = np.load(source, mmap_mode="r")[:rows]
    with Clock() as clock:
        _write(path, ((f"{i:08}", "npy", _npy(row)) for i, row in enumerate(values)))
    return Measure(clock.seconds, len(values))


def _npy(row: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, row)
    return file.getvalue()


def _write(path: str, samples: Iterable[tuple[str, str, bytes]]) -> None:
    Path(path).mkdir()
    writers = [wds.TarWriter(f"{path}/{shard}.tar") for shard in range(_SHARDS)]
    for i, (key, ending, value) in enumerate(samples):
        writers[i % _SHARDS].write({"__key__": key, ending: value})
    for writer in writers:
        writer.close()


def read(path: str, batch: int, shuffle: bool = False, check: bool = False) -> Measure:
    """Read all rows in batches, in order or through a shuffle buffer."""
    return _fastest(functools.partial(_rows, path, batch, shuffle), check)


@functools.cache
def _rows(path: str, batch: int, shuffle: bool, workers: int) -> Any:
    samples = _samples(path)
    if shuffle:
        samples = samples.shuffle(_SHUFFLE)
    return _loader(samples.decode().to_tuple("npy").batched(batch), workers)


def make_images(folder: str, path: str) -> Measure:
    """Write JPEG files to tar files in a folder."""
    files = sorted(Path(folder).glob("*.jpg"))
    with Clock() as clock:
        _write(path, ((file.stem, "jpg", file.read_bytes()) for file in files))
    return Measure(clock.seconds, len(files))


def images(path: str, batch: int, size: int, check: bool = False) -> Measure:
    """Decode and resize images."""
    return _fastest(functools.partial(_images, path, batch, size), check)


@functools.cache
def _images(path: str, batch: int, size: int, workers: int) -> Any:
    def decoded(sample: tuple[Any]) -> tuple[Any]:
        return (resized(sample[0], size),)

    samples = _samples(path).decode("pil").to_tuple("jpg").map(decoded)
    return _loader(samples.batched(batch), workers)


def _samples(path: str) -> Any:
    if path.startswith("http"):
        shards = [f"pipe:curl --silent {path}/{shard}.tar" for shard in range(_SHARDS)]
    else:
        shards = sorted(str(shard) for shard in Path(path).glob("*.tar"))
    return wds.WebDataset(shards, shardshuffle=False)


def _loader(dataset: Any, workers: int) -> Any:
    # Workers are started by the first epoch, which is not timed.
    return wds.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


_best: dict[Any, int] = {}


def _fastest(make_loader: functools.partial[Any], check: bool) -> Measure:
    """Run an epoch, with the faster number of workers."""
    if make_loader.args not in _best:
        _best[make_loader.args] = fastest(_WORKERS, lambda n: _epoch(make_loader(n)))
    return _epoch(make_loader(_best[make_loader.args]), check)


def _epoch(loader: Any, check: bool = False) -> Measure:
    rows, total = 0, 0.0
    with Clock() as clock:
        for (values,) in loader:
            rows += len(values)
            if check:
                total += float(np.asarray(values).sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


JOBS = {"images": images, "make": make, "make_images": make_images, "read": read}
