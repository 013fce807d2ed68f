"""A plan that is ready to run: its functions have been tried, so the types are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from recmap.errors import DataError, OptionError
from recmap.machine.cpus import thread_count
from recmap.model.field import Field
from recmap.model.nulls import TRAINING, refuse_nulls
from recmap.model.order import finite
from recmap.model.schema import Batch, Schema
from recmap.model.source import at_epoch
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.base import Block, Transform, prepared, run_transforms
from recmap.pipeline.transforms.batch import Group
from recmap.pipeline.transforms.filter import Filter, KeepRows
from recmap.pipeline.transforms.map import MapBatch, take_turns
from recmap.pipeline.transforms.pad import padding_while_read
from recmap.pipeline.trial import Trial, read_block, tried, try_rows
from recmap.store.fetch import bytes_ahead

# Read at most this many blocks to find a batch to try functions of batches on.
_TRIED_BLOCKS = 64
# Read several small batches at once, up to this many bytes, rows and batches: handing one
# between threads costs as much as reading it. They share one buffer, so keeping one alive
# keeps all of them.
_TOGETHER_BYTES = 1 << 24
# Rows for each CPU, so that all of them have work.
_TOGETHER_ROWS = 1 << 13
_TOGETHER_BATCHES, _TOGETHER_PADDED = 64, 4
# Short rows that are joined are read many at a time, up to so many and so many bytes.
_SHORT_ROWS, _SHORT_BYTES = 1 << 15, 1 << 22
# Batches for each CPU that are padded while they are read: the size of their memory is known
# before it is allocated.
_TOGETHER_READ_PADDED = 4
# Blocks that a process which reads from a store may be asked for at a time.
_MOST_ASKED = 16
# Batches to make ahead of the loop, unless ``prefetch`` gives the number.
_PREFETCH = 2


@dataclass(frozen=True)
class ReadyPlan:
    """A plan, its transforms with known types, and what they made of the first rows."""

    plan: Plan
    transforms: tuple[Transform, ...]
    batch_transforms: tuple[Transform, ...]
    schema: Schema
    sample: Batch
    row_bytes: int

    @cached_property
    def batches_per_block(self) -> int:
        """Batches to read at once."""
        plan = self.plan
        if plan.groups.reads_several:
            return self._blocks_together
        if not plan.plain or plan.transforms or plan.mask is not None:
            return 1
        if plan.groups.by_cost is not None and self.batch_transforms:
            return 1
        if plan.workers is not None or plan.prefetch is not None:
            return 1
        # Functions are called for one batch at a time, when its turn comes.
        if plan.calls_user_code or any(each.drops for each in self.batch_transforms):
            return 1
        # Several ragged batches of a compressed file could take any amount of memory.
        dense = all(isinstance(column, np.ndarray) for column in self.sample.values())
        if plan.in_order and not dense:
            return 1
        size = plan.groups.mean_rows
        fitting = min(_TOGETHER_BYTES, plan.memory // 8) // max(1, self.row_bytes * size)
        return max(1, min(fitting, self._most_together, _TOGETHER_ROWS * thread_count() // size))

    @property
    def _blocks_together(self) -> int:
        """Blocks to read at once, if they are not batches."""
        plan = self.plan
        # Functions get the rows of one block, and compressed files could take any memory.
        if plan.in_order or self.transforms:
            return 1
        size = plan.groups.block
        fitting = min(_SHORT_BYTES, plan.memory // 8) // max(1, plan.rows.row_bytes() * size)
        return max(1, min(fitting, _SHORT_ROWS // size))

    @property
    def _most_together(self) -> int:
        if not self.batch_transforms:
            return _TOGETHER_BATCHES
        # The size of padded rows is an estimate, unless they are padded while they are read.
        reader = padding_while_read(self.plan.rows, self.batch_transforms)
        if reader is None or reader[2] == self.batch_transforms:
            return _TOGETHER_PADDED
        return min(_TOGETHER_BATCHES, _TOGETHER_READ_PADDED * thread_count())

    @cached_property
    def blocks_ahead(self) -> int:
        """Blocks to read and hand on ahead of the loop, within the memory limit."""
        plan = self.plan
        wanted = _PREFETCH if plan.prefetch is None else plan.prefetch
        if plan.workers is not None:
            wanted = max(wanted, 2 * plan.workers.count)
        elif plan.read_threads is not None:
            wanted = max(wanted, plan.read_threads)
        queues = 1 + plan.in_order + (not plan.plain and bool(self.batch_transforms))
        # Rows that are joined are smaller than what is made of them.
        row_bytes = plan.rows.row_bytes() if plan.groups.reads_several else self.row_bytes
        block_bytes = row_bytes * plan.groups.mean_rows * self.batches_per_block
        if plan.remote and plan.pool.kind == "processes" and plan.prefetch is None:
            # Each process fetches the rows of the blocks that it has been asked for.
            fetched = bytes_ahead(memory=plan.memory) // max(1, block_bytes)
            wanted = max(wanted, min(fetched, _MOST_ASKED * plan.pool.count))
        return max(1, min(wanted, plan.memory // queues // max(1, block_bytes) - 1))

    @property
    def block_memory(self) -> int:
        """Bytes that a block of several batches may take.

        More than was estimated, because rows differ, but not so much that a small batch that
        is kept alive holds much of the memory.
        """
        return min(self.plan.memory // (self.blocks_ahead + 2), 4 * _TOGETHER_BYTES)

    def remembering(self) -> ReadyPlan:
        """Return the plan with what is known of its filters, so that they are not run again.

        Later functions of many rows would see other rows together, and ``take`` and ``skip`` would
        count others, so those plans stay as they are.
        """
        kept, transforms = self.plan.kept, self.transforms
        known = kept is not None and kept.counted and not kept.varies
        seen = any(isinstance(each, MapBatch) for each in transforms)
        if kept is None or not known or seen or self.plan.row_slices:
            return self
        rows = kept.numbers(np.arange(finite(kept.count), dtype=np.int64))
        kept_rows = [
            KeepRows(each.name, rows) if isinstance(each, Filter) else each for each in transforms
        ]
        return replace(self, transforms=tuple(kept_rows))


def ready(plan: Plan) -> ReadyPlan:
    """Try the functions of a plan on the first rows."""
    plan.check_no_bucket()
    if plan.workers is not None and plan.workers.kind == "processes":
        plan.prepare(count=False)  # once, instead of in each of them
    take_turns(plan.user_functions)
    workers = plan.workers if plan.calls_user_code else None
    trial = tried(partial(_try, plan), (*plan.transforms, *plan.batch_transforms), workers)
    count = len(plan.transforms)
    transforms, batch_transforms = trial.transforms[:count], trial.transforms[count:]
    return ReadyPlan(
        plan, transforms, batch_transforms, trial.schema, trial.sample, trial.row_bytes
    )


def _try(plan: Plan) -> Trial:
    transforms, schema, sample = try_rows(plan.rows, plan.transforms)
    if not plan.groups.keeps_nulls:
        refuse_nulls(schema, TRAINING)
    schema = plan.groups.schema(schema)
    sample = _first_batch(plan, transforms, sample)
    batch_transforms: list[Transform] = []
    for transform in plan.batch_transforms:
        ready_one, schema = prepared(transform, schema, sample)
        batch_transforms.append(ready_one)
        sample = ready_one.apply(sample) if len(sample.positions) else sample
    batch = dict(sample.batch)
    if plan.mask is not None:
        batch, schema = _with_mask_field(plan.mask, batch, schema)
    size = sum(column.nbytes for column in batch.values())
    row_bytes = max(plan.rows.row_bytes(), size // max(1, len(sample.positions)))
    return Trial((*transforms, *batch_transforms), schema, batch, row_bytes)


def _with_mask_field(mask: str, batch: Batch, schema: Schema) -> tuple[Batch, Schema]:
    if mask in schema:
        raise OptionError(
            f'shard: there is already a column {mask!r}; give the mask another name: mask="real"'
        )
    real = np.ones(len(next(iter(batch.values()), ())), bool)
    return {**batch, mask: real}, Schema({**schema, mask: Field("bool")})


def _first_batch(plan: Plan, transforms: Sequence[Transform], sample: Block) -> Block:
    """Make a batch to try functions of batches on, like those they will get."""
    called = any(transform.calls_user_code for transform in plan.batch_transforms)
    # Where the first batch by cost ends is known only after a pass over all rows.
    if not called or plan.groups.by_cost is not None:
        batch = plan.groups.sampled(sample.batch)
        count = len(next(iter(batch.values()), ()))
        return replace(sample, batch=batch, positions=np.arange(count))
    group = _first_group(plan, transforms)
    if group is None:
        return replace(sample, positions=sample.positions[:0])
    return replace(sample, batch=group.batch, positions=group.numbers)


def _first_group(plan: Plan, transforms: Sequence[Transform]) -> Group | None:
    """Make the first batch, of a later epoch if those before it have none."""
    tried = 0
    for epoch in range(_TRIED_BLOCKS if plan.varies else 1):
        blocks = _blocks_of(plan, epoch, _TRIED_BLOCKS - tried)
        grouper = plan.groups.start()
        for block in blocks:
            tried += 1
            made, _ = run_transforms(block, transforms)
            for group in grouper.add(made.batch, made.positions):
                return group
        for group in grouper.flush():
            return group
        if tried >= _TRIED_BLOCKS:
            break
    return None


def _blocks_of(plan: Plan, epoch: int, most: int) -> Iterator[Block]:
    """Read the first blocks of an epoch, up to a bad row."""
    size = plan.groups.block
    share = plan.open_share if plan.open_ended else plan.share
    rows = at_epoch(plan.rows, epoch)
    for start in range(0, min(most * size, len(share)), size):
        positions = share.positions(start, start + size)
        positions = positions[positions < rows.up_to(int(positions[-1]) + 1)]
        if not len(positions):
            break
        try:
            yield read_block(rows, positions, epoch)
        except DataError:
            break  # make do with the rows before the bad one
