"""Pipelines as PyTorch's datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recmap.adapters.features_and_labels import Names, Pairs, as_pairs
from recmap.adapters.feed import Feed
from recmap.adapters.torch_tensors import RaggedAs, as_tensors, split_rows, torch
from recmap.errors import OptionError, RowNotFoundError
from recmap.model.arguments import check_choice

__all__ = ["TorchRows", "TorchStream", "to_torch"]

# Workers a loader may have, as far as epochs are counted for each.
_WORKERS = 1024


def to_torch(
    feed: Feed, features: Names, label: Names, ragged: RaggedAs
) -> TorchRows | TorchStream:
    """Rows by number where they have one, else a stream of rows or batches."""
    check_choice("ragged", ragged, ("nested", "list", "parts"))
    pairs = as_pairs(feed.sample(), features, label)
    if not feed.numbered:
        return TorchStream(feed, pairs, ragged)
    if feed.resumed:
        raise OptionError(
            "to_torch(): rows by number come in the order of a sampler, which alone can go on in "
            "the middle; leave restore() out, or put batch(n) before to_torch() for a stream that "
            "goes on from a state"
        )
    return TorchRows(feed, pairs, ragged)


class TorchRows(torch.utils.data.Dataset):  # type: ignore[misc]  # untyped
    """Rows by number, for a ``DataLoader`` and its samplers.

    ``dataset[7]`` is a row; ``dataset[[7, 3, 5]]``, which a ``BatchSampler`` as the
    ``sampler=`` asks for, is a batch that was read and made at once.
    """

    def __init__(self, feed: Feed, pairs: Pairs, ragged: RaggedAs) -> None:
        self._rows, self._pairs, self._ragged = feed.rows(), pairs, ragged
        assert self._rows.count is not None  # rows without end have no numbers
        self._count = self._rows.count
        # Shared, so that workers which live for several epochs see it change.
        self._epoch = torch.tensor([feed.epoch]).share_memory_()
        self._read, self._told = _Shared(_BY_NUMBER), False
        feed.read_by(self._read)

    def set_epoch(self, epoch: int) -> None:
        """Another order of a shuffle, other chances of a map; as of a DistributedSampler."""
        self._epoch[0] = epoch

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list | tuple | range) or getattr(index, "ndim", False):
            return self._pairs.of(as_tensors(self._take(index), self._ragged))
        return self.__getitems__([int(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several rows, read together."""
        return [self._pairs.of(row) for row in split_rows(self._take(indices))]

    def _take(self, indices: Sequence[int]) -> dict[str, Any]:
        if not self._told:
            self._read.begin(None)
            self._told = True
        positions = np.asarray(indices, np.int64).reshape(-1)
        positions = np.where(positions < 0, positions + self._count, positions)
        wrong = (positions < 0) | (positions >= self._count)
        if wrong.any():
            number = int(np.asarray(indices).reshape(-1)[wrong][0])
            raise RowNotFoundError(f"row {number:,} of {self._count:,}")
        batch = self._rows.gather(positions, int(self._epoch[0]))
        return {name: batch[name] for name in self._pairs.names}


class TorchStream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # untyped
    """Batches, or rows, as they come, each time in another epoch.

    The workers of a ``DataLoader`` take turns, so that the batches and their order are
    those of one process.
    """

    def __init__(self, feed: Feed, pairs: Pairs, ragged: RaggedAs) -> None:
        self._feed, self._pairs, self._ragged = feed, pairs, ragged
        # A worker ends with its epoch, so that nobody but the memory they share can
        # tell the one after it which is next. That holds until the pipeline is told
        # where to begin, which it counts: then its own place is newer.
        self._next = torch.zeros(_WORKERS, dtype=torch.int64).share_memory_()
        self._placed = torch.full([_WORKERS], -1).share_memory_()
        self._running: Feed | None = None
        self._begun = feed.first_epoch  # the epoch that what runs has begun with
        self._state: Mapping[str, Any] | None = None
        self._workers = _Shared(_BY_WORKERS)
        feed.read_by(self._workers)

    def set_epoch(self, epoch: int) -> None:
        """The epoch the next iteration is of; without it, they follow each other."""
        self._feed.epoch = epoch
        self._next.fill_(epoch)
        self._placed.fill_(self._feed.placed)
        self._running = self._state = None

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        # Begun here and now: loaders ask for the state before the first batch.
        info, feed = torch.utils.data.get_worker_info(), self._mine()
        state, self._state = self._state, None
        if state is not None:
            _check_workers(state, 0 if info is None else info.num_workers)
            feed.restore(state["state"])
        self._running, self._begun = feed, feed.first_epoch
        # This one may have read all of its part when another of the loader had not.
        over = state is not None and state.get("epoch", feed.first_epoch) != feed.first_epoch
        if over:
            assert state is not None
            self._begun = state["epoch"]
        if info is not None:
            if info.id == 0:
                self._workers.begin(None if state is not None else feed.first_epoch)
            self._next[info.id] = self._begun + feed.turns
            self._placed[info.id] = max(int(self._placed[info.id]), self._feed.placed)
        return iter(()) if over else map(self._tensors, iter(feed))

    def _tensors(self, columns: dict[str, Any]) -> Any:
        wanted = {name: columns[name] for name in self._pairs.names}
        return self._pairs.of(as_tensors(wanted, self._ragged))

    def _mine(self) -> Feed:
        """What this process reads, from the start of its next epoch."""
        info = torch.utils.data.get_worker_info()
        if info is None:
            return self._feed
        feed = self._feed.part(info.id, info.num_workers)
        if int(self._placed[info.id]) >= self._feed.placed:
            feed.epoch = int(self._next[info.id])
        elif not self._feed.resumed:
            feed.epoch = self._feed.epoch
        return feed

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch this process was asked for. ``StatefulDataLoader``
        collects those of its workers.
        """
        if self._state is not None:
            return dict(self._state)
        info = torch.utils.data.get_worker_info()
        running = self._mine() if self._running is None else self._running
        epoch = running.first_epoch if self._running is None else self._begun
        workers = 0 if info is None else info.num_workers
        return {"workers": workers, "epoch": epoch, "state": running.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on from there."""
        self._state = dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None}


# What to do instead of asking a pipeline for its state, when it was not read here.
_BY_WORKERS = (
    "the workers of a DataLoader read copies of this pipeline, which alone know where they are; "
    "use {}the state_dict() of torchdata's StatefulDataLoader, or "
    "num_workers=0 with map(..., workers=n)"
)
_BY_NUMBER = (
    "rows were read by number, in the order of a sampler, which alone can go on in the middle; "
    "use {}torchdata's StatefulDataLoader, or put batch(n) before to_torch()"
)


class _Shared:
    """Iterations that begin in other processes, counted in memory that all of them share."""

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._numbers = torch.tensor([0, -1]).share_memory_()

    def begin(self, epoch: int | None) -> None:
        """Another one begins; None if its batches do not come in turn."""
        self._numbers[1] = -1 if epoch is None else epoch
        self._numbers[0] += 1

    def begun(self) -> int:
        return int(self._numbers[0])

    def epoch(self) -> int | None:
        epoch = int(self._numbers[1])
        return None if epoch < 0 else epoch

    def instead(self) -> str:
        return self._instead


def _check_workers(state: Mapping[str, Any], workers: int) -> None:
    saved = state.get("workers")
    if saved != workers:
        raise OptionError(
            f"load_state_dict: saved with num_workers={saved}, and here are {workers}; what each "
            "worker has read is told by its own state only, so go on with as many"
        )
