"""Tar files of WebDataset, written row by row."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recmap.errors import ColumnError
from recmap.formats.sink import Sink, SinkKind
from recmap.formats.webdataset.members import KEY, NO_PICKLES, PICKLES, ending, extension_of
from recmap.formats.webdataset.tar_index import save_index
from recmap.formats.webdataset.tar_members import BLOCK, DESCRIPTION
from recmap.local.output import Output
from recmap.model.arguments import check_flag
from recmap.model.coerce import as_columns, fit
from recmap.model.description import Description
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, null_mask
from recmap.model.schema import Schema
from recmap.tfrecord.sidecar import sidecar_path

# The end of a tar file, and the size that tar fills it to.
_END, _RECORD = 2 * BLOCK, 20 * BLOCK
# Bytes collected before they are written.
_JOINED = 1 << 20
_META = re.compile(r"__[^/]*__($|/)")
_PACKED = re.compile(r"\.(tar\.gz|tgz)\Z", re.IGNORECASE)
_MODE = 0o644
_GZIP = 31


class WebDatasetSink(Sink):
    """Writes a sample for each row: a member for each column, called by its key and extension.

    The keys are the column ``__key__``, or else the numbers of rows. With a name that
    ends with .tar.gz or .tgz, the file is compressed.
    """

    def __init__(self, output: Output, schema: Schema, *, index: bool = True) -> None:
        check_flag("index", index)
        self._extensions = _extensions(output.target, schema)
        self._encoders = {name: _encoder(name, schema[name]) for name in self._extensions}
        super().__init__(output, schema)
        name = os.path.basename(output.target)
        packed = _PACKED.search(name)
        bare = name.removesuffix(".tar") if packed is None else name[: packed.start()]
        self._stem = bare.replace(".", "_")
        self._rows = self._size = self._written = 0
        self._keys: set[int] = set()
        self._parts: list[bytes] = []
        self._stream = output.stream()
        # One member: webdataset reads archives with tarfile, which ignores all others.
        self._packer = None if packed is None else zlib.compressobj(wbits=_GZIP)
        text = json.dumps(Description(schema, fills=False).texts)
        self._put(tarfile.TarInfo.create_pax_global_header({DESCRIPTION: text}))
        if index and packed is None:  # the first to read a compressed file makes its indexes
            output.accompany(sidecar_path, _save_index)

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        missing = {name: null_mask(columns[name]) for name in self._encoders}
        for row in range(rows):
            key = self._key(columns.get(KEY), row)
            there = [name for name in self._encoders if not missing[name][row]]
            if not there:
                raise ColumnError(
                    f"row {self._rows:,} is null in every column, and {self.output.target} cannot "
                    "hold a sample without members; drop it: ds.drop_null()"
                )
            for name in there:
                content = self._encoders[name](columns[name], row)
                self._member(f"{key}.{self._extensions[name]}", content)
            self._rows += 1

    def _key(self, keys: Column | None, row: int) -> str:
        if keys is None:
            return f"{self._stem}-{self._rows:09d}"
        key = keys[row]
        try:
            key = key.decode() if isinstance(key, bytes) else str(key)
        except UnicodeDecodeError:
            raise ColumnError(f"column {KEY!r}: row {self._rows:,} is not UTF-8") from None
        base = key.rpartition("/")[2]
        if not base or "." in base or "\0" in key or key.startswith("/") or _META.match(key):
            raise ColumnError(
                f"column {KEY!r}: row {self._rows:,} is {key!r}, which WebDataset would not read "
                "as the key of a sample: leave out dots, and slashes at the beginning and the end"
            )
        if hash(key) in self._keys:
            raise ColumnError(
                f"column {KEY!r}: row {self._rows:,} is {key!r}, which is the key of another row"
            )
        self._keys.add(hash(key))
        return key

    def _member(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), _MODE
        self._put(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        self._put(content)
        self._put(bytes(-len(content) % BLOCK))

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _JOINED:
            self._flush()

    def _flush(self) -> None:
        self._written += self._size
        joined = b"".join(self._parts)
        self._stream.write(joined if self._packer is None else self._packer.compress(joined))
        self._parts, self._size = [], 0

    def end(self) -> None:
        self._put(bytes(_END))
        self._flush()
        self._put(bytes(-self._written % _RECORD))
        self._flush()
        if self._packer is not None:
            self._stream.write(self._packer.flush())


def _extensions(path: str, schema: Schema) -> dict[str, str]:
    """Return the extension of each column; refuse those that could not be read back."""
    found: dict[str, str] = {}
    for name, field in schema.items():
        if name == KEY and field.is_bytes and not field.shape and not field.nullable:
            continue
        extension = extension_of(name, field)
        if name.startswith("__") or "\0" in name:
            raise ColumnError(
                f"column {name!r} cannot be the extension of a file in {path}; rename it"
            )
        if extension in found.values():
            raise ColumnError(f"{path}: two columns would be {extension!r}; rename one of them")
        if ending(extension) in PICKLES:
            raise ColumnError(f"column {name!r} {NO_PICKLES}; rename it")
        found[name] = extension
    if not found:
        raise ColumnError(f"{path}: there are no columns to write")
    return found


def _encoder(name: str, field: Field) -> Callable[[Column, int], bytes]:
    """Return the function that makes the content of a member from a row."""
    if field.is_bytes:
        if field.shape:
            raise ColumnError(
                f"column {name!r} is {field}: lists of strings do not fit into a tar file; write "
                ".parquet or .tfrecord"
            )
        return _text if field.is_text else _bytes
    if field.dtype.kind in "iu" and not field.shape:
        return _number
    return lambda column, row: _array(name, field, column, row)


def _bytes(column: Column, row: int) -> bytes:
    content: bytes = column[row]
    return content


def _text(column: Column, row: int) -> bytes:
    return str(column[row]).encode()


def _number(column: Column, row: int) -> bytes:
    return b"%d" % int(column[row])


def _array(name: str, field: Field, column: Column, row: int) -> bytes:
    value = column[row]
    shape: list[int] = []
    while isinstance(value, Ragged):
        lengths = set(value.lengths.tolist())
        if len(lengths) > 1:
            raise ColumnError(
                f"column {name!r}: a row has lists of {min(lengths):,} and {max(lengths):,} "
                "values, and a .npy member holds an array; write .parquet or .tfrecord"
            )
        shape.append(len(value))
        if not len(value):
            rest = len(field.shape) - len(shape)
            return _npy(np.zeros((0,) * len(shape) + (0,) * rest, field.dtype))
        value = value.flat
        if not isinstance(value, Ragged):
            value = np.asarray(value).reshape(*shape, lengths.pop(), *value.shape[1:])
            break
        value = Ragged(value.values, value.offsets)
    return _npy(np.asarray(value, field.dtype))


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array(
        head, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False
    )
    return head.getvalue()


def _save_index(data: str, path: str) -> None:
    save_index(data, path)


SINK = SinkKind(WebDatasetSink, streams=True, nulls="rows")
