"""Cursors and states: where a run is, and how it resumes on other ranks."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from recmap.adapters.feed import HandedOut, LoaderWorkers
from recmap.errors import OptionError
from recmap.machine.shared_value import SharedValue
from recmap.model.order import ENDLESS
from recmap.pipeline.sharding import Remaining, Share
from recmap.pipeline.state_check import STATE_VERSION, check_held, check_numbers
from recmap.pipeline.transforms.batch import Grouping

R = TypeVar("R")

# How many batches a framework may take before it uses them.
_LOGGED = 256
# Iterations of workers to remember: more than can be starting at a time.
_REMEMBERED = 64


class Cursor(NamedTuple):
    """A place in a run. States have the same fields. A tuple, because every batch makes one.

    In ``epoch``, the ``turn``-th of this iteration, all rows of this rank before number
    ``at`` have been given out, except those in ``held``. They made up ``given`` batches (or
    rows) of this epoch, and ``done`` of all epochs of the iteration. ``kept`` rows have
    reached each ``take`` or ``skip`` after a filter. ``left`` is what the epoch had left when
    the ranks last changed; None means all of it. ``ahead`` is what the following epochs had
    left then, if some ranks were already in them.
    """

    epoch: int = 0
    turn: int = 0
    at: int = 0
    held: Any = ()
    given: int = 0
    kept: tuple[int, ...] = ()
    left: Remaining | None = None
    done: int = 0
    ahead: tuple[Remaining, ...] = ()

    @property
    def first_epoch(self) -> int:
        """The first epoch of its iteration."""
        return self.epoch - self.turn

    @property
    def is_middle(self) -> bool:
        """Whether it is in the middle of an iteration."""
        return self != Cursor(epoch=self.epoch)

    def following(self, repeat: int | None) -> Cursor:
        """Return the start of the next epoch, in this iteration or the next."""
        if repeat is not None and self.turn + 1 >= repeat:
            return Cursor(self.epoch + 1)
        left = self.ahead[0] if self.ahead else None
        return Cursor(
            self.epoch + 1, self.turn + 1, left=left, done=self.done, ahead=self.ahead[1:]
        )


class CursorLog:
    """The cursors after each of the most recent batches of an iteration.

    Frameworks take batches before they train on them, so they may ask for a state from a few
    batches ago. A reader that reads ahead counts in ``handed_out`` what its loop has got.
    """

    def __init__(self, start: Cursor, handed_out: HandedOut | None = None) -> None:
        self._cursors = deque([start], maxlen=_LOGGED + 1)
        self._given = 0
        self._handed_out = handed_out

    @property
    def given(self) -> int:
        """Batches that the loop has got."""
        return self._given if self._handed_out is None else self._handed_out.batches

    def add(self, cursor: Cursor) -> None:
        """Add the cursor after another batch that was given out."""
        self._cursors.append(cursor)
        self._given += 1

    def end(self, cursor: Cursor) -> None:
        """Replace the cursor after the last batch: no batch follows it."""
        self._cursors[-1] = cursor

    def after(self, batches: int | None) -> Cursor:
        """Return the cursor after ``batches`` batches; None means all that the loop has got."""
        back = self._given - (self.given if batches is None else batches)
        if 0 <= back < len(self._cursors):
            return self._cursors[-1 - back]
        raise OptionError(
            f"state(batches={batches}): {self._given:,} have been given out in this iteration, and "
            f"only the places after the last {_LOGGED} are known"
        )


class _Iterations(NamedTuple):
    next: Cursor
    #: The last iterations of workers, and where each began.
    taken: tuple[tuple[LoaderWorkers, Cursor], ...] = ()


class NextCursor:
    """The cursor at which the next iteration begins, for all processes that read a feed.

    A feed begins an iteration by taking it. The workers of a loader are several processes that
    begin one iteration: the first of them takes the cursor, and all get the same. Once the
    cursor is shared, a process has it in common with the workers it starts. A process that was
    forked for another purpose continues by itself.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._here = _Iterations(cursor)
        # By the number of the process that starts the workers.
        self._shared: SharedValue[dict[int, _Iterations]] | None = None

    def share(self) -> None:
        """Share the cursor with workers that are started from now on."""
        if self._shared is None:
            self._shared = SharedValue({os.getpid(): self._here})

    def get(self) -> Cursor:
        """Return the cursor, and leave it to the next iteration."""
        return self._place().next

    def set(self, cursor: Cursor) -> None:
        """Make the next iteration begin at a cursor."""
        self._update(os.getpid(), lambda place: (place._replace(next=cursor), None))

    def take(self, following: Callable[[Cursor], Cursor]) -> Cursor:
        """Begin an iteration: return its cursor, and set the one that follows."""

        def taken(place: _Iterations) -> tuple[_Iterations, Cursor]:
            return place._replace(next=following(place.next)), place.next

        return self._update(os.getpid(), taken)

    def take_with(
        self,
        workers: LoaderWorkers,
        following: Callable[[Cursor], Cursor],
        start: Cursor | None = None,
    ) -> Cursor:
        """Begin an iteration of these workers, unless another of them already has.

        Return its cursor: ``start``, if it is given.
        """

        def taken(place: _Iterations) -> tuple[_Iterations, Cursor]:
            for others, cursor in reversed(place.taken):
                if workers.are_those(others):
                    return place, cursor
            cursor = place.next if start is None else start
            remembered = (*place.taken, (workers, cursor))[-_REMEMBERED:]
            return _Iterations(following(cursor), remembered), cursor

        return self._update(workers.parent, taken)

    @property
    def last_of_workers(self) -> Cursor | None:
        """Where the last iteration of workers began."""
        taken = self._place().taken
        return taken[-1][1] if taken else None

    def _place(self) -> _Iterations:
        places = {} if self._shared is None else self._shared.get()
        return places.get(os.getpid(), self._here)

    def _update(self, owner: int, change: Callable[[_Iterations], tuple[_Iterations, R]]) -> R:
        if self._shared is None:
            self._here, result = change(self._here)
            return result

        def changed(
            places: dict[int, _Iterations],
        ) -> tuple[dict[int, _Iterations], tuple[_Iterations, R]]:
            place, result = change(places.get(owner, self._here))
            return {**places, owner: place}, (place, result)

        self._here, result = self._shared.update(changed)
        return result

    def __getstate__(self) -> dict[str, object]:
        return {"_here": self._place(), "_shared": self._shared}


