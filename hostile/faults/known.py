"""What is known not to hold. Remove an entry when it is mended."""

from __future__ import annotations

import re

__all__ = ["is_known"]

# Patterns of operations and their problems.
_KNOWN = (
    # If a store goes away between a file and its index, the file stays, and is whole.
    r"TFRecordWriter.*in a store.*after run: missing: \S*\.recmap; OutputExistsError",
    # The parts of a killed TFRecordWriter stay until a rule of the bucket lets them expire.
    r"TFRecordWriter in parts.*parts of uploads",
)


def is_known(problem: str) -> bool:
    """Return whether a line with an operation and its problem is a known one."""
    return any(re.search(pattern, problem) for pattern in _KNOWN)
