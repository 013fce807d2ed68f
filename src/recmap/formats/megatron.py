"""Token files of Megatron-LM: ``x.idx`` says where the sequences in ``x.bin`` lie."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, OptionError
from recmap.formats.column_readers import ArrayColumn, ColumnReader
from recmap.formats.column_source import ColumnsSource
from recmap.formats.ragged_layout import OFFSETS, join
from recmap.formats.sink import Sink, SinkKind
from recmap.local.atomic_write import put_in_place
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.output import DiskOutput, Output, Spooler
from recmap.model.coerce import as_columns, fit
from recmap.model.field import Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.tfrecord.encoder import little_endian

MAGIC = b"MMIDIDX\0\0"
# Version, dtype, number of sequences, number of documents and one.
_HEADER = struct.Struct("<QBQQ")
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32",
    8: "uint16",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}
# Bytes of the index for each sequence: its length, and where it begins.
_LENGTH, _POINTER = 4, 8
# The columns of a file. Files of text have no modes.
_TOKENS, _DOCUMENT, _MODE = "tokens", "document", "mode"
# Lengths whose pointers are computed at a time.
_TOGETHER = 1 << 17
# The name of an index, also while it is being written.
_NAME = re.compile(r"(?P<stem>.*)\.idx(?P<rest>(\..*\.tmp)?)", re.DOTALL)


def tokens_path(path: str) -> Location:
    """Return the path of the tokens that an index is about.

    >>> tokens_path("data/corpus.idx")
    'data/corpus.bin'
    """
    name = os.path.basename(path)
    index = _NAME.fullmatch(name)
    own = f"{index['stem']}.bin{index['rest']}" if index else os.path.splitext(name)[0] + ".bin"
    return located(path).sibling(own)


def remove_tokens(path: str) -> None:
    """Remove the tokens of an index, which is going to be removed; leave others alone."""
    index = located(path).anew()
    if path.endswith(".idx") and index.is_file():
        with index.open() as file:
            ours = file.pread(len(MAGIC), 0) == MAGIC
        if ours:
            tokens_path(index).remove()


def open_megatron(path: str) -> ColumnsSource:
    """Map the sequences of an index: their tokens, and the number of the document of each."""
    dtype, lengths, edges, modes = _read_index(path)
    tokens = tokens_path(path)
    file = tokens.map()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    if int(offsets[-1]) * dtype.itemsize != file.size:
        raise DataError(
            f"{tokens}: {file.size:,} bytes, but {path} lists {int(offsets[-1]):,} tokens of "
            f"{dtype}",
            file=tokens,
        )
    values = ArrayColumn(file.array(0, (int(offsets[-1]),), dtype), file)
    rows = np.arange(len(lengths))
    columns: dict[str, ColumnReader] = {
        _TOKENS: join(path, _TOKENS, values, {OFFSETS: ArrayColumn(offsets)}, False, None),
        _DOCUMENT: ArrayColumn(np.searchsorted(edges, rows, side="right") - 1),
    }
    if modes is not None:
        columns[_MODE] = ArrayColumn(modes)
    again = partial(open_megatron, path)
    return ColumnsSource("megatron", [path, tokens], columns, reopen=again, mapped=file)


def _read_index(
    path: str,
) -> tuple[
    np.dtype[Any], npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int8] | None
]:
    """Return the dtype of tokens, the lengths of sequences, where documents begin, and modes."""

    def fail(why: str) -> DataError:
        return DataError(f"{path}: not an index of Megatron-LM: {why}", file=path)

    with located(path).open() as file:
        start = len(MAGIC) + _HEADER.size
        head = file.pread(start, 0)
        if len(head) < start or not head.startswith(MAGIC):
            raise fail("it does not begin with MMIDIDX")
        version, code, sequences, documents = _HEADER.unpack_from(head, len(MAGIC))
        if version != 1 or code not in _DTYPES:
            raise fail(f"version {version}, dtype {code}")
        dtype = np.dtype(_DTYPES[code]).newbyteorder("<")
        size = located(path).stat().size
        whole = start + sequences * (_LENGTH + _POINTER) + documents * _POINTER
        if size not in (whole, whole + sequences):  # multimodal files have modes, too
            raise fail(f"{size:,} bytes, but {sequences:,} sequences take {whole:,}")
        content = file.pread(size - start, start)
    lengths = np.frombuffer(content, "<i4", sequences)
    pointers = np.frombuffer(content, "<i8", sequences, sequences * _LENGTH)
    edges = np.frombuffer(content, "<i8", documents, sequences * (_LENGTH + _POINTER))
    ends = np.cumsum(lengths, dtype=np.int64) * dtype.itemsize
    if (
        bool((lengths < 0).any())
        or not np.array_equal(pointers[1:], ends[:-1])
        or pointers[:1].any()
    ):
        raise fail("its sequences do not follow each other")
    ordered = bool((np.diff(edges) >= 0).all())
    if not documents or edges[0] != 0 or edges[-1] != sequences or not ordered:
        raise fail("its documents do not end with its sequences")
    modes = np.frombuffer(content, np.int8, -1, whole - start) if size > whole else None
    return dtype, lengths, edges[:-1], modes


class MegatronSink(Sink):
    """Writes the tokens of rows to ``x.bin``, and the index that Megatron-LM reads to ``x.idx``.

    A document begins wherever the number in the column ``document`` changes. Without that column,
    each row is a document.
    """

    def __init__(self, output: Output, schema: Schema) -> None:
        _check_columns(output.target, schema)
        super().__init__(output, schema)
        self._sequences = self._documents = 0
        self._last: int | None = None  # the number of the document of the last row
        self._index = output.stream()
        waiting = Spooler()
        self._lengths, self._edges, self._modes = (output.scratch(waiting) for _ in range(3))
        self._file = DiskOutput(
            tokens_path(output.target), output.durable, tokens_path(output.path)
        )
        self._tokens = self._file.stream()

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        if not rows:
            return
        tokens = columns[_TOKENS]
        assert isinstance(tokens, Ragged)
        values = np.ascontiguousarray(tokens.flat, tokens.flat.dtype.newbyteorder("<"))
        self._tokens.write(values.view(np.uint8))
        most = int(tokens.lengths.max())
        if most > np.iinfo(np.int32).max:
            raise ColumnError(
                f"{self.output.target}: a row has {most:,} tokens, but a sequence has at most "
                f"{np.iinfo(np.int32).max:,}; cut the rows"
            )
        self._lengths.write(tokens.lengths.astype("<i4").view(np.uint8))
        if _MODE in columns:
            self._modes.write(np.array(columns[_MODE], np.int8).view(np.uint8))
        begins = self._begins(columns.get(_DOCUMENT), rows)
        self._edges.write((self._sequences + begins).astype("<i8").view(np.uint8))
        self._documents += len(begins)
        self._sequences += rows

    def _begins(self, documents: Any, rows: int) -> npt.NDArray[np.int64]:
        """Return which of some rows are the first of their documents."""
        if documents is None:
            return np.arange(rows)
        numbers = np.asarray(documents)
        changes = np.ones(rows, bool)
        changes[1:] = numbers[1:] != numbers[:-1]
        changes[0] = self._last is None or int(numbers[0]) != self._last
        self._last = int(numbers[-1])
        return np.flatnonzero(changes)

    def end(self) -> None:
        for stream in (self._lengths, self._edges, self._modes):
            stream.finish()
        dtype = self.schema[_TOKENS].dtype
        counts = self._sequences, self._documents + 1
        self._index.write(MAGIC + _HEADER.pack(1, _CODES[dtype.name], *counts))
        for lengths in _read(self._lengths.reader()):
            self._index.write(lengths)
        at = 0
        for lengths in _read(self._lengths.reader()):
            ends = np.cumsum(lengths.view("<i4"), dtype="<i8") * dtype.itemsize
            self._index.write((np.concatenate([[0], ends[:-1]]) + at).astype("<i8").view(np.uint8))
            at += int(ends[-1])
        for edges in _read(self._edges.reader()):
            self._index.write(edges)
        self._index.write(self._sequences.to_bytes(8, "little"))
        for modes in _read(self._modes.reader()):
            self._index.write(modes)
        self._file.finish()
        self.output.accompany(tokens_path, self._place)

    def _place(self, data: str, path: str) -> None:
        """Give the tokens of the index at ``data`` their name beside its ``path``."""
        if data != path:
            put_in_place(tokens_path(data), tokens_path(path))

    def commit(self) -> None:
        self.finish()
        # An old index must not be read with new tokens, nor a new one with old tokens.
        for old in (located(self.output.target), tokens_path(self.output.target)):
            old.anew().remove()
        super().commit()

    def close(self) -> None:
        self._file.abort()


def _check_columns(path: str, schema: Schema) -> None:
    """Refuse columns that an index cannot hold, and a name that is not that of an index."""
    if not path.endswith(".idx"):
        raise OptionError(f"{path}: end the name with .idx; the tokens go into .bin next to it")
    other = [name for name in schema if name not in (_TOKENS, _DOCUMENT, _MODE)]
    if _TOKENS not in schema:
        raise ColumnError(
            f"{path}: there is no column {_TOKENS!r} to write; rename yours, as in "
            f'rename({{"ids": "{_TOKENS}"}})'
        )
    if other:
        raise ColumnError(
            f"{path}: column {other[0]!r} does not fit into a Megatron file, which has "
            f'"tokens", "document" and "mode"; choose among them with select("tokens")'
        )
    tokens = schema[_TOKENS]
    if tokens.dtype.name not in _CODES or tokens.shape != (None,):
        raise ColumnError(
            f"{path}: column {_TOKENS!r} is {tokens}; Megatron files hold lists of "
            f"{', '.join(_CODES)}"
        )
    for name, wanted in ((_DOCUMENT, Field("int64")), (_MODE, Field("int8"))):
        if name in schema and schema[name] != wanted:
            raise ColumnError(
                f'{path}: column {name!r} is {schema[name]}, not {wanted}; cast({{"{name}": '
                f'"{wanted}"}}) first'
            )


def _read(file: IO[bytes]) -> Iterator[npt.NDArray[np.uint8]]:
    while part := file.read(4 * _TOGETHER):
        yield np.frombuffer(part, np.uint8)


SINK = SinkKind(
    MegatronSink, untyped=True, stored=little_endian, beside=tokens_path, counted=[_DOCUMENT]
)
