"""The files of Megatron-LM's own package, without the three thousand modules it imports."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["indexed_dataset"]


@cache
def indexed_dataset() -> Any:
    """Return ``megatron.core.datasets.indexed_dataset``, with all of the code it has."""
    spec = find_spec("megatron")
    assert spec is not None
    assert spec.submodule_search_locations
    (folder,) = spec.submodule_search_locations
    for name in ("megatron.core", "megatron.core.datasets"):
        package = ModuleType(name)
        package.__path__ = [f"{folder}/{name.removeprefix('megatron.').replace('.', '/')}"]
        sys.modules[name] = package
    # Only its logging is needed, and the rest of that module imports all of the package.
    logging: Any = ModuleType("megatron.core.utils")
    logging.log_single_rank = lambda *_: None
    sys.modules[logging.__name__] = logging
    from megatron.core.datasets import indexed_dataset

    return indexed_dataset
