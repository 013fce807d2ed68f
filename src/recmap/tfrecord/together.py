"""Rows of several files at once, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap.files.machine import thread_count
from recmap.tfrecord.example import Decoder, Records
from recmap.tfrecord.faults import fault_error
from recmap.tfrecord.plain import PlainShard

__all__ = ["Together"]

_T = TypeVar("_T")
_Rows: TypeAlias = npt.NDArray[np.int64]


class Together:
    """Files of which all records are known, mapped as long as this is in use. Their rows
    are numbered from the first of the first file on.
    """

    def __init__(self, shards: Sequence[PlainShard]) -> None:
        self._shards = list(shards)
        counts = [shard.count() for shard in shards]
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._mapped = [shard.file for shard in shards]
        self._files = _core.Files()
        for shard, file in zip(shards, self._mapped, strict=True):
            self._files.add(file.bytes, shard.index.stride or 0, *shard.index.marks)

    def take(self, codec: Decoder[_T], rows: _Rows, verify: bool) -> _T:
        """Rows by number, all decoded in one call, each into its place."""
        numbers, owners = self._owned(rows)
        files, threads = self._files, thread_count()
        _core.will_need_records(files, owners, numbers)
        offsets, fault = _core.locate_in(files, owners, numbers, threads)
        if fault is None:
            decoded, fault = codec.decode(Records(files, offsets, owners), verify, threads)
            if fault is None:
                return decoded
        owner = 0 if owners is None else owners[fault.row]
        record = int(numbers[fault.row])
        raise fault_error(fault, self._shards[owner].path, record, codec.schema)

    def _owned(self, rows: _Rows) -> tuple[_Rows, npt.NDArray[np.uint32] | None]:
        """The rows by their numbers in their files, and these; none if there is but one. They
        have not shrunk.
        """
        if len(self._shards) == 1:
            self._mapped[0].check_size(self._shards[0].size)
            return rows, None
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for i in np.unique(owners).tolist():
            self._mapped[i].check_size(self._shards[i].size)
        return rows - self._starts[owners], owners.astype(np.uint32)
