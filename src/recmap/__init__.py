"""Slice datasets bigger than RAM like NumPy arrays. No TensorFlow needed."""

import sys
from typing import TYPE_CHECKING

from recmap import errors as errors
from recmap.dataset import widget as _widget
from recmap.errors import (
    AccessDeniedError,
    ColumnError,
    CompressionError,
    CorruptRecordError,
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    FileChangedError,
    ImageError,
    IndexFileError,
    LeftOutWarning,
    MapError,
    MemoryLimitError,
    MissingPackageError,
    MissingShardsWarning,
    NoCacheWarning,
    NotExampleError,
    NotResumableWarning,
    ObjectChangedError,
    OptionError,
    OptionTypeError,
    OutputError,
    OutputExistsError,
    PathNotFoundError,
    RecmapError,
    RecordTooLargeError,
    RowNotFoundError,
    SkippedRecordsWarning,
    SlowOrderWarning,
    StaleIndexWarning,
    StalledWorkersWarning,
    StoreError,
    StoreTimeoutError,
    StoreWaitWarning,
    UnfinishedOutputError,
    UnknownFeatureWarning,
    UnknownFormatError,
    UnknownSchemeError,
    UnshardedWarning,
    VerificationError,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from recmap import ray as ray
    from recmap import tf as tf
    from recmap import tfrecord as tfrecord
    from recmap.dataset.column_view import ColumnView
    from recmap.dataset.combine import concat, mix, zip
    from recmap.dataset.convert import convert
    from recmap.dataset.dataset import Dataset
    from recmap.dataset.diff import diff
    from recmap.dataset.open import from_arrays, from_batches, open
    from recmap.dataset.stats import Stats
    from recmap.formats.index_files import index
    from recmap.formats.tfrecord_writer import TFRecordWriter
    from recmap.formats.verify import verify
    from recmap.model.expression import col
    from recmap.model.field import Field
    from recmap.model.ragged import Ragged
    from recmap.model.schema import Schema
    from recmap.pipeline.stream import Stream
    from recmap.pipeline.transforms.pad import Pad
    from recmap.tfrecord.repair import repair
    from recmap.view.report import report
else:
    # The modules that define the public names.
    _LATE = {
        "ColumnView": "recmap.dataset.column_view",
        "Dataset": "recmap.dataset.dataset",
        "Field": "recmap.model.field",
        "Pad": "recmap.pipeline.transforms.pad",
        "Ragged": "recmap.model.ragged",
        "Schema": "recmap.model.schema",
        "Stats": "recmap.dataset.stats",
        "Stream": "recmap.pipeline.stream",
        "TFRecordWriter": "recmap.formats.tfrecord_writer",
        "col": "recmap.model.expression",
        "concat": "recmap.dataset.combine",
        "convert": "recmap.dataset.convert",
        "diff": "recmap.dataset.diff",
        "from_arrays": "recmap.dataset.open",
        "from_batches": "recmap.dataset.open",
        "index": "recmap.formats.index_files",
        "mix": "recmap.dataset.combine",
        "open": "recmap.dataset.open",
        "repair": "recmap.tfrecord.repair",
        "report": "recmap.view.report",
        "verify": "recmap.formats.verify",
        "zip": "recmap.dataset.combine",
    }
    _LATE_MODULES = {
        "ray": "recmap.ray",
        "tf": "recmap.tf",
        "tfrecord": "recmap.tfrecord",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202
        """Import a name on first use, to keep ``import recmap`` fast."""
        from importlib import import_module

        if name in _LATE_MODULES:
            found = import_module(_LATE_MODULES[name])
        elif name in _LATE:
            found = getattr(import_module(_LATE[name]), name)
        else:
            from recmap.model.habits import no_function

            # Given name and obj, Python suggests the name that was probably meant.
            raise AttributeError(
                f"module 'recmap' has no attribute {name!r}{no_function(name)}",
                name=name,
                obj=sys.modules[__name__],
            )
        globals()[name] = found
        return found

    def __dir__():  # noqa: ANN202
        # Offer only documented names for tab completion.
        return sorted({*__all__, *(name for name in globals() if name[:2] == "__")})


def _show(dataset: "Dataset", height: int, port: int) -> _widget.Widget:
    from recmap.view.server import show

    return show(dataset, height, port)


_widget.show = _show


__all__ = [
    "AccessDeniedError",
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
    "FileChangedError",
    "ImageError",
    "IndexFileError",
    "LeftOutWarning",
    "MapError",
    "MemoryLimitError",
    "MissingPackageError",
    "MissingShardsWarning",
    "NoCacheWarning",
    "NotExampleError",
    "NotResumableWarning",
    "ObjectChangedError",
    "OptionError",
    "OptionTypeError",
    "OutputError",
    "OutputExistsError",
    "Pad",
    "PathNotFoundError",
    "Ragged",
    "RecmapError",
    "RecordTooLargeError",
    "RowNotFoundError",
    "Schema",
    "SkippedRecordsWarning",
    "SlowOrderWarning",
    "StaleIndexWarning",
    "StalledWorkersWarning",
    "Stats",
    "StoreError",
    "StoreTimeoutError",
    "StoreWaitWarning",
    "Stream",
    "TFRecordWriter",
    "UnfinishedOutputError",
    "UnknownFeatureWarning",
    "UnknownFormatError",
    "UnknownSchemeError",
    "UnshardedWarning",
    "VerificationError",
    "WorkerDiedError",
    "col",
    "concat",
    "convert",
    "diff",
    "errors",
    "from_arrays",
    "from_batches",
    "index",
    "mix",
    "open",
    "ray",
    "repair",
    "report",
    "tf",
    "tfrecord",
    "verify",
    "zip",
]

__version__ = "0.2.0"
