"""Cursors and states: where a run is, and how it resumes on other ranks."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from recmap.errors import OldStateWarning, OptionError
from recmap.pipeline.sharding import ENDLESS, Remaining, Share
from recmap.pipeline.transforms.batch import Grouping

__all__ = ["Cursor", "CursorLog", "checked", "digest", "load", "redealt", "save"]

_VERSION = 2
# How many batches a framework may take before it uses them.
_LOGGED = 256
# More than any cluster has. Without a limit, a damaged state would make recmap loop over ranks.
_MOST_RANKS = 1 << 17


class Cursor(NamedTuple):
    """A place in a run. States have the same fields. A tuple, because every batch makes one.

    In ``epoch``, the ``turn``-th of this iteration, all rows of this rank before number
    ``at`` have been given out, except those in ``held``. They made up ``given`` batches (or
    rows) of this epoch, and ``done`` of all epochs of the iteration. ``kept`` rows have
    reached each ``take`` or ``skip`` after a filter. ``left`` is what the epoch had left when
    the ranks last changed; None means all of it.
    """

    epoch: int = 0
    turn: int = 0
    at: int = 0
    held: Any = ()
    given: int = 0
    kept: tuple[int, ...] = ()
    left: Remaining | None = None
    done: int = 0

    def following(self, repeat: int | None) -> Cursor:
        """Return the start of the next epoch, in this iteration or the next."""
        if repeat is not None and self.turn + 1 >= repeat:
            return Cursor(self.epoch + 1)
        return Cursor(self.epoch + 1, self.turn + 1, done=self.done)


class CursorLog:
    """The cursors after each of the most recent batches of an iteration.

    Frameworks take batches before they train on them, so they may ask for a state from a few
    batches ago.
    """

    def __init__(self, start: Cursor) -> None:
        self._cursors = deque([start], maxlen=_LOGGED + 1)
        self._given = 0

    def add(self, cursor: Cursor) -> None:
        """Add the cursor after another batch that was given out."""
        self._cursors.append(cursor)
        self._given += 1

    def end(self, cursor: Cursor) -> None:
        """Replace the cursor after the last batch: no batch follows it."""
        self._cursors[-1] = cursor

    def after(self, batches: int | None) -> Cursor:
        """Return the cursor after ``batches`` batches; None means all that were given out."""
        back = 0 if batches is None else self._given - batches
        if 0 <= back < len(self._cursors):
            return self._cursors[-1 - back]
        raise OptionError(
            f"state(batches={batches}): {self._given:,} have been given out in this iteration, and "
            f"the places after the last {_LOGGED} are known"
        )


def digest(described: Sequence[Any]) -> str:
    """Return a short name for a pipeline, as stored in states of recmap 0.1."""
    text = json.dumps(described, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save(cursor: Cursor, share: Share, signature: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a rank, ready for JSON."""
    left = cursor.left
    return {
        "version": _VERSION,
        **signature,
        "epoch": cursor.epoch,
        "turn": cursor.turn,
        "at": cursor.at,
        "held": json.loads(json.dumps(cursor.held)),
        "given": cursor.given,
        "kept": list(cursor.kept),
        "done": cursor.done,
        "left": None if left is None else {"tail": left.tail, "runs": [list(r) for r in left.runs]},
        "rank": share.rank,
        "world": share.world,
        "block": share.block,
    }


def checked(
    given: Any, digest_of_0_1: Callable[[], str], first: int, slices: int
) -> list[dict[str, Any]]:
    """Return the states that ``restore`` was given, each with all its fields.

    States of recmap 0.1 are upgraded: ``first`` is the first position of an epoch, and
    ``slices`` the number of ``take`` and ``skip`` stages that count rows after filters.
    """
    states = [given] if isinstance(given, Mapping) else given
    if not isinstance(states, list | tuple) or not states:
        raise OptionError("restore takes the dict that state() gave, or a list of such")
    if not all(isinstance(state, Mapping) for state in states):
        raise OptionError("restore takes the dict that state() gave, or a list of such")
    result = []
    for state in states:
        complete = _checked(state, slices)
        if complete["version"] == 1:
            complete = _upgraded(complete, digest_of_0_1(), first, slices)
        result.append(complete)
    return result


def _checked(state: Mapping[str, Any], slices: int) -> dict[str, Any]:
    version = state.get("version")
    if type(version) is not int or version not in (1, _VERSION):
        newer = type(version) is int and version > _VERSION
        raise OptionError(
            f"restore: a state of version {version}, and this recmap knows {_VERSION}; update it"
            if newer
            else "restore: not a state of a pipeline: it has no version that recmap knows"
        )
    state = {"done": 0, **state}
    for name, fits in _FIELDS.items():
        if name not in state or not fits(state[name]):
            raise OptionError(
                f"restore: a damaged state: {name!r} is "
                f"{_shown(state[name]) if name in state else 'missing'}"
            )
    if not state["rank"] < state["world"] <= _MOST_RANKS or state["block"] < 1:
        raise OptionError("restore: a damaged state: its rank, world and block do not fit")
    if version == 1:
        return state
    texts = isinstance(state.get("verbs"), list) and all(
        isinstance(verb, str) for verb in state["verbs"]
    )
    kept = _are_whole(state["kept"]) and len(state["kept"]) in (0, slices)
    if not texts or not _is_data(state.get("data")) or not kept:
        raise OptionError("restore: a damaged state: what it was saved from cannot be read")
    return state


