"""How many batches and rows an iteration of a plan has, and where in them a batch is."""

from __future__ import annotations

from dataclasses import replace

from recmap.errors import OptionError
from recmap.model.order import ENDLESS
from recmap.pipeline.plan import Plan
from recmap.pipeline.sharding import CutShare, Rank
from recmap.pipeline.state import Cursor

_START = Cursor()


def count_batches(plan: Plan, start: Cursor = _START) -> int | None:
    """Count the batches (or rows, without ``batch``) of an iteration, from a cursor on.

    Return None if that is not known beforehand.
    """
    if plan.damaged:
        return len(plan.rows)  # raises
    if plan.count_rows is None or not plan.counted:
        return None
    if plan.groups.by_cost is not None:
        return _count_cut(plan, start)
    rest, whole = batches_left(plan, start), batches_left(plan, _START)
    # Of the epochs that ranks have reached before others, some batches are missing.
    rest += sum(batches_left(plan, Cursor(left=left)) - whole for left in start.ahead)
    if plan.repeat is not None:
        total = rest + (plan.repeat - start.turn - 1) * whole
    elif plan.total_slice.take is not None:
        total = max(rest, plan.total_slice.stop) if whole else rest
    else:
        return None
    return plan.total_slice.wanted(start.done, max(0, total))


def _count_cut(plan: Plan, start: Cursor) -> int | None:
    """Count batches that are cut by cost: every epoch has its own number."""
    if plan.repeat is None:
        return plan.total_slice.wanted(start.done, ENDLESS) if plan.total_slice.take else None
    total, cursor = batches_left(plan, start), start
    while cursor.turn + 1 < plan.repeat:
        cursor = cursor.following(plan.repeat)
        total += batches_left(plan, cursor)
    return plan.total_slice.wanted(start.done, total)


def place_of(plan: Plan, number: int, epoch: int) -> tuple[int, int]:
    """Return the epoch of a batch of the iteration that begins with one, and its number there.

    Batches that ``take`` and ``skip`` leave out are counted.
    """
    number += plan.total_slice.skip
    if plan.groups.by_cost is None:
        turn, within = divmod(number, batches_left(plan, _START))
        return epoch + turn, within + plan.batch_slice.skip
    while number >= (rest := batches_left(plan, Cursor(epoch))):
        number, epoch = number - rest, epoch + 1
    return epoch, number + plan.batch_slice.skip


def count_rows_from(plan: Plan, start: Cursor) -> int | None:
    """Count the rows of an iteration that this rank gets, from a cursor on.

    Return None if that is not known beforehand.
    """
    if plan.groups.by_cost is not None:
        share = plan.share_at(start)
        alone = plan.repeat == 1 and not plan.batch_slice
        return share.rows_from(start.at) if alone and isinstance(share, CutShare) else None
    batches = None if plan.damaged else count_batches(plan, start)
    if batches is None:
        return None
    total = batches * (plan.groups.rows_per_group or 1)
    if plan.repeat is None:
        return total
    left = len(plan.share_at(start)) - start.at
    left += sum(len(replace(plan.share, left=each)) - len(plan.share) for each in start.ahead)
    return min(total, left + (plan.repeat - start.turn - 1) * len(plan.share))


def batches_left(plan: Plan, start: Cursor) -> int:
    """Count the batches of this rank that are left in an epoch."""
    rows = max(0, len(plan.share_at(start)) - start.at)
    size = plan.groups.rows_per_group or 1
    batches = rows // size if plan.groups.drop_last else -(-rows // size)
    return plan.batch_slice.wanted(start.given, batches)


def steps_of(plan: Plan, rank: int, world: int) -> int:
    """Count the batches that a rank of ``world`` has in a whole epoch."""
    return batches_left(on_rank(plan, rank, world), _START)


def on_rank(plan: Plan, rank: int, world: int) -> Plan:
    """Return the plan of another rank."""
    mine = plan.rank or Rank(0, 1, None, "")
    return replace(plan, rank=replace(mine, rank=rank, world=world))


def later(plan: Plan, start: Cursor, batches: int) -> Cursor:
    """Return the cursor so many batches further on, maybe at the end of the iteration."""
    if not (plan.plain and plan.counted):
        raise OptionError("where batches end is not known before they are read")
    over = batches == count_batches(plan, start)
    following = Cursor(epoch=start.first_epoch + (plan.repeat or 1))
    return following if over else advanced(plan, start, batches)


def advanced(plan: Plan, start: Cursor, batches: int) -> Cursor:
    """Return the cursor ``batches`` batches further on, in a plain plan."""
    count = count_batches(plan, start)
    if count is not None and batches > count:
        raise OptionError(f"state(batches={batches}): there are {count:,} in this iteration")
    while batches and batches >= (rest := batches_left(plan, start)):
        batches -= rest
        start = start.following(plan.repeat)
    if not batches:
        return start
    passed = max(0, plan.batch_slice.skip - start.given) + batches
    at = start.at + passed * plan.groups.block
    return start._replace(at=at, given=start.given + passed)
