"""Rows of several files at once, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap.files.machine import thread_count
from recmap.tfrecord.example import Decoder, Records
from recmap.tfrecord.faults import fault_error
from recmap.tfrecord.plain import PlainShard

__all__ = ["Together"]

_T = TypeVar("_T")


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

    def take(self, codec: Decoder[_T], rows: npt.NDArray[np.int64], verify: bool) -> _T:
        """Rows by number, all decoded in one call, each into its place."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for i in np.unique(owners).tolist():
            self._mapped[i].check_size(self._shards[i].size)
        numbers, owned = rows - self._starts[owners], owners.astype(np.uint32)
        _core.will_need_records(self._files, owned, numbers)
        offsets, fault = _core.locate_in(self._files, owned, numbers, thread_count())
        if fault is None:
            records = Records(self._files, offsets, owned)
            decoded, fault = codec.decode(records, verify, thread_count())
            if fault is None:
                return decoded
        path = self._shards[owners[fault.row]].path
        raise fault_error(fault, path, int(numbers[fault.row]), codec.schema)
