"""Forked processes: what they inherit is never deleted there.

Objects of a library may wait for its threads when they are deleted, such as datasets of TensorFlow
in reference cycles. These threads exist only in the parent, so a collection in the child would
never end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def forking() -> Iterator[None]:
    """Collect no garbage in a process that is started in this context, until it says so."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def keep_inherited() -> None:
    """Collect only what this process makes from now on."""
    gc.freeze()
    gc.enable()
