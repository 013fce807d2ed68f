"""Records of ArrayRecord files by number, read by the ``array_record`` package."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MissingPackageError, OutputError, RecmapError
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.temporary import remove
from recmap.model.batch import RowArray, rows_by_owner
from recmap.native import _core
from recmap.store.staging import make_staging_folder
from recmap.tfrecord.decoder import Records

# Bytes of an object fetched at a time.
_PART = 16 << 20
_FAILURES = (RuntimeError, ValueError, IndexError)


def array_record_module() -> Any:
    """Return the module that reads and writes ArrayRecord files."""
    try:
        from array_record.python import array_record_module
    except ImportError as e:
        raise MissingPackageError(
            "ArrayRecord files need the package array_record", extra="arrayrecord"
        ) from e
    return array_record_module


class RecordReaders:
    """The records of several files, end to end.

    The package opens only files on disk, so objects are downloaded whole, into the folder for
    temporary files, where they stay until this is closed.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        module = array_record_module()
        self._readers: list[Any] = []
        counts: list[int] = []
        for path in self.files:
            local = self._downloaded(located(path)) if located(path).remote else path
            try:
                reader = module.ArrayRecordReader(
                    local, "readahead_buffer_size:0", file_reader_buffer_size=32768
                )
                if not reader.ok():  # it would have no records
                    reader.read_all()  # raises, and says why
                    raise ValueError("it is cut or damaged")
                counts.append(reader.num_records())
                located(path).check_unchanged()
            except RecmapError:
                raise
            except _FAILURES as e:
                raise DataError(f"{path}: not an ArrayRecord file: {e}", file=path) from None
            self._readers.append(reader)
        #: The number of records before each file, and of all.
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _downloaded(self, path: Location) -> str:
        folder = make_staging_folder()
        weakref.finalize(self, remove, folder)
        local = f"{folder}/{path.name}"
        try:
            with path.open(in_order=True) as source, open(local, "wb") as target:
                target.writelines(source.pread(_PART, at) for at in range(0, source.size, _PART))
        except RecmapError:
            raise
        except OSError as e:
            raise OutputError(
                f"{path}: cannot be downloaded to {folder}: {e.strerror}; set TMPDIR to a folder "
                "with more room"
            ) from e
        return local

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordReaders, (self.files,)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def where(self, row: int) -> tuple[str, int]:
        """Return the file of a record, and its number there."""
        owner = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.files[owner], int(row - self.starts[owner])

    def read(self, rows: RowArray) -> list[bytes]:
        """Return records by number."""
        found: list[bytes] = [b""] * len(rows)
        for owner, mine in rows_by_owner(self.starts, rows):
            numbers = rows[mine] - self.starts[owner]
            try:
                records = self._readers[owner].read(numbers.tolist())
            except _FAILURES as e:
                path = self.files[owner]
                raise DataError(f"{path}: cannot be read: {e}", file=path) from None
            for place, record in zip(mine, records, strict=True):
                found[place] = record
        return found


def framed(
    records: Sequence[bytes],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """Return records in the frames of a TFRecord file, and where each begins."""
    whole = _core.frame([np.frombuffer(record, np.uint8) for record in records])
    sizes = np.array([len(record) + _core.FRAME_SIZE for record in records], np.uint64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.uint64)
    return np.frombuffer(whole, np.uint8), offsets


def as_records(records: Sequence[bytes]) -> Records:
    """Return records as the decoder takes them."""
    return Records.of_file(*framed(records))
