"""Finding the records of TFRecord files that have no index, on all nodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recmap.formats.tfrecord import TFRecordSource
from recmap.ray.home import TASK_CPUS, Home
from recmap.ray.nodes import working_nodes
from recmap.sources import Source
from recmap.tfrecord.plain import PlainShard
from recmap.tfrecord.stretches import Stretch, choose_every, find_stretch, join_stretches

__all__ = ["find_records"]

# Less than this is found sooner by the driver alone.
_WORTH_IT = 256 << 20
# Bytes that a task searches, at least and at most, and how many tasks a processor gets: of
# several, one that is slow holds up little.
_LEAST, _MOST = 64 << 20, 1 << 30
_PER_CPU = 4


@dataclass(frozen=True)
class _Search:
    """Stretches of one file, and the tasks that search them."""

    shard: PlainShard
    every: int
    stops: list[int]
    tasks: list[Any]


def find_records(ray: Any, home: Home, source: Source, piece: int | None = None) -> None:
    """Has the source know where its records are, as if it had looked itself. ``piece``
    is how many bytes a task searches. Compressed files cannot be entered in their midst,
    and are left to the source.
    """
    if not isinstance(source, TFRecordSource):
        return
    plain = [s for s in source.shards() if isinstance(s, PlainShard) and s.known_count() is None]
    total = sum(shard.size for shard in plain)
    if piece is None:
        if total < _WORTH_IT:
            return
        cpus = int(sum(node.cpus for node in working_nodes(ray)))
        piece = min(max(_LEAST, total // max(_PER_CPU * cpus, 1)), _MOST)
    find = ray.remote(_find).options(num_cpus=TASK_CPUS, scheduling_strategy="SPREAD")
    searches = [_begin(find, home, shard, piece) for shard in plain]
    try:
        for search in searches:
            _finish(ray, find, home, search)
    except BaseException:
        for search in searches:
            for task in search.tasks:
                ray.cancel(task)
        raise


def _begin(find: Any, home: Home, shard: PlainShard, piece: int) -> _Search:
    every = choose_every(shard.size, shard.row_bytes())
    begins = list(range(0, shard.size, piece))
    stops = [*begins[1:], shard.size]
    tasks = [
        find.remote(home, shard.path, begin, stop, every, entered=begin == 0)
        for begin, stop in zip(begins, stops, strict=True)
    ]
    return _Search(shard, every, stops, tasks)


def _finish(ray: Any, find: Any, home: Home, search: _Search) -> None:
    shard, every = search.shard, search.every

    def find_again(begin: int, stop: int) -> Stretch:
        again: Stretch = ray.get(find.remote(home, shard.path, begin, stop, every, entered=True))
        return again

    found = ray.get(search.tasks)
    shard.use(join_stretches(shard.size, every, search.stops, found, find_again))


def _find(home: Home, path: str, begin: int, stop: int, every: int, *, entered: bool) -> Stretch:
    """In a task."""
    with home.entered():
        return find_stretch(path, begin, stop, every, entered=entered)
