"""Frameworks that take seconds to import, for modules that every process of pytest imports."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Lazy", "datasets", "jax", "jnp", "keras", "ray", "stateful_dataloader", "tf", "torch"]


class Lazy:
    """A module that is imported when one of its attributes is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks everything in a module whether it is a test, a fixture or a mock.
        if attribute.startswith("__") or attribute == "_mock_name":
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


datasets: Any = Lazy("datasets")
jax: Any = Lazy("jax")
jnp: Any = Lazy("jax.numpy")
keras: Any = Lazy("keras")
ray: Any = Lazy("ray")
stateful_dataloader: Any = Lazy("torchdata.stateful_dataloader")
tf: Any = Lazy("tensorflow")
torch: Any = Lazy("torch")
