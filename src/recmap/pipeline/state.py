"""Where a run is, as a small dict; and how runs on several ranks become others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.pipeline.grouping import Grouping
from recmap.pipeline.share import ENDLESS, Remaining, Share

__all__ = ["Cursor", "digest", "load", "redealt", "save"]

_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """A place in a run: in ``epoch``, the ``turn``-th of this iteration, all rows of
    this rank before number ``at`` have been given out but for the ``held``; they were
    ``given`` batches (or rows) in this epoch. ``left`` is what the epoch had to
    deal out when the ranks were last changed, None if all of it.
    """

    epoch: int = 0
    turn: int = 0
    at: int = 0
    held: Any = ()
    given: int = 0
    kept: int = 0
    left: Remaining | None = None


def digest(described: Sequence[Any]) -> str:
    """A short name of a chain: another one's state does not fit."""
    text = json.dumps(described, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save(cursor: Cursor, share: Share, chain: str) -> dict[str, Any]:
    """The state of a rank, in numbers and texts."""
    left = cursor.left
    return {
        "version": _VERSION,
        "chain": chain,
        "epoch": cursor.epoch,
        "turn": cursor.turn,
        "at": cursor.at,
        "held": json.loads(json.dumps(cursor.held)),
        "given": cursor.given,
        "kept": cursor.kept,
        "left": None if left is None else {"tail": left.tail, "runs": [list(r) for r in left.runs]},
        "rank": share.rank,
        "world": share.world,
        "block": share.block,
    }


def load(
    states: Sequence[Mapping[str, Any]],
    share: Share,
    chain: str,
    grouping: Grouping,
    step: int | None,
) -> Cursor:
    """Where a rank goes on. ``step`` is how many rows all ranks take together, so that
    the state of one tells those of all; None if they do not go in step.
    """
    for state in states:
        _check(state, chain)
    states = _in_one_epoch(states)
    first = states[0]
    left = _remaining(first, share.left.total)
    old = replace(
        share,
        left=share.left if left is None else left,
        rank=first["rank"],
        world=first["world"],
        block=first["block"],
    )
    same = (old.world, old.block) == (share.world, share.block)
    own = [state for state in states if state["rank"] == share.rank]
    if same and own:
        return _cursor(own[0], old)
    if same and len(states) == 1 and step is not None:
        at = old.in_step(first["at"], step)[share.rank]
        return replace(_cursor(first, old), at=at)
    taken, held = _taken(states, old, grouping, step)
    return Cursor(
        epoch=first["epoch"],
        turn=first["turn"],
        given=max(state["given"] for state in states),
        left=old.remaining(taken, held),
    )


def redealt(cursor: Cursor, share: Share, grouping: Grouping, step: int | None) -> Cursor:
    """The same place, from which what is left of the epoch is dealt out anew, so that
    several processes of the rank can split it.
    """
    old = share if cursor.left is None else replace(share, left=cursor.left)
    if old.world > 1 and step is None:
        raise OptionError(
            "what is left of a filtered, bucketed or packed epoch of one rank of several cannot be "
            "split; finish that epoch with num_workers=0"
        )
    state = {"rank": old.rank, "at": cursor.at, "held": cursor.held}
    taken, held = _taken([state], old, grouping, step)
    left = old.remaining(taken, held)
    return Cursor(epoch=cursor.epoch, turn=cursor.turn, given=cursor.given, left=left)


def _check(state: Mapping[str, Any], chain: str) -> None:
    if state.get("version") != _VERSION or "chain" not in state:
        raise OptionError("restore: not a state of a pipeline of this version")
    _check_numbers(state)
    if state["chain"] != chain:
        raise OptionError(
            "restore: the state of another chain; rows, seeds, functions, batches and the order "
            "of verbs must be those it was saved from (shard and prefetch may differ)"
        )


_COUNTS = ("epoch", "turn", "at", "given", "kept", "rank", "world", "block")


def _check_numbers(state: Mapping[str, Any]) -> None:
    """Refuses a state that state() did not write: a file may have been cut or edited."""
    for key in (*_COUNTS, "held", "left"):
        if key not in state:
            raise OptionError(f"restore: a damaged state: {key!r} is missing")
    for key in _COUNTS:
        value = state[key]
        if type(value) is not int or not 0 <= value <= ENDLESS:
            raise OptionError(f"restore: a damaged state: {key!r} is {value!r}")
    if not state["rank"] < state["world"] <= 1 << 24 or not state["block"]:
        raise OptionError("restore: a damaged state: 'rank', 'world' and 'block' do not fit")
    if not isinstance(state["held"], list | tuple | Mapping):  # each grouping has its own
        raise OptionError(f"restore: a damaged state: 'held' is {state['held']!r}")
    left = state["left"]
    if left is None:
        return
    runs = left.get("runs") if isinstance(left, Mapping) else None
    pairs = isinstance(runs, list | tuple) and all(
        isinstance(run, list | tuple) and len(run) == 2 and all(type(n) is int for n in run)
        for run in runs
    )
    if not pairs or type(left.get("tail")) is not int:
        raise OptionError(f"restore: a damaged state: 'left' is {left!r}")


def _cursor(state: Mapping[str, Any], share: Share) -> Cursor:
    return Cursor(
        epoch=state["epoch"],
        turn=state["turn"],
        at=state["at"],
        held=state["held"],
        given=state["given"],
        kept=state["kept"],
        left=None if state["left"] is None else share.left,
    )


def _remaining(state: Mapping[str, Any], total: int) -> Remaining | None:
    left = state["left"]
    if left is None:
        return None
    return Remaining(total, left["tail"], tuple((a, b) for a, b in left["runs"]))


def _in_one_epoch(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The states of ranks of one run, in their order. A rank that is at the very start of
    an epoch, while others are in the one before, has taken all of that.
    """
    ranks = sorted(states, key=lambda state: int(state["rank"]))
    epoch = min(int(state["epoch"]) for state in ranks)
    here = next(state for state in ranks if state["epoch"] == epoch)
    everything = {"at": ENDLESS, "held": [], "given": 0}
    told = [
        {**state, **{key: here[key] for key in ("epoch", "turn", "left")}, **everything}
        if state["epoch"] == epoch + 1 and state["at"] == 0 and not state["left"]
        else state
        for state in ranks
    ]
    for key in ("epoch", "turn", "left", "world", "block"):
        if any(state[key] != here[key] for state in told):
            raise OptionError(
                f"restore: the states are not of one moment of one run: they differ in {key!r}"
            )
    return told


def _taken(
    states: Sequence[Mapping[str, Any]], old: Share, grouping: Grouping, step: int | None
) -> tuple[list[int], list[int]]:
    """The rows each rank has taken, and the positions of those that are held back."""
    if len(states) == 1 and step is not None:
        return old.in_step(states[0]["at"], step), []
    ranks = [state["rank"] for state in states]
    if ranks != list(range(old.world)):
        raise OptionError(
            f"restore: the ranks were {old.world}, and the states given are of {ranks}; on other "
            "ranks, a chain that leaves rows out or holds them back needs the states of all: "
            "restore([state_0, state_1, ...])"
        )
    taken, held = [], list[int]()
    for state in states:
        share = replace(old, rank=state["rank"])
        taken.append(min(state["at"], len(share)))
        numbers = np.array(grouping.held_numbers(state["held"]), np.int64)
        held += share.positions_of(numbers)[0].tolist()
    return taken, held