def save(cursor: Cursor, share: Share, signature: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a rank, ready for JSON."""
    ahead = {"ahead": [_saved(left) for left in cursor.ahead]} if cursor.ahead else {}
    return {
        "version": STATE_VERSION,
        **signature,
        "epoch": cursor.epoch,
        "turn": cursor.turn,
        "at": cursor.at,
        "held": json.loads(json.dumps(cursor.held, default=_called)),
        "given": cursor.given,
        "kept": list(cursor.kept),
        "done": cursor.done,
        "left": None if cursor.left is None else _saved(cursor.left),
        **ahead,
        "rank": share.rank,
        "world": share.world,
        "block": share.block,
    }


def _called(held: Callable[[], Any]) -> Any:
    """Return what is held as lists and numbers; a packer does that only for a state."""
    return held()


def _saved(left: Remaining) -> dict[str, Any]:
    return {"tail": left.tail, "runs": [list(run) for run in left.runs]}


def load(
    states: Sequence[Mapping[str, Any]],
    share: Share,
    grouping: Grouping,
    step: int | None,
    repeat: int | None,
    steps: Callable[[int, int], int],
    *,
    check: bool = True,
) -> Cursor:
    """Return the cursor at which a rank resumes.

    ``step`` is how many rows every rank takes in a step, so that the state of one rank gives
    those of all; None if they are not in step. ``steps`` says how many a rank of a world
    takes in an epoch. Without ``check``, the states may come from another pipeline. All ranks
    resume in one epoch: that of the state, or of the slowest rank. A rank at the end of that
    epoch has nothing left of it. Within the epochs of ``repeat``, ranks may be in different
    ones.
    """
    for state in states:
        check_held(state, grouping)
        check_numbers(state, _share_of(state, share), repeat, check)
    states = _all_in_step(_by_rank(states), share, step, repeat, steps)
    within = _in_one_iteration(states, repeat)
    if len({state["epoch"] for state in within}) > 1:
        return _drifted(within, share, grouping)
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
        ahead=_ahead(first, old),
    )


def _is_over(state: Mapping[str, Any], share: Share, grouping: Grouping) -> bool:
    """Return whether all rows of a rank have been given out.

    A state is never saved there: after the last batch, it is in the next epoch. But a rank
    that is ahead of the others, or whose epoch was divided anew, can have none of it left.
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
        ahead=_ahead(state, share),
    )


def _ahead(state: Mapping[str, Any], share: Share) -> tuple[Remaining, ...]:
    return tuple(_remaining(left, share.left.total) for left in state["ahead"])


def _remaining(left: Mapping[str, Any], total: int) -> Remaining:
    return Remaining(total, left["tail"], tuple((a, b) for a, b in left["runs"]))


def _share_of(state: Mapping[str, Any], share: Share) -> Share:
    """Return the share of the rank that a state was saved on."""
    left = share.left
    if state["left"] is not None:
        left = _remaining(state["left"], left.total)
    rank, world, block = state["rank"], state["world"], state["block"]
    old = replace(share, left=left, rank=rank, world=world, block=block)
    return old.in_epoch(state["epoch"]).behind(state["done"])


