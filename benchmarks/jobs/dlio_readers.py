"""What DLIO reads with recmap. DLIO imports these classes, and makes one for each run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import recmap as rm

__all__ = ["BatchLoader", "MemberReader"]

# Imported by name, because they have no types.
_loaders: Any = importlib.import_module("dlio_benchmark.data_loader.base_data_loader")
_readers: Any = importlib.import_module("dlio_benchmark.reader.npz_reader")
_names: Any = importlib.import_module("dlio_benchmark.common.enumerations")


class BatchLoader(_loaders.BaseDataLoader):  # type: ignore[misc]
    """Batches of TFRecord files, exactly shuffled, with every CRC checked."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, _names.DataLoaderType.TENSORFLOW)

    def read(self) -> None:
        """Open the files; DLIO reads all epochs from one stream."""
        ds = rm.open([str(file) for file in self._args.file_list_train])
        rows = ds.shuffle(seed=self._args.seed).repeat(self._args.epochs)
        self._stream = rows.batch(self.batch_size, drop_last=True)

    def next(self) -> Iterator[Any]:
        """Yield the batches."""
        yield from self._stream

    def finalize(self) -> None:
        """There is nothing to close."""


class MemberReader(_readers.NPZReader):  # type: ignore[misc]
    """Whole .npz files, with their CRC checked, in the worker processes of a DataLoader."""

    def open(self, filename: str) -> Any:
        """Return the array of a file, in memory as np.load has it."""
        return np.array(rm.open(filename, ["x"])["x"][:])
