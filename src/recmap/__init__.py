"""Index record files like NumPy arrays without loading them. No TensorFlow needed."""

from recmap import tfrecord
from recmap.dataset import ColumnView, Dataset, convert, from_arrays, from_batches, open
from recmap.errors import (
    ColumnError,
    CompressionError,
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    IndexFileError,
    LeftOutWarning,
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
    StaleIndexWarning,
    VerificationError,
)
from recmap.formats.tfrecord_sink import TFRecordWriter
from recmap.ragged import Ragged
from recmap.tfrecord.indexing import index
from recmap.tfrecord.repairing import repair
from recmap.tfrecord.verifying import verify
from recmap.types import Field, Schema

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
    "IndexFileError",
    "LeftOutWarning",
    "MemoryLimitError",
    "MissingPackageError",
    "NotExampleError",
    "OptionError",
    "OutputError",
    "OutputExistsError",
    "PathNotFoundError",
    "Ragged",
    "RecmapError",
    "RecordTooLargeError",
    "RowNotFoundError",
    "Schema",
    "SkippedRecordsWarning",
    "StaleIndexWarning",
    "TFRecordWriter",
    "VerificationError",
    "convert",
    "from_arrays",
    "from_batches",
    "index",
    "open",
    "repair",
    "tfrecord",
    "verify",
]

__version__ = "0.1.0"
