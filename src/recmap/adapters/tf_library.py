"""TensorFlow, which may not be installed. No other file imports it."""

from __future__ import annotations

from recmap.errors import MissingPackageError

try:
    import tensorflow as tf
except ImportError as e:
    raise MissingPackageError("this needs TensorFlow: pip install recmap[tf]") from e

__all__ = ["tf"]
