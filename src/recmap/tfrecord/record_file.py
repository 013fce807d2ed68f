"""One TFRecord file: what plain and compressed files have in common.

That includes ``record_sizes``, which estimates the memory of records without decoding them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.local.output import Compression
from recmap.model.batch import RowNumbers
from recmap.model.facts import Skipped
from recmap.model.fetching import Fetching
from recmap.model.field import Field
from recmap.model.row_sizes import OFFSET, RowSizes
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord.decoder import ExampleDecoder, split_name

# The fewest bytes of a string or step in a record. In memory, each also takes an offset.
_LEAST_ITEM = 2
# Records with a larger bound are inspected, because the bound is far too high for most.
_LARGE = 1 << 20
_LENGTH_SIZE = 8


@dataclass(frozen=True)
class Window:
    """Consecutive records in a buffer.

    ``offsets`` are where they begin in ``bytes``. ``record`` is the number of the first among
    all records of the file, damaged ones included; None if unknown. ``base`` is the place of
    ``bytes`` in the plain data. ``skipped`` lists damage after the records. ``needed`` is the
    size of the next record if it does not fit. ``passed`` is the number of bytes read from the
    file.
    """

    bytes: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint64]
    record: int | None
    base: int
    scan: _core.Scan
    skipped: list[Skipped]
    needed: int = 0
    passed: int = 0


class RecordFile(ABC):
    """The rows of one file."""

    path: str
    compression: Compression = None
    # A check that is deferred until the file is first read. It raises if it must not be read.
    before_read: Callable[[RecordFile], None] | None = None

    def check_before_read(self) -> None:
        """Run the deferred check, once."""
        if self.before_read is not None:
            self.before_read(self)
            self.before_read = None

    @abstractmethod
    def known_count(self) -> int | None:
        """Return the number of rows, if it is known without reading further."""

    @abstractmethod
    def found_rows(self) -> int:
        """Return the number of rows seen so far."""

    @abstractmethod
    def reach(self, rows: int) -> int:
        """Return ``rows``, or the number of rows if there are fewer. They are going to be read."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows, reading to the end if necessary."""

    @abstractmethod
    def read(
        self, decoder: ExampleDecoder, start: int, stop: int, limit: int | None = None
    ) -> Batch:
        """Read rows ``start`` to ``stop``, or fewer if the file ends first.

        With ``limit``, stop early rather than use more than ``limit`` bytes of memory.
        """

    @abstractmethod
    def gather(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> Batch:
        """Read rows by number. All of them must exist."""

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch rows that are going to be read; None if there is nothing to fetch."""
        del rows
        return None

    @abstractmethod
    def fetch_whole(self) -> Fetching | None:
        """Begin to fetch the whole file, which is small; None if there is nothing to fetch."""

    @abstractmethod
    def row_sizes(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> RowSizes:
        """Return an upper bound for the memory of each of these rows."""

    @abstractmethod
    def largest_row(self, decoder: ExampleDecoder, above: int) -> tuple[int, int] | None:
        """Return a row that takes more than ``above`` bytes of memory, and its size.

        Return None if there is none, or if finding out would take another pass over the file.
        """

    @abstractmethod
    def row_bytes(self) -> int:
        """Estimate the size of a record in bytes; at least 1."""

    @abstractmethod
    def windows(self, skip: bool, *, offsets: bool = True) -> Iterator[Window]:
        """Yield all records in order. Without ``offsets``, they may only be counted.

        With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
        after the records that precede it.
        """

    @abstractmethod
    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Yield the first records, and where that is cheap a few from each of ``spots`` places.

        With ``skip``, search after damage too.
        """

    @abstractmethod
    def first_record(self) -> npt.NDArray[np.uint8] | None:
        """Return the first record with its framing.

        Return None if it cannot be read. Reading the file then reports why.
        """

    def error(
        self, fault: _core.Fault, record: int, base: int, decoder: ExampleDecoder
    ) -> Exception:
        """Make the error for a fault in a window with bytes at ``base``."""
        return decoder.error(fault, self.path, record, base if self.compression else None)

    def release(self) -> None:
        """Free everything held for the next rows."""
        return


def size_bound(schema: Schema) -> tuple[int, int]:
    """Return the memory every record takes, and the most that each of its bytes may add."""
    fixed, each = 0, 0
    for field in schema.values():
        if field.nullable:  # the mask
            fixed += max(field.count, 1)
        if field.row_bytes is not None:
            fixed += field.row_bytes
        else:
            fixed += OFFSET * (1 + max(field.count, 1))
            each = max(each, _bytes_per_byte(field))
    return fixed, each


def _bytes_per_byte(field: Field) -> int:
    # An integer may take a single byte in a record.
    values = field.dtype.itemsize if field.dtype.kind in "biumM" and not field.is_bytes else 1
    listed = field.ragged > 1 or (field.is_bytes and bool(field.shape))
    return max(values, OFFSET // _LEAST_ITEM if listed else 1)


def record_sizes(
    schema: Schema, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64]
) -> RowSizes:
    """Return an upper bound for the memory of each of the records at these offsets."""
    fixed, each = size_bound(schema)
    if not each or not len(offsets):
        return fixed
    # The frame of a record begins with its length.
    starts = np.ndarray((len(data) - _LENGTH_SIZE + 1,), "<u8", data, strides=(1,))
    lengths = np.minimum(starts[offsets], _core.MAX_MESSAGE_SIZE).astype(np.int64)
    sizes: npt.NDArray[np.int64] = fixed + each * lengths
    for row in np.flatnonzero(sizes > _LARGE):
        seen = _inspected_size(schema, data, offsets[row : row + 1], int(lengths[row]))
        sizes[row] = min(int(sizes[row]), fixed + seen)
    return sizes


def uniform_fitting(schema: Schema, length: int, lead: int, limit: int | None) -> int:
    """Return how many records fit into ``limit`` bytes of memory if they have one length.

    The first is longer by ``lead``. Return 0 if not even one fits, or if ``record_sizes`` has
    to look at each.
    """
    if limit is None:
        return _core.NO_LIMIT
    fixed, each = size_bound(schema)
    size = fixed + each * length
    return 0 if each and (lead or size > _LARGE) else limit // max(size, 1)


def first_beyond(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64], ends: npt.NDArray[Any]
) -> int | None:
    """Return the first of the records at these offsets that ends after its ``ends``, if any."""
    if not len(offsets):
        return None
    starts = np.ndarray((len(data) - _LENGTH_SIZE + 1,), "<u8", data, strides=(1,))
    lengths = np.minimum(starts[offsets], _core.MAX_MESSAGE_SIZE + _core.FRAME_SIZE)
    reached = offsets.astype(np.int64) + lengths.astype(np.int64) + _core.FRAME_SIZE
    beyond = np.flatnonzero(reached > ends.astype(np.int64))
    return int(beyond[0]) if len(beyond) else None


def _inspected_size(
    schema: Schema, data: npt.NDArray[np.uint8], offset: npt.NDArray[np.uint64], length: int
) -> int:
    """Return the memory of one record's values, in the fields that are read."""
    if int(offset[0]) + _core.FRAME_SIZE + length > len(data):
        return length  # the record is cut short; reading reports it
    facts: dict[str, list[_core.FeatureFacts]] = {}
    for _, key, feature in _core.inspect(data, offset, False).features:
        facts.setdefault(key, []).append(feature)
    total = 0
    for name, field in schema.items():
        if field.row_bytes is None:
            total += max((_size(field, f) for f in facts.get(split_name(name)[0], ())), default=0)
    return total


def _size(field: Field, feature: _core.FeatureFacts) -> int:
    steps = feature.steps[1] if feature.steps else 1
    values = steps * (feature.values[1] if feature.values else 0)
    if any(kind == _core.Kind.bytes for kind, _ in feature.kinds):
        longest = feature.string_size[1] if feature.string_size else 0
        return values * (longest + OFFSET) + steps * OFFSET
    return values * field.dtype.itemsize + steps * OFFSET
