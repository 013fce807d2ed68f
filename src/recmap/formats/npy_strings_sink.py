"""An array of strings as numpy saves it, all of one width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.files.array_sidecar import remove_description, save_description
from recmap.files.cpus import size_text
from recmap.files.output_file import OutputFile, Spooler
from recmap.formats.npy import DEFAULT_NAME
from recmap.formats.npy_header import header_bytes
from recmap.model.coerce import as_columns, fit
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.model.sink import Sink

__all__ = ["StringsSink"]

# Bytes of strings that are put side by side at a time.
_PIECE = 4 << 20
# A file may take so many times the bytes of its strings, or this much.
_MOST_TIMES = 16
_MOST_BYTES = 256 << 20


class StringsSink(Sink):
    """One column of strings. They take as many bytes each as the longest one, which is known
    when all are there: until then they wait in files without a name.
    """

    def __init__(self, path: str, schema: Schema, *, durable: bool = True) -> None:
        self.path, self.schema, self.rows = path, schema, 0
        ((self._name, self._field),) = schema.items()
        self._durable, self._finished = durable, False
        self._longest = self._size = 0
        # Of the output, and of what waits to be put there.
        self._spoolers = Spooler(), Spooler()
        self._files: list[OutputFile] = []
        try:
            for i in (0, 1, 1):
                self._files.append(OutputFile(path, None, self._spoolers[i], unnamed=i == 1))
        except BaseException:
            self.abort()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        if not rows:
            return
        column = columns[self._name]
        assert isinstance(column, Ragged)
        strings = column.values if isinstance(column.values, Ragged) else column
        values = strings.values[strings.offsets[0] : strings.offsets[-1]]
        assert isinstance(values, np.ndarray)
        content, lengths = np.ascontiguousarray(values).view(np.uint8), strings.lengths
        self._check_ends(content, lengths)
        self._files[1].write(content)
        self._files[2].write(np.ascontiguousarray(lengths).view(np.uint8))
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._size += len(content)
        self.rows += rows

    def _check_ends(self, content: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> None:
        """Refuses strings whose last bytes numpy would take for padding."""
        filled = np.flatnonzero(lengths)
        lost = filled[content[np.cumsum(lengths)[filled] - 1] == 0]
        if len(lost):
            row = self.rows + int(lost[0]) // max(self._field.count, 1)
            raise ColumnError(
                f"field {self._name!r}: row {row:,} ends with a zero byte, which a .npy file of "
                "strings does not keep; write .npz, .h5, .zarr or .tfrecord"
            )

    def finish(self) -> str:
        """Puts the strings side by side; the temporary name."""
        output, *waiting = self._files
        if not self._finished:
            for file in waiting:
                file.flush()
            width, count = max(self._longest, 1), self.rows * self._field.count
            if width * count > max(_MOST_TIMES * self._size, _MOST_BYTES):
                raise ColumnError(
                    f"field {self._name!r}: the longest string has {width:,} bytes, so that "
                    f"{count:,} of them would take {size_text(width * count)} in {self.path}, and "
                    f"all together have {size_text(self._size)}; write .npz, .h5, .zarr or "
                    ".tfrecord"
                )
            self._spoolers[1].close()
            output.write(header_bytes(np.dtype(f"S{width}"), self._field.inner, self.rows))
            self._pad(output, waiting[0].reader(), waiting[1].reader(), width, count)
            output.flush()
            self._spoolers[0].close()
            output.finish(self._durable)
            for file in waiting:
                file.abort()
            self._finished = True
        return output.temporary

    def _pad(
        self, output: OutputFile, contents: IO[bytes], lengths: IO[bytes], width: int, count: int
    ) -> None:
        step = max(1, _PIECE // width)
        for start in range(0, count, step):
            some = np.frombuffer(lengths.read(8 * min(step, count - start)), np.int64)
            padded = np.zeros((len(some), width), np.uint8)
            within = np.arange(width) < some[:, None]
            padded[within] = np.frombuffer(contents.read(int(some.sum())), np.uint8)
            output.write(padded.reshape(-1))

    def commit(self) -> None:
        """Finishes the file and gives it its name."""
        self.finish()
        # Without a description it is read as DEFAULT_NAME.
        if self._name == DEFAULT_NAME:
            remove_description(self.path)
        else:
            save_description(self.path, self.schema, self._files[0].temporary)
        self._files[0].commit(self._durable)

    def abort(self) -> None:
        """Leaves nothing behind."""
        for spooler in self._spoolers:
            spooler.stop()
        for file in self._files:
            file.abort()
