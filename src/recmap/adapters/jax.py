"""Pipelines as arrays on the devices of JAX."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.adapters.features_and_labels import Names, Pairs, as_pairs
from recmap.adapters.feed import Feed
from recmap.errors import FieldNotFoundError, MissingPackageError, OptionError
from recmap.model.ragged import Ragged

try:
    import jax
except ImportError as e:
    raise MissingPackageError("to_jax() needs JAX: pip install recmap[jax]") from e

__all__ = ["JaxBatches", "to_jax"]


def to_jax(feed: Feed, sharding: Any, prefetch: int, features: Names, label: Names) -> JaxBatches:
    """Batches of arrays on devices."""
    if not feed.batched:
        raise OptionError("to_jax() gives batches; put batch(n) before it")
    if prefetch < 0:
        raise OptionError(f"prefetch={prefetch}: batches that are put on devices ahead, or 0")
    sample = feed.sample()
    pairs = as_pairs(sample, features, label)
    narrowed = [name for name in pairs.names if _checked(name, sample[name])]
    if isinstance(sharding, Mapping):
        for name in sharding:
            if name not in pairs.names:
                raise FieldNotFoundError(
                    f"sharding: no column {name!r}; there are: {', '.join(pairs.names)}"
                )
    if narrowed:
        names = ", ".join(f"{name!r} ({sample[name].dtype})" for name in narrowed)
        warnings.warn(
            f"JAX keeps 32 bits of numbers unless jax_enable_x64 is set; cut to them: {names}",
            stacklevel=3,
        )
    return JaxBatches(feed, pairs, sharding, prefetch)


class JaxBatches:
    """Batches on devices. Each time they are iterated is an epoch.

    Some are put there before they are asked for; ``state()`` is that of the last one
    that was given out all the same.
    """

    def __init__(self, feed: Feed, pairs: Pairs, sharding: Any, prefetch: int) -> None:
        self._feed, self._pairs = feed, pairs
        self._sharding, self._prefetch = sharding, prefetch
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._feed)
        self._state = self._feed.state()
        return self._given(batches)

    def _given(self, batches: Iterator[dict[str, Any]]) -> Iterator[Any]:
        ahead: deque[tuple[Any, dict[str, Any]]] = deque()
        put = map(self._put, batches)
        try:
            while batch := list(islice(put, 1)):
                ahead.append((batch.pop(), self._feed.state()))
                if len(ahead) > self._prefetch:
                    yield self._next(ahead)
        except Exception:
            # What was made before it failed comes first, as it would without a prefetch.
            yield from self._rest(ahead)
            raise
        yield from self._rest(ahead)

    def _rest(self, ahead: deque[tuple[Any, dict[str, Any]]]) -> Iterator[Any]:
        while ahead:
            yield self._next(ahead)

    def _next(self, ahead: deque[tuple[Any, dict[str, Any]]]) -> Any:
        # No name for it above: that would keep the batch until the next is asked for.
        batch, self._state = ahead.popleft()
        return batch

    def _put(self, columns: dict[str, Any]) -> Any:
        return self._pairs.of(
            {name: self._on_device(name, columns[name]) for name in self._pairs.names}
        )

    def _on_device(self, name: str, column: npt.NDArray[Any]) -> Any:
        sharding = self._sharding
        if isinstance(sharding, Mapping):
            sharding = sharding.get(name)
        array = _native(column)
        if sharding is None:
            return jax.device_put(array)
        try:
            return jax.make_array_from_process_local_data(sharding, array)
        except ValueError as e:
            raise OptionError(
                f"column {name!r}: {array.dtype}{list(array.shape)} cannot be laid out as "
                f"{sharding}: {e} (a smaller last batch is left out with batch(n, drop_last=True); "
                'columns may differ: sharding={"x": ..., "y": ...})'
            ) from e

    def state(self) -> dict[str, Any]:
        """The place after the last batch that was given out, as that of a pipeline."""
        return self._feed.state() if self._state is None else self._state

    def restore(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> JaxBatches:
        """The next iteration goes on from a state."""
        self._feed.restore(state)
        self._state = None
        return self


def _checked(name: str, column: Any) -> bool:
    """Whether a column is narrowed; refuses those that cannot be on a device."""
    if isinstance(column, Ragged) and column.is_bytes:
        raise OptionError(
            f"column {name!r}: JAX has no byte strings; leave it out with select or features=, or "
            "decode it with map"
        )
    if isinstance(column, Ragged):
        raise OptionError(
            f"column {name!r}: rows differ in length; make them even: batch(n, pad={{{name!r}: "
            '"longest"})'
        )
    array = _native(column)
    try:
        kept = jax.device_put(array[:0]).dtype
    except TypeError as e:
        raise OptionError(
            f"column {name!r}: JAX has no type {array.dtype}; cast it with map, or leave it out "
            "with select"
        ) from e
    return bool(kept != array.dtype)


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "mM":  # JAX has no dates: they stay the integers they are
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
