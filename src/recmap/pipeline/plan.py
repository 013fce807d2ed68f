"""The result of a pipeline's verbs: rows, transforms, grouping, and the workers to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recmap.errors import OptionError
from recmap.formats.combined import CombinedSource
from recmap.model.arguments import Workers, parse_size
from recmap.model.nulls import with_masks
from recmap.model.order import ENDLESS, Order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.schema import Schema
from recmap.model.source import Source, prepare
from recmap.pipeline.row_source import SourceRows, count_of, is_damaged, reach_of
from recmap.pipeline.sharding import CutShare, Rank, Remaining, Share
from recmap.pipeline.signature import VerbRecord
from recmap.pipeline.state import Cursor
from recmap.pipeline.transforms.base import Transform
from recmap.pipeline.transforms.batch import Grouping, SingleRows
from recmap.pipeline.transforms.bucket import Buckets
from recmap.pipeline.transforms.decode_image import ImageDecoder
from recmap.pipeline.transforms.map import Function, take_turns
from recmap.pipeline.transforms.repeat import repeated
from recmap.pipeline.transforms.select import SelectColumns, Slice, span_of
from recmap.pipeline.transforms.shuffle import warn_if_slow
from recmap.pipeline.trial import TransformedRows, known_schema

_MEMORY = parse_size("512MB")
_EVERYTHING = Slice()
# Without batch(), rows are read in blocks of up to this many bytes and rows.
_SINGLE_ROWS_BYTES = 1 << 20
_SINGLE_ROWS_MOST = 256
# Threads that read batches ahead of the loop.
_READ_THREADS = 2


@dataclass(frozen=True)
class Plan:
    """A pipeline that has not been run.

    ``transforms`` apply to rows, ``batch_transforms`` to batches. ``bucket`` is set between
    ``bucket`` and ``batch``. ``functions`` counts what may draw random numbers, each
    its own: the user's functions, and random crops. ``repeat`` is the number of epochs; None
    means no end.

    ``take`` and ``skip`` are stored by what they count:

    - ``row_slices``: the rows that filters keep, each with the number of transforms before it;
    - ``epoch_slices``: positions of an epoch before it is dealt to ranks, as (first, count),
      each within the previous one;
    - ``batch_slice``: the batches of a rank in an epoch;
    - ``total_slice``: the batches of all epochs of ``repeat``.
    """

    rows: Source
    transforms: tuple[Transform, ...] = ()
    row_slices: tuple[tuple[int, Slice], ...] = ()
    epoch_slices: tuple[tuple[int, int | None], ...] = ()
    #: The rows that the filters and slices so far keep, by number; see kept_rows.py.
    kept: Order | None = None
    #: The rows that were kept before the last slice, and that slice, while ``kept`` is not known.
    kept_among: tuple[Order, Slice] | None = None
    bucket: Buckets | None = None
    grouping: Grouping | None = None
    batch_transforms: tuple[Transform, ...] = ()
    batch_slice: Slice = _EVERYTHING
    total_slice: Slice = _EVERYTHING
    rank: Rank | None = None
    #: (index, count) of this process among the processes of its rank, which take turns.
    part: tuple[int, int] = (0, 1)
    repeat: int | None = 1
    workers: Workers | None = None
    prefetch: int | None = None
    read_threads: int | None = None
    memory: int = _MEMORY
    functions: int = 0
    #: Columns of images that are decoded on a device, when a batch is placed there.
    images_on_device: tuple[ImageDecoder, ...] = ()
    #: The rows of shuffles that nobody was warned about yet: those that are saved need no warning,
    #: because a conversion shuffles on disk what is slow to read in a random order.
    unwarned: tuple[Source, ...] = ()
    #: What a state identifies the pipeline by: the data and the verbs.
    sources: tuple[SourceRows, ...] = ()
    records: tuple[VerbRecord, ...] = ()
    #: How many verbs came before each ``cache``, which states do not record: rows are the same.
    caches: tuple[int, ...] = ()

    # What the verbs add. Each method checks that its verb is allowed at this point.

    def recorded(self, record: VerbRecord) -> Plan:
        """Add a verb to the records that a state is compared with."""
        return replace(self, records=(*self.records, record))

    def warned(self) -> Plan:
        """Warn about shuffles that are slow to read, because they are about to be read."""
        for rows in self.unwarned:
            warn_if_slow(rows, self.sources)
        return replace(self, unwarned=()) if self.unwarned else self

    def with_transform(self, transform: Transform) -> Plan:
        """Add a transform of rows or, after ``batch``, of batches."""
        self.check_no_bucket()
        if transform.calls_user_code:
            self.check_images_on_host(transform.name)
        draws = transform.calls_user_code or transform.varies
        plan = replace(self, functions=self.functions + draws)
        if self.grouping is not None:
            return replace(plan, batch_transforms=(*self.batch_transforms, transform))
        if (schema := self.seen_schema) is not None:
            transform.seen(schema)  # raises an error that lists the columns
        if transform.drops:
            self.check_uneven(transform.name)
        kept = None if transform.drops else self.kept
        return replace(plan, transforms=(*self.transforms, transform), kept=kept)

    def with_columns(self, names: Sequence[str]) -> Plan:
        """Select columns; the others are not read if that can be avoided."""
        self.check_no_bucket()
        images = [each for each in self.images_on_device if each.column in names]
        names = [*names, *(each.place_column for each in images if each.place_column)]
        # Grouping by length or by content may need the other columns.
        needs_all = self.grouping is not None and self.grouping.rows_per_group is None
        # What functions make is known when they have been tried, as before rows are combined.
        tried = isinstance(self.rows, CombinedSource) or not self.rows.facts.calls_user_code
        if self.transforms or self.batch_transforms or needs_all or not tried:
            return self.with_transform(SelectColumns(tuple(names)))
        return replace(self, rows=self.rows.select(with_masks(names, self.rows.schema)))

    @property
    def known_schema(self) -> Schema | None:
        """The columns of rows before ``batch``; None if functions must be tried to find them."""
        return known_schema(self.rows, self.transforms)

    @property
    def seen_schema(self) -> Schema | None:
        """The columns of rows before ``batch``; None if functions were not tried yet."""
        schema = known_schema(self.rows, ())
        for transform in self.transforms:
            schema = transform.seen(schema)
        return schema

    def with_workers(self, workers: Workers) -> Plan:
        """Ask for workers. One pool serves all verbs: the largest one asked for."""
        workers = workers.reading(remote=self.remote)
        if self.workers is not None and workers.count < self.workers.count:
            return self
        return replace(self, workers=workers)

    def with_rows(self, rows: Source) -> Plan:
        """Replace the rows and the transforms with rows made from them."""
        return replace(
            self,
            rows=rows,
            transforms=(),
            row_slices=(),
            kept=None,
            repeat=1 if self.grouping is None else self.repeat,
            total_slice=_EVERYTHING if self.grouping is None else self.total_slice,
        )

    def sliced(self, verb: str, skip: int, take: int | None) -> Plan:
        """Leave out rows or, after ``batch``, batches."""
        if self.bucket is not None or (self.grouping is not None and self.grouping.is_open):
            raise OptionError(f"{verb} comes after batch, not between bucket or pack and batch")
        if self.repeat != 1:
            return replace(self, total_slice=self.total_slice.then(skip, take))
        if self.grouping is None and not self.drops:
            return self.with_rows(span_of(self.random_access(verb), skip, take))
        if self.grouping is None:
            return self._rows_sliced(verb, skip, take)
        cuttable = self.plain and self.groups.by_cost is None
        if cuttable and self.rank is None and not self.batch_slice:
            size = self.groups.block
            span = (skip * size, None if take is None else take * size)
            return replace(self, epoch_slices=(*self.epoch_slices, span))
        return replace(self, batch_slice=self.batch_slice.then(skip, take))

    def _rows_sliced(self, verb: str, skip: int, take: int | None) -> Plan:
        """Leave out some of the rows that a filter keeps."""
        if self.rank is not None:
            raise OptionError(f"{verb} comes before shard")
        slices, before = self.row_slices, len(self.transforms)
        if slices and slices[-1][0] == before:
            last = (before, slices[-1][1].then(skip, take))
            plan = replace(self, row_slices=(*slices[:-1], last))
        else:
            plan = replace(self, row_slices=(*slices, (before, Slice(skip, take))))
        among = None if self.kept is None else (self.kept, Slice(skip, take))
        return replace(plan, kept=None, kept_among=among)

    def repeated(self, times: int | None) -> Plan:
        """Repeat epochs of batches, or of the rows that a filter keeps."""
        if self.repeat is None or self.rows.facts.endless:
            raise OptionError("repeat: this pipeline already repeats forever")
        return replace(self, repeat=None if times is None else self.repeat * times)

    def with_rank(self, rank: Rank) -> Plan:
        """Read only the rows of one rank."""
        if self.rank is not None:
            raise OptionError("shard was already called on this pipeline")
        counted = self.grouping is None or self.grouping.rows_per_group is not None
        if rank.even is not None and (self.drops or not counted or self.bucket is not None):
            raise OptionError(
                f"even={rank.even!r}: how many steps a rank takes is not known before rows are "
                "filtered, bucketed or packed; leave it out, and ranks may differ in steps"
            )
        if self.batch_slice or self.row_slices:
            raise OptionError("put shard before the take or skip that follows a filter or batch")
        self.check_no_total_slice("shard")
        if rank.even == "pad" and self.grouping is None and self.bucket is None:
            raise OptionError('even="pad" fills up batches: batch comes before shard')
        if rank.world > 1:
            self._check_seeds()
        return replace(self, rank=rank)

    def _check_seeds(self) -> None:
        """Refuse seeds that each rank would draw on its own."""
        for each in self.records:
            if each.seed is not None and each.seed.drawn:
                raise OptionError(
                    f"shard: every rank would draw a different seed for {each.name}(); give all "
                    f"the same one: {each.name}(seed={each.seed.value})"
                )

    def random_access(self, verb: str, workers: Workers | None = None) -> Source:
        """Return the rows so far, which can be read by position; raise OptionError if they cannot.

        ``workers`` are the joined pipeline's, if this plan becomes one of its branches.
        """
        self.check_before_batch(verb)
        if self.rank is not None and verb != "repeat":
            raise OptionError(f"{verb} comes before shard: all ranks have the same order of rows")
        if self.kept is not None and self.kept.varies:
            raise OptionError(
                f"{verb} after a filter of rows that differ from epoch to epoch would have to run "
                f"the filter over all rows in every epoch; put {verb} before it"
            )
        return self.numbered(workers)

    def numbered(self, workers: Workers | None = None) -> Source:
        """Return the rows so far by number, as they are in the first epoch.

        Which rows filters keep is found in one pass over all rows, when that is first needed.
        """
        take_turns(self.user_functions)
        rows = self.rows
        if any(each.changes for each in self.transforms):
            rows = TransformedRows(rows, self.transforms, workers or self.workers)
        if self.drops:
            assert self.kept is not None
            rows = OrderedRows(rows, self.kept)
        if self.repeat != 1:
            rows = repeated(rows, self.repeat)
        if self.total_slice:
            rows = span_of(rows, self.total_slice.skip, self.total_slice.take)
        return rows

    @property
    def keeps_rows(self) -> bool:
        """Whether there is one row for each of ``rows``, in their order."""
        sliced = self.row_slices or self.epoch_slices or self.batch_slice or self.total_slice
        grouped = self.grouping is not None or self.bucket is not None
        shared = self.rank is not None or self.part != (0, 1) or self.repeat != 1
        return not (self.drops or sliced or grouped or shared)

    @property
    def varies(self) -> bool:
        """Whether rows differ from epoch to epoch."""
        return self.rows.facts.varies or any(each.varies for each in self.transforms)

    def check_before_batch(self, verb: str) -> None:
        """Refuse a verb of rows after ``batch``, ``bucket`` or ``pack``."""
        self.check_no_total_slice(verb)
        if self.grouping is not None or self.bucket is not None:
            raise OptionError(f"{verb} works on rows: it comes before batch, bucket and pack")

    def check_no_total_slice(self, verb: str) -> None:
        """Refuse a verb after ``take`` or ``skip`` that counts all epochs."""
        if self.total_slice:
            raise OptionError(f"{verb} comes before repeat and the take or skip after it")

    def check_images_on_host(self, verb: str) -> None:
        """Refuse a verb that would see encoded images."""
        for images in self.images_on_device:
            raise OptionError(
                f"{verb} must come before decode_image({images.column!r}, "
                f"device={images.device!r}): images are decoded when to_torch(device=...) places "
                "a batch"
            )

    def check_no_bucket(self) -> None:
        """Refuse a verb between ``bucket`` and ``batch``."""
        if self.bucket is not None:
            raise OptionError("bucket(...) is followed by batch(...), which makes the batches")

    def check_uneven(self, verb: str) -> None:
        """Refuse a verb that would give ranks different numbers of steps."""
        if self.rank is not None and self.rank.even is not None:
            raise OptionError(
                f"even={self.rank.even!r}: how many steps a rank takes is not known with {verb}; "
                "leave it out, and ranks may differ in steps"
            )

    # What the verbs add up to.

    @property
    def drops(self) -> bool:
        """Whether rows may be dropped after they are read."""
        return any(transform.drops for transform in self.transforms) or bool(self.row_slices)

    @property
    def remote(self) -> bool:
        """Whether any rows are fetched from a store."""
        return any(source.facts.remote for source in self.sources)

    @property
    def in_order(self) -> bool:
        """Whether rows are decoded together, so that one thread has to read them in order."""
        return self.rows.facts.chunk_rows() > 1

    @property
    def _alone(self) -> bool:
        """Whether no rank and no part divides the rows with others."""
        return self.rank is None and self.part == (0, 1)

    @property
    def open_ended(self) -> bool:
        """Whether rows are not counted yet, and can be read in order before that."""
        rows, facts = self.rows, self.rows.facts
        whole = self._alone and self.groups.by_cost is None  # costs are cut at once
        unknown = whole and facts.open_ended and rows.known_rows() is None
        return unknown and not facts.endless and not is_damaged(rows)

    @property
    def remaining(self) -> Remaining:
        """The positions of an epoch."""
        # Ranks and parts divide all rows, so the rows have to be counted.
        return self._sliced_to(reach_of(self.rows) if self._alone else count_of(self.rows))

    def _sliced_to(self, reach: int | None) -> Remaining:
        start, stop = 0, ENDLESS if reach is None else reach
        for skip, count in self.epoch_slices:
            start = min(start + skip, stop)
            stop = stop if count is None else min(stop, start + count)
        return Remaining(stop, start)

    def prepare(self, *, count: bool = True) -> None:
        """Compute now what other processes would each compute for themselves; count the rows.

        Without ``count``, they are not counted if they can be read before that.
        """
        prepare(self.rows)
        if count or not self.open_ended:
            self.remaining  # noqa: B018  # counts the rows
        self.groups.prepare()

    @property
    def damaged(self) -> bool:
        """Whether reading the last row of an epoch raises."""
        total = self.remaining.total
        return is_damaged(self.rows) and total == reach_of(self.rows)

    @property
    def count_rows(self) -> int | None:
        """The rows read in an epoch, on all ranks; None if endless."""
        count = len(self.remaining)
        return None if self.remaining.total >= ENDLESS else count

    @property
    def groups(self) -> Grouping:
        """How rows are grouped; without ``batch``, one by one."""
        if self.grouping is not None:
            return self.grouping
        size = _SINGLE_ROWS_BYTES // self.rows.row_bytes()
        return SingleRows(max(1, min(_SINGLE_ROWS_MOST, size)))

    @property
    def plain(self) -> bool:
        """Whether blocks are cut straight into batches, without filter, bucket or pack."""
        return self.groups.plain and not self.drops

    @property
    def rows_per_step(self) -> int | None:
        """The rows that every rank takes in a step; None if ranks differ."""
        return None if self.drops else self.groups.rows_per_group

    @property
    def share(self) -> Share:
        """The rows of this rank in an epoch; in the first one, if epochs differ."""
        remaining, groups = self.remaining, self.groups
        rank = self.rank or Rank(0, 1, None, "")
        fields = remaining, rank.rank, rank.world, groups.block, rank.even, self.part
        return Share(*fields) if groups.by_cost is None else CutShare(*fields, cuts=groups.by_cost)

    @property
    def open_share(self) -> Share:
        """The rows of an epoch while their number is unknown."""
        return Share(self._sliced_to(None), block=self.groups.block)

    def share_at(self, cursor: Cursor) -> Share:
        """Return the rows of this rank that are left in the epoch of a cursor."""
        share = self.share if cursor.left is None else replace(self.share, left=cursor.left)
        return share.in_epoch(cursor.epoch).behind(cursor.done)

    @property
    def mask(self) -> str | None:
        """The column that marks real rows, as opposed to padding, if there is one."""
        return None if self.rank is None or self.rank.even != "pad" else self.rank.mask

    @property
    def calls_user_code(self) -> bool:
        """Whether the pipeline calls any of the user's functions."""
        return bool(self.user_functions)

    @property
    def user_functions(self) -> list[Function]:
        """The user's functions that the pipeline calls, in its order."""
        transforms = (*self.transforms, *self.batch_transforms)
        mine = [function for each in transforms for function in each.functions]
        return [*self.rows.facts.functions, *mine]

    @property
    def pool(self) -> Workers:
        """The workers to use.

        Without ``workers=``, the user's functions run in the thread that iterates, unless
        ``prefetch`` allows other threads.
        """
        if self.workers is not None:
            return self.workers
        if self.prefetch == 0:
            return Workers("serial", 1)
        ours = not self.calls_user_code
        if ours and not self.in_order:
            return Workers("threads", self.read_threads or _READ_THREADS)
        # A reader already runs ahead; our own transforms may run in parallel with the loop.
        beside = ours and bool(self.transforms or self.batch_transforms)
        return Workers("threads" if beside or self.prefetch else "serial", 1)

    @property
    def counted(self) -> bool:
        """Whether the number of batches is known before they are made."""
        return self.rows_per_step is not None

    def describe(self) -> list[str]:
        """Describe the pipeline, verb by verb; those that no state records come last."""
        names = [record.shown() for record in self.records]
        for place in reversed(self.caches):
            names.insert(place, "cache()")
        names += [f"{each.column!r} on {each.device}" for each in self.images_on_device]
        if self.rank is not None:
            even = "" if self.rank.even is None else f", even={self.rank.even!r}"
            names.append(f"shard({self.rank.rank}, {self.rank.world}{even})")
        if self.prefetch is not None:
            names.append(f"prefetch({self.prefetch})")
        return names
