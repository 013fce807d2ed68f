"""Random chains of verbs, with their threads in a random order that a seed repeats."""

from __future__ import annotations

import json
from dataclasses import replace

import recmap as rm
from hostile.areas.pipelines import Chain, numbers_of, rows_too_expensive, store, unseen_types
from hostile.case import Case
from tests.schedule import Schedule

__all__ = ["case"]


def case(case: Case) -> None:
    rows = case.pick([2, 5, 13, 30])
    # The zarr library has threads of its own, which are not scheduled.
    chain = Chain.draw(case, store(case, rows, zarr=False), rows)
    chain = replace(chain, workers=case.pick([None, "threads:2", "threads:4"]))
    case.note(str(chain))
    try:
        wanted = chain.model(0)
        pipeline = chain.build()
    except rm.OptionError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    del pipeline
    for _ in range(5):
        seed, cut = case.between(0, 1 << 30), case.between(0, len(wanted))
        case.note(f"Schedule({seed}), broken off after {cut} of {len(wanted)}")
        with unseen_types(case, chain), rows_too_expensive(case, chain), Schedule(seed):
            _run(chain, wanted, cut)


def _run(chain: Chain, wanted: list[list[object]], cut: int) -> None:
    """Take some batches, break off, and go on from the state."""
    stopped = chain.build()
    batches = iter(stopped)
    found = [next(batches) for _ in range(cut)]
    state = json.loads(json.dumps(stopped.state()))
    batches.close()  # type: ignore[attr-defined]
    if cut < len(wanted) or not cut:
        found += list(chain.build().restore(state))
    if (numbers := [numbers_of(batch) for batch in found]) != wanted:
        raise AssertionError(f"{numbers}, but lists give {wanted}")
