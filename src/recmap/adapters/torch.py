"""``to_torch``: rows or batches as PyTorch datasets, of tensors that share the batches' memory."""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from multiprocessing.context import get_spawning_popen
from types import FrameType
from typing import Any, Never, Self, TypeAlias

import numpy as np

from recmap.adapters.columns import FeaturesAndLabels, Names
from recmap.adapters.feed import ExternalReader, Feed, HandedOut, LoaderWorkers, check_on_host
from recmap.adapters.resumable import (
    PlacedBatches,
    Resumable,
    check_prefetch,
    check_workers,
    counted,
    loaded_state,
)
from recmap.adapters.trainer_habits import (
    ahead_when_saved,
    check_lightning_saves,
    check_not_skipped,
    epoch_in_lightning,
    epoch_of_prepared,
    has_fetched,
    has_several,
    is_in_epoch,
    is_prepared_by_accelerate,
    loop_of_lightning,
    loop_that_fetches,
    refuse_batch_too_many,
    refuse_other_ranks,
    refuse_other_steps,
    refuse_second_batching,
    refuse_second_division,
    refuse_several_uncounted,
    refuse_shared_stream,
    refuse_state_ahead,
    refuse_state_of_prepared,
    repeats_batches,
    takes_batch_ahead,
    warn_of_place_not_saved,
)
from recmap.errors import MissingPackageError, OptionError, RowNotFoundError
from recmap.model.arguments import check_choice
from recmap.model.iteration import Iteration
from recmap.model.ragged import Ragged
from recmap.model.source import at_epoch

try:
    import torch
except ImportError as e:
    raise MissingPackageError("to_torch() needs PyTorch", extra="torch") from e

# These need PyTorch, too.
from recmap.adapters.torch_images import DeviceImages, check_devices
from recmap.adapters.torch_tensors import Copies, RaggedAs, as_tensors, split_rows

#: How PyTorch names a device.
Device: TypeAlias = "str | int | torch.device"

# What to use instead of pipeline.state() if the pipeline was not read in this process.
_USE_LOADER_STATE = (
    "the workers of a DataLoader read copies of this pipeline, and only they know where they are; "
    "use {}the state_dict() of torchdata's StatefulDataLoader, or "
    "num_workers=0 with map(..., workers=n)"
)
_USE_SAMPLER_STATE = (
    "rows were read by number, in the order of a sampler, and only the sampler can resume in the "
    "middle; use {}torchdata's StatefulDataLoader, or put batch(n) before to_torch()"
)


def to_torch(
    feed: Feed,
    features: Names,
    label: Names,
    ragged: RaggedAs,
    device: Device | None,
    prefetch: int,
    pin_memory: bool,
) -> TorchRows | TorchStream | TorchBatches:
    """Return a dataset of rows by number if possible, else a stream of rows or batches.

    With ``device``, return batches on it.
    """
    check_choice("ragged", ragged, ("nested", "list", "parts"))
    chosen = FeaturesAndLabels.choose(feed.sample(), features, label, mask=feed.mask)
    if device is not None:
        check_prefetch(feed, prefetch, "to_torch(device=...)")
        return TorchBatches(feed, chosen, ragged, _as_device(device), prefetch)
    check_on_host(feed, "to_torch() without device=")
    if not feed.numbered:
        return TorchStream(feed, chosen, ragged, pin_memory)
    if pin_memory:
        raise OptionError("to_torch(pin_memory=True) gives batches; put batch(n) before it")
    if feed.resumed:
        raise OptionError(
            "to_torch(): rows by number come in the order of a sampler, and only the sampler can "
            "resume in the middle; leave restore() out, or put batch(n) before to_torch() for a "
            "stream that continues from a state"
        )
    return TorchRows(feed, chosen, ragged)