def _by_rank(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the states in the order of their ranks."""
    ranks = sorted(states, key=lambda state: int(state["rank"]))
    numbers = [state["rank"] for state in ranks]
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"restore: the states are of ranks {numbers}; give one of each")
    return ranks


def _all_in_step(
    states: list[Mapping[str, Any]],
    share: Share,
    step: int | None,
    repeat: int | None,
    steps: Callable[[int, int], int],
) -> list[Mapping[str, Any]]:
    """Return the states of all ranks, if one is given and ranks differ in the steps of an epoch.

    After the same number of steps, such ranks are in different epochs of ``repeat``.
    """
    state, world = states[0], states[0]["world"]
    own = (state["rank"], world, state["block"]) == (share.rank, share.world, share.block)
    known = state["left"] is None and not state["ahead"]
    if len(states) > 1 or own or repeat == 1 or step is None or not known:
        return states
    each = [steps(rank, world) for rank in range(world)]
    if len(set(each)) == 1 or not min(each):
        return states
    taken = state["turn"] * each[state["rank"]] + -(-state["at"] // step)
    return [
        _after_steps(state, rank, divmod(taken, each[rank]), step, repeat) for rank in range(world)
    ]


def _after_steps(
    state: Mapping[str, Any], rank: int, at: tuple[int, int], step: int, repeat: int | None
) -> Mapping[str, Any]:
    """Return the state of another rank, at a turn and after some of its steps in it."""
    (turn, given), first = at, state["epoch"] - state["turn"]
    if repeat is not None and turn >= repeat:
        turn, given, first = 0, 0, first + repeat
    place = {"epoch": first + turn, "turn": turn, "at": given * step, "given": given}
    return {**state, **place, "rank": rank, "held": []}


def _in_one_iteration(
    states: list[Mapping[str, Any]], repeat: int | None
) -> list[Mapping[str, Any]]:
    """Return states within one iteration of several epochs; only one if that is impossible.

    A rank at the very start of the next iteration has taken all of this one.
    """
    first = min(state["epoch"] - state["turn"] for state in states)
    end = ENDLESS if repeat is None else first + repeat
    taken = {"epoch": end - 1, "turn": end - 1 - first, "at": ENDLESS, "held": [], "left": None}
    within = [
        {**state, **taken} if state["epoch"] == end and _is_start(state) else state
        for state in states
    ]
    keys = {(state["epoch"] - state["turn"], state["world"], state["block"]) for state in within}
    return within if len(keys) == 1 else states[:1]


def _is_start(state: Mapping[str, Any]) -> bool:
    return not (state["at"] or state["turn"] or state["left"])


def _drifted(states: list[Mapping[str, Any]], share: Share, grouping: Grouping) -> Cursor:
    """Return the cursor at which a rank resumes if the ranks were in different epochs."""
    slowest = min(states, key=lambda state: int(state["epoch"]))
    old = _share_of(slowest, share)
    own = [state for state in states if state["rank"] == share.rank]
    if own and (old.world, old.block) == (share.world, share.block):
        return _cursor(own[0], _share_of(own[0], share))
    # What earlier changes of the ranks have left of each epoch.
    lefts: dict[int, Any] = {}
    for state in states:
        lefts |= {state["epoch"] + i: left for i, left in enumerate(state["ahead"], 1)}
        lefts |= {state["epoch"]: state["left"]} if state["left"] else {}
    last = max(state["epoch"] for state in states)
    remaining = [
        _left_of(
            epoch,
            states,
            _share_of({**slowest, "epoch": epoch, "left": lefts.get(epoch)}, share),
            grouping,
        )
        for epoch in range(slowest["epoch"], last + 1)
    ]
    later = [epoch for epoch in sorted(lefts) if epoch > last]
    remaining += [_remaining(lefts[epoch], share.left.total) for epoch in later]
    return Cursor(
        epoch=slowest["epoch"],
        turn=slowest["turn"],
        given=max(s["given"] for s in states if s["epoch"] == slowest["epoch"]),
        left=remaining[0],
        done=max(state["done"] for state in states),
        ahead=tuple(remaining[1:]),
    )


def _left_of(
    epoch: int, states: list[Mapping[str, Any]], old: Share, grouping: Grouping
) -> Remaining:
    """Return what is left of an epoch that some ranks have not reached, or have left."""
    here = [
        state
        if state["epoch"] == epoch
        else {**state, "at": ENDLESS if state["epoch"] > epoch else 0, "held": []}
        for state in states
    ]
    return old.remaining(*_taken(here, old, grouping, None))


def _in_one_epoch(ranks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the states of the ranks of one run.

    A rank at the very start of an epoch, while others are still in the previous one, has
    taken all of the previous one.
    """
    epoch = min(int(state["epoch"]) for state in ranks)
    here = next(state for state in ranks if state["epoch"] == epoch)
    everything = {"at": ENDLESS, "held": [], "given": 0}
    aligned = [
        {**state, **{key: here[key] for key in ("epoch", "turn", "left", "ahead")}, **everything}
        if state["epoch"] == epoch + 1 and state["at"] == 0 and not state["left"]
        else state
        for state in ranks
    ]
    for key in ("epoch", "turn", "left", "ahead", "world", "block"):
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
            f"restore: there were {old.world} ranks, and these are the states of {ranks}; to "
            "resume with a different number of ranks, a pipeline that drops rows or holds them "
            "back needs the states of all: restore([state_0, state_1, ...])"
        )
    taken, held = [], list[int]()
    for state in states:
        share = replace(old, rank=state["rank"])
        taken.append(min(state["at"], len(share)))
        numbers = np.array(grouping.held_numbers(state["held"]), np.int64)
        held += share.numbers(numbers).tolist()
    return taken, held
