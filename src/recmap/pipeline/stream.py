"""Stream: batches, or rows, to iterate over, epoch after epoch, and to resume from a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from recmap.errors import OptionError
from recmap.model.habits import helpful
from recmap.model.iteration import Iteration
from recmap.model.preview import quantity
from recmap.pipeline.verbs import Verbs

if TYPE_CHECKING:
    # rm.open needs only the names; what is used is imported when it is used.
    from recmap.model.progress import ProgressOption
    from recmap.model.schema import Schema
    from recmap.pipeline.cost_batches import CostLike
    from recmap.pipeline.feed import PipelineFeed
    from recmap.pipeline.meter import Timings
    from recmap.pipeline.plan import Plan
    from recmap.pipeline.sharding import Even
    from recmap.pipeline.signature import VerbRecord
    from recmap.pipeline.transforms.pad import PadLike


@helpful
class Stream(Verbs):
    """Batches for training, made from the rows of a dataset by ``batch``. Iterate over it.

    ``bucket``, ``pack`` and ``shard`` also begin a stream, which has rows until ``batch``. Verbs
    after ``batch`` work on batches.

    Each iteration is an epoch: a shuffle gives a new order, which is the same on every
    machine. ``state()`` saves a place in the middle, and ``restore()`` continues from it.
    """

    def __init__(self, plan: Plan) -> None:
        self._current_plan = plan

    @property
    def _plan(self) -> Plan:
        return self._current_plan

    @cached_property
    def _own_feed(self) -> PipelineFeed:
        from recmap.pipeline.feed import PipelineFeed

        return PipelineFeed(self._plan)

    def _feed(self) -> PipelineFeed:
        return self._own_feed

    def _rows(self, plan: Plan, record: VerbRecord | None = None) -> Self:
        from recmap.pipeline.kept_rows import with_kept

        return self._of(with_kept(plan if record is None else plan.recorded(record)))

    def _of(self, plan: Plan) -> Self:
        """Return the same kind, dataset or stream, of another plan."""
        return type(self)(plan.warned())

    def _stream(self, plan: Plan, record: VerbRecord | None = None) -> Stream:
        """Return the stream of a plan; ``record`` is the verb as written in states."""
        plan = plan.warned()
        return Stream(plan if record is None else plan.recorded(record))

    def batch(
        self,
        size: int | Sequence[int] | None = None,
        *,
        drop_last: bool = False,
        pad: PadLike | None = None,
        lengths: bool = False,
        mask: bool = False,
        cost: CostLike | None = None,
        limit: float | None = None,
        padded: bool | None = None,
    ) -> Stream:
        """Put ``size`` rows into each batch, or as many as cost at most ``limit``.

        The last batch may be smaller; ``drop_last`` leaves it out.

        ``pad={"tokens": 128}`` makes ragged columns dense: rows are cut or filled up to a
        length, or to the ``"longest"`` row of the batch; see ``rm.Pad``. ``lengths`` and
        ``mask`` add the columns ``tokens_length`` and ``tokens_mask``.

        ``cost="tokens", limit=32_000`` makes batches of up to 32,000 tokens, for language
        models, translation and speech. ``cost`` is a column: of lists or text, whose lengths
        count, or of numbers. Or it is a function of the lengths of many rows,
        ``lambda n: n["source"] + n["target"]``. Every row comes once, and all ranks take the
        same number of steps, unless nearly every batch is a single row. With ``pad``, short
        rows count as much as the longest of their batch, because they are filled up, unless
        ``padded`` is False. ``size`` is then the most rows a batch may have. A row that costs
        more than ``limit`` raises an error.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3], [4, 5, 6]])})
        >>> for batch in ds.batch(2, pad={"t": 2}):
        ...     print(batch["t"].tolist())
        [[1, 0], [2, 3]]
        [[4, 5]]
        """
        from recmap.model.arguments import check_flag
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.batch import Batches
        from recmap.pipeline.transforms.pad import PadBatches, Padding

        plan = self._plan
        plan.check_no_total_slice("batch")
        for name, flag in {"drop_last": drop_last, "lengths": lengths, "mask": mask}.items():
            check_flag(name, flag)
        pending = plan.bucket or plan.grouping
        if cost is not None or limit is not None or padded is not None:
            made = self._by_cost(
                cost, limit, pad is not None if padded is None else padded, size, drop_last
            )
        elif pending is None:
            made = replace(plan, grouping=Batches.checked(size, drop_last))
        else:
            made = replace(plan, grouping=pending.batched(size, drop_last), bucket=None)
        if pad is not None:
            padding = Padding(pad, lengths=lengths, mask=mask)
            if plan.grouping is None and (schema := plan.seen_schema) is not None:
                padding.schema(schema)  # refuses what cannot be padded
            made = made.with_transform(PadBatches(padding))
        elif lengths or mask:
            raise OptionError("lengths= and mask= describe padding; give pad=")
        given = (size, drop_last, pad, lengths, mask, cost, limit, padded)
        return self._stream(made, record(self.batch, *given, function=cost))

    def _by_cost(self, cost: Any, limit: Any, padded: Any, size: Any, drop_last: bool) -> Plan:
        """Return the plan with batches by cost."""
        from recmap.model.arguments import check_flag
        from recmap.pipeline.cost_batches import CostLimits, batched_by_cost

        if cost is None or limit is None:
            raise OptionError(
                'batch: cost= and limit= go together: batch(cost="tokens", limit=32_000)'
            )
        if self._plan.grouping is not None:
            raise OptionError("batch(cost=...): rows of pack have one length; give batch(n)")
        check_flag("padded", padded)
        limits = CostLimits.checked(cost, limit, padded, size, drop_last)
        return batched_by_cost(self._plan, limits)

    def bucket(
        self, by: str | Callable[[dict[str, Any]], int], boundaries: Sequence[int]
    ) -> Stream:
        """Put rows of similar length into the same batch.

        ``batch`` comes next, and fills one bucket for each range of lengths. ``by`` is a
        column, or a function of a row; the length of a text is that of its UTF-8, in bytes. A list
        of sizes gives each bucket its own:
        ``.bucket("t", [32, 64]).batch([64, 32, 16])``.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3, 4], [5], [6, 7, 8]])})
        >>> for batch in ds.bucket("t", [2]).batch(2, pad="longest"):
        ...     print(batch["t"].tolist())
        [[1], [5]]
        [[2, 3, 4], [6, 7, 8]]
        """
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.bucket import Buckets

        plan = self._plan
        plan.check_before_batch("bucket")
        plan.check_images_on_host("bucket")
        plan.check_uneven("bucket")
        bucket = Buckets.checked(by, boundaries)
        if isinstance(by, str) and (schema := plan.seen_schema) is not None:
            schema[by]  # raises an error that lists the columns
        return self._stream(
            replace(plan, bucket=bucket), record(self.bucket, by, boundaries, function=by)
        )

    def pack(
        self,
        length: int,
        columns: Sequence[str] | None = None,
        *,
        fill: Any = 0,
        long: Literal["cut", "error", "split"] = "error",
        fit: Literal["online", "best"] = "online",
        window: int = 1024,
        add: Sequence[Literal["segments", "positions", "cu_seqlens"]] = ("segments", "positions"),
    ) -> Stream:
        """Join short sequences into rows of one length.

        ``batch`` comes next; a ``map`` or ``select`` in between gets these rows.

        ``add`` names columns to add: ``segments`` (1, 2, ...; 0 is filler), ``positions``, which
        begin from 0 in each, and ``cu_seqlens``, where each begins and the last one ends; filler
        is then one more.

        A sequence longer than a row raises an error; ``long="cut"`` cuts it, and ``"split"``
        splits it over several rows.

        Sequences are placed as they come, each into the fullest of 16 rows with room for it.
        ``fit="best"`` places ``window`` of them at a time, the longest first, which leaves less
        filler.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1, 2], [3], [4, 5]])})
        >>> for batch in ds.pack(4).batch(2):
        ...     print(batch["t"].tolist(), batch["segments"].tolist())
        [[1, 2, 3, 0], [4, 5, 0, 0]] [[1, 1, 2, 0], [1, 1, 0, 0]]
        """
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.pack import Packs
        from recmap.pipeline.transforms.packer import ADDED

        plan = self._plan
        plan.check_before_batch("pack")
        plan.check_images_on_host("pack")
        plan.check_uneven("pack")
        packs = Packs.checked(length, columns, fill, long, fit, window, add)
        if (schema := plan.seen_schema) is not None:
            packs.schema(schema)  # refuses what cannot be packed
        given: tuple[Any, ...] = (length, columns, fill, long)
        if fit != "online" or tuple(add) != ADDED:
            given += (fit, window, list(add))
        return self._stream(replace(plan, grouping=packs), record(self.pack, *given))

    def shard(
        self,
        index: int | None = None,
        count: int | None = None,
        *,
        even: Even = None,
        mask: str = "mask",
    ) -> Stream:
        """Read the rows of one rank of several. Every row goes to exactly one rank.

        Without ``index`` and ``count``, the rank and the number of ranks are those of
        ``torch.distributed`` or ``jax.distributed``, if it is initialized, or those that
        torchrun, Slurm or MPI has set in the environment. A process alone is rank 0 of 1.

        Build the same pipeline, with the same seeds, on all ranks. Ranks may differ by a row,
        and at the very end by a step. ``even="drop"`` leaves out the last few rows;
        ``even="pad"`` repeats rows, and the column ``mask`` is false for these. With either,
        all ranks take the same number of steps.
        """
        from recmap.pipeline.sharding import Rank

        return self._stream(self._plan.with_rank(Rank.checked(index, count, even, mask)))

    def pipeline(self) -> Stream:
        """Return the stream itself."""
        return self

    def __repr__(self) -> str:
        verbs = " > ".join(self._plan.describe())
        return f"Stream({self._summary()}{': ' if verbs else ''}{verbs})"

    def _repr_html_(self) -> str:
        from recmap.model.table import html_table

        verbs = [(str(i), verb) for i, verb in enumerate(self._plan.describe(), 1)]
        return html_table(f"Stream: {self._summary()}", ["", "verb"], verbs)

    def _summary(self) -> str:
        plan = self._plan
        rows = "rows not counted yet"
        if plan.rows.facts.endless or plan.rows.known_rows() is not None:
            rows = "endless rows" if plan.count_rows is None else quantity(plan.count_rows, "row")
        is_batched = plan.grouping is not None and not plan.grouping.is_open
        return f"{rows}, in batches" if is_batched else rows

    @property
    def schema(self) -> Schema:
        """The columns of the output. To find them, functions are tried on the first rows."""
        return self._own_feed.schema

    def __len__(self) -> int:
        """Count the batches of an epoch or, without ``batch``, its rows."""
        return len(self._own_feed)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a column of this name. Rows are not searched."""
        return name in self.schema

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from recmap.adapters.feed import check_on_host

        check_on_host(self._own_feed, "iterating")
        return Iteration(iter(self._own_feed))

    def run(self, epochs: int = 1, *, progress: ProgressOption = None) -> Iterator[dict[str, Any]]:
        """Iterate over several epochs, one after another.

        ``progress=True`` draws a progress bar on standard error for each epoch. If it is a
        function, it is called with a ``Progress`` from time to time.

        >>> import numpy as np, recmap as rm
        >>> train = rm.from_arrays({"x": np.arange(3)}).batch(2)
        >>> [batch["x"].tolist() for batch in train.run(epochs=2)]
        [[0, 1], [2], [0, 1], [2]]
        """
        from recmap.adapters.feed import check_on_host
        from recmap.model.arguments import as_whole
        from recmap.model.progress import check_progress

        check_on_host(self._own_feed, "run()")
        check_progress(progress)
        return Iteration(self._own_feed.run(as_whole("epochs", epochs), progress))

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the place after the last batch that was given out.

        It is a small dict of numbers and strings. Save it as JSON next to the model.

        Frameworks take batches before they train on them. Pass ``batches``, the number of
        batches of this iteration that were trained on, to get the state after those.

        >>> import numpy as np, recmap as rm
        >>> train = rm.from_arrays({"x": np.arange(6)}).batch(2)
        >>> taken = list(train)
        >>> [batch["x"].tolist() for batch in train.restore(train.state(batches=1))]
        [[2, 3], [4, 5]]
        """
        return self._own_feed.state(batches)

    def restore(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, check: bool = True
    ) -> Self:
        """Continue from a state: the next iteration begins there.

        The data and the verbs must be those the state was saved from; ``shard``,
        ``prefetch``, workers and the folder of the files may differ. Otherwise an error says
        what differs; ``check=False`` continues anyway. A ``shuffle()`` without a seed takes
        the seed of the state.

        The state after the last batch of an epoch is the beginning of the next one. All
        ranks restored from one state are in the same epoch. With a different number of ranks,
        the rest of that epoch is dealt again. The state of one rank is enough if all ranks
        were in step; a list of the states of all ranks is always enough.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6)})
        >>> train = ds.shuffle(seed=1).batch(2)
        >>> first = next(iter(train))
        >>> saved = train.state()
        >>> again = ds.shuffle(seed=1).batch(2).restore(saved)
        >>> [batch["x"].tolist() for batch in again]
        [[5, 1], [4, 3]]
        """
        from recmap.model.arguments import check_flag

        self._own_feed.restore(state, check_flag("check", check))
        return self

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with, or continues."""
        return self._own_feed.epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._own_feed.epoch = number

    def timings(self) -> Timings:
        """Return where the time of the last iteration went; ``print`` it."""
        return self._own_feed.timings()
