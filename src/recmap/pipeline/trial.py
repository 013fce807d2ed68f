"""Functions are tried on the first rows where they are going to run.

Trying a function may start threads, such as those that OpenMP keeps for PyTorch, and a
process forked from one with such threads can hang. So if functions run in worker
processes, a worker tries them, and this process never calls them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recmap.errors import OptionError
from recmap.model.schema import Batch, Schema
from recmap.model.workers import Workers
from recmap.pipeline.row_source import only_a_few_rows
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.column_message import copied
from recmap.pipeline.workers.pool import Request, UnpicklableError, Work

if TYPE_CHECKING:
    from recmap.pipeline.transforms.base import Step

__all__ = ["Found", "done_by", "tried"]

_FOUND = "\0found"


@dataclass(frozen=True)
class Found:
    """What trying showed: steps that know the types of what they make, the schema after
    the last of them, and what became of the first rows.
    """

    steps: tuple[Step, ...]
    schema: Schema
    sample: Batch
    row_bytes: int = 0


def tried(find: Callable[[], Found], steps: Sequence[Step], workers: Workers | None) -> Found:
    """What ``find`` finds about ``steps``: in a process, if that is who the workers are."""
    try:
        made = done_by(workers, _Trial(find), Request(0, 0, np.empty(0, np.int64)))
    except UnpicklableError:
        # Only a process that is not forked needs that, and such a process does not mind
        # what was called here before. Whether the functions can be sent shows later.
        made = None
    if made is None:
        return find()
    text = made.pop(_FOUND)
    assert isinstance(text, np.ndarray)
    found = json.loads(text.tobytes())
    return Found(
        tuple(_taught(step, learned) for step, learned in zip(steps, found["steps"], strict=True)),
        Schema(found["schema"]),
        {name: copied(column) for name, column in made.items()},
        found["row_bytes"],
    )


def done_by(workers: Workers | None, work: Work, request: Request) -> Batch | None:
    """One piece of work, done by a process that ends with it. None if the workers are no
    processes, or if this process is one of them.
    """
    if workers is None or workers.kind != "processes":
        return None
    # Imported by those who need it, like all that has to do with processes.
    import multiprocessing

    if multiprocessing.current_process().daemon:
        return None
    with open_pool(work, replace(workers, count=1)) as pool:
        for _, batch in pool.run([request], 0):
            return batch
    raise OptionError("the pool of workers is closed; open another one")


@dataclass(frozen=True)
class _Trial:
    """Work that tells what it found as a batch."""

    find: Callable[[], Found]

    def __call__(self, request: Request) -> Batch:
        del request
        with only_a_few_rows():
            found = self.find()
        text = json.dumps(
            {
                "steps": [_learned(step) for step in found.steps],
                "schema": _texts(found.schema),
                "row_bytes": found.row_bytes,
            }
        )
        return {**found.sample, _FOUND: np.frombuffer(text.encode(), np.uint8)}


def _learned(step: Any) -> dict[str, dict[str, str]]:
    """The schemas that a step, which is a dataclass, knows, by the name of its field."""
    known = {field.name: getattr(step, field.name) for field in fields(step)}
    return {name: _texts(value) for name, value in known.items() if isinstance(value, Schema)}


def _taught(step: Any, learned: Mapping[str, Mapping[str, str]]) -> Step:
    made: Step = replace(step, **{name: Schema(texts) for name, texts in learned.items()})
    return made


def _texts(schema: Schema) -> dict[str, str]:
    return {name: str(field) for name, field in schema.items()}