class TorchRows(torch.utils.data.Dataset):  # type: ignore[misc]  # untyped
    """Rows by number, for a ``DataLoader`` and its samplers.

    ``dataset[7]`` is a row. ``dataset[[7, 3, 5]]`` is a batch that is read at once; a
    ``BatchSampler`` passed as ``sampler=`` requests rows this way.
    """

    def __init__(self, feed: Feed, chosen: FeaturesAndLabels, ragged: RaggedAs) -> None:
        self._rows, self._chosen, self._ragged = feed.rows(), chosen, ragged
        self._count = len(self._rows)
        # Shared, so that persistent workers see it change.
        self._epoch = _shared(feed.epoch)
        self._reads = ExternalReader(_shared(0, 0), _USE_SAMPLER_STATE)
        self._counted = False
        feed.read_by(self._reads)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the shuffle order and the random numbers of ``map``."""
        self._epoch[0] = epoch

    def __len__(self) -> int:
        caller = sys._getframe(1)  # noqa: SLF001
        refuse_other_steps(caller)
        epoch = epoch_of_prepared(caller)
        if epoch is not None:
            self.set_epoch(epoch)
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list | tuple | range) or getattr(index, "ndim", False):
            return self._chosen.arrange(as_tensors(self._gather(index), self._ragged))
        return self.__getitems__([int(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read several rows at once."""
        return [self._chosen.arrange(row) for row in split_rows(self._gather(indices))]

    def _gather(self, indices: Sequence[int]) -> dict[str, Any]:
        if not self._counted:
            self._reads.begin(None)
            self._counted = True
        positions = np.asarray(indices, np.int64).reshape(-1)
        positions = np.where(positions < 0, positions + self._count, positions)
        wrong = (positions < 0) | (positions >= self._count)
        if wrong.any():
            number = int(np.asarray(indices).reshape(-1)[wrong][0])
            raise RowNotFoundError(f"row {number:,} is out of range: there are {self._count:,}")
        batch = at_epoch(self._rows, int(self._epoch[0])).gather(positions)
        return {name: batch[name] for name in self._chosen.names}


