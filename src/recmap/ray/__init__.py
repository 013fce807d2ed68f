"""Reading and writing on a Ray cluster."""

from recmap.ray.reader import read
from recmap.ray.writer import write

__all__ = ["read", "write"]
