"""Rows of several files at once, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.files.machine import thread_count
from recmap.tfrecord.example import Decoder, Records
from recmap.tfrecord.faults import fault_error
from recmap.tfrecord.plain import PlainShard

__all__ = ["Part", "gather"]

_T = TypeVar("_T")


class Part(NamedTuple):
    """Rows of one file, by number, and their places among all that are wanted."""

    shard: PlainShard
    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


def gather(parts: Sequence[Part], codec: Decoder[_T], verify: bool) -> _T:
    """The rows of all parts, decoded in one call, each into its place."""
    count = sum(len(part.rows) for part in parts)
    offsets, owners = np.empty(count, np.uint64), np.empty(count, np.uint32)
    files = []
    for number, part in enumerate(parts):
        offsets[part.places] = part.shard.locate(part.rows)
        owners[part.places] = number
        files.append(part.shard.file)
    records = Records([file.bytes for file in files], offsets, owners)
    decoded, fault = codec.decode(records, verify, thread_count())
    if fault is not None:
        part = parts[int(owners[fault.row])]
        record = int(part.rows[np.flatnonzero(part.places == fault.row)[0]])
        raise fault_error(fault, part.shard.path, record, codec.schema)
    return decoded
