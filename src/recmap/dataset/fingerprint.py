"""What tells rows that are kept from all others: the files, how they were opened, and the verbs."""

from __future__ import annotations

import json
import os
import stat
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from recmap.dataset.rows import OpenedRows
from recmap.local.local_path import located
from recmap.pipeline.plan import Plan


def fingerprint(rows: OpenedRows, plan: Plan, by: int) -> str | None:
    """Return a digest of what makes the rows of a plan, or None if not all of it can be told.

    Rows in memory cannot, nor can functions that use objects which cannot be pickled. Other
    branches of a pipeline, ``by`` functions later, have other random numbers.
    """
    if not rows.lasting:
        return None
    files = dict.fromkeys(file for source in plan.sources for file in source.facts.files)
    parts = [_state(file) for file in files] + [each.fingerprint() for each in plan.records]
    if not all(parts):
        return None
    opened = [[source.how, str(source.schema)] for source in plan.sources]
    text = json.dumps(
        [version("recmap"), parts, opened, plan.caches, by], default=str
    )  # the time of an object
    return sha256(text.encode()).hexdigest()


def _state(path: str) -> list[Any] | None:
    """Return what changes if a file does, or any file in a folder; None if that cannot be told."""
    place = located(path)
    place.check_unchanged()
    if place.remote:
        return [path, *place.stat()] if place.pinned else None
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return [os.path.realpath(path), *_times(status)]
    walked = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return [os.path.realpath(path), *([name, *_times(os.stat(name))] for name in sorted(walked))]


def _times(status: os.stat_result) -> tuple[int, int, int, int]:
    # The system sets the time of the last change, whatever a program makes of the other one.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
