"""A stream read by one loader after another, compared with lists of the batches of each epoch."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import recmap as rm
from hostile.case import Case

__all__ = ["case"]

Batches = list[list[int]]
Place = tuple[int, int]  # an epoch, and the batches of it that were given
_ALL = 1 << 30  # more batches than an epoch has


@dataclass
class Reader:
    """A stream, and where lists say it is."""

    rows: int
    size: int
    drop_last: bool
    seed: int
    shard: tuple[int, int]
    next: Place = (0, 0)
    #: Where state_dict() is; None if workers have read last.
    state: Place | None = (0, 0)
    #: The epoch whose last batch the stream gave last, without being asked for another one.
    ended: int | None = None
    #: Such an epoch of the state that was loaded, until another is read or chosen.
    over: int | None = None

    def __post_init__(self) -> None:
        self.rebuild()

    def rebuild(self) -> None:
        self.pipeline = self._built()
        self.stream: Any = self.pipeline.to_torch()

    def _built(self) -> rm.Stream:
        rows = rm.from_arrays({"row": np.arange(self.rows)}).shuffle(seed=self.seed)
        return rows.batch(self.size, drop_last=self.drop_last).shard(*self.shard)

    def epoch(self, number: int) -> Batches:
        """Return the batches of an epoch; recmap chooses the order of the rows."""
        order = rm.from_arrays({"row": np.arange(self.rows)}).shuffle(seed=self.seed)
        order.epoch = number
        if Counter(int(row["row"]) for row in order) != Counter(range(self.rows)):
            raise AssertionError(f"epoch {number} is no permutation")
        alone = self._built()
        alone.epoch = number
        return _rows(alone)

    def loader(self, workers: int, **how: Any) -> Any:
        return DataLoader(self.stream, batch_size=None, num_workers=workers, **how)

    def choose(self, place: Place) -> None:
        self.next = self.state = place
        self.over = self.ended = None

    def given(self, count: int | None, *, here: bool, by_stream: bool = True) -> Batches:
        """Return what the next iteration gives, if ``count`` batches are taken, and move on."""
        epoch, before = self.next
        left = self.epoch(epoch)[before:]
        taken = left if count is None else left[:count]
        self.next = (epoch + 1, 0)
        over = len(taken) == len(left)
        ended = here and by_stream and count == len(left)
        self.over, self.ended = None, epoch if ended else None
        self.state = None
        if here:
            self.state = self.next if over else (epoch, before + len(taken))
        return taken


def _rows(batches: Any) -> Batches:
    return [np.asarray(batch["row"]).tolist() for batch in batches]


def case(case: Case) -> None:
    reader = Reader(
        rows=case.pick([1, 4, 13, 30]),
        size=case.pick([1, 3, 4, 7]),
        drop_last=case.chance(0.3),
        seed=case.between(0, 9),
        shard=case.pick([(0, 1), (0, 1), (0, 2), (1, 2)]),
    )
    case.note(str(reader))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than CPUs
        for _ in range(case.between(2, 7)):
            action = case.pick([_load, _load, _two_loaders, _iterate, _choose, _save])
            action(case, reader)


def _compare(found: Batches, wanted: Batches, where: str) -> None:
    if found != wanted:
        raise AssertionError(f"{where}: {found}, but lists give {wanted}")


def _load(case: Case, reader: Reader) -> None:
    """Read an epoch, or its beginning, with some workers."""
    workers, count = case.between(0, 3), case.pick([None, None, 1, 2])
    how: dict[str, Any] = {}
    if workers:
        how = {"persistent_workers": case.chance(0.3), "prefetch_factor": case.between(1, 3)}
    epochs = case.between(1, 2) if count is None else 1
    if case.chance(0.4):
        torch.manual_seed(0)  # such loaders have the same seed
    case.note(f"{epochs} epochs of {workers} workers {how}, {count or 'all'} batches")
    loader = reader.loader(workers, **how)
    for _ in range(epochs):
        found = _rows(loader if count is None else islice(loader, count))
        _compare(found, reader.given(count, here=not workers), f"{workers} workers")


def _two_loaders(case: Case, reader: Reader) -> None:
    """Begin one loader, read another, then read the rest of the first."""
    first, second = case.between(1, 2), case.between(1, 2)
    case.note(f"{first} workers around {second}")
    outside = iter(reader.loader(first))
    found = _rows(islice(outside, 1))
    wanted = reader.given(None, here=False)
    if not found:
        _compare(found, wanted, "the outer loader")
        return
    _compare(_rows(reader.loader(second)), reader.given(None, here=False), "the inner loader")
    _compare(found + _rows(outside), wanted, "the outer loader")


def _iterate(case: Case, reader: Reader) -> None:
    """Read directly: the stream or the pipeline, all or some, or nothing at all."""
    source = case.pick([reader.stream, reader.pipeline])
    count = case.pick([None, None, 0, 1, 2])
    case.note(f"directly from {type(source).__name__}, {'all' if count is None else count}")
    batches = iter(source)
    if count == 0:
        return
    found = _rows(batches if count is None else islice(batches, count))
    wanted = reader.given(count, here=True, by_stream=source is reader.stream)
    _compare(found, wanted, "directly")


def _choose(case: Case, reader: Reader) -> None:
    epoch = case.between(0, 3)
    if case.chance(0.7):
        case.note(f"set_epoch({epoch})")
        reader.stream.set_epoch(epoch)
        if epoch == reader.over:
            reader.choose((epoch, _ALL))
            return
        if epoch == reader.next[0]:
            reader.over = reader.ended = None
            return
    else:
        case.note(f"epoch = {epoch}")
        reader.pipeline.epoch = epoch
    reader.choose((epoch, 0))


def _save(case: Case, reader: Reader) -> None:
    """Save a state, and continue in a new pipeline."""
    case.note("state_dict")
    if reader.state is None:
        try:
            reader.stream.state_dict()
        except rm.OptionError:
            return
        raise AssertionError("a state while workers read")
    state = json.loads(json.dumps(reader.stream.state_dict()))
    ended = reader.over if reader.ended is None else reader.ended
    reader.ended = None
    reader.rebuild()
    reader.stream.load_state_dict(state)
    epoch, before = reader.state
    if before == _ALL:  # nothing is left of an epoch, so the next one begins
        reader.state, ended = (epoch + 1, 0), epoch
    reader.next, reader.over = reader.state, ended
    if case.chance(0.5):
        reader.over = None
        reader.stream.set_epoch(reader.next[0])  # as Accelerate does
