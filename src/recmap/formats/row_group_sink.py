"""Write row groups: the base of the sinks for Parquet and Arrow files."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from recmap.errors import ColumnError, RecmapError
from recmap.formats.sink import Sink
from recmap.formats.stored_columns import KEY, description, store, stored_field
from recmap.local.output import Output, OutputStream
from recmap.machine.threads import Threads
from recmap.model.arguments import as_whole, check_choice
from recmap.model.arrow import ArrowBatches
from recmap.model.batch import join, pick
from recmap.model.coerce import as_columns, fit
from recmap.model.null_columns import empty_column
from recmap.model.ragged import owned
from recmap.model.row_sizes import RowSizes, batch_sizes
from recmap.model.schema import Batch, Schema
from recmap.model.table_notes import table_metadata

# Bytes of the rows of a row group in memory, unless the budget allows only fewer.
_GROUP = 16 << 20
# More rows than any row group of another program has.
_MOST_ROWS = 64 << 20


class RowGroupSink(Sink):
    """Collects rows until they fill a row group, which a thread encodes and writes.

    Where a row group ends follows from the sizes of its rows, so that the bytes of the file do
    not depend on how the rows were batched.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        group_rows: int | None,
        tensors: Literal["extension", "list"],
        room: int | None,
        table_types: Mapping[str, Any] | None = None,
    ) -> None:
        """``room`` is how many bytes of rows may be held; ``group_rows`` overrides it."""
        if not schema:
            raise ColumnError(f"{output.target}: there are no columns to write")
        self._most_rows = _MOST_ROWS
        if group_rows is not None:
            self._most_rows = as_whole("row_group_rows", group_rows, 1, _MOST_ROWS)
        check_choice("tensors", tensors, ("extension", "list"))
        self._most_bytes = min(room or _GROUP, _GROUP) if group_rows is None else 1 << 62
        super().__init__(output, schema)
        self._tensors = tensors
        self._stored = Schema({name: stored_field(field) for name, field in schema.items()})
        self._held: list[_Rows] = []
        self._encoder = Threads(1, "recmap-encoder")
        self._encoding: Future[None] | None = None
        self._file = _SinkFile(output.stream())
        try:
            empty = {name: empty_column(field) for name, field in self._stored.items()}
            with self._explained():
                metadata = {KEY: description(schema), **table_metadata(table_types)}
                self.begin(self._file, self._arrow(empty), metadata)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def begin(self, file: Any, empty: Any, metadata: Mapping[bytes, bytes]) -> None:
        """Begin to write to a file object. ``empty`` is an Arrow stream with all columns."""

    @abstractmethod
    def write_group(self, rows: Any) -> None:
        """Write a row group, given as an Arrow stream."""

    @abstractmethod
    def end_groups(self) -> None:
        """Write what comes after the last row group."""

    def write(self, batch: Mapping[str, Any]) -> None:
        """Append rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        if rows == 0:
            return
        stored = store(columns, self.schema)
        self._held.append(_Rows(stored, rows, batch_sizes(stored)))
        while count := self._complete():
            self._encode(self._take(count))
        # Copy the rest, because a view would keep all rows of its batch alive.
        last = self._held[-1:]
        self._held[-1:] = [each._replace(batch=_owned(each.batch)) for each in last]

    def _complete(self) -> int:
        """Return how many rows fill the next row group; 0 if more rows may belong to it."""
        rows = sum(each.rows for each in self._held)
        if not rows:
            return 0
        sizes = [each.sizes for each in self._held]
        if all(isinstance(size, int) for size in sizes):
            fits = self._most_bytes // max(1, int(max(sizes)))
        else:
            each = [np.broadcast_to(held.sizes, held.rows) for held in self._held]
            ends = np.cumsum(np.concatenate(each))
            fits = int(np.searchsorted(ends, self._most_bytes, side="right"))
        fits = max(1, min(fits, self._most_rows))
        return fits if fits < rows or fits == rows == self._most_rows else 0

    def _take(self, count: int) -> Batch:
        """Remove the first rows that are held, and return them."""
        parts: list[Batch] = []
        while count:
            first = self._held.pop(0)
            taken = min(count, first.rows)
            parts.append(pick(first.batch, slice(taken)) if taken < first.rows else first.batch)
            if taken < first.rows:
                self._held.insert(0, first.after(taken))
            count -= taken
        return join(parts)

    def _encode(self, batch: Batch) -> None:
        """Encode a row group in a thread, after the one before it."""
        self._wait()
        self._encoding = self._encoder.submit(self._write_group, batch)

    def _write_group(self, batch: Batch) -> None:
        rows = self._arrow(batch)
        try:
            with self._explained():
                self.write_group(rows)
        except Exception:
            if isinstance(rows.error, RecmapError):
                raise rows.error from None  # pyarrow raises one of its own, with the same text
            raise

    def _wait(self) -> None:
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.result()

    def _arrow(self, batch: Batch) -> ArrowBatches:
        return ArrowBatches(self._stored, [batch], tensors=self._tensors)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RecmapError:
            raise
        except (NotImplementedError, TypeError, ValueError) as e:
            raise ColumnError(f"{self.output.target} cannot hold the rows: {e}") from e

    def end(self) -> None:
        rest = sum(each.rows for each in self._held)
        if rest:
            self._encode(self._take(rest))
        self._wait()
        self._encoder.shutdown()
        with self._explained():
            self.end_groups()

    def close(self) -> None:
        self._file.abandoned = True
        self._encoder.shutdown()


class _Rows(NamedTuple):
    """Rows that wait to fill a row group, and their sizes."""

    batch: Batch
    rows: int
    sizes: RowSizes

    def after(self, count: int) -> _Rows:
        sizes = self.sizes if isinstance(self.sizes, int) else self.sizes[count:]
        return _Rows(pick(self.batch, slice(count, None)), self.rows - count, sizes)


class _SinkFile(io.RawIOBase):
    """The output as a file object, for pyarrow to write to."""

    def __init__(self, stream: OutputStream) -> None:
        super().__init__()
        self._stream = stream
        #: Whether what comes is thrown away: writers that are collected write their end.
        self.abandoned = False
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        # Kept until a thread has written it, when pyarrow may have used its memory again.
        copied = bytes(data)
        if not self.abandoned:
            self._stream.write(copied)
        self._at += len(copied)
        return len(copied)


def _owned(batch: Batch) -> Batch:
    return {name: owned(column) for name, column in batch.items()}
