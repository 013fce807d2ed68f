"""``rm.concat``, ``rm.mix`` and ``rm.zip``: several datasets or streams as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import Workers, as_whole, check_choice, is_iterable
from recmap.model.facts import check_meanings
from recmap.model.habits import helpful
from recmap.model.source import Source, reseeded
from recmap.pipeline.plan import Plan
from recmap.pipeline.signature import VerbRecord, record_joined
from recmap.pipeline.stream import Stream
from recmap.pipeline.transforms.concat import concatenated
from recmap.pipeline.transforms.mix import Until, mixed
from recmap.pipeline.transforms.mix_schedule import checked_schedule
from recmap.pipeline.transforms.zip import ZippedRows

V = TypeVar("V", bound=Stream)


@helpful
def concat(*datasets: V | Sequence[V]) -> V:
    """Put the rows of several datasets or streams one after another.

    They must have the same columns; ``rename``, ``cast`` and ``select`` make columns agree. The
    order of columns is that of the first dataset. A column that may hold nulls in one of them may
    do so in the result. Nothing is copied, and a dataset that is shuffled has a new order in every
    epoch. You can also pass a list of datasets.

    >>> import numpy as np, recmap as rm
    >>> a, b = (rm.from_arrays({"x": np.arange(n)}) for n in (3, 2))
    >>> rm.concat(a, b)["x"][:]
    array([0, 1, 2, 0, 1])
    """
    given: Sequence[Any] = datasets
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = given[0]
    plans = _plans(given, "concat")
    rows = concatenated(_rows_alike(plans, "concat"))
    made: V = _joined(given, _joined_plan(plans, rows, VerbRecord(f"concat({len(plans)} parts)")))
    return made


@helpful
def mix(
    *datasets: V,
    weights: Sequence[float] | None = None,
    until: Until | None = None,
    seed: int = 0,
    schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
) -> V:
    """Mix the rows of several datasets or streams, in proportion to their weights.

    Without weights, the mix contains all rows. With weights, it ends when the first dataset
    runs out of rows, so that the proportions hold to the end; ``until="all"`` continues with
    the others. ``repeat()`` the datasets for a mix without end. Datasets without rows are
    ignored.

    Each dataset is spread evenly over the whole epoch, in its own order: any span of rows
    holds its proportion, give or take a few rows, however small the weight. The pattern
    depends on ``seed`` and differs from one epoch to the next.

    ``schedule`` changes the weights over time, as a curriculum does: a list of positions, which
    are rows drawn so far in the epoch, and the weights there,
    ``[(0, [0.9, 0.1]), (1_000_000, [0.5, 0.5])]``. In between they change linearly; before the
    first and after the last position they stay the same. A state resumes under another schedule,
    as if it had been the schedule from the beginning: to take no row twice, keep the points
    up to the one after the position that was reached.

    >>> import numpy as np, recmap as rm
    >>> a, b = (rm.from_arrays({"x": np.full(n, n)}) for n in (300, 100))
    >>> both = rm.mix(a, b, weights=[0.5, 0.5])
    >>> values = [row["x"].item() for row in both]
    >>> values.count(100), 80 < values.count(300) < 120
    (100, True)
    """
    check_choice("until", until, ("first", "all", None))
    if weights is not None and schedule is not None:
        raise OptionError("mix: give weights, or a schedule of weights")
    ends: Until = until or ("all" if weights is None and schedule is None else "first")
    plans = _plans(datasets, "mix")
    points = None if schedule is None else checked_schedule(schedule, len(plans))
    rows = mixed(_rows_alike(plans, "mix"), weights, ends, as_whole("seed", seed), points)
    given = None if weights is None else [float(weight) for weight in weights]
    # States call the datasets "parts", and do not have the schedule.
    how = f"weights={given}" if points is None else "scheduled"
    text = f"mix({len(plans)} parts, {how}, until={ends!r}, seed={seed})"
    record = VerbRecord(text, detail="" if points is None else f" {points}")
    return _joined(datasets, _joined_plan(plans, rows, record))


@helpful
def zip(*datasets: V) -> V:
    """Put datasets or streams with the same number of rows side by side.

    >>> import numpy as np, recmap as rm
    >>> a = rm.from_arrays({"x": np.arange(3)})
    >>> b = rm.from_arrays({"y": np.arange(3) * 2})
    >>> [(row["x"].item(), row["y"].item()) for row in rm.zip(a, b)]
    [(0, 0), (1, 2), (2, 4)]
    """
    plans = _plans(datasets, "zip")
    rows = ZippedRows(_joined_rows(plans, "zip"))
    return _joined(datasets, _joined_plan(plans, rows, VerbRecord(f"zip({len(plans)} parts)")))


def _joined(datasets: Sequence[V], plan: Plan) -> V:
    """Return a dataset if all are datasets, or else a stream."""
    streams = [each for each in datasets if type(each) is Stream]
    return (streams or datasets)[0]._rows(plan)  # noqa: SLF001  # hidden from users only


def _plans(datasets: Sequence[Any], verb: str) -> list[Plan]:
    for dataset in datasets:
        if isinstance(dataset, Stream):
            continue
        if is_iterable(dataset) and all(isinstance(each, Stream) for each in dataset):
            raise OptionTypeError(
                f"rm.{verb}([a, b]): give the datasets one by one, rm.{verb}(a, b), or a list of "
                f"them with a star, rm.{verb}(*datasets)"
            )
        raise OptionTypeError(
            f"rm.{verb}(a, b) takes datasets and streams, not {type(dataset).__name__}: "
            f"{dataset!r}; rm.open(path) and rm.from_arrays(columns) make one"
        )
    if not datasets:
        raise OptionError(f"{verb}(): nothing to {verb}; give datasets or streams")
    return [dataset._plan for dataset in datasets]  # noqa: SLF001  # hidden from users only


def _rows_alike(plans: Sequence[Plan], verb: str) -> list[Source]:
    """Return the rows of several pipelines, which must mean the same, such as the same units."""
    rows = _joined_rows(plans, verb)
    told = [each.facts for each in rows]
    check_meanings(
        [(each.files or [f"dataset {number}"])[0] for number, each in enumerate(told, 1)],
        [each.meaning() for each in told],
        "change one of them with map, or leave the columns out with select",
    )
    return rows


def _joined_rows(plans: Sequence[Plan], verb: str) -> list[Source]:
    """Return the rows of several pipelines, with different random numbers for each function."""
    rows, functions, workers = [], 0, _largest_pool(plans)
    for plan in plans:
        plan.check_images_on_host(verb)
        branch = plan.random_access(verb, workers)
        # The first is left unchanged, so that it does not have to be tried again.
        rows.append(reseeded(branch, functions) if functions else branch)
        functions += plan.functions
    return rows


def _joined_plan(plans: Sequence[Plan], rows: Source, verb: VerbRecord) -> Plan:
    """Return a plan for rows made from several plans, with the largest of their settings."""
    return Plan(
        rows,
        workers=_largest_pool(plans),
        prefetch=max((p.prefetch for p in plans if p.prefetch is not None), default=None),
        read_threads=max((p.read_threads for p in plans if p.read_threads), default=None),
        memory=max(plan.memory for plan in plans),
        functions=sum(plan.functions for plan in plans),
        unwarned=tuple(rows for plan in plans for rows in plan.unwarned),
        sources=tuple(source for plan in plans for source in plan.sources),
        records=record_joined([plan.records for plan in plans], verb),
        caches=tuple(_joined_caches(plans)),
    )


def _joined_caches(plans: Sequence[Plan]) -> Iterator[int]:
    before = 0
    for plan in plans:
        yield from (before + place for place in plan.caches)
        before += len(plan.records)


def _largest_pool(plans: Sequence[Plan]) -> Workers | None:
    remote = any(plan.remote for plan in plans)
    pools = [plan.workers.reading(remote=remote) for plan in plans if plan.workers is not None]
    return max(pools, key=lambda pool: pool.count, default=None)
