"""Copies of tensors to a device; to a GPU, on a stream of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def copies_to(device: Any) -> Copies:
    """Return what copies tensors to a device."""
    return _CudaCopies(device) if device.type == "cuda" else Copies(device)


class Copies:
    """Copies tensors to a device other than an NVIDIA GPU."""

    def __init__(self, device: Any) -> None:
        self.device = device

    @contextmanager
    def of_batch(self) -> Iterator[Copy]:
        """Copy the tensors of a batch in this context, with the object it gives."""
        yield Copy(self.device)

    def wait(self) -> None:
        """Wait until all copies are made."""


class Copy:
    """Copies the tensors of one batch."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __call__(self, tensor: Any) -> Any:
        """Begin to copy a tensor."""
        return tensor.to(self._device)

    def made(self, tensor: Any) -> Any:
        """Return a tensor that was made on the device, to be part of the batch."""
        return tensor

    def finish(self) -> None:
        """Make the copies usable for what the caller does next."""


class _CudaCopies(Copies):
    """Copies tensors to a GPU on a stream of its own."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)
        # The memory that the GPU reads from, until the event.
        self._read: deque[tuple[Any, list[Any]]] = deque()

    @contextmanager
    def of_batch(self) -> Iterator[Copy]:
        while self._read and self._read[0][0].query():
            self._read.popleft()
        copy = _CudaCopy(self.device, self._stream)
        try:
            with torch.cuda.stream(self._stream):
                yield copy
        finally:
            copy.event.record(self._stream)
            self._read.append((copy.event, copy.sources))

    def wait(self) -> None:
        self._stream.synchronize()
        self._read.clear()


class _CudaCopy(Copy):
    def __init__(self, device: Any, stream: Any) -> None:
        super().__init__(device)
        self._stream = stream
        self.event = torch.cuda.Event()
        self.sources: list[Any] = []
        self._tensors: list[Any] = []

    def __call__(self, tensor: Any) -> Any:
        tensor = tensor.pin_memory()  # does nothing if it is
        self.sources.append(tensor)
        return self.made(tensor.to(self._device, non_blocking=True))

    def made(self, tensor: Any) -> Any:
        self._tensors.append(tensor)
        return tensor

    def finish(self) -> None:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self.event)
        # The memory belongs to the other stream, and must not be used again before this one.
        for tensor in self._tensors:
            tensor.record_stream(current)