def _upgraded(state: dict[str, Any], digest: str, first: int, slices: int) -> dict[str, Any]:
    if state.get("chain") != digest:
        raise OptionError(
            "restore: the state of another pipeline; rows, seeds, functions, batches and the order "
            "of verbs must be those it was saved from (shard and prefetch may differ)"
        )
    warnings.warn(
        "a state of recmap 0.1 does not tell which files and functions it was saved from: be sure "
        "that they are these, and save another one",
        OldStateWarning,
        stacklevel=5,
    )
    left = state["left"]
    if left is not None:  # 0.1 counted positions from the first batch that is taken
        runs = [[a + first, b + first] for a, b in left["runs"]]
        left = {"tail": left["tail"] + first, "runs": runs}
    return {**state, "kept": [state["kept"]] * slices, "left": left}


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= ENDLESS


def _are_whole(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_whole(each) for each in value)


def _is_left(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping) or not _is_whole(value.get("tail")):
        return False
    runs = value.get("runs")
    if not isinstance(runs, list | tuple):
        return False
    if not all(_are_whole(run) and len(run) == 2 for run in runs):
        return False
    # Spans are in order and do not touch, and all come before the tail.
    edges = [edge for run in runs for edge in run]
    return edges == sorted(set(edges)) and max(edges, default=0) <= value["tail"]


def _check_held(state: Mapping[str, Any], grouping: Grouping) -> None:
    """Refuse held rows that this grouping would not hold, or that come later."""
    held = state["held"]
    try:
        numbers = grouping.held_numbers(held)
        fits = _are_whole(numbers) and max(numbers, default=-1) < state["at"]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        fits = False
    if not fits:
        raise OptionError(f"restore: a damaged state: 'held' is {_shown(held)}")


def _check_numbers(state: Mapping[str, Any], share: Share, repeat: int | None, all_: bool) -> None:
    """Refuse numbers that a run of this pipeline never reaches.

    Without ``all_``, refuse only those that would read rows that do not exist.
    """
    # A rank that is filled up has one row more than others.
    most = len(replace(share, rank=state["rank"])) + share.block
    wrong = {
        "at": state["version"] != 1 and state["at"] > most,
        "turn": state["turn"] > state["epoch"] or (repeat or ENDLESS) <= state["turn"] > 0,
        "kept": max(state["kept"], default=0) > state["at"],
        "left": state["left"] is not None and state["left"]["tail"] > share.left.total,
    }
    for name, is_wrong in wrong.items():
        if is_wrong and (all_ or name == "left"):
            raise OptionError(
                f"restore: a damaged state: {name!r} is {_shown(state[name])}, which is nowhere in "
                "this pipeline"
            )


def _shown(value: Any) -> str:
    try:
        return ascii(value)[:60]
    except RecursionError:
        return "nested without end"


def _is_data(value: Any) -> bool:
    texts, numbers = ("schema", "names", "set", "content"), ("count", "rows")
    return isinstance(value, list | tuple) and all(
        isinstance(each, Mapping)
        and isinstance(files := each.get("files"), list)
        and all(isinstance(name, str) for name in files)
        and all(isinstance(each.get(name), str) for name in texts)
        and all(_is_whole(each.get(name)) for name in numbers)
        and min(1, each["count"]) <= len(files) <= each["count"]
        for each in value
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("epoch", "turn", "at", "given", "done", "rank", "world", "block"), _is_whole),
    "held": lambda value: isinstance(value, list | tuple | Mapping),  # _check_held looks closer
    "kept": lambda value: _is_whole(value) or _are_whole(value),
    "left": _is_left,
}


