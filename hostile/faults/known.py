"""What is known not to hold. Remove an entry when it is mended."""

from __future__ import annotations

import re

__all__ = ["is_known"]

# Patterns of operations and their problems.
_KNOWN = (
    # If a store goes away, or the process ends, between a file and its index, the file stays. It is
    # whole, and not replaced without ``overwrite``.
    r"TFRecordWriter.*in a store, .*(503 from|killed after).*: after run: missing: \S+\.recmap;",
    # The parts of a TFRecordWriter that was killed, or whose store went away, stay until a rule of
    # the bucket lets them expire: another writer may be sending them, and no lock tells.
    r"TFRecordWriter in parts, in a store, .*(503 from|killed|POST.*answer lost).*parts of uploads",
)


def is_known(problem: str) -> bool:
    """Return whether a line with an operation and its problem is a known one."""
    return any(re.search(pattern, problem) for pattern in _KNOWN)
