"""Tensors of columns: in the memory of a batch, or copied to a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from recmap.adapters.columns import unknown_dtype, without_dates
from recmap.model.ragged import Ragged

RaggedAs: TypeAlias = Literal["nested", "list", "parts"]
_Offsets: TypeAlias = npt.NDArray[np.int64]
Place: TypeAlias = Callable[[Any], Any]


class Parts(NamedTuple):
    """A ragged column: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Any
    offsets: Any


def as_tensors(
    columns: Mapping[str, Any], ragged: RaggedAs, place: Place | None = None
) -> dict[str, Any]:
    """Convert the columns of a batch, or the values of a row. Byte strings stay ``bytes``.

    ``place`` moves a tensor to where it is wanted.
    """
    # PyTorch can add and compare nested tensors only if they share one tensor of offsets.
    shared: list[tuple[_Offsets, Any]] = []
    move = place or _stays
    return {name: _converted(name, value, ragged, move, shared) for name, value in columns.items()}


def _stays(tensor: Any) -> Any:
    return tensor


def split_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a batch into rows of tensors, which are views of one tensor per column."""
    rows = [
        _converted(name, column, "list", _stays, [])
        if isinstance(column, Ragged)
        else as_tensor(name, column).unbind()
        for name, column in columns.items()
    ]
    return [dict(zip(columns, values, strict=True)) for values in zip(*rows, strict=True)]


def _converted(
    name: str, value: Any, ragged: RaggedAs, place: Place, shared: list[tuple[_Offsets, Any]]
) -> Any:
    if isinstance(value, bytes | str):
        return value
    if not isinstance(value, Ragged):
        return place(as_tensor(name, value))
    if value.is_bytes:
        return list(value)
    flat = value.flat
    if isinstance(flat, Ragged):  # PyTorch has no tensor with several ragged axes
        among_rows: list[tuple[_Offsets, Any]] = []
        return [_converted(name, row, ragged, place, among_rows) for row in value]
    values = place(as_tensor(name, flat))
    if ragged == "list":
        return list(torch.split(values, value.lengths.tolist()))
    offsets = _shared_offsets(value.offsets - value.offsets[0], place, shared)
    if ragged == "parts":
        return Parts(values, offsets)
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _shared_offsets(offsets: _Offsets, place: Place, shared: list[tuple[_Offsets, Any]]) -> Any:
    for known, tensor in shared:
        if np.array_equal(known, offsets):
            return tensor
    shared.append((offsets, place(torch.from_numpy(offsets))))
    return shared[-1][1]


def as_tensor(name: str, value: Any) -> Any:
    dtype = value.dtype
    if dtype.kind in "mM":  # PyTorch has no dates: they become integers
        return torch.from_numpy(_sharable(without_dates(name, value)))
    try:
        if dtype.kind == "V":
            # bfloat16 and similar: PyTorch has them, but from_numpy() does not accept them.
            bits = _sharable(np.asarray(value)).view(f"i{dtype.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, dtype.name))
        return torch.from_numpy(_sharable(value))
    except (AttributeError, TypeError) as e:
        raise unknown_dtype(name, "PyTorch", dtype) from e


def _sharable(array: Any) -> npt.NDArray[Any]:
    """Return an array that PyTorch can share memory with, copying only if necessary."""
    if array.flags.carray and array.dtype.isnative:  # most arrays are, and np.require is slow
        return np.asarray(array)
    dtype = array.dtype if array.dtype.kind == "V" else array.dtype.newbyteorder("=")
    return np.require(array, dtype, ["A", "C", "W"])


class Copies:
    """Copies the tensors of batches to a device; to an NVIDIA GPU, on a stream of its own."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        # The memory that the GPU reads from, until the event.
        self._read: deque[tuple[Any, list[Any]]] = deque()

    @contextmanager
    def of_batch(self) -> Iterator[Copy]:
        """Copy the tensors of a batch in this context, with the object it gives."""
        if self._stream is None:
            yield Copy(self._device, None)
            return
        while self._read and self._read[0][0].query():
            self._read.popleft()
        event = torch.cuda.Event()
        copy = Copy(self._device, event)
        try:
            with torch.cuda.stream(self._stream):
                yield copy
        finally:
            event.record(self._stream)
            self._read.append((event, copy.sources))

    def wait(self) -> None:
        """Wait until all copies are made."""
        if self._stream is not None:
            self._stream.synchronize()
            self._read.clear()


class Copy:
    """Copies the tensors of one batch. To a GPU, they are made once the ``event`` happens."""

    def __init__(self, device: Any, event: Any) -> None:
        self._device, self._event = device, event
        self.sources: list[Any] = []
        self._tensors: list[Any] = []

    def __call__(self, tensor: Any) -> Any:
        """Begin to copy a tensor."""
        if self._event is None:
            return tensor.to(self._device)
        tensor = tensor.pin_memory()  # does nothing if it is
        self.sources.append(tensor)
        return self.made(tensor.to(self._device, non_blocking=True))

    def made(self, tensor: Any) -> Any:
        """Return a tensor that was made on the device, to be part of the batch."""
        self._tensors.append(tensor)
        return tensor

    def finish(self) -> None:
        """Make the copies usable for what the caller does next."""
        if self._event is None:
            return
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._event)
        # The memory belongs to the other stream, and must not be used again before this one.
        for tensor in self._tensors:
            tensor.record_stream(current)
