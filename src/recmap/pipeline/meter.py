"""Where the time of a run goes, stage by stage, and whether the loop waits for batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from recmap.machine.cpus import thread_count
from recmap.model.arguments import size_text
from recmap.model.fetching import FetchCounts
from recmap.model.preview import quantity
from recmap.model.schema import Batch
from recmap.model.table import Column, Table
from recmap.store.fetch import FetchCounter, counted

# If the loop waits for less than this share of the time, the input does not slow it down.
_INPUT_BOUND = 0.1


@dataclass(frozen=True)
class Stage:
    """The cost of one stage: seconds of work, summed over its workers."""

    name: str
    working: float
    rows_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, repr=False)
class Timings:
    """How long an iteration has taken so far, and where the time went; ``print`` it.

    ``waiting`` is the time the loop waited for batches. ``elapsed`` is all the time from the
    first request for a batch to the last batch received.

    The rest is about rows in object stores, in all workers together: ``requests``, bytes
    ``fetched`` and ``used``, bytes that were copied from the disk cache (``cache_hits``), and
    the seconds that threads waited for the store (``store_waiting``). Objects that the cache
    has completely are mapped like files, and not counted.
    """

    stages: tuple[Stage, ...]
    batches: int
    rows: int
    bytes: int
    elapsed: float
    waiting: float
    workers: int
    requests: int = 0
    fetched: int = 0
    used: int = 0
    cache_hits: int = 0
    store_waiting: float = 0.0

    @property
    def amplification(self) -> float:
        """Bytes fetched for each byte used; 0 if nothing was fetched."""
        return self.fetched / self.used if self.used else 0.0

    @property
    def waited(self) -> float:
        """The share of the time that the loop spent waiting, from 0 to 1."""
        return self.waiting / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows per second that the loop received."""
        return self.rows / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second that the loop received."""
        return self.bytes / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def verdict(self) -> str:
        """What slows the loop down, and what to try."""
        share = f"{self.waited:.0%}"
        if not self.batches:
            return "nothing has been read yet"
        if self.waited < _INPUT_BOUND:
            return f"input-bound {share}: the loop itself takes the time"
        slow = max(self.stages, key=lambda stage: stage.working)
        if slow.name == "read":
            advice = "try prefetch(4), or a file that is mapped"
        elif self.workers < thread_count():
            advice = f"try workers={thread_count()}"
        else:
            advice = "all CPUs are busy"
        return f"input-bound {share}: {slow.name} is the slow stage; {advice}"

    def table(self) -> Table:
        """Return a table with a row for each stage, and one for the loop."""
        columns = [Column("stage"), *(Column(t, right=True) for t in ("time", "rows/s", "bytes/s"))]
        loop = Stage("loop", self.elapsed, self.rows_per_second, self.bytes_per_second)
        rows = [
            [
                stage.name,
                f"{stage.working:.3f} s",
                f"{stage.rows_per_second:,.0f}",
                f"{size_text(int(stage.bytes_per_second))}/s",
            ]
            for stage in (*self.stages, loop)
        ]
        return Table(columns, rows)

    def summary(self) -> list[str]:
        """Return how much was read, what was fetched from stores, and what slows the loop down."""
        batches, rows = quantity(self.batches, "batch"), quantity(self.rows, "row")
        lines = [f"{batches}, {rows}, {size_text(self.bytes)} in {self.elapsed:.2f} s"]
        if self.requests or self.cache_hits:
            lines.append(
                f"{quantity(self.requests, 'request')}, {size_text(self.fetched)} fetched "
                f"({self.amplification:.2f} times what was used), {size_text(self.cache_hits)} "
                f"from the cache, {self.store_waiting:.3f} s waited for the store"
            )
        return [*lines, self.verdict]

    def __str__(self) -> str:
        first, *others = self.summary()
        table = [f"  {line}" for line in self.table().text().split("\n")]
        return "\n".join([first, *table, *others])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.table().html("; ".join(self.summary()))


@dataclass
class Meter:
    """Adds up the time and the rows of a run. Any thread may report to it."""

    names: Sequence[str]
    workers: int
    counters: Sequence[FetchCounter] = ()
    #: The rows that went in. Filters drop some of them, and those that were read ahead count, too.
    rows_read: int = 0
    _seconds: list[float] = field(init=False)
    _fetched: FetchCounts = field(init=False)
    _fetched_before: FetchCounts = field(init=False)
    _fetched_elsewhere: FetchCounts = field(default_factory=FetchCounts)
    rows: int = 0
    _batches: int = 0
    bytes: int = 0
    _waiting: float = 0.0
    _begun: float | None = None
    _ended: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._seconds = [0.0] * len(self.names)
        self._fetched = self._fetched_before = counted(self.counters)

    def spend(self, seconds: Sequence[float], first: int = 0) -> None:
        """Add the seconds of the stages from ``first`` on."""
        with self._lock:
            for stage, each in enumerate(seconds, first):
                self._seconds[stage] += each

    def fetch(self, counts: FetchCounts) -> None:
        """Add what another process has fetched."""
        with self._lock:
            self._fetched_elsewhere = self._fetched_elsewhere.plus(counts)

    def got(self, batch: Batch, rows: int, asked: float) -> None:
        """Count a batch that the loop asked for at time ``asked`` and has just received."""
        # No lock: only the loop calls this, and it does so for every batch.
        now = time.perf_counter()
        if self._begun is None:
            self._begun = asked
        self._ended = now
        self._waiting += now - asked
        self._batches += 1
        self.rows += rows
        for column in batch.values():
            self.bytes += getattr(column, "nbytes", 0)
        if self.counters:
            self._fetched = counted(self.counters)

    def timings(self) -> Timings:
        """Return the timings so far."""
        with self._lock:
            stages = [
                Stage(name, seconds, _rate(self.rows, seconds), _rate(self.bytes, seconds))
                for name, seconds in zip(self.names, self._seconds, strict=True)
            ]
            elapsed = self._ended - self._begun if self._begun is not None else 0.0
            fetched = self._fetched.minus(self._fetched_before).plus(self._fetched_elsewhere)
            return Timings(
                tuple(stages),
                self._batches,
                self.rows,
                self.bytes,
                elapsed,
                self._waiting,
                self.workers,
                *fetched,
            )


def _rate(amount: int, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
