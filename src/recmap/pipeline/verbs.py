"""What the verbs of a chain mean: each makes another plan of a plan, or refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, OptionTypeError, RowNotFoundError, SlowOrderWarning
from recmap.model.arguments import as_list, as_names, as_slice, as_whole, check_choice, check_flag
from recmap.model.byte_size import parse_size
from recmap.model.schema import FieldLike, Schema
from recmap.model.workers import Workers, parse_workers
from recmap.pipeline.plan import Plan, Shard
from recmap.pipeline.row_source import Positions, Rows
from recmap.pipeline.sharding import Even
from recmap.pipeline.signature import Said, Seed, drawn_seed, of_parts
from recmap.pipeline.transforms.base import Step, Stepped
from recmap.pipeline.transforms.batch import Batches, Buckets, Grouping
from recmap.pipeline.transforms.decode_image import DecodeImages
from recmap.pipeline.transforms.image_decoder import ImageDecoder
from recmap.pipeline.transforms.map import Filter, Function, MapBatch, MapRows
from recmap.pipeline.transforms.pack import Packs
from recmap.pipeline.transforms.pad import PadBatches
from recmap.pipeline.transforms.padding import Padding, PadLike
from recmap.pipeline.transforms.select import Choose
from recmap.pipeline.transforms.shuffle import Picked, Repeated, Shuffled, cut
from recmap.pipeline.transforms.slice import Cut
from recmap.pipeline.transforms.window_shuffle import Windowed

__all__ = [
    "RowNumbers",
    "batch",
    "branches",
    "bucket",
    "check_seed",
    "decode_image",
    "filter_rows",
    "joined",
    "map_rows",
    "pack",
    "prefetch",
    "random_access",
    "repeat",
    "select",
    "shard",
    "shuffle",
    "skip",
    "take",
]

# Rows and batches are counted in 64 bits.
_MOST = 2**62

RowNumbers: TypeAlias = slice | range | Sequence[int] | npt.NDArray[Any]


def check_seed(seed: Any) -> int:
    """A seed, or an error that says what one is."""
    return as_whole("seed", seed)


def random_access(plan: Plan, verb: str, workers: Workers | None = None) -> Rows:
    """The rows so far, if each can be had by its number. ``workers`` are those of the
    whole, if it has others beside those of the plan.
    """
    _before_batch(plan, verb)
    if plan.drops:
        raise OptionError(
            f"{verb} after a filter would have to run it over all rows first; put {verb} before it"
        )
    if plan.shard is not None and verb != "repeat":
        raise OptionError(f"{verb} comes before shard: all ranks have the same order of rows")
    return Stepped(plan.rows, plan.steps, workers or plan.workers) if plan.steps else plan.rows


def branches(plans: Sequence[Plan], verb: str) -> list[Rows]:
    """The rows of several chains, whose functions have chances of their own."""
    rows, functions, workers = [], 0, _joined_workers(plans)
    for plan in plans:
        # The first stays as it is, so that it does not have to be tried again.
        made = random_access(plan, verb, workers)
        rows.append(made.renumbered(functions) if functions else made)
        functions += plan.functions
    return rows


def joined(plans: Sequence[Plan], rows: Rows, verb: str) -> Plan:
    """A plan of rows made of those of several, done by those who would have done these."""
    aheads = [plan.ahead for plan in plans if plan.ahead is not None]
    return Plan(
        rows,
        workers=_joined_workers(plans),
        ahead=max(aheads, default=None),
        readers=max((plan.readers for plan in plans if plan.readers is not None), default=None),
        memory=max(plan.memory for plan in plans),
        functions=sum(plan.functions for plan in plans),
        leaves=tuple(leaf for plan in plans for leaf in plan.leaves),
        said=of_parts([plan.said for plan in plans], verb),
    )


def _joined_workers(plans: Sequence[Plan]) -> Workers | None:
    pools = [plan.workers for plan in plans if plan.workers is not None]
    return max(pools, key=lambda pool: pool.count, default=None)


def select(plan: Plan, what: str | Sequence[str] | RowNumbers, more: Sequence[str]) -> Plan:
    """Some columns, or some rows."""
    names = _column_names(what, more)
    if names is None:
        rows = random_access(plan, "select of rows")
        return replace(plan, rows=Picked(rows, _row_numbers(what, rows)), steps=())
    if plan.bucket is not None:
        raise OptionError("bucket(...) is followed by batch(...), which makes the batches")
    if plan.steps or plan.finish:
        return _with_step(plan, Choose(tuple(names)))
    if plan.grouping is None:
        return replace(plan, rows=plan.rows.select(names))
    if not isinstance(plan.grouping, Batches):  # which may need others
        return _with_step(plan, Choose(tuple(names)))
    # As a step, too: the state of a chain knows it by its verbs.
    return _with_step(replace(plan, rows=plan.rows.select(names)), Choose(tuple(names)))


def filter_rows(plan: Plan, fn: Callable[..., Any], batched: bool, seed: int) -> Plan:
    """Leaves rows out."""
    _before_batch(plan, "filter")
    check_flag("batched", batched)
    _check_even(plan, "filter")
    return _with_function(plan, fn, seed, lambda function: Filter(function, batched))


def shuffle(
    plan: Plan, positional: Sequence[Any], seed: int | None, window: int | None, reshuffle: bool
) -> Plan:
    """Another order."""
    if positional:
        given = ", ".join(map(repr, positional))
        raise OptionError(
            f"shuffle({given}): recmap's shuffle is exact and needs no buffer; write shuffle(), or "
            f"shuffle(seed={positional[0]!r}) for an order that can be had again"
        )
    check_flag("reshuffle", reshuffle)
    rows = random_access(plan, "shuffle")
    chosen = drawn_seed() if seed is None else Seed(check_seed(seed))
    window = None if window is None else as_whole("window", window, most=_MOST)
    size = "" if window is None else f", window={window}"
    kept = "" if reshuffle else ", reshuffle=False"
    said = (*plan.said, Said(f"shuffle(seed={{seed}}{size}{kept})", chosen))
    plan = replace(plan, said=said, steps=())
    if window is not None:
        return replace(plan, rows=Windowed(rows, chosen, window, bool(reshuffle)))
    if rows.in_order:
        warnings.warn(
            "these rows are read well only in order, and a shuffle of all of them reads much "
            "for each; use shuffle(window=100_000), or convert the file first",
            SlowOrderWarning,
            stacklevel=5,
        )
    return replace(plan, rows=Shuffled(rows, chosen, bool(reshuffle)))


def map_rows(
    plan: Plan,
    fn: Callable[..., Any],
    workers: int | str | None,
    batched: bool,
    fields: Mapping[str, FieldLike] | None,
    seed: int,
) -> Plan:
    """A function of rows, or of batches."""
    if plan.bucket is not None:
        raise OptionError("bucket(...) is followed by batch(...), which makes the batches")
    check_flag("batched", batched)
    schema = None if fields is None else Schema(fields)
    grouped = plan.grouping is not None

    def step(function: Function) -> Step:
        if batched or grouped:
            return MapBatch(function, schema, rows_stay=not grouped)
        return MapRows(function, schema)

    made = _with_function(plan, fn, seed, step)
    if workers is None:
        return made
    # One pool does the work of all verbs: the largest that was asked for.
    asked, had = parse_workers(workers), made.workers
    return replace(made, workers=asked if had is None or asked.count >= had.count else had)


def decode_image(
    plan: Plan,
    column: str,
    size: tuple[int, int] | None,
    channels: int,
    dtype: npt.DTypeLike,
    scale: Literal["0-1"] | None,
    errors: Literal["raise", "skip", "zero"],
    fast: bool,
) -> Plan:
    """Images decoded."""
    _before_batch(plan, "decode_image")
    decoder = ImageDecoder(column, size, channels, dtype, scale, errors, fast=fast)
    step = DecodeImages(decoder, errors == "skip")
    if step.drops:
        _check_even(plan, 'decode_image(errors="skip")')
    return _with_step(plan, step)


def batch(
    plan: Plan,
    size: int | Sequence[int],
    drop_last: bool,
    pad: PadLike | None,
    lengths: bool,
    mask: bool,
) -> Plan:
    """Rows in batches, padded if that is wanted."""
    _before_overall(plan, "batch")
    for name, flag in {"drop_last": drop_last, "lengths": lengths, "mask": mask}.items():
        check_flag(name, flag)
    packed = isinstance(plan.grouping, Packs) and plan.grouping.size is None
    if plan.grouping is not None and not packed:
        raise OptionError("batch: there are batches already")
    made = replace(plan, grouping=_grouping(plan, size, drop_last), bucket=None)
    if pad is None:
        if lengths or mask:
            raise OptionError("lengths and mask tell of padding; give pad=")
        return made
    padding = Padding(pad, lengths=lengths, mask=mask)
    if not plan.steps and not packed:
        padding.schema(plan.rows.schema)  # refuses what cannot be padded
    return _with_step(made, PadBatches(padding, repr((pad, lengths, mask))))


def bucket(
    plan: Plan, by: str | Callable[[dict[str, Any]], int], boundaries: Sequence[int]
) -> Plan:
    """Notes how the batches that come next are to be filled."""
    _before_batch(plan, "bucket")
    _check_even(plan, "bucket")
    if not isinstance(by, str) and not callable(by):
        raise OptionTypeError(f"bucket(by={by!r}): give the name of a column, or a function")
    if isinstance(by, str) and not plan.steps:
        plan.rows.schema[by]  # an error that names the columns there are
    given = as_list("boundaries", boundaries, "[32, 64]")
    edges = tuple(as_whole("boundaries", edge, most=_MOST) for edge in given)
    if not edges or list(edges) != sorted(set(edges)):
        raise OptionError(f"boundaries={list(edges)}: give lengths, one above the other")
    return replace(plan, bucket=(by, edges))


def pack(
    plan: Plan,
    length: int,
    columns: Sequence[str] | None,
    fill: Any,
    long: Literal["cut", "error", "split"],
) -> Plan:
    """Sequences joined into rows."""
    _before_batch(plan, "pack")
    _check_even(plan, "pack")
    chosen = None if columns is None else tuple(as_names("columns", columns))
    packs = Packs(as_whole("length", length, 1, _MOST), chosen, fill, long)
    packs.packer()  # which checks the others
    if not plan.steps:
        packs.schema(plan.rows.schema)
    return replace(plan, grouping=packs)


def repeat(plan: Plan, times: int | None) -> Plan:
    """All of it again."""
    if times is not None:
        # A count of rows must fit into 64 bits.
        times = as_whole("times", times, most=2**40)
    _before_overall(plan, "repeat")
    if plan.grouping is None and not plan.drops and plan.bucket is None:
        return replace(plan, rows=Repeated(random_access(plan, "repeat"), times), steps=())
    if plan.repeat is None or plan.count_rows is None:
        raise OptionError("repeat: it has no end already")
    return replace(plan, repeat=None if times is None else plan.repeat * times)


def take(plan: Plan, count: int) -> Plan:
    """The first few, of rows or of batches."""
    return _cut(plan, "take", 0, as_whole("count", count))


def skip(plan: Plan, count: int) -> Plan:
    """All but the first few, of rows or of batches."""
    return _cut(plan, "skip", as_whole("count", count), None)


def _cut(plan: Plan, verb: str, skip: int, take: int | None) -> Plan:
    if plan.bucket is not None or (isinstance(plan.grouping, Packs) and plan.grouping.size is None):
        raise OptionError(f"{verb} comes after batch, not between bucket or pack and batch")
    if plan.repeat != 1:
        return replace(plan, overall=plan.overall.then(skip, take))
    if plan.grouping is None and not plan.drops:
        return replace(plan, rows=cut(random_access(plan, verb), skip, take), steps=())
    if plan.grouping is None:
        if plan.shard is not None:
            raise OptionError(f"{verb} comes before shard")
        kept, steps = plan.kept, len(plan.steps)
        if kept and kept[-1][0] == steps:
            return replace(plan, kept=(*kept[:-1], (steps, kept[-1][1].then(skip, take))))
        return replace(plan, kept=(*kept, (steps, Cut(skip, take))))
    if plan.plain and plan.shard is None and not plan.given:
        size = plan.groups.block
        rows = (skip * size, None if take is None else take * size)
        return replace(plan, reach=(*plan.reach, rows))
    return replace(plan, given=plan.given.then(skip, take))


def shard(plan: Plan, index: int, count: int, even: Even, mask: str) -> Plan:
    """One rank of several."""
    check_choice("even", even, ("uneven", "pad", "drop"))
    if plan.shard is not None:
        raise OptionError("shard: it is one of several shards already")
    known = plan.grouping is None or isinstance(plan.grouping, Batches)
    if even != "uneven" and (plan.drops or not known or plan.bucket is not None):
        raise OptionError(
            f"even={even!r}: how many steps a rank takes is not known before rows are "
            'filtered, bucketed or packed; use even="uneven"'
        )
    if plan.given or plan.kept:
        raise OptionError("shard comes before take and skip of what a filter leaves")
    _before_overall(plan, "shard")
    if even == "pad" and plan.grouping is None and plan.bucket is None:
        raise OptionError('even="pad" fills up batches: batch comes before shard')
    index, count = as_whole("index", index), as_whole("count", count, 1, most=_MOST)
    if not isinstance(mask, str):
        raise OptionTypeError(f"mask={mask!r}: give the name of the column to add")
    made = replace(plan, shard=Shard(index, count, even, mask))
    made.share.check()
    if made.shard is not None and made.shard.world > 1:
        _check_seeds(plan)
    return made


def _check_seeds(plan: Plan) -> None:
    """Ranks that each draw a seed would not have one order to share."""
    drawn = [said.seed for said in plan.said if said.seed is not None and said.seed.drawn]
    if drawn:
        raise OptionError(
            "shard: every rank would draw another seed for shuffle(); give them all the same one: "
            f"shuffle(seed={drawn[0].value})"
        )


def prefetch(plan: Plan, count: int | None, threads: int | None, memory: int | str | None) -> Plan:
    """How much is made before it is asked for, and by how many."""
    ahead = plan.ahead if count is None else as_whole("count", count, most=_MOST)
    readers = plan.readers
    if threads is not None:
        readers = as_whole("threads", threads, 1, most=10_000)
        if ahead == 0:
            raise OptionError(
                f"prefetch({count}, threads={threads}): one thread or more reads some batches ahead"
            )
    memory = plan.memory if memory is None else parse_size(memory)
    if memory < 1:
        raise OptionError(f"prefetch(memory={memory}): give the bytes to use, such as '512MB'")
    return replace(plan, ahead=ahead, readers=readers, memory=memory)


def _before_overall(plan: Plan, verb: str) -> None:
    if plan.overall:
        raise OptionError(f"{verb} comes before repeat and the take or skip behind it")


def _before_batch(plan: Plan, verb: str) -> None:
    _before_overall(plan, verb)
    if plan.grouping is not None or plan.bucket is not None:
        raise OptionError(f"{verb} works on rows: it comes before batch, bucket and pack")


def _check_even(plan: Plan, verb: str) -> None:
    if plan.shard is not None and plan.shard.even != "uneven":
        raise OptionError(
            f"even={plan.shard.even!r}: how many steps a rank takes is not known with {verb}; use "
            'even="uneven"'
        )


def _with_step(plan: Plan, step: Step) -> Plan:
    if plan.grouping is not None:
        return replace(plan, finish=(*plan.finish, step))
    return replace(plan, steps=(*plan.steps, step))


def _with_function(
    plan: Plan, fn: Callable[..., Any], seed: int, step: Callable[[Function], Step]
) -> Plan:
    # Every function of a chain has chances of its own.
    function = Function(fn, check_seed(seed), plan.functions)
    return replace(_with_step(plan, step(function)), functions=plan.functions + 1)


def _grouping(plan: Plan, size: Any, drop_last: bool) -> Grouping:
    if plan.bucket is not None:
        by, edges = plan.bucket
        sizes = list(size) if isinstance(size, Sequence | np.ndarray) else [size] * (len(edges) + 1)
        checked = tuple(as_whole("size", each, 1, _MOST) for each in sizes)
        return Buckets(by, edges, checked, drop_last)
    if isinstance(size, Sequence | np.ndarray) and not isinstance(size, str):
        raise OptionError("several batch sizes are for buckets: bucket(...) comes before")
    if isinstance(plan.grouping, Packs):
        return replace(plan.grouping, size=as_whole("size", size, 1, _MOST), drop_last=drop_last)
    return Batches(as_whole("size", size, 1, _MOST), drop_last)


def _column_names(what: Any, more: Sequence[str]) -> list[str] | None:
    """The columns that are meant; None if rows are."""
    if isinstance(what, str):
        return [what, *more]
    if isinstance(what, list | tuple) and what and all(isinstance(name, str) for name in what):
        return [*what, *more]
    if more:
        raise OptionError("select: names of columns, or one collection of row numbers")
    return None


def _row_numbers(what: Any, rows: Rows) -> Positions:
    count = rows.count
    if count is None:
        raise OptionError("select of rows: there is no end of them; use take and skip")
    if isinstance(what, slice):
        return np.arange(*as_slice("rows", what).indices(count), dtype=np.int64)
    try:
        numbers = np.asarray(what)
    except (TypeError, ValueError) as e:
        raise OptionError(f"select: {what!r} is no list of rows: {e}") from None
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise OptionError("select: names of columns, or numbers of rows, a slice or a mask")
    wrapped = numbers.astype(np.int64)
    wrapped = np.where(wrapped < 0, wrapped + count, wrapped)
    wrong = (wrapped < 0) | (wrapped >= count)
    if wrong.any():
        raise RowNotFoundError(f"row {int(numbers[wrong][0]):,} of {count:,}")
    return wrapped
