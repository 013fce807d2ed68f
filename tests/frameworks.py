"""Frameworks that take seconds to import, for modules that every process of pytest imports."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Lazy", "keras", "tf"]


class Lazy:
    """A module that is imported when one of its attributes is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


keras: Any = Lazy("keras")
tf: Any = Lazy("tensorflow")
