"""Rows of several files at once, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFile, MappedFiles
from recmap.native import _core
from recmap.tfrecord.decoder import Decoder, Records
from recmap.tfrecord.plain_file import PlainShard

__all__ = ["Gathering", "Together"]

# Files that are mapped for a stretch of rows, at most.
_FEW = 64

_T = TypeVar("_T")
_Rows: TypeAlias = npt.NDArray[np.int64]


class Together:
    """Files of which all records are known, mapped as long as this is in use. Their rows
    are numbered from the first of the first file on.
    """

    def __init__(self, shards: Sequence[PlainShard], files: Sequence[MappedFile]) -> None:
        self._shards, self._mapped = list(shards), files
        self._starts = np.cumsum([0, *(shard.count() for shard in shards)], dtype=np.int64)
        self._files = _core.Files()
        for shard, file in zip(shards, files, strict=True):
            if file.size < shard.size:  # another one by now
                file.check_size(shard.size)
            with shard.index.lock:
                index = shard.index
                self._files.add(file.bytes, index.stride or 0, *index.marks, index.lead)
        self._unchecked = set(range(len(shards)))

    def gather(self, codec: Decoder[_T], rows: _Rows, verify: bool, *, ask: bool = True) -> _T:
        """Rows by number, all decoded in one call, each into its place. ``ask`` is for rows in
        any order, of which the system cannot know which come next.
        """
        numbers, owners = self._owned(rows)
        read = [0] if owners is None else np.flatnonzero(np.bincount(owners)).tolist()
        self._check(read, by_page=verify)

        def where(row: int) -> tuple[str, int]:
            owner = 0 if owners is None else owners[row]
            return self._shards[owner].path, int(numbers[row])

        # More than a share of them: rows that are not in memory are waited for.
        files, threads = self._files, thread_count() if len(rows) > 1 else 1
        if ask:
            _core.prefetch_records(files, owners, numbers)
        offsets, fault = _core.locate(files, owners, numbers, threads)
        if fault is None:
            decoded, fault = codec.decode(Records(files, offsets, owners), verify, threads, where)
            if fault is None:
                return decoded
        self._check(read, by_page=False)
        path, record = where(fault.row)
        raise codec.error(fault, path, record)

    def _owned(self, rows: _Rows) -> tuple[_Rows, npt.NDArray[np.uint32] | None]:
        """The rows by their numbers in their files, and these; none if there is but one."""
        if len(self._shards) == 1:
            return rows, None
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        return rows - self._starts[owners], owners.astype(np.uint32)

    def _check(self, files: Sequence[int], *, by_page: bool) -> None:
        """Raises if one of these files has shrunk, or is not the one that was described."""
        MappedFile.check_sizes([self._mapped[i] for i in files], by_page=by_page)
        for i in self._unchecked.intersection(files):
            self._shards[i].check_before_read()
            self._unchecked.discard(i)


class Gathering:
    """All files of a source together, once their records are known."""

    def __init__(self, shards: Sequence[Any], files: MappedFiles) -> None:
        self._shards, self._files = shards, files
        self._together: Together | None = None
        self._lock = RLock()

    def __reduce__(self) -> tuple[type[Gathering], tuple[Any, ...]]:
        return Gathering, (self._shards, self._files)  # another process maps them itself

    def all(self) -> Together | None:
        """All of them; None if some are compressed, not known yet, or they are too many."""
        with self._lock:
            if self._together is None:
                plain = [shard for shard in self._shards if isinstance(shard, PlainShard)]
                if len(plain) < len(self._shards) or any(s.known_count() is None for s in plain):
                    return None
                held = self._files.hold([shard.path for shard in plain])
                if held is not None:
                    self._together = Together(plain, held)
            return self._together

    def some(self, first: int, last: int) -> Together | None:
        """Those from one to another, all of which are known, for the moment; None if some
        are compressed, or they are too many.
        """
        shards = self._shards[first : last + 1]
        if len(shards) > _FEW or not all(isinstance(shard, PlainShard) for shard in shards):
            return None
        return Together(shards, [shard.file for shard in shards])
