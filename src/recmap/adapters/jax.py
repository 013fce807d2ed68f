"""``to_jax``: batches as arrays on JAX devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from recmap.adapters.columns import (
    FeaturesAndLabels,
    Names,
    as_native,
    refuse_ragged,
    unknown_dtype,
)
from recmap.adapters.feed import Feed
from recmap.adapters.resumable import PlacedBatches, check_prefetch
from recmap.errors import FieldNotFoundError, MissingPackageError, OptionError
from recmap.model.arguments import no_column
from recmap.model.schema import Batch
from recmap.warn import warn

try:
    import jax
except ImportError as e:
    raise MissingPackageError("to_jax() needs JAX", extra="jax") from e


def to_jax(
    feed: Feed, device: Any, sharding: Any, prefetch: int, features: Names, label: Names
) -> JaxBatches:
    """Return the batches of a feed as arrays on JAX devices."""
    check_prefetch(feed, prefetch, "to_jax()")
    if device is not None and sharding is not None:
        raise OptionError("to_jax(): give device= or sharding=; a sharding names its devices")
    if device is not None:
        sharding = _one_device(device)
    sample = feed.sample()
    chosen = FeaturesAndLabels.choose(sample, features, label, mask=feed.mask)
    for name in chosen.names:
        refuse_ragged(name, sample[name], "JAX has no byte strings")
    if isinstance(sharding, Mapping):
        for name in sharding:
            if name not in chosen.names:
                raise FieldNotFoundError(f"sharding: {no_column(name, chosen.names)}")
    _warn_of_narrowing(sample, chosen.names)
    return JaxBatches(feed, chosen, sharding, prefetch)


class JaxBatches(PlacedBatches):
    """Batches on JAX devices. Each iteration is an epoch.

    Up to ``prefetch`` batches are put on devices in advance. ``state()`` still refers to
    the last batch that was returned.
    """

    def __init__(self, feed: Feed, chosen: FeaturesAndLabels, sharding: Any, prefetch: int) -> None:
        super().__init__(feed, chosen, prefetch, _gpu(sharding))
        self._sharding = sharding

    def _place(self, columns: dict[str, Any]) -> Any:
        names = self._chosen.names
        return self._chosen.arrange({name: self._on_device(name, columns[name]) for name in names})

    def _on_device(self, name: str, column: npt.NDArray[Any]) -> Any:
        sharding = self._sharding
        if isinstance(sharding, Mapping):
            sharding = sharding.get(name)
        array = as_native(name, column)
        if sharding is None or isinstance(sharding, jax.sharding.SingleDeviceSharding):
            return jax.device_put(array, sharding)
        try:
            return jax.make_array_from_process_local_data(sharding, array)
        except ValueError as e:
            raise OptionError(
                f"column {name!r}: {array.dtype}{list(array.shape)} cannot be laid out as "
                f"{sharding}: {e} (batch(n, drop_last=True) leaves out a smaller last batch; "
                'columns may differ: sharding={"x": ..., "y": ...})'
            ) from e


def _one_device(device: Any) -> Any:
    """Return the sharding that puts everything on one device, such as ``"gpu"`` or ``"gpu:1"``."""
    if isinstance(device, str):
        platform, _, number = device.partition(":")
        try:
            device = dict(enumerate(jax.local_devices(backend=platform)))[int(number or 0)]
        except (RuntimeError, KeyError, ValueError) as e:
            known = ", ".join(f"{d.platform}:{i}" for i, d in enumerate(jax.local_devices()))
            raise OptionError(f"device={device!r}: JAX has no such device; it has {known}") from e
    return jax.sharding.SingleDeviceSharding(device)


def _gpu(sharding: Any) -> int | None:
    """Return the number of the first NVIDIA GPU that a sharding, or JAX's default, uses."""
    shardings = sharding.values() if isinstance(sharding, Mapping) else [sharding]
    for each in shardings:
        devices = [jax.devices()[0]] if each is None else each.addressable_devices
        for device in devices:
            if device.platform == "gpu" and "NVIDIA" in device.device_kind:
                number: int | None = device.local_hardware_id
                return number
    return None


def _warn_of_narrowing(sample: Batch, names: list[str]) -> None:
    """Warn about columns that JAX converts to fewer bits."""
    narrowed = []
    for name in names:
        array: Any = sample[name]
        if _dtype_on_device(name, array) != as_native(name, array[:0]).dtype:
            narrowed.append(f"{name!r} ({array.dtype})")
    if narrowed:
        warn(
            "JAX converts numbers to 32 bits unless jax_enable_x64 is set; these columns lose "
            f"precision: {', '.join(narrowed)}"
        )


def _dtype_on_device(name: str, column: npt.NDArray[Any]) -> Any:
    array = as_native(name, column[:0])
    try:
        return jax.device_put(array).dtype
    except TypeError as e:
        raise unknown_dtype(name, "JAX", array.dtype) from e
