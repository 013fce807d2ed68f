"""Find the records of TFRecord files without an index, on all nodes in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from recmap.local.local_path import located
from recmap.model.source import Source
from recmap.ray.cluster import TASK_CPUS, Driver, cpu_count, task_result
from recmap.tfrecord.file_group import unindexed_files
from recmap.tfrecord.index import ScannedSpan
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.scan import choose_every, join_spans, scan_span

# Below this many bytes, the driver alone is faster.
_PARALLEL_FROM = 256 << 20
# The fewest and the most bytes that a task searches.
_LEAST, _MOST = 64 << 20, 1 << 30
# With several tasks per CPU, a slow one causes little delay.
_TASKS_PER_CPU = 4
# How often to search a span again after a worker or node died.
_RETRIES = 5


def find_records(ray: Any, driver: Driver, source: Source, span_bytes: int | None = None) -> None:
    """Index the source in tasks that search ``span_bytes`` each.

    The result is the same as if the source had indexed itself. Compressed files cannot be read
    from the middle, so the source indexes those itself.
    """
    facts = source.facts
    len(facts.skipped)  # where bad records are left out, the search for them indexes the files
    files = unindexed_files(facts.record_files)
    total = sum(file.size for file in files)
    cpus = cpu_count(ray)
    if span_bytes is None:
        if total < _PARALLEL_FROM:
            return
        span_bytes = min(max(_LEAST, total // (_TASKS_PER_CPU * cpus)), _MOST)
    find = ray.remote(_find).options(
        num_cpus=TASK_CPUS, max_retries=_RETRIES, scheduling_strategy="SPREAD"
    )
    searches = [(file, choose_every(file.size, file.row_bytes())) for file in files]
    found = _search_all(ray, find, driver, searches, span_bytes, _TASKS_PER_CPU * cpus)
    for file, every in searches:
        spans = list(islice(found, len(_starts(file, span_bytes))))
        _join(ray, find, driver, file, every, [*_starts(file, span_bytes)[1:], file.size], spans)


def _starts(file: PlainFile, span_bytes: int) -> range:
    """Return where the spans to search begin."""
    return range(0, file.size, span_bytes)


def _search_all(
    ray: Any,
    find: Any,
    driver: Driver,
    searches: list[tuple[PlainFile, int]],
    span_bytes: int,
    most_tasks: int,
) -> Iterator[ScannedSpan]:
    """Yield the result of each span, file by file.

    At most ``most_tasks`` tasks are pending at a time, so an error wastes little work.
    """
    tasks: deque[Any] = deque()
    for file, every in searches:
        for start in _starts(file, span_bytes):
            path, stop = located(file.path).alone(), min(start + span_bytes, file.size)
            tasks.append(find.remote(driver, path, start, stop, every, entered=start == 0))
            if len(tasks) >= most_tasks:
                yield task_result(ray, tasks.popleft(), "searching for records", _RETRIES)
    while tasks:
        yield task_result(ray, tasks.popleft(), "searching for records", _RETRIES)


def _join(
    ray: Any,
    find: Any,
    driver: Driver,
    file: PlainFile,
    every: int,
    stops: list[int],
    found: list[ScannedSpan],
) -> None:
    def find_again(start: int, stop: int) -> ScannedSpan:
        task = find.remote(driver, located(file.path).alone(), start, stop, every, entered=True)
        again: ScannedSpan = task_result(ray, task, file.path, _RETRIES)
        return again

    file.index = join_spans(file.size, every, stops, found, find_again)


def _find(
    driver: Driver, path: str, start: int, stop: int, every: int, *, entered: bool
) -> ScannedSpan:
    """Search one span. Runs in a task."""
    with driver.impersonated():
        return scan_span(path, start, stop, every, entered=entered)
