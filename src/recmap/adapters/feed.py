"""The interface through which adapters read a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.field import Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source

#: A state as ``state()`` returns it, or a list with the states of all ranks.
State: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Feed(Protocol):
    """The batches of a pipeline, or its rows if it has no ``batch``.

    Each iteration runs one epoch (or several, with ``repeat``); the next one continues after it.
    An iteration begins when its first batch is asked for.
    """

    # The output.

    @property
    def schema(self) -> Schema: ...

    def sample(self) -> Batch:
        """Run the first rows through the pipeline, and return the resulting columns."""
        ...

    @property
    def images_on_device(self) -> Mapping[str, ImagesOnDevice]:
        """The columns of images that are to be decoded or cropped on a device."""
        ...

    @property
    def batched(self) -> bool:
        """Whether it yields batches rather than rows."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows per batch. The last batch may have fewer."""
        ...

    @property
    def fixed_batch_size(self) -> int | None:
        """Rows per batch if all batches have the same number, else None."""
        ...

    @property
    def end_to_end(self) -> bool:
        """Whether consecutive batches may be adjacent slices of the same arrays."""
        ...

    def __len__(self) -> int:
        """Return the number of batches, or rows, in an iteration. TypeError if it is unknown."""
        ...

    @property
    def mask(self) -> str | None:
        """The column that tells real rows from those that ``even="pad"`` repeats."""
        ...

    # Reading in order.

    @property
    def varies(self) -> bool:
        """Whether epochs differ, as after a shuffle."""
        ...

    @property
    def world(self) -> int | None:
        """The number of ranks that rows are dealt to; None without ``shard``."""
        ...

    def warn_if_unsharded(self) -> None:
        """Warn once if this rank, one of several, reads the rows of all."""
        ...

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def read_ahead(self, handed_out: HandedOut) -> Iterator[dict[str, Any]]:
        """Run an iteration for a reader that takes batches before its loop gets them.

        ``state()`` is then the state after those that were handed out.
        """
        ...

    def share_with_workers(self) -> None:
        """Let the workers that this process starts know which epoch is next."""
        ...

    def part_of_worker(
        self,
        index: int,
        workers: LoaderWorkers,
        state: Mapping[str, Any] | None = None,
        epoch: int | None = None,
    ) -> Feed:
        """Begin an iteration in one of several workers, and return its part.

        With ``state``, a state of such a part, resume an iteration that began with ``epoch``.
        """
        ...

    # Reading by number.

    @property
    def numbered(self) -> bool:
        """Whether rows can be read by number."""
        ...

    def rows(self) -> Source:
        """Return the rows, to read by number. OptionError if they have no numbers."""
        ...

    def batch_at(self, number: int, epoch: int) -> Batch:
        """Make one batch directly, without workers. OptionError if batches have no numbers."""
        ...

    @property
    def remote(self) -> bool:
        """Whether rows are fetched from a store, which a process that is forked cannot do."""
        ...

    @property
    def in_turn(self) -> bool:
        """Whether batches are slow to read out of order.

        They are if that leaves the pipeline's workers idle, or reads a compressed file from its
        start.
        """
        ...

    # The position.

    epoch: int
    """The epoch in which the next iteration begins or resumes. Can be set."""

    @property
    def first_epoch(self) -> int:
        """The first epoch of the next iteration, or of the iteration that it resumes."""
        ...

    @property
    def turns(self) -> int:
        """Epochs per iteration."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether the next iteration resumes an earlier one in the middle."""
        ...

    def left(self) -> int:
        """Return the number of batches, or rows, in the next iteration."""
        ...

    moves: int
    """How often the place of the next iteration was chosen, by epochs and states."""

    def choose_epoch(self, epoch: int) -> None:
        """Make the next iteration begin with an epoch, or resume in it if it already would."""
        ...

    def choose_rest_of(self, epoch: int) -> None:
        """Make the next iteration the rest of one that began with ``epoch``: no batch."""
        ...

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch, or after ``batches`` of this iteration."""
        ...

    @property
    def given(self) -> int:
        """Batches, or rows, of this iteration that the loop has got."""
        ...

    def restore(self, state: State, check: bool = True) -> Feed:
        """Make the next iteration continue from a state.

        With ``check``, refuse one of other data or verbs.
        """
        ...

    def later(self, state: Mapping[str, Any], batches: int) -> dict[str, Any]:
        """Return the state ``batches`` batches after one, on the rank that saved it."""
        ...

    def read_by(self, reader: ExternalReader) -> None:
        """Register a reader outside this pipeline, so that ``state()`` can take it into account."""
        ...


@dataclass
class HandedOut:
    """How many batches of an iteration a loop has got from a reader that reads ahead."""

    batches: int = 0


class LoaderWorkers(NamedTuple):
    """The worker processes of a loader, in one of its iterations."""

    #: The process that started them.
    parent: int
    size: int
    #: The seed that they have in common. Two loaders have the same one if the user chose it.
    seed: int
    #: The number of the first worker among the processes that ``parent`` has started.
    first: int
    #: How many iterations these processes have begun before.
    before: int

    def are_those(self, others: LoaderWorkers) -> bool:
        """Return whether both are the same workers in the same iteration.

        A worker finds ``first`` from its own number. That may be too large if the parent starts
        another process at the same time, but by less than another loader's.
        """
        near = abs(self.first - others.first) < self.size
        return near and self._replace(first=0) == others._replace(first=0)


class ImagesOnDevice(Protocol):
    """How to decode or crop a column of images on a device."""

    @property
    def device(self) -> Any:
        """The device, as the user named it."""
        ...

    @property
    def column(self) -> str: ...

    @property
    def field(self) -> Field:
        """The field of the images that are made."""
        ...

    @property
    def planes(self) -> bool:
        """Whether their channels come first."""
        ...

    @property
    def place_column(self) -> str | None:
        """The column with the position and the epoch of each row; None if nothing is random."""
        ...

    @property
    def crops(self) -> bool:
        """Whether images are cropped or mirrored."""
        ...

    def boxes(
        self, places: npt.NDArray[np.int64], height: int, width: int
    ) -> npt.NDArray[np.int64]:
        """Return what to keep of images of one size: top, left, height, width, and 1 to mirror."""
        ...

    @property
    def scaled(self) -> bool:
        """Whether levels of 0 to 255 become values of 0 to 1."""
        ...

    def is_sound_jpeg(self, data: bytes) -> bool:
        """Return whether this looks like a whole JPEG, of a kind that every decoder reads."""
        ...

    def sample_jpeg(self) -> bytes:
        """Make a JPEG that every decoder reads."""
        ...

    def decode_rows(
        self, strings: Ragged, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        """Decode some images on the CPU. ``places`` are those of all rows."""
        ...


def check_on_host(feed: Feed, what: str) -> None:
    """Refuse what needs decoded images if a device is to decode them."""
    for name, images in feed.images_on_device.items():
        raise OptionError(
            f"{what}: decode_image({name!r}, device={images.device!r}) decodes images when "
            f"to_torch(device={images.device!r}) places a batch; use that, or leave out device= "
            "in decode_image"
        )


class ExternalReader:
    """A reader that this process cannot observe, such as the workers of a PyTorch
    ``DataLoader``.

    It counts its iterations in ``shared``, an array of two integers that all processes see.
    ``instead`` is advice for the error message: what to use instead of ``state()``.
    """

    def __init__(self, shared: Any, instead: str) -> None:
        self._count_and_epoch, self.instead = shared, instead
        shared[0], shared[1] = 0, -1

    def begin(self, epoch: int | None) -> None:
        """Count another iteration. Its epoch is None if its batches have no order."""
        self._count_and_epoch[1] = -1 if epoch is None else epoch
        self._count_and_epoch[0] += 1

    def begun(self) -> int:
        """Return how many iterations have begun."""
        return int(self._count_and_epoch[0])

    def epoch(self) -> int | None:
        """Return the first epoch of the last iteration, or None if its batches have no order."""
        epoch = int(self._count_and_epoch[1])
        return None if epoch < 0 else epoch
