"""``to_jax``: batches as arrays on JAX devices."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy.typing as npt

from recmap.adapters.columns import (
    FeaturesAndLabels,
    Names,
    as_native,
    refuse_ragged,
    unknown_dtype,
)
from recmap.adapters.feed import Feed, State
from recmap.errors import FieldNotFoundError, MissingPackageError, OptionError
from recmap.model.schema import Batch

try:
    import jax
except ImportError as e:
    raise MissingPackageError("to_jax() needs JAX: pip install recmap[jax]") from e

__all__ = ["JaxBatches", "to_jax"]


def to_jax(feed: Feed, sharding: Any, prefetch: int, features: Names, label: Names) -> JaxBatches:
    """Return the batches of a feed as arrays on JAX devices."""
    if not feed.batched:
        raise OptionError("to_jax() gives batches; put batch(n) before it")
    if prefetch < 0:
        raise OptionError(f"prefetch={prefetch}: give the batches to put on devices ahead, or 0")
    sample = feed.sample()
    chosen = FeaturesAndLabels.choose(sample, features, label)
    for name in chosen.names:
        refuse_ragged(name, sample[name], "JAX has no byte strings")
    if isinstance(sharding, Mapping):
        for name in sharding:
            if name not in chosen.names:
                raise FieldNotFoundError(
                    f"sharding: no column {name!r}; there are: {', '.join(chosen.names)}"
                )
    _warn_of_narrowing(sample, chosen.names)
    return JaxBatches(feed, chosen, sharding, prefetch)


# A batch on its devices, and the state after it.
_Placed: TypeAlias = tuple[Any, dict[str, Any]]


class JaxBatches:
    """Batches on JAX devices. Each iteration is an epoch.

    Up to ``prefetch`` batches are put on devices in advance. ``state()`` still refers to
    the last batch that was returned.
    """

    def __init__(self, feed: Feed, chosen: FeaturesAndLabels, sharding: Any, prefetch: int) -> None:
        self._feed, self._chosen = feed, chosen
        self._sharding, self._prefetch = sharding, prefetch
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._feed)
        self._state = self._feed.state()
        return self._prefetched(batches)

    def state(self) -> dict[str, Any]:
        """Return the state after the last batch returned, like ``Pipeline.state()``."""
        return self._feed.state() if self._state is None else self._state

    def restore(self, state: State) -> JaxBatches:
        """Make the next iteration continue from a state."""
        self._feed.restore(state)
        self._state = None
        return self

    def _prefetched(self, batches: Iterator[dict[str, Any]]) -> Iterator[Any]:
        ahead: deque[_Placed] = deque()
        placed = map(self._place, batches)
        try:
            while batch := list(islice(placed, 1)):
                ahead.append((batch.pop(), self._feed.state()))
                if len(ahead) > self._prefetch:
                    yield self._hand_out(ahead)
        except Exception:
            # First yield the batches made before the failure, as without prefetching.
            yield from self._hand_out_all(ahead)
            raise
        yield from self._hand_out_all(ahead)

    def _hand_out_all(self, ahead: deque[_Placed]) -> Iterator[Any]:
        while ahead:
            yield self._hand_out(ahead)

    def _hand_out(self, ahead: deque[_Placed]) -> Any:
        # A separate function: a local variable in the generator would keep the batch alive
        # until the next one is requested.
        batch, self._state = ahead.popleft()
        return batch

    def _place(self, columns: dict[str, Any]) -> Any:
        names = self._chosen.names
        return self._chosen.arrange({name: self._on_device(name, columns[name]) for name in names})

    def _on_device(self, name: str, column: npt.NDArray[Any]) -> Any:
        sharding = self._sharding
        if isinstance(sharding, Mapping):
            sharding = sharding.get(name)
        array = as_native(column)
        if sharding is None:
            return jax.device_put(array)
        try:
            return jax.make_array_from_process_local_data(sharding, array)
        except ValueError as e:
            raise OptionError(
                f"column {name!r}: {array.dtype}{list(array.shape)} cannot be laid out as "
                f"{sharding}: {e} (batch(n, drop_last=True) leaves out a smaller last batch; "
                'columns may differ: sharding={"x": ..., "y": ...})'
            ) from e


def _warn_of_narrowing(sample: Batch, names: list[str]) -> None:
    """Warn about columns that JAX converts to fewer bits."""
    narrowed = []
    for name in names:
        array: Any = sample[name]
        if _dtype_on_device(name, array) != as_native(array).dtype:
            narrowed.append(f"{name!r} ({array.dtype})")
    if narrowed:
        warnings.warn(
            "JAX keeps 32 bits of numbers unless jax_enable_x64 is set; cut to them: "
            f"{', '.join(narrowed)}",
            stacklevel=4,
        )


def _dtype_on_device(name: str, column: npt.NDArray[Any]) -> Any:
    array = as_native(column)
    try:
        return jax.device_put(array[:0]).dtype
    except TypeError as e:
        raise unknown_dtype(name, "JAX", array.dtype) from e
