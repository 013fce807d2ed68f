"""Pipeline: rows on their way to training, iterated, saved and restored."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from recmap.adapters.feed import ExternalReader
from recmap.errors import OptionError, OptionTypeError, RowNotFoundError
from recmap.model.arguments import as_whole, check_choice, check_flag, is_iterable
from recmap.model.html import table
from recmap.model.schema import Batch, Schema
from recmap.model.workers import Workers
from recmap.pipeline import verbs
from recmap.pipeline.chain import Verbs
from recmap.pipeline.executor import stream
from recmap.pipeline.meter import Meter, Stats
from recmap.pipeline.plan import Plan, Settled
from recmap.pipeline.progress_bar import Bar
from recmap.pipeline.row_source import Rows
from recmap.pipeline.signature import Seed, compare, signed, told
from recmap.pipeline.state import Cursor, checked, load, redealt, save
from recmap.pipeline.task import RowsTask, filler, opened
from recmap.pipeline.trail import Trail
from recmap.pipeline.transforms.mix import Mixed, Until
from recmap.pipeline.transforms.zip import Beside
from recmap.pipeline.workers.pool import Request

__all__ = ["Pipeline", "chained", "mix", "zip"]


def chained(verb: str, plan: Plan, *arguments: Any) -> Pipeline:
    """What a verb makes of a plan."""
    made: Plan = getattr(verbs, verb)(plan, *arguments)
    return Pipeline(replace(made, said=(*made.said, *told(verb, arguments))))


class Pipeline(Verbs):
    """Rows on their way to training. Iterating gives rows, or after ``batch`` batches: dicts.

    Each time it is iterated is an epoch: a shuffle gives another order, the same on
    every machine. ``state()`` and ``restore()`` save and find the place in the middle.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ready: Settled | None = None
        self._next = Cursor()  # where the next iteration begins
        self._placed = 0
        self._trail = Trail(Cursor())  # where this one is, and has been
        self._meter: Meter | None = None
        # Who reads batches that this does not see, and how often each had begun when it was
        # last known here what comes next.
        self._elsewhere: list[tuple[ExternalReader, int]] = []
        self._out_of_turn = False

    @property
    def plan(self) -> Plan:
        return self._plan

    def pipeline(self) -> Pipeline:
        return self

    @property
    def schema(self) -> Schema:
        """The fields of what comes out. Functions are tried on the first rows for it."""
        return self.settled().schema

    def settled(self) -> Settled:
        """The plan, once its functions have seen the first rows."""
        if self._ready is None:
            self._ready = self._plan.settled()
        return self._ready

    def sample(self) -> Batch:
        """What becomes of the first rows: tells ragged columns from padded ones."""
        return self.settled().sample

    @property
    def batched(self) -> bool:
        """Whether batches come out of it, not rows."""
        return self._plan.grouping is not None

    @property
    def numbered(self) -> bool:
        """Whether there are rows by number: none are left out, batched or dealt out."""
        plan = self._plan
        whole = plan.grouping is None and plan.shard is None and plan.bucket is None
        return whole and not plan.drops and plan.rows.count is not None

    @property
    def turns(self) -> int:
        """Epochs of one iteration."""
        return self._plan.repeat or 1

    @property
    def first_epoch(self) -> int:
        """The epoch with which the iteration that comes next begins, or has begun."""
        return self._next.epoch - self._next.turn

    @property
    def in_turn(self) -> bool:
        """Whether batches are made well only one after the other: by workers, or from a
        compressed file.
        """
        return self._plan.workers is not None or self._plan.rows.in_order

    @property
    def end_to_end(self) -> bool:
        """Whether several batches of one size may lie end to end in memory."""
        ready = self.settled()
        return self.batched and ready.together > 1 and not ready.finish

    @property
    def batch_size(self) -> int:
        """Rows of a batch; the last may have fewer."""
        return self._plan.groups.block

    @property
    def fixed_batch_size(self) -> int | None:
        """Rows of every batch, if all of them have equally many: with ``drop_last``, unless a
        function of batches may change their number.
        """
        grouping, finish = self._plan.grouping, self.settled().finish
        if grouping is None or not grouping.drop_last or not all(step.ours for step in finish):
            return None
        return grouping.full_size

    @property
    def resumed(self) -> bool:
        """Whether the next iteration goes on in the middle of one."""
        return self._next != Cursor(epoch=self._next.epoch)

    @property
    def placed(self) -> int:
        """How often it was told where to begin: by ``restore()``, or an ``epoch``."""
        return self._placed

    def __len__(self) -> int:
        """Batches of an epoch, or rows if there are no batches."""
        count = self._plan.count()
        if count is None:
            raise OptionTypeError(
                "the length of this pipeline is not known: it has no end, or rows are left out "
                "or put together by what they hold"
            )
        return count

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name. Not a search: there may be no end of rows."""
        return name in self.schema

    def left(self) -> int:
        """Batches, or rows, of the next iteration: fewer than all if it goes on in the
        middle of one.
        """
        count = self._plan.count(self._next)
        return len(self) if count is None else count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        ready = self.settled()
        cursor, meter = self._next, Meter(_stage_names(ready), self._plan.pool.count)
        # Whoever begins again without restore() begins the next epoch.
        self._next = Cursor(epoch=cursor.epoch - cursor.turn + self.turns)
        self._trail, self._meter = Trail(cursor), meter
        self._known_here()
        return self._run(stream(ready, cursor, meter), self._trail, meter, self._next)

    def _run(
        self,
        batches: Generator[tuple[Batch, Cursor], None, None],
        trail: Trail,
        meter: Meter,
        end: Cursor,
    ) -> Iterator[dict[str, Any]]:
        with closing(batches):
            while True:
                try:
                    # No name for it, which would keep it until the next is asked for.
                    yield self._taken(batches, trail, meter)
                except StopIteration:
                    trail.end(end)
                    return

    def _taken(
        self, batches: Iterator[tuple[Batch, Cursor]], trail: Trail, meter: Meter
    ) -> dict[str, Any]:
        asked = time.perf_counter()
        batch, place = next(batches)
        trail.add(place)
        rows = 1 if self._plan.grouping is None else len(next(iter(batch.values()), ()))
        meter.got(batch, rows, asked)
        return batch

    def run(self, epochs: int = 1, *, progress: bool = False) -> Iterator[dict[str, Any]]:
        """Several epochs, one after the other; with ``progress`` a bar on standard error
        says how far each is, how fast, and how long the loop waits for batches.

        >>> import numpy as np, recmap as rm
        >>> train = rm.from_arrays({"x": np.arange(3)}).batch(2)
        >>> [batch["x"].tolist() for batch in train.run(epochs=2)]
        [[0, 1], [2], [0, 1], [2]]
        """
        return self._epochs(as_whole("epochs", epochs), check_flag("progress", progress))

    def _epochs(self, epochs: int, progress: bool) -> Iterator[dict[str, Any]]:
        for _ in range(epochs):
            bar = Bar(self._plan.count()) if progress else None
            batches = iter(self)
            while batch := list(islice(batches, 1)):
                if bar is not None:
                    bar.show(self.stats())
                yield batch.pop()
            if bar is not None:
                bar.finish(self.stats())

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """The place after the last batch that was given out: a small dict of numbers and
        texts, to be saved as JSON beside the model.

        Frameworks take batches before they are trained on. ``batches`` is how many of this
        iteration were: the state is that after so many of them.

        >>> import numpy as np, recmap as rm
        >>> train = rm.from_arrays({"x": np.arange(6)}).batch(2)
        >>> taken = list(train)
        >>> [batch["x"].tolist() for batch in train.restore(train.state(batches=1))]
        [[2, 3], [4, 5]]
        """
        if batches is not None:
            batches = as_whole("batches", batches)
        place = self._place_elsewhere(batches)
        if place is None:
            place = self._trail.after(batches)
        signature = signed([leaf.known_by for leaf in self._plan.leaves], self._plan.said)
        return save(place, self._plan.share, signature)

    def read_by(self, reader: ExternalReader) -> None:
        """Others read it from now on, in processes or an order that this does not see."""
        self._elsewhere.append((reader, reader.begun()))

    def _known_here(self) -> None:
        """What comes next is known here, whoever read before."""
        self._elsewhere = [(each, each.begun()) for each, _ in self._elsewhere]
        self._out_of_turn = False

    def _place_elsewhere(self, batches: int | None) -> Cursor | None:
        """The place after so many batches of those that others read last; None if none do."""
        if self._out_of_turn:
            raise OptionError(
                "state(): batches were asked for out of turn, so there is no place to go on from; "
                "use fit(..., shuffle=False, callbacks=[train.follow()]), and train.state()"
            )
        for each, before in self._elsewhere:
            if each.begun() == before:
                continue
            epoch = each.epoch()
            in_turn = epoch is not None and self._plan.plain and self._plan.counted
            if batches is None or not in_turn:
                how = "state(batches=n) with the number that the loop has received, "
                raise OptionError(f"state(): {each.instead().format(how if in_turn else '')}")
            begun = self._next if epoch == self.first_epoch else Cursor(epoch=epoch or 0)
            return self._plan.advanced(begun, batches)
        return None

    def restore(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, check: bool = True
    ) -> Pipeline:
        """Continue from a state: the next iteration begins there.

        The data and the chain must be those the state was saved from; ``shard``,
        ``prefetch``, workers and the folder of the files may differ. Anything else is an
        error that says what differs; ``check=False`` goes on all the same. A ``shuffle()``
        without a seed takes that of the state.

        The state after the last batch of an epoch is the beginning of the next one. All
        ranks that are restored from one state are in the same epoch; on another number of
        ranks, what is left of it is dealt out anew. The state of one rank is enough if all
        were in step; the list of the states of all ranks always is.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6)})
        >>> train = ds.shuffle(seed=1).batch(2)
        >>> first = next(iter(train))
        >>> saved = train.state()
        >>> again = ds.shuffle(seed=1).batch(2).restore(saved)
        >>> [batch["x"].tolist() for batch in again]
        [[5, 1], [4, 3]]
        """
        check_flag("check", check)
        plan = self._plan
        first, cuts = plan.remaining.tail, len(plan.kept)
        states = [checked(each, plan.chain(), first, cuts) for each in _states(state)]
        seeds = self._compared(states) if check else []
        place = load(states, plan.share, plan.groups, plan.step, plan.repeat, check=check)
        if place.left is not None and place.at == 0 and self._nobody_has_any(place):
            place = place.following(plan.repeat)
        for seed, value in seeds:
            seed.value = value
        self._trail, self._next = Trail(place), place
        self._placed += 1
        self._known_here()
        return self

    def _compared(self, states: Sequence[Mapping[str, Any]]) -> list[tuple[Seed, int]]:
        """Refuses states of other data or verbs; the seeds that are taken over."""
        taken: list[tuple[Seed, int]] = []
        for state in states:
            if state["version"] == 1:
                continue
            data = [leaf.known_by for leaf in self._plan.leaves]
            difference, taken = compare(state, data, self._plan.said)
            if difference is not None:
                raise OptionError(
                    f"restore: the state is not of this pipeline: {difference}. To go on all the "
                    "same, use restore(state, check=False)"
                )
            if state.get("verbs") != states[0].get("verbs"):
                raise OptionError("restore: the states are not of one run: their verbs differ")
        return taken

    def _nobody_has_any(self, place: Cursor) -> bool:
        """Whether nothing is left of an epoch that is dealt out anew, for any rank."""
        if not place.left or not self._plan.counted:
            return not place.left
        # No rank has more than the first.
        shard = self._plan.shard
        shard = None if shard is None else replace(shard, rank=0)
        return replace(self._plan, shard=shard).rest(place) == 0

    @property
    def epoch(self) -> int:
        """The number of the epoch the next iteration begins with, or goes on in."""
        return self._next.epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._next = Cursor(epoch=as_whole("epoch", number))
        self._trail = Trail(self._next)
        self._placed += 1
        self._known_here()

    def stats(self) -> Stats:
        """Where the time of the last iteration went; ``print`` it."""
        if self._meter is None:
            return Meter(_stage_names(self.settled()), self._plan.pool.count).stats()
        return self._meter.stats()

    def rows(self) -> Rows:
        """The rows by position, for those who choose them themselves."""
        return verbs.random_access(self._plan, "rows by number")

    def batch_at(self, number: int, epoch: int) -> Batch:
        """One batch of the iteration that begins with an epoch, made by the caller alone."""
        count, plan, ready = len(self), self._plan, self.settled()
        if plan.grouping is None or not 0 <= number < count:
            raise RowNotFoundError(f"batch {number:,} of {count if plan.grouping else 0:,}")
        self._out_of_turn = True
        size, share = plan.groups.block, plan.share
        turn, within = divmod(number + plan.overall.skip, plan.rest(Cursor()))
        within += plan.given.skip
        positions, real = share.positions(within * size, (within + 1) * size)
        task = RowsTask(plan.rows, ready.steps, ready.finish, size, ready.mask, drops=False)
        return opened(task(Request(number, epoch + turn, filler(positions, real)))).batch

    def part(self, index: int, count: int) -> Pipeline:
        """Every ``count``-th batch, for processes of one rank that take turns. Each does
        its own work: most of them may not start others.
        """
        count = as_whole("count", count, 1)
        index = as_whole("index", index, 0, count - 1)
        plan = self._plan
        if plan.kept or plan.given or plan.overall:
            raise OptionError(
                "take and skip of what a filter leaves, of batches that are dealt out, or behind "
                "repeat, need one process that counts; use num_workers=0"
            )
        processes = plan.workers is not None and plan.workers.kind == "processes"
        workers = Workers("serial", 1) if processes else plan.workers
        made = Pipeline(replace(plan, part=(index, count), workers=workers))
        made._ready = None if self._ready is None else replace(self._ready, plan=made._plan)
        if self.resumed:
            made._next = redealt(self._next, plan.share, plan.groups, plan.step)
            made._trail = Trail(made._next)
        return made

    def __getstate__(self) -> dict[str, Any]:
        # The meter holds a lock; and a copy in another process reads by itself.
        return {**self.__dict__, "_meter": None, "_elsewhere": []}

    def __repr__(self) -> str:
        count = self._plan.count_rows
        rows = "no end of rows" if count is None else f"{count:,} rows"
        return f"Pipeline({rows}: {' > '.join(self._plan.verbs())})"

    def _repr_html_(self) -> str:
        count = self._plan.count_rows
        rows = "no end of rows" if count is None else f"{count:,} rows"
        steps = [(str(i + 1), verb) for i, verb in enumerate(self._plan.verbs())]
        return table(f"Pipeline: {rows}", ["", "step"], steps)


def mix(
    parts: Sequence[Verbs],
    weights: Sequence[float] | None = None,
    *,
    until: Until | None = None,
    seed: int = 0,
) -> Pipeline:
    """Mix the rows of several datasets or pipelines, in proportion to their weights.

    Without weights all rows come. With weights the mix ends when one of them has no more
    rows, so that the shares hold to the end; ``until="all"`` goes on with the others.
    ``repeat()`` them for a mix without end. A dataset without rows takes no part.

    Each dataset is spread evenly over the whole epoch, in its own order: any stretch of
    rows holds its share, give or take a few rows, however small the weight. The pattern
    depends on ``seed`` and differs from one epoch to the next.

    >>> import numpy as np, recmap as rm
    >>> a, b = (rm.from_arrays({"x": np.full(n, n)}) for n in (300, 100))
    >>> mixed = rm.mix([a, b], weights=[0.5, 0.5])
    >>> values = [row["x"].item() for row in mixed]
    >>> values.count(100), 80 < values.count(300) < 120
    (100, True)
    """
    check_choice("until", until, ("first", "all", None))
    ends: Until = until or ("all" if weights is None else "first")
    plans = _plans(parts, "mix([a, b])")
    rows = verbs.branches(plans, "mix")
    made = Mixed(rows, weights, ends, verbs.check_seed(seed))
    given = None if weights is None else [float(weight) for weight in weights]
    said = f"mix({len(plans)} parts, weights={given}, until={ends!r}, seed={seed})"
    return Pipeline(verbs.joined(plans, made, said))


def zip(*parts: Verbs) -> Pipeline:
    """Datasets or pipelines of equally many rows, side by side.

    >>> import numpy as np, recmap as rm
    >>> a = rm.from_arrays({"x": np.arange(3)})
    >>> b = rm.from_arrays({"y": np.arange(3) * 2})
    >>> [(row["x"].item(), row["y"].item()) for row in rm.zip(a, b)]
    [(0, 0), (1, 2), (2, 4)]
    """
    plans = _plans(parts, "zip(a, b)")
    made = Beside(verbs.branches(plans, "zip"))
    return Pipeline(verbs.joined(plans, made, f"zip({len(plans)} parts)"))


def _plans(parts: Any, example: str) -> list[Plan]:
    given = list(parts) if is_iterable(parts) and not isinstance(parts, Verbs) else [parts]
    for part in given:
        if not isinstance(part, Verbs):
            raise OptionTypeError(
                f"rm.{example} takes datasets and pipelines, not {type(part).__name__}: {part!r}; "
                "rm.open(path) and rm.from_arrays(columns) make one"
            )
    return [part.plan for part in given]


def _states(given: Any) -> list[Mapping[str, Any]]:
    states = [given] if isinstance(given, Mapping) else given
    if not isinstance(states, list | tuple) or not states:
        raise OptionError("restore takes the dict that state() gave, or a list of such")
    if not all(isinstance(state, Mapping) for state in states):
        raise OptionError("restore takes the dict that state() gave, or a list of such")
    return list(states)


def _stage_names(ready: Settled) -> list[str]:
    return ["read", *(step.name for step in (*ready.steps, *ready.finish))]
