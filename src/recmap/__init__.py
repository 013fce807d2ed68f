"""Index record files like NumPy arrays without loading them. No TensorFlow needed."""

from typing import TYPE_CHECKING

from recmap import tfrecord
from recmap.column_view import ColumnView
from recmap.converting import convert
from recmap.dataset import Dataset, from_arrays, from_batches, open
from recmap.errors import (
    ColumnError,
    CompressionError,
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    ImageError,
    IndexFileError,
    LeftOutWarning,
    MapError,
    MemoryLimitError,
    MissingPackageError,
    NotExampleError,
    OptionError,
    OutputError,
    OutputExistsError,
    PathNotFoundError,
    RecmapError,
    RecordTooLargeError,
    RowNotFoundError,
    SkippedRecordsWarning,
    SlowOrderWarning,
    StaleIndexWarning,
    VerificationError,
    WorkerDiedError,
)
from recmap.formats.tfrecord_sink import TFRecordWriter
from recmap.ragged import Ragged
from recmap.tfrecord.indexing import index
from recmap.tfrecord.repairing import repair
from recmap.tfrecord.verifying import verify
from recmap.types import Field, Schema

if TYPE_CHECKING:
    from recmap import ray as ray
    from recmap.adapters import tf as tf
    from recmap.pipeline.padding import Pad
    from recmap.training import Pipeline, mix, zip
else:
    # Where what most programs do without is found when it is asked for.
    _LATE = {
        "Pad": "recmap.pipeline.padding",
        "Pipeline": "recmap.training",
        "mix": "recmap.training",
        "zip": "recmap.training",
    }
    _LATE_MODULES = {"ray": "recmap.ray", "tf": "recmap.adapters.tf"}

    def __getattr__(name):  # noqa: ANN001, ANN202
        """What is imported late."""
        from importlib import import_module

        if name in _LATE_MODULES:
            return import_module(_LATE_MODULES[name])
        if name not in _LATE:
            raise AttributeError(f"module 'recmap' has no attribute {name!r}")
        return getattr(import_module(_LATE[name]), name)


__all__ = [
    "ColumnError",
    "ColumnView",
    "CompressionError",
    "CorruptRecordError",
    "DataError",
    "Dataset",
    "Field",
    "FieldMismatchError",
    "FieldNotFoundError",
    "FieldTextError",
    "ImageError",
    "IndexFileError",
    "LeftOutWarning",
    "MapError",
    "MemoryLimitError",
    "MissingPackageError",
    "NotExampleError",
    "OptionError",
    "OutputError",
    "OutputExistsError",
    "Pad",
    "PathNotFoundError",
    "Pipeline",
    "Ragged",
    "RecmapError",
    "RecordTooLargeError",
    "RowNotFoundError",
    "Schema",
    "SkippedRecordsWarning",
    "SlowOrderWarning",
    "StaleIndexWarning",
    "TFRecordWriter",
    "VerificationError",
    "WorkerDiedError",
    "convert",
    "from_arrays",
    "from_batches",
    "index",
    "mix",
    "open",
    "repair",
    "tfrecord",
    "verify",
    "zip",
]

__version__ = "0.1.0"
