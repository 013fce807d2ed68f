"""What is known not to hold. Remove an entry when it is mended."""

from __future__ import annotations

import re

__all__ = ["is_known"]

# Patterns of operations and their problems.
_KNOWN = (
    # A folder whose conversion is unfinished opens as if it were whole.
    r"(shards|shuffle into shards).*: a reader sees",
    # Several files of a TFRecordWriter have no manifest: they get their names one after the other.
    r"TFRecordWriter.*shards.*(after run: missing.*OutputExistsError)",
    # A list of finished shards stays if the process ends between the removal of the manifest and
    # that of the list.
    r"write a file.*after run: left over: \S*manifest\.json\.done-\S*; OutputExistsError",
    # Temporary files of a conversion stay if the next one has another number of shards.
    r"shards.*after changed: left over: [^;]*\.tmp",
    # An unfinished output in a store cannot be overwritten, or a Zarr store is half replaced.
    r"in a store.*after changed: .*OutputExistsError",
    r"zarr.*in a store.*a reader meets",
    # If a store goes away between a file and its index, the file stays, and is whole.
    r"TFRecordWriter.*in a store.*after run: missing: \S*\.recmap; OutputExistsError",
    # The parts of a killed TFRecordWriter stay until a rule of the bucket lets them expire.
    r"TFRecordWriter in parts.*parts of uploads",
)


def is_known(problem: str) -> bool:
    """Return whether a line with an operation and its problem is a known one."""
    return any(re.search(pattern, problem) for pattern in _KNOWN)
