"""Hugging Face datasets, memory-mapped from Arrow files."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks import resized
from benchmarks.timing import Clock, Measure

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Imported by name, because they have no types.
datasets: Any = importlib.import_module("datasets")
pa: Any = importlib.import_module("pyarrow")

__all__ = ["JOBS"]

_BLOCK_BYTES = 16 << 20
_WORKERS = 2


def make(source: str, path: str) -> Measure:
    """Write an .npy file as one column of lists of one size."""
    values = np.load(source)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    table = pa.table({"x": column})
    with Clock() as clock, pa.OSFile(path, "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=_BLOCK_BYTES // values[0].nbytes)
    return Measure(clock.seconds, len(values))


def read(path: str, batch: int, rows: int, form: str, check: bool = False) -> Measure:
    """Open a file and read its first rows in batches, ``with_format("numpy")`` or ``"arrow"``."""
    with Clock() as clock:
        dataset = datasets.Dataset.from_file(path).select(range(rows)).with_format(form)
        got, total = _consume(_arrays(dataset, batch), check)
    return Measure(clock.seconds, got, total if check else None)


def train(path: str, batch: int, rows: int, form: str, check: bool = False) -> Measure:
    """Run an epoch of the first rows, exactly shuffled."""
    dataset = _shuffled(path, rows, form)
    with Clock() as clock:
        got, total = _consume(_arrays(dataset, batch), check)
    return Measure(clock.seconds, got, total if check else None)


@functools.cache
def _shuffled(path: str, rows: int, form: str) -> Any:
    dataset = datasets.Dataset.from_file(path).select(range(rows))
    return dataset.shuffle(seed=1, keep_in_memory=True).with_format(form)


def make_labels(source: str, path: str) -> Measure:
    """Write an .npy file of integers as a column."""
    table = pa.table({"label": np.load(source)})
    with Clock() as clock, pa.OSFile(path, "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=_BLOCK_BYTES // 4)
    return Measure(clock.seconds, table.num_rows)


def find(path: str, value: int, processes: int) -> Measure:
    """Open a file, and find the rows with a label."""

    def matches(labels: Any) -> Any:
        return labels == value

    datasets.disable_caching()
    datasets.disable_progress_bars()
    with Clock() as clock:
        dataset = datasets.Dataset.from_file(path)
        found = dataset.with_format("numpy").filter(
            matches,
            input_columns="label",
            batched=True,
            batch_size=100_000,
            num_proc=processes if processes > 1 else None,
        )
    return Measure(clock.seconds, len(dataset), len(found))


def make_parquet(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file as a column of lists."""
    values = np.load(source, mmap_mode="r")[:rows]
    parquet = importlib.import_module("pyarrow.parquet")
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    with Clock() as clock:
        parquet.write_table(
            pa.table({"x": column}), path,
            row_group_size=_BLOCK_BYTES // values[0].nbytes, compression="none",
            use_dictionary=False,
        )  # fmt: skip
    return Measure(clock.seconds, len(values))


def generate_parquet(source: str, path: str, folder: str) -> Measure:
    """Convert a TFRecord file of lists of floats to Parquet, one Example at a time."""
    tf: Any = importlib.import_module("tensorflow")

    def rows() -> Iterator[dict[str, Any]]:
        for record in tf.data.TFRecordDataset(source):
            example = tf.train.Example.FromString(record.numpy())
            yield {"x": list(example.features.feature["x"].float_list.value)}

    shutil.rmtree(folder, ignore_errors=True)  # it would not run the generator again
    with Clock() as clock:
        made = datasets.Dataset.from_generator(rows, cache_dir=folder)
        made.to_parquet(path)
    shutil.rmtree(folder)
    Path(path).unlink()
    return Measure(clock.seconds, len(made))


def read_parquet(path: str, batch: int, folder: str) -> Measure:
    """Read a Parquet file, which is copied to an Arrow file when it is read for the first time."""
    with Clock() as clock:
        dataset = datasets.Dataset.from_parquet(path, cache_dir=folder).with_format("numpy")
        got, _ = _consume(_arrays(dataset, batch), check=False)
    return Measure(clock.seconds, got)


def stream(url: str, batch: int, storage: dict[str, Any], check: bool = False) -> Measure:
    """Stream a Parquet object in batches."""
    options = {
        "key": storage["access_key_id"],
        "secret": storage["secret_access_key"],
        "endpoint_url": storage["endpoint"],
    }
    dataset = datasets.load_dataset(
        "parquet", data_files=[url], streaming=True, split="train", storage_options=options
    ).with_format("numpy")
    with Clock() as clock:
        got, total = _consume(_arrays(dataset, batch), check)
    return Measure(clock.seconds, got, total if check else None)


def _arrays(dataset: Any, batch: int) -> Iterator[Any]:
    for columns in dataset.iter(batch_size=batch):
        column = columns["x"]
        if isinstance(column, np.ndarray):
            yield column
            continue
        found = column.combine_chunks()
        # Otherwise, batches in order would be views of the file, and nothing would be read.
        yield np.array(found.flatten().to_numpy()).reshape(len(found), -1)


def make_images(folder: str, path: str) -> Measure:
    """Write JPEG files as a column of images."""
    encoded = [file.read_bytes() for file in sorted(Path(folder).glob("*.jpg"))]
    features = datasets.Features({"image": datasets.Image()})
    with Clock() as clock:
        made = datasets.Dataset.from_dict({"image": [{"bytes": b} for b in encoded]}, features)
        made.save_to_disk(path)
    return Measure(clock.seconds, len(encoded))


def images(path: str, batch: int, size: int, check: bool = False) -> Measure:
    """Decode and resize in the workers of a DataLoader, which are started before the clock."""
    loader = _loader(path, batch, size)
    with Clock() as clock:
        rows, total = _consume((images.numpy() for images in loader), check)
    return Measure(clock.seconds, rows, total if check else None)


@functools.cache
def _loader(path: str, batch: int, size: int) -> Any:
    def decoded(columns: dict[str, Any]) -> dict[str, Any]:
        return {"image": [resized(image, size) for image in columns["image"]]}

    data = importlib.import_module("torch.utils.data")
    torch: Any = importlib.import_module("torch")

    def stacked(rows: list[dict[str, Any]]) -> Any:
        return torch.from_numpy(np.stack([row["image"] for row in rows]))

    return data.DataLoader(
        datasets.load_from_disk(path).with_transform(decoded),
        batch,
        num_workers=_WORKERS,
        persistent_workers=True,
        collate_fn=stacked,
    )


def _consume(batches: Iterable[Any], check: bool) -> tuple[int, float]:
    rows, total = 0, 0.0
    for values in batches:
        rows += len(values)
        if check:
            total += float(values.sum(dtype=np.float64))
    return rows, total


JOBS = {
    "find": find,
    "generate_parquet": generate_parquet,
    "images": images,
    "make": make,
    "make_images": make_images,
    "make_labels": make_labels,
    "make_parquet": make_parquet,
    "read": read,
    "read_parquet": read_parquet,
    "stream": stream,
    "train": train,
}
