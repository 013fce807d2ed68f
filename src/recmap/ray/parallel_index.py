"""Finding the records of TFRecord files that have no index, on all nodes at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recmap.model.source import Source
from recmap.ray.cluster import cpu_count
from recmap.ray.errors import result
from recmap.ray.working_folder import TASK_CPUS, Home
from recmap.tfrecord.parallel_scan import ScannedSpan, choose_every, join_spans, scan_span
from recmap.tfrecord.plain_file import PlainFile

__all__ = ["find_records"]

# Less than this is found sooner by the driver alone.
_WORTH_IT = 256 << 20
# Bytes that a task searches, at least and at most, and how many tasks a processor gets: of
# several, one that is slow holds up little.
_LEAST, _MOST = 64 << 20, 1 << 30
_PER_CPU = 4
# Times that a stretch is searched anew after a worker or a node died.
_RETRIES = 5


@dataclass(frozen=True)
class _Search:
    """A file, and where the stretches begin and stop in which it is searched."""

    shard: PlainFile
    every: int
    begins: list[int]
    stops: list[int]


def find_records(ray: Any, home: Home, source: Source, piece: int | None = None) -> None:
    """Has the source know where its records are, as if it had looked itself. ``piece``
    is how many bytes a task searches. Compressed files cannot be entered in their midst,
    and are left to the source.
    """
    plain = source.unindexed_files()
    total = sum(shard.size for shard in plain)
    cpus = cpu_count(ray)
    if piece is None:
        if total < _WORTH_IT:
            return
        piece = min(max(_LEAST, total // (_PER_CPU * cpus)), _MOST)
    find = ray.remote(_find).options(
        num_cpus=TASK_CPUS, max_retries=_RETRIES, scheduling_strategy="SPREAD"
    )
    searches = [_search(shard, piece) for shard in plain]
    found = _found(ray, find, home, searches, _PER_CPU * cpus)
    for search in searches:
        _join(ray, find, home, search, list(islice(found, len(search.stops))))


def _search(shard: PlainFile, piece: int) -> _Search:
    begins = list(range(0, shard.size, piece))
    every = choose_every(shard.size, shard.row_bytes())
    return _Search(shard, every, begins, [*begins[1:], shard.size])


def _found(
    ray: Any, find: Any, home: Home, searches: list[_Search], at_a_time: int
) -> Iterator[ScannedSpan]:
    """What is in each stretch, file by file. No more tasks than that are out, so that few
    are at work for nothing after an error.
    """
    tasks: deque[Any] = deque()
    for search in searches:
        for begin, stop in zip(search.begins, search.stops, strict=True):
            path, entered = search.shard.path, begin == 0
            tasks.append(find.remote(home, path, begin, stop, search.every, entered=entered))
            if len(tasks) >= at_a_time:
                yield result(ray, tasks.popleft(), "searching for records", _RETRIES)
    while tasks:
        yield result(ray, tasks.popleft(), "searching for records", _RETRIES)


def _join(ray: Any, find: Any, home: Home, search: _Search, found: list[ScannedSpan]) -> None:
    shard, every = search.shard, search.every

    def find_again(begin: int, stop: int) -> ScannedSpan:
        task = find.remote(home, shard.path, begin, stop, every, entered=True)
        again: ScannedSpan = result(ray, task, shard.path, _RETRIES)
        return again

    shard.use(join_spans(shard.size, every, search.stops, found, find_again))


def _find(
    home: Home, path: str, begin: int, stop: int, every: int, *, entered: bool
) -> ScannedSpan:
    """In a task."""
    with home.entered():
        return scan_span(path, begin, stop, every, entered=entered)