class _ForTrainers(Resumable, torch.utils.data.IterableDataset):  # type: ignore[misc]  # untyped
    """What the trainers of PyTorch look for in what they iterate over."""

    _prepared = False  # Accelerate has set the epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. By default, each iteration is the next epoch.

        An iteration that was going to resume in this epoch still does.
        """
        caller = sys._getframe(1)  # noqa: SLF001
        prepared, self._prepared = self._prepared, is_prepared_by_accelerate(caller)
        if self._prepared and not prepared and self._feed.varies:
            warn_of_place_not_saved(caller, counted=self._is_counted)
        if (self._feed.world or 1) > 1:
            refuse_second_division(caller)
        if (loop := loop_of_lightning(caller)) is None:
            super().set_epoch(epoch)
        else:
            self._begin_in_lightning(loop, epoch)

    def _begin_in_lightning(self, loop: Any, epoch: int) -> None:
        refuse_shared_stream(loop, self._feed)
        epoch = epoch_in_lightning(loop, epoch)
        self._follow()
        # A shorter stream of several begins again within an epoch of Lightning.
        continues = has_several(loop) and is_in_epoch(loop)
        if continues:
            refuse_several_uncounted(counted=self._is_counted)
        refuse_batch_too_many(loop, alone=self._is_counted and not has_several(loop))
        if self._began == epoch and has_fetched(loop):
            return  # its first batch was taken already
        if repeats_batches(loop):
            if not is_in_epoch(loop):
                self.epoch = 0
        elif continues and self._after is not None:
            super().set_epoch(max(epoch, self._after if self._over is None else self._over))
        elif has_several(loop):
            self.epoch = epoch
        else:
            super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch requested from this process.

        The state after the last batch of an epoch is the beginning of the next one.
        """
        caller = sys._getframe(1)  # noqa: SLF001
        if self._prepared:
            refuse_state_ahead(caller)
        ahead = ahead_when_saved(caller)
        return self._with_epoch(self.state(self._feed.given - ahead if ahead else None))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next iteration continue from a state."""
        refuse_state_of_prepared(sys._getframe(1))  # noqa: SLF001
        loaded = loaded_state(state_dict)
        super().load_state_dict(loaded)
        if self._feed.resumed:
            saved, now = loaded["state"]["world"], self._feed.world or 1
            refuse_other_ranks(sys._getframe(1), saved, now)  # noqa: SLF001

    @property
    def _is_counted(self) -> bool:
        try:
            return len(self._feed) >= 0
        except TypeError:
            return False

    def _check_iteration(self, caller: FrameType) -> None:
        """Find out who iterates, and raise if rows would be lost."""
        loop = loop_that_fetches(caller)
        if loop is not None and self._after is None and not self._is_counted:
            # Lightning takes the first batch before it says which epoch begins.
            self.epoch = 0 if repeats_batches(loop) else loop.epoch_progress.current.processed
        check_not_skipped(caller, resumed=self._feed.resumed, varies=self._feed.varies)

    def continue_iteration(self) -> None:
        """Make the next iteration the rest of the one that was loaded, even if nothing is left."""
        self._follow()
        if self._over is not None:
            self.set_epoch(self._over)

    def __len__(self) -> int:
        check_lightning_saves(sys._getframe(1))  # noqa: SLF001
        return len(self._feed)

    @property
    def sampler(self) -> Self:
        """This itself: Lightning tells the sampler of what it iterates over which epoch begins."""
        return self

    @property
    def batch_sampler(self) -> None:
        """Nothing: Lightning asks whatever has a sampler for one of batches, too."""


class TorchStream(_ForTrainers):
    """Batches, or rows, in order. Each iteration is the next epoch.

    The workers of a ``DataLoader`` take turns, so the batches and their order do not depend on
    the number of workers. Each worker has a copy of this object and reads its own part of the
    feed.
    """

    def __init__(
        self, feed: Feed, chosen: FeaturesAndLabels, ragged: RaggedAs, pin_memory: bool
    ) -> None:
        self._feed, self._chosen, self._ragged = feed, chosen, ragged
        self._pin_memory = pin_memory and torch.cuda.is_available()
        self._reading = feed  # what an iteration reads: in a worker, its part
        self._iterations = 0  # begun by this process, if it is a worker
        self._loaded: Mapping[str, Any] | None = None  # the state that a worker resumes from
        self._reads = ExternalReader(_shared(0, 0), _USE_LOADER_STATE)
        feed.share_with_workers()
        feed.read_by(self._reads)

    def __iter__(self) -> Iterator[Any]:
        if self._feed.batched:
            refuse_second_batching(sys._getframe(1).f_locals.get("self"))  # noqa: SLF001
        self._check_iteration(sys._getframe(1))  # noqa: SLF001
        info = torch.utils.data.get_worker_info()
        if self._loaded is not None:
            check_workers(self._loaded, 0 if info is None else info.num_workers)
        if info is None:
            batches: Iterable[dict[str, Any]] = self._feed
            if takes_batch_ahead(sys._getframe(1)):  # noqa: SLF001
                handed_out = HandedOut()
                batches = counted(self._feed.read_ahead(handed_out), handed_out, ahead=True)
            return self._iteration(chain(self._begun(), batches, self._ended()))
        if self._pin_memory:
            raise OptionError(
                "to_torch(pin_memory=True) in a worker of a DataLoader, which may not use the GPU; "
                "leave it out, and use DataLoader(..., pin_memory=True)"
            )
        # A loader asks its workers for batches as soon as it has started them.
        return self._iteration(self._begun_in_worker(info))

    def _iteration(self, batches: Iterable[dict[str, Any]]) -> _Tensors:
        made = _Tensors(self._tensors, Iteration(iter(batches)))
        made.stream = self
        return made

    def _begun(self) -> Iterator[Never]:
        """Note that an iteration begins, when its first batch is asked for."""
        self._feed.warn_if_unsharded()
        self._begin(self._feed.first_epoch)
        yield from ()

    def _ended(self) -> Iterator[Never]:
        """Note that an iteration has ended, after its last batch."""
        self._began = None
        yield from ()

    def _begun_in_worker(self, info: Any) -> Iterable[dict[str, Any]]:
        loaded, self._loaded = self._loaded or {}, None
        workers = _own_workers(info, self._iterations)
        self._iterations += 1
        feed = self._feed.part_of_worker(info.id, workers, loaded.get("state"), loaded.get("epoch"))
        epoch = loaded.get("epoch", feed.first_epoch)
        self._reading = feed
        self._begin(epoch)
        if info.id == 0:
            if not self._reads.begun():
                self._feed.warn_if_unsharded()
            self._reads.begin(None if loaded else epoch)
        # This worker may have finished its part before the others. Its own state is then
        # already in the next iteration, and nothing is left for it in this one.
        return feed if epoch == feed.first_epoch else ()

    def _tensors(self, columns: dict[str, Any]) -> Any:
        wanted = {name: columns[name] for name in self._chosen.names}
        # PyTorch keeps memory of its own until a copy to the GPU has ended.
        place = torch.Tensor.pin_memory if self._pin_memory else None
        return self._chosen.arrange(as_tensors(wanted, self._ragged, place))

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch requested, or after ``batches`` of this iteration.

        If the workers of a loader have read them, only they know the last one.
        """
        return self._reading.state(batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch requested from this process.

        The state after the last batch of an epoch is the beginning of the next one.
        ``StatefulDataLoader`` collects the states of its workers.
        """
        if self._loaded is not None:
            return {**self._loaded, "state": json.dumps(self._loaded["state"])}
        info = torch.utils.data.get_worker_info()
        return {**super().state_dict(), "workers": 0 if info is None else info.num_workers}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next iteration continue from a state."""
        loaded = loaded_state(state_dict)
        if loaded["workers"] or torch.utils.data.get_worker_info() is not None:
            self._loaded = loaded
        else:
            super().load_state_dict(loaded)

    def _forget(self) -> None:
        super()._forget()
        self._reading, self._loaded = self._feed, None

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:  # a spawned worker may not know its rank
            self._feed.warn_if_unsharded()
        return {**self.__dict__, "_reading": self._feed, "_began": None}


class _LoaderIteration:
    """An iteration of a stream. ``StatefulDataLoader`` saves and resumes iterations.

    If it has saved one after its last batch, it wants the rest, which is nothing, and not the
    next epoch.
    """

    stream: _ForTrainers

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        del state_dict  # the stream has its own
        self.stream.continue_iteration()


class _Tensors(_LoaderIteration, map):  # type: ignore[type-arg]  # of anything
    pass


class _Placed(_LoaderIteration, Iteration[Any]):
    pass


class TorchBatches(_ForTrainers, PlacedBatches):
    """Batches of tensors on a device. Each iteration is an epoch.

    The memory that batches are read into is page-locked, and a GPU copies from it on a stream
    of its own, while the loop works on batches before it. A batch's memory is used again once
    the GPU is done with it.
    """

    def __init__(
        self, feed: Feed, chosen: FeaturesAndLabels, ragged: RaggedAs, device: Any, prefetch: int
    ) -> None:
        super().__init__(feed, chosen, prefetch, device.index if device.type == "cuda" else None)
        self._ragged = ragged
        self._images = _device_images(feed, chosen, device)
        self._copies = Copies(device)
        weakref.finalize(self, self._copies.wait).atexit = False

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise OptionError(
                "to_torch(device=...) in a worker of a DataLoader, which may not use the device; "
                "iterate over it directly: it reads ahead by itself"
            )
        caller = sys._getframe(1)  # noqa: SLF001
        refuse_second_batching(caller.f_locals.get("self"))
        self._check_iteration(caller)
        made = _Placed(self._counted(ahead=takes_batch_ahead(caller)))
        made.stream = self
        return made

    def _place(self, columns: dict[str, Any]) -> Any:
        wanted = {name: columns[name] for name in self._chosen.names if name not in self._images}
        with self._copies.of_batch() as copy:
            tensors = as_tensors(wanted, self._ragged, copy)
            for name, images in self._images.items():
                tensors[name] = copy.made(images.made(columns, copy))
            return self._chosen.arrange(tensors), copy

    def _finished(self, placed: Any) -> Any:
        batch, copy = placed
        copy.finish()
        return batch


def _device_images(feed: Feed, chosen: FeaturesAndLabels, device: Any) -> dict[str, DeviceImages]:
    """Return what makes the columns of images that are decoded or cropped on the device."""
    wanted = {n: images for n, images in feed.images_on_device.items() if n in chosen.names}
    check_devices(wanted, device)
    first = feed.sample()
    return {
        name: DeviceImages(images, device, encoded=isinstance(first[name], Ragged))
        for name, images in wanted.items()
    }


def _as_device(device: Device) -> Any:
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError) as e:
        raise OptionError(f"device={device!r}: PyTorch cannot use it: {e}") from e
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


def _shared(*numbers: int) -> Any:
    """Return integers in memory that this process shares with its workers."""
    return torch.tensor(numbers).share_memory_()


def _own_workers(info: Any, iterations: int) -> LoaderWorkers:
    """Return the workers that this process is one of, after it has begun some iterations."""
    parent = multiprocessing.parent_process()
    # Processes are numbered in the order in which they are started: Process-1, Process-2:5.
    number = re.search(r"\d+$", multiprocessing.current_process().name)
    return LoaderWorkers(
        parent=0 if parent is None or parent.pid is None else parent.pid,
        size=info.num_workers,
        seed=info.seed - info.id,
        first=int(number[0] if number else 0) - info.id,
        before=iterations,
    )