def load(
    states: Sequence[Mapping[str, Any]],
    share: Share,
    grouping: Grouping,
    step: int | None,
    repeat: int | None,
    *,
    check: bool = True,
) -> Cursor:
    """Return the cursor at which a rank resumes.

    ``step`` is how many rows every rank takes in a step, so that the state of one rank gives
    those of all; None if they are not in step. Without ``check``, the states may come from
    another pipeline. All ranks resume in one epoch: that of the state, or of the slowest
    rank. A rank at the end of that epoch has nothing left of it.
    """
    for state in states:
        _check_held(state, grouping)
        _check_numbers(state, _share_of(state, share), repeat, check)
    states = _in_one_epoch(states)
    first = states[0]
    old, left = _share_of(first, share), first["left"]
    over = [state for state in states if _is_over(state, old, grouping)]
    # A rank may have no rows at all.
    if over and all(state in over or not replace(old, rank=state["rank"]) for state in states):
        return Cursor(epoch=first["epoch"], turn=first["turn"]).following(repeat)
    same = (old.world, old.block) == (share.world, share.block)
    own = [state for state in states if state["rank"] == share.rank]
    if same and own:
        return _cursor(own[0], old)
    if same and len(states) == 1 and step is not None:
        at = old.in_step(first["at"], step)[share.rank]
        return _cursor(first, old)._replace(at=at)
    if first["at"] == 0 and len(states) == 1 and left is None:
        # The beginning of an epoch is the same for all ranks.
        return _cursor(first, share)
    taken, held = _taken(states, old, grouping, step)
    return Cursor(
        epoch=first["epoch"],
        turn=first["turn"],
        given=max(state["given"] for state in states),
        left=old.remaining(taken, held),
        done=max(state["done"] for state in states),
    )


def _is_over(state: Mapping[str, Any], share: Share, grouping: Grouping) -> bool:
    """Return whether all rows of a rank have been given out.

    Only states of version 1 can be in that place: since version 2, the state after the last
    batch is the one before the first batch of the next epoch.
    """
    if grouping.held_numbers(state["held"]):
        return False
    share = replace(share, rank=state["rank"])
    return (
        state["at"] >= len(share) if state["at"] else state["left"] is not None and not share.left
    )


def redealt(cursor: Cursor, share: Share, grouping: Grouping, step: int | None) -> Cursor:
    """Return a cursor at the same place that deals the rest of the epoch again, so that
    several processes of the rank can divide it.
    """
    old = share if cursor.left is None else replace(share, left=cursor.left)
    if old.world > 1 and step is None:
        raise OptionError(
            "with several ranks, an epoch resumed after filter, bucket or pack cannot be divided "
            "among workers; finish that epoch with num_workers=0"
        )
    state = {"rank": old.rank, "at": cursor.at, "held": cursor.held}
    taken, held = _taken([state], old, grouping, step)
    left = old.remaining(taken, held)
    return cursor._replace(at=0, held=(), kept=(), left=left)


def _cursor(state: Mapping[str, Any], share: Share) -> Cursor:
    return Cursor(
        epoch=state["epoch"],
        turn=state["turn"],
        at=min(state["at"], len(replace(share, rank=state["rank"]))),
        held=state["held"],
        given=state["given"],
        kept=tuple(state["kept"]),
        done=state["done"],
        left=None if state["left"] is None else share.left,
    )


def _share_of(state: Mapping[str, Any], share: Share) -> Share:
    """Return the share of the rank that a state was saved on."""
    left = share.left
    if state["left"] is not None:
        runs = tuple((a, b) for a, b in state["left"]["runs"])
        left = Remaining(left.total, state["left"]["tail"], runs)
    rank, world, block = state["rank"], state["world"], state["block"]
    old = replace(share, left=left, rank=rank, world=world, block=block)
    return old.behind(state["done"])


def _in_one_epoch(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the states of the ranks of one run, in the order of the ranks.

    A rank at the very start of an epoch, while others are still in the previous one, has
    taken all of the previous one.
    """
    ranks = sorted(states, key=lambda state: int(state["rank"]))
    numbers = [state["rank"] for state in ranks]
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"restore: the states are of ranks {numbers}; give one of each")
    epoch = min(int(state["epoch"]) for state in ranks)
    here = next(state for state in ranks if state["epoch"] == epoch)
    everything = {"at": ENDLESS, "held": [], "given": 0}
    aligned = [
        {**state, **{key: here[key] for key in ("epoch", "turn", "left")}, **everything}
        if state["epoch"] == epoch + 1 and state["at"] == 0 and not state["left"]
        else state
        for state in ranks
    ]
    for key in ("epoch", "turn", "left", "world", "block"):
        if any(state[key] != here[key] for state in aligned):
            raise OptionError(
                f"restore: the states are not of one moment of one run: they differ in {key!r}"
            )
    return aligned


def _taken(
    states: Sequence[Mapping[str, Any]], old: Share, grouping: Grouping, step: int | None
) -> tuple[list[int], list[int]]:
    """Return the rows each rank has taken, and the positions of the rows still held."""
    if len(states) == 1 and step is not None:
        return old.in_step(states[0]["at"], step), []
    ranks = [state["rank"] for state in states]
    if ranks != list(range(old.world)):
        raise OptionError(
            f"restore: the ranks were {old.world}, and the states given are of {ranks}; on other "
            "ranks, a pipeline that leaves rows out or holds them back needs the states of all: "
            "restore([state_0, state_1, ...])"
        )
    taken, held = [], list[int]()
    for state in states:
        share = replace(old, rank=state["rank"])
        taken.append(min(state["at"], len(share)))
        numbers = np.array(grouping.held_numbers(state["held"]), np.int64)
        held += share.positions_of(numbers)[0].tolist()
    return taken, held
